"""Beam search: finds sequences of high probability as a whole, where greedy search maximises each token.

Sequences are ranked by ``log p(y | x) / lp(y)`` with ``lp(y) = ((5 + |y|) / 6)^α`` (Wu et al. 2016, section 7), where
``|y|`` counts the end token. ``α = 0`` ranks by probability alone; a larger value favours longer sequences.
"""

from dataclasses import dataclass, field

import torch

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.decoding.generation import GenerationBatch, evaluating, start_generation
from universal_transformer.decoding.ids import Source
from universal_transformer.decoding.options import DEFAULTS, DecodingOptions
from universal_transformer.errors import refuse
from universal_transformer.models.call import Generated, score_divisor
from universal_transformer.models.model import Model


@dataclass
class BestSequences:
    """The best sequences of one row so far, best first; those cut off at ``limit`` tokens follow those that ended."""

    limit: int
    source_steps: list[float]
    num_results: int
    length_penalty: float
    results: list[Generated] = field(default_factory=list)

    def exceeds_worst(self, log_probability: float, *, length: int) -> bool:
        """Whether a sequence of ``length`` tokens, with its end, would be one of the results."""
        if len(self.results) < self.num_results or not self.results[-1].finished:
            return log_probability > float("-inf")
        divisor = score_divisor(length, length_penalty=self.length_penalty)
        return log_probability / divisor > self.results[-1].penalised_score

    def add(self, parts: list[list[float]], *, finished: bool) -> None:
        """Insert a sequence (token, score and steps of each, its end too); remove the worst beyond ``num_results``."""
        tokens, scores, steps = (list(part) for part in zip(*parts, strict=True))
        self.results.append(
            Generated(
                tokens=[int(token) for token in tokens[: len(tokens) - finished]],
                finished=finished,
                token_scores=scores,
                token_steps=steps,
                source_steps=self.source_steps,
                length_penalty=self.length_penalty,
            )
        )
        self.results.sort(key=lambda result: (not result.finished, -result.penalised_score))
        del self.results[self.num_results :]


@dataclass
class Hypotheses:
    """The hypotheses that have not ended, equally many for each row that is still searched, in row order.

    ``parts``: each token, its score and its steps.
    """

    log_probability: Float[Tensor, "rows beams"]
    parts: Float[Tensor, "rows beams length 3"]

    @property
    def length(self) -> int:
        return self.parts.shape[2]


def beam_search(
    model: Model, source: Source, options: DecodingOptions = DEFAULTS, *, num_results: int = 1
) -> list[list[Generated]]:
    """The ``num_results`` best sequences found for each row of ``source``, best first.

    Of the ``2 * beams`` likeliest continuations of a row, as in tensor2tensor, those that ended are candidates for the
    results, and the first ``beams`` others go on: no hypothesis ends by an unlikely token, which a small length
    penalty would prefer. A row is done when no running hypothesis can exceed its results: the log-probability of a
    hypothesis never rises, so that its score is at most that log-probability over the penalty of the greatest length.
    Sequences cut off at ``max_new_tokens`` (end token included) follow all sequences that ended.
    ``source`` (ids) and the other options are as in :func:`~universal_transformer.decoding.sampling.generate`.

    Raises UserError for what ``generate`` refuses, and for ``num_results`` outside ``[1, beams]``.
    """
    beams = options.num_beams
    temperature = options.sampling.temperature
    refuse(
        (not 1 <= num_results <= beams, f"num_results={num_results}: 1 to beams={beams}"),
        (temperature > 0, f"temperature={temperature:g}: a beam search draws no tokens; leave it out"),
    )
    with evaluating(model):
        batch = start_generation(model, source, options)
        best = [
            BestSequences(limit, steps, num_results, options.length_penalty)
            for limit, steps in zip(batch.limits, batch.source_steps, strict=True)
        ]
        _search(batch, best, beams=beams)
    return [row.results for row in best]


def _search(batch: GenerationBatch, best: list[BestSequences], *, beams: int) -> None:
    """Search until every row is done. Rows that are done are removed from the batch."""
    rows, start = len(best), batch.log_probabilities
    running = Hypotheses(start.new_zeros(rows, 1), start.new_zeros(rows, 1, 0, 3, dtype=torch.float64))
    while True:
        running, parents, chosen = _extend(batch, running, best, beams=beams)
        totals, open_rows = running.log_probability.tolist(), []
        for place, row in enumerate(best):
            if running.length < row.limit:
                if row.exceeds_worst(totals[place][0], length=row.limit):
                    open_rows.append(place)
                continue
            for parts, total in zip(running.parts[place].tolist(), totals[place], strict=True):
                if total > float("-inf"):
                    row.add(parts, finished=False)
        if not open_rows:
            return
        best, index = [best[place] for place in open_rows], torch.tensor(open_rows, device=chosen.device)
        running = Hypotheses(running.log_probability[index], running.parts[index])
        batch.state.reorder(parents[index].flatten())
        batch.advance(chosen[index].flatten())


def _extend(
    batch: GenerationBatch, running: Hypotheses, best: list[BestSequences], *, beams: int
) -> tuple[Hypotheses, Int[Tensor, "rows beams"], Int[Tensor, "rows beams"]]:
    """The likeliest that go on, the row of the batch that each extends, its token; those that ended go to ``best``."""
    end_id = batch.model.config.vocabulary.end_id
    (rows, width), (_, classes) = running.log_probability.shape, batch.log_probabilities.shape
    totals = (running.log_probability.view(-1, 1) + batch.log_probabilities).view(rows, -1)
    likeliest, flat = totals.topk(min(2 * beams, width * classes), dim=1)
    beam, chosen = flat // classes, flat % classes
    scores = batch.log_probabilities.view(rows, -1).gather(1, flat)
    steps = batch.steps.view(rows, width).gather(1, beam)
    new = torch.stack((chosen.double(), scores.double(), steps.double()), dim=-1)
    before = running.parts.gather(1, beam[:, :, None, None].expand(-1, -1, running.length, 3))
    parts, ended = torch.cat((before, new.unsqueeze(2)), dim=2), chosen == end_id
    for place, candidate in ended.nonzero().tolist():
        if best[place].exceeds_worst(likeliest[place, candidate].item(), length=running.length + 1):
            best[place].add(parts[place, candidate].tolist(), finished=True)
    # a hypothesis ends in one way only: of 2 * beams candidates, at least as many go on as there are beams
    going_on = ended.int().sort(dim=1, stable=True).indices[:, :beams]
    index = torch.arange(rows, device=beam.device).unsqueeze(1)
    running = Hypotheses(likeliest.masked_fill(ended, float("-inf")).gather(1, going_on), parts[index, going_on])
    return running, (index * width + beam).gather(1, going_on), chosen.gather(1, going_on)
