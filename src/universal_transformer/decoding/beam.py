"""Beam search: finds sequences of high probability as a whole, where greedy search maximises each token.

Sequences are ranked by ``log p(y | x) / lp(y)`` with ``lp(y) = ((5 + |y|) / 6)^α`` (Wu et al. 2016, section 7), where
``|y|`` counts the end token. ``α = 0`` ranks by probability alone; a larger value favours longer sequences.
"""

from dataclasses import dataclass, field

import torch

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.decoding.generation import GenerationBatch, Source, evaluating, start_generation
from universal_transformer.decoding.options import DEFAULTS, DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.models.generated import Generated
from universal_transformer.models.model import Model


def score_divisor(length: int, *, length_penalty: float) -> float:
    """``lp(y) = ((5 + length) / 6)^length_penalty``."""
    return ((5 + length) / 6) ** length_penalty


@dataclass
class BestSequences:
    """The best sequences of one row so far, best first: those that ended, and those cut off at ``limit`` tokens."""

    limit: int
    source_steps: list[float]
    num_results: int
    length_penalty: float
    ended: list[Generated] = field(default_factory=list)
    cut: list[Generated] = field(default_factory=list)

    def worst(self) -> float:
        """The penalised score that a better sequence must exceed; minus infinity while there are too few results."""
        return self.ended[-1].penalised_score if len(self.ended) == self.num_results else float("-inf")

    def add(self, tokens: list[int], *, scores: list[float], steps: list[float], finished: bool) -> None:
        """Insert a sequence, and remove the worst one beyond ``num_results``; ``scores`` and ``steps`` of its tokens
        include those of its end.
        """
        group, score = self.ended if finished else self.cut, sum(scores)
        group.append(
            Generated(
                tokens=tokens,
                score=score,
                penalised_score=score / score_divisor(len(scores), length_penalty=self.length_penalty),
                finished=finished,
                token_scores=scores,
                token_steps=steps,
                source_steps=self.source_steps,
            )
        )
        group.sort(key=lambda other: -other.penalised_score)
        del group[self.num_results :]


@dataclass
class Hypotheses:
    """The hypotheses that have not ended, equally many for each row that is still searched, in row order."""

    tokens: Int[Tensor, "rows beams length"]
    log_probability: Float[Tensor, "rows beams"]
    scores: Float[Tensor, "rows beams length"]
    steps: Float[Tensor, "rows beams length"]

    @property
    def length(self) -> int:
        """Tokens of each hypothesis."""
        return self.tokens.shape[2]

    def of(self, row: int, beam: int) -> tuple[list[int], list[float], list[float]]:
        """Return the tokens of one hypothesis, with their scores and steps."""
        parts = (self.tokens, self.scores, self.steps)
        tokens, scores, steps = (part[row, beam].tolist() for part in parts)
        return tokens, scores, steps


def beam_search(
    model: Model, source: Source, options: DecodingOptions = DEFAULTS, *, num_results: int = 1
) -> list[list[Generated]]:
    """Return the ``num_results`` best sequences found for each row of ``source``, best first.

    At every length the likeliest hypotheses that have not ended are continued, ``options.beams`` of them, and each of
    them followed by the end token is a candidate for the results. A row is done when no running hypothesis can exceed
    its results: the log-probability of a hypothesis never rises, so that its score is at most that log-probability over
    the penalty of the greatest length. Sequences cut off at ``max_new_tokens`` (end token included) follow all
    sequences that ended.
    ``source`` and the other options are as in :func:`~universal_transformer.decoding.sampling.generate`.

    Raises UserError for what ``generate`` refuses, and for ``num_results`` outside ``[1, beams]``.
    """
    beams = options.num_beams
    if not 1 <= num_results <= beams:
        raise UserError(f"num_results={num_results}: 1 to beams={beams}")
    if options.sampling.temperature > 0:
        raise UserError(f"temperature={options.sampling.temperature:g}: a beam search draws no tokens; leave it out")
    with evaluating(model):
        batch = start_generation(model, source, options)
        best = [
            BestSequences(limit, steps, num_results, options.length_penalty)
            for limit, steps in zip(batch.limits, batch.source_steps, strict=True)
        ]
        _search(batch, best, beams=beams)
    return [[*row.ended, *row.cut][:num_results] for row in best]


def _search(batch: GenerationBatch, best: list[BestSequences], *, beams: int) -> None:
    """Search until every row is done. Rows that are done are removed from the batch."""
    rows, start = len(best), batch.log_probabilities
    running = Hypotheses(
        tokens=torch.zeros(rows, 1, 0, dtype=torch.long, device=start.device),
        log_probability=start.new_zeros(rows, 1),
        scores=start.new_zeros(rows, 1, 0),
        steps=batch.steps.new_zeros(rows, 1, 0),
    )
    while best:
        _add_ended(batch, running, best)
        running, parents, chosen = _extend(batch, running, beams=beams)
        highest = running.log_probability[:, 0].tolist()
        open_rows = []
        for place, row in enumerate(best):
            if running.length == row.limit:
                _add_cut(running, row, place=place)
            elif highest[place] / score_divisor(row.limit, length_penalty=row.length_penalty) > row.worst():
                open_rows.append(place)
        best = [best[place] for place in open_rows]
        if not best:
            return
        index = torch.tensor(open_rows, device=chosen.device)
        running = Hypotheses(*(part[index] for part in vars(running).values()))
        batch.keep(parents[index].flatten())
        batch.advance(chosen[index].flatten())


def _add_ended(batch: GenerationBatch, running: Hypotheses, best: list[BestSequences]) -> None:
    """Add every running hypothesis, followed by the end token, to the results of its row if it is good enough."""
    ending = batch.log_probabilities[:, batch.model.config.vocabulary.end_id].view_as(running.log_probability)
    steps = batch.steps.view_as(ending).to(ending.dtype)
    parts = torch.stack((running.log_probability + ending, ending, steps), dim=-1).tolist()
    for place, row in enumerate(best):
        divisor = score_divisor(running.length + 1, length_penalty=row.length_penalty)
        for beam, (total, score, made) in enumerate(parts[place]):
            if total / divisor > row.worst():
                tokens, scores, steps_before = running.of(place, beam)
                row.add(tokens, scores=[*scores, score], steps=[*steps_before, made], finished=True)


def _add_cut(running: Hypotheses, row: BestSequences, *, place: int) -> None:
    """Add the hypotheses of a row that has reached its limit."""
    for beam, total in enumerate(running.log_probability[place].tolist()):
        if total > float("-inf"):
            tokens, scores, steps = running.of(place, beam)
            row.add(tokens, scores=scores, steps=steps, finished=False)


def _extend(
    batch: GenerationBatch, running: Hypotheses, *, beams: int
) -> tuple[Hypotheses, Int[Tensor, "rows chosen"], Int[Tensor, "rows chosen"]]:
    """Return the likeliest continuations that do not end, the row of the batch that each extends, and its new token."""
    rows, width, length = running.tokens.shape
    classes = batch.log_probabilities.shape[1]
    going_on = batch.log_probabilities.clone()
    going_on[:, batch.model.config.vocabulary.end_id] = float("-inf")
    totals = running.log_probability.unsqueeze(2) + going_on.view(rows, width, classes)
    log_probability, flat = totals.flatten(1).topk(min(beams, width * classes), dim=1)
    beam, chosen = flat // classes, flat % classes
    first = torch.arange(rows, device=beam.device).unsqueeze(1) * width

    def longer(parts: Tensor, last: Tensor) -> Tensor:
        parents = parts.gather(1, beam.unsqueeze(2).expand(-1, -1, length))
        return torch.cat((parents, last.unsqueeze(2)), dim=2)

    scores = going_on[(first + beam).flatten(), chosen.flatten()].view_as(log_probability)
    extended = Hypotheses(
        tokens=longer(running.tokens, chosen),
        log_probability=log_probability,
        scores=longer(running.scores, scores),
        steps=longer(running.steps, batch.steps.view(rows, width).gather(1, beam)),
    )
    return extended, first + beam, chosen
