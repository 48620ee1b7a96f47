"""Generation: greedy search, sampling, and the best sequences of a beam search.

The next token is drawn from ``p(v) ∝ softmax(z / τ)(v)`` for ``v`` in a set of likely tokens and 0 outside of it:
``τ`` is the temperature, and the set holds the ``top_k`` likeliest tokens, cut to the smallest part of them whose
probabilities sum to at least ``top_p`` (the nucleus; Holtzman et al. 2020). ``τ = 0`` takes the likeliest token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.decoding.beam import beam_search
from universal_transformer.decoding.generation import GenerationBatch, evaluating, start_generation
from universal_transformer.decoding.ids import Source, are_texts, encoded
from universal_transformer.decoding.options import DEFAULTS, DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.models.call import LENGTH_PENALTY, Generated, Sampling
from universal_transformer.models.model import Model


def filtered_distribution(
    logits: Float[Tensor, "rows classes"], *, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> Float[Tensor, "rows classes"]:
    """``p(v) = softmax(z / τ)(v) / Z`` for ``v`` in ``K ∩ N``, else 0, in float64.

    ``z`` are ``logits`` (log-probabilities do as well), ``τ`` is ``temperature > 0``. ``K`` holds the ``top_k``
    likeliest tokens (None: all), lower ids first among equals. ``N``, the nucleus, is the smallest set of likeliest
    tokens of ``K`` whose share of K's probability is at least ``top_p``. ``Z`` makes the sum 1.
    """
    scaled = logits.double()
    if temperature != 1.0:
        scaled = (scaled - scaled.amax(dim=-1, keepdim=True)) / temperature
    if top_k is None and top_p == 1.0:
        return scaled.softmax(dim=-1)
    ranked, order = scaled.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ranked[..., top_k:] = float("-inf")
    probability = ranked.softmax(dim=-1)
    if top_p < 1.0:
        before = probability.cumsum(dim=-1) - probability
        before[..., 0] = 0.0  # the likeliest token always stays
        probability = probability.masked_fill(before >= top_p - 1e-12, 0.0)  # sums are rounded
        probability = probability / probability.sum(dim=-1, keepdim=True)
    return torch.zeros_like(probability).scatter(-1, order, probability)


def pick(probability: Float[Tensor, "rows classes"], draws: Float[Tensor, "rows"]) -> Int[Tensor, "rows"]:
    """The token at which the cumulative probability first exceeds ``draws``, each uniform over [0, 1)."""
    cumulative = probability.cumsum(dim=-1)
    total = cumulative[:, -1:].contiguous()
    chosen = torch.searchsorted(cumulative, draws.unsqueeze(1) * total, right=True)
    last = torch.searchsorted(cumulative, total)  # the last token that is possible at all
    return torch.minimum(chosen, last).squeeze(1)


def generate(
    model: Model,
    source: Source | Sequence[str],
    options: DecodingOptions = DEFAULTS,
    *,
    indices: Sequence[int] | None = None,
) -> list[Generated]:
    """The best sequence that is found for each row of ``source``.

    ``source`` holds the source ids of an EncoderDecoder, or the prompts of a LanguageModel, which get the start token
    if they do not begin with it; only the continuation is returned. It is a tensor ``[batch, position]``, padded, or a
    list of ids for each row, or, for a model with a codec, a list of texts. A row ends with the end token or after
    ``options.max_new_tokens`` (end token included; by default as many as ``model.target.limit`` allows). ``indices``
    are the numbers of the rows (by default 0, 1, 2 …). The draws for a row depend on the seed and on its number alone,
    so that the other rows of the batch do not change them.

    Raises UserError for no rows, an empty source, sources of another type or shape than the model reads, ids outside of
    the vocabulary, ``max_new_tokens`` beyond a learned table of positions, more or fewer ``indices`` than rows, a
    depth, threshold or exit that does not fit the model, a model that cannot generate, and logits that are not finite.
    """
    rows: Any = source
    if texts := are_texts(source):
        rows = encoded(rows, model=model)
    if options.num_beams > 1:
        found = [best for best, *_ in beam_search(model, rows, options)]
    elif options.length_penalty != LENGTH_PENALTY:
        raise UserError(f"length_penalty={options.length_penalty} is for a beam search: give 2 beams or more")
    else:
        found = _token_by_token(model, rows, options, indices=indices)
    return [replace(row, text=model.codec.render(row.tokens)) for row in found] if texts else found


def _token_by_token(
    model: Model, source: Source, options: DecodingOptions, *, indices: Sequence[int] | None
) -> list[Generated]:
    with evaluating(model):
        batch = start_generation(model, source, options)
        inside = rows = _continuations(batch, sampling=options.sampling, numbers=indices)
        while True:
            chosen = extend(inside, batch.log_probabilities, batch.steps)
            running = [place for place, row in enumerate(inside) if not row.done]
            if not running:
                break
            if 2 * len(running) <= len(inside):  # until then, rows that are done are fed padding
                index = torch.tensor(running, device=chosen.device)
                batch.state.reorder(index)
                chosen, inside = chosen[index], [inside[place] for place in running]
            batch.advance(chosen, done=torch.tensor([row.done for row in inside], device=chosen.device))
    return [row.result for row in rows]


@dataclass
class Continuation:
    """A sequence that is being generated: up to ``limit`` tokens, ``end_id`` included. The seed of ``sampling`` and
    ``number`` make its draws.

    ``likeliest``: as many of the likeliest tokens are noted for each token, with their scores, in ``noted``.
    """

    limit: int
    end_id: int
    sampling: Sampling
    number: int
    result: Generated
    likeliest: int = 0
    noted: list[list[tuple[int, float]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(f"{self.sampling.seed} {self.number}")  # text, so that (1, 12) is not (11, 2)

    @property
    def done(self) -> bool:
        return self.result.finished or len(self.result.tokens) == self.limit

    @property
    def drawn_from(self) -> tuple[float, int | None, float]:
        """What decides the distribution that its tokens are drawn from."""
        return self.sampling.temperature, self.sampling.top_k, self.sampling.top_p

    def add(self, token: int, *, score: float, steps: float) -> None:
        """Append a token, or mark the sequence as finished if it is the end token."""
        self.result.token_scores.append(score)
        self.result.token_steps.append(steps)
        if token == self.end_id:
            self.result.finished = True
        else:
            self.result.tokens.append(token)


def _continuations(batch: GenerationBatch, *, sampling: Sampling, numbers: Sequence[int] | None) -> list[Continuation]:
    """Empty continuations of the rows of ``batch``, whose numbers are by default 0, 1, 2 …."""
    limits, end_id = batch.limits, batch.model.config.vocabulary.end_id
    numbers = range(len(limits)) if numbers is None else numbers
    if len(numbers) != len(limits):
        raise UserError(f"indices numbers {len(numbers)} rows, but there are {len(limits)}")
    rows = zip(limits, numbers, batch.source_steps, strict=True)
    return [
        Continuation(limit, end_id, sampling, number, Generated(source_steps=steps)) for limit, number, steps in rows
    ]


def extend(
    rows: Sequence[Continuation],
    log_probabilities: Float[Tensor, "rows classes"],
    steps: Float[Tensor, "rows"],
) -> Int[Tensor, "rows"]:
    """Append a token to each row that is not done; the tokens. ``steps``: the depth steps of each."""
    chosen, drawing = log_probabilities.argmax(dim=-1), dict[tuple[float, int | None, float], list[int]]()
    for place, row in enumerate(rows):
        if row.sampling.temperature > 0.0 and not row.done:
            drawing.setdefault(row.drawn_from, []).append(place)
    for (temperature, top_k, top_p), places in drawing.items():
        index = torch.tensor(places, device=chosen.device)
        probability = filtered_distribution(
            log_probabilities.index_select(0, index), temperature=temperature, top_k=top_k, top_p=top_p
        )
        draws = torch.tensor([rows[place].random.random() for place in places], dtype=torch.float64)
        chosen[index] = pick(probability, draws.to(index.device))
    if most := max(row.likeliest for row in rows):
        best = log_probabilities.topk(min(most, log_probabilities.shape[-1]), dim=-1)
        for row, ids, values in zip(rows, best.indices.tolist(), best.values.tolist(), strict=True):
            if row.likeliest and not row.done:
                row.noted.append(list(zip(ids, values, strict=True))[: row.likeliest])
    scores = log_probabilities.gather(1, chosen.unsqueeze(1)).squeeze(1)
    for row, token, score, made in zip(rows, chosen.tolist(), scores.tolist(), steps.tolist(), strict=True):
        if not row.done:
            row.add(token, score=score, steps=made)
    return chosen
