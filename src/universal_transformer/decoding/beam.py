"""Beam search: the likeliest sequences rather than the likeliest next tokens.

``score(y | x) = log p(y | x) / lp(y)`` with ``lp(y) = ((5 + |y|) / 6)^α`` (Wu et al. 2016, section 7), ``|y|`` counting
the end token. ``α = 0`` ranks by probability alone; a larger one favours longer sequences.
"""

from dataclasses import dataclass, field

import torch

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.decoding.session import (
    Generated,
    Generator,
    Session,
    Source,
    evaluating,
    open_session,
)
from universal_transformer.errors import UserError


def length_penalty(length: int, *, alpha: float) -> float:
    """``((5 + length) / 6)^alpha``."""
    return ((5 + length) / 6) ** alpha


@dataclass
class Found:
    """The best sequences of one row so far, best first; those that ended stand before those cut off."""

    limit: int
    source_steps: list[float]
    ended: list[Generated] = field(default_factory=list)
    cut: list[Generated] = field(default_factory=list)

    def worst(self, results: int) -> float:
        """The score to beat; minus infinity while there are fewer than ``results``."""
        return self.ended[-1].score if len(self.ended) == results else float("-inf")

    def add(self, candidate: Generated, *, results: int) -> None:
        """Take ``candidate`` in, and let the worst beyond ``results`` go."""
        group = self.ended if candidate.finished else self.cut
        group.append(candidate)
        group.sort(key=lambda other: -other.score)
        del group[results:]


@dataclass
class Beams:
    """The running hypotheses of the rows still searched: equally many of each, in row order."""

    tokens: Int[Tensor, "rows beams length"]
    log_probability: Float[Tensor, "rows beams"]
    steps: Float[Tensor, "rows beams"]  # summed over tokens

    @property
    def length(self) -> int:
        """Tokens of each hypothesis."""
        return self.tokens.shape[2]


def beam_search(
    model: Generator,
    source: Source,
    *,
    beams: int = 4,
    alpha: float = 0.6,
    num_results: int = 1,
    max_new_tokens: int | None = None,
    max_steps: int | None = None,
    halting_threshold: float | None = None,
) -> list[list[Generated]]:
    """The ``num_results`` best sequences found for each row of ``source``, best first.

    At every length the ``beams`` likeliest hypotheses that have not ended go on, and the ending of each of them
    is a candidate for the results. A row is done when no running hypothesis can beat the results it has: the
    log-probability of a hypothesis only falls, so that over the penalty of the greatest length bounds its score.
    Sequences cut off at ``max_new_tokens`` (end token included) stand behind all that ended.
    ``source``, ``max_new_tokens``, ``max_steps`` and ``halting_threshold`` are as in
    :func:`~universal_transformer.decoding.sampling.generate`; ``alpha`` is the exponent of the length penalty.

    Raises UserError for what ``generate`` refuses, ``beams < 1``, ``num_results`` outside ``[1, beams]`` and
    ``alpha`` outside ``[0, 10]``.
    """
    if beams < 1:
        raise UserError(f"beams={beams}: at least 1")
    if not 1 <= num_results <= beams:
        raise UserError(f"num_results={num_results}: 1 to beams={beams}")
    if not 0.0 <= alpha <= 10.0:
        raise UserError(f"alpha={alpha}: an exponent of the length penalty between 0 and 10, usually 0.6")
    with evaluating(model):
        session = open_session(
            model,
            source,
            max_new_tokens=max_new_tokens,
            max_steps=max_steps,
            halting_threshold=halting_threshold,
        )
        found = [
            Found(limit, steps) for limit, steps in zip(session.limits, session.source_steps, strict=True)
        ]
        _run(session, found, beams=beams, alpha=alpha, results=num_results)
    return [[*row.ended, *row.cut][:num_results] for row in found]


def _run(session: Session, found: list[Found], *, beams: int, alpha: float, results: int) -> None:
    """Search until every row is done. Rows that are done leave the batch."""
    rows, start = len(found), session.log_probabilities
    running = Beams(
        tokens=torch.zeros(rows, 1, 0, dtype=torch.long, device=start.device),
        log_probability=start.new_zeros(rows, 1),
        steps=session.steps.new_zeros(rows, 1),
    )
    while found:
        _finish(session, running, found, alpha=alpha, results=results)
        running, parents, chosen = _extend(session, running, beams=beams)
        best = running.log_probability[:, 0].tolist()
        open_rows = []
        for place, row in enumerate(found):
            if running.length == row.limit:
                _cut(running, row, place=place, alpha=alpha, results=results)
            elif best[place] / length_penalty(row.limit, alpha=alpha) > row.worst(results):
                open_rows.append(place)
        found = [found[place] for place in open_rows]
        if not found:
            return
        index = torch.tensor(open_rows, device=chosen.device)
        running = Beams(running.tokens[index], running.log_probability[index], running.steps[index])
        session.keep(parents[index].flatten())
        session.advance(chosen[index].flatten())


def _finish(session: Session, running: Beams, found: list[Found], *, alpha: float, results: int) -> None:
    """Offer the ending of every running hypothesis to the results of its row."""
    ending = session.log_probabilities[:, session.model.config.vocabulary.end_id].view_as(
        running.log_probability
    )
    totals = (running.log_probability + ending).tolist()
    penalty = length_penalty(running.length + 1, alpha=alpha)
    for place, row in enumerate(found):
        for beam, total in enumerate(totals[place]):
            if total / penalty > row.worst(results):
                steps = running.steps[place, beam] + session.steps.view_as(running.steps)[place, beam]
                row.add(
                    Generated(
                        tokens=running.tokens[place, beam].tolist(),
                        score=total / penalty,
                        log_probability=total,
                        finished=True,
                        steps=float(steps) / (running.length + 1),
                        source_steps=row.source_steps,
                    ),
                    results=results,
                )


def _extend(
    session: Session, running: Beams, *, beams: int
) -> tuple[Beams, Int[Tensor, "rows chosen"], Int[Tensor, "rows chosen"]]:
    """The likeliest continuations that do not end, the session's row that each comes from, and its new token."""
    rows, width, length = running.tokens.shape
    classes = session.log_probabilities.shape[1]
    going_on = session.log_probabilities.clone()
    going_on[:, session.model.config.vocabulary.end_id] = float("-inf")
    totals = running.log_probability.unsqueeze(2) + going_on.view(rows, width, classes)
    log_probability, flat = totals.flatten(1).topk(min(beams, width * classes), dim=1)
    beam, chosen = flat // classes, flat % classes
    steps = running.steps + session.steps.view(rows, width)
    tokens = running.tokens.gather(1, beam.unsqueeze(2).expand(-1, -1, length))
    first = torch.arange(rows, device=beam.device).unsqueeze(1) * width
    extended = Beams(
        tokens=torch.cat((tokens, chosen.unsqueeze(2)), dim=2),
        log_probability=log_probability,
        steps=steps.gather(1, beam),
    )
    return extended, first + beam, chosen


def _cut(running: Beams, row: Found, *, place: int, alpha: float, results: int) -> None:
    """Offer the hypotheses of a row that may not get longer."""
    penalty = length_penalty(running.length, alpha=alpha)
    for beam, total in enumerate(running.log_probability[place].tolist()):
        if total > float("-inf"):
            row.add(
                Generated(
                    tokens=running.tokens[place, beam].tolist(),
                    score=total / penalty,
                    log_probability=total,
                    finished=False,
                    steps=float(running.steps[place, beam]) / running.length,
                    source_steps=row.source_steps,
                ),
                results=results,
            )
