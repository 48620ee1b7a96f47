"""Continuous batching over depth, for a server: requests that arrive at different times are generated in a fixed number
of rows that do not wait for each other.

In one call of the block every row makes one depth step of its own token. A row whose token has halted goes on to the
next token, and a row whose sequence has ended takes the next request. The result of a request is what
:func:`~universal_transformer.decoding.sampling.generate` returns for it alone.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from universal_transformer.axes import Int, Tensor
from universal_transformer.decoding.generation import (
    check_model,
    evaluating,
    next_log_probabilities,
    prepared,
    start_generation,
)
from universal_transformer.decoding.options import DEFAULTS, DecodingOptions
from universal_transformer.decoding.sampling import Continuation, continuations, extend
from universal_transformer.errors import UserError
from universal_transformer.execution.stream import RowStream
from universal_transformer.files import show
from universal_transformer.models.call import Generated
from universal_transformer.models.model import Model
from universal_transformer.models.target import DecoderState, TargetSide

Request = tuple[int, Sequence[int]]
"""A number, which names the request in the results and with the seed decides all draws, and the tokens to continue: the
source of an EncoderDecoder, or the prompt of a LanguageModel. ``enumerate(prompts)`` gives requests."""


@dataclass
class Job:
    """A request that has its first token. Its cache is row ``row`` of ``state`` until a row of the stream is free.

    ``fed`` tokens are in that cache; ``next`` is the next token to feed.
    """

    number: int
    sequence: Continuation
    state: DecoderState
    row: int
    fed: int
    next: int


def generate_stream(
    model: Model,
    requests: Iterable[Request],
    *,
    slots: int = 16,
    capacity: int,
    options: DecodingOptions = DEFAULTS,
) -> Iterator[tuple[int, Generated]]:
    """Yield the number and the result of each request, as soon as it is done.

    ``slots`` sequences are generated at a time, each of up to ``capacity`` tokens (start token and prompt included; the
    last new token is not stored). Requests are read when rows are free, ``slots`` at a time.

    Raises UserError for what ``generate`` refuses, for a request that does not fit ``capacity``, under autocast, and
    for a model whose rows cannot be at different steps
    (:func:`~universal_transformer.execution.stream.stream_obstacle`): ``generate`` serves it.
    """
    for name, value in (("slots", slots), ("capacity", capacity)):
        if type(value) is not int or value < 1:
            raise UserError(f"{name}={show(value)}: at least 1, a whole number")
    check_model(model)
    options.depth.check(model.config)
    if not isinstance(model.target, TargetSide) or model.target.config.outputs.kind != "tokens":
        raise UserError(f"a model of kind {model.config.kind}: rows cannot be at different depth steps; use generate")
    if torch.is_autocast_enabled(next(model.parameters()).device.type):
        raise UserError("rows cannot be at different depth steps under autocast; use generate")
    return iter(ContinuousBatch(model, iter(requests), slots=slots, capacity=capacity, options=options))


class ContinuousBatch:
    """Requests and the rows they run in: ``jobs[row]`` is that of each row, None before the first."""

    def __init__(
        self, model: Model, requests: Iterator[Request], *, slots: int, capacity: int, options: DecodingOptions
    ) -> None:
        self.model, self.options = prepared(model), options
        self.requests, self.slots, self.capacity = requests, slots, capacity
        target = self.model.target
        depth = options.depth.of(target.recurrence, head=target.head)
        self.stream = RowStream(target.recurrence, rows=slots, capacity=capacity, depth=depth)
        self.jobs: list[Job | None] = [None] * slots
        self.waiting: deque[Job] = deque()

    def __iter__(self) -> Iterator[tuple[int, Generated]]:
        while True:
            with evaluating(self.model):
                done = self.work()
            if not done:
                return
            yield from done

    def work(self) -> list[tuple[int, Generated]]:
        """Make steps until a request is done; nothing when no request is left."""
        done: list[tuple[int, Generated]] = []
        while not done:
            free = [row for row, job in enumerate(self.jobs) if job is None or job.sequence.done]
            while len(self.waiting) < len(free) and (chunk := list(islice(self.requests, self.slots))):
                done += self.prepare(chunk)
            if free:
                self.admit(free)
            if not self.jobs:
                break
            done += self.step()
        return done

    def prepare(self, requests: Sequence[Request]) -> list[tuple[int, Generated]]:
        """Encode sources and feed prompts, together. The results of those that end with their first token."""
        numbers, tokens = zip(*requests, strict=True)
        session = start_generation(self.model, tokens, self.options, reserve=False)
        state: DecoderState = session.state
        fed = state.lengths.tolist()
        for number, given, limit in zip(numbers, fed, session.limits, strict=True):
            if given + limit - 1 > self.capacity:
                raise UserError(
                    f"request {number}: {given} tokens and up to {limit} new ones do not fit capacity={self.capacity}: "
                    f"at least {given + limit - 1} is needed, or fewer max_new_tokens"
                )
        sampling = self.options.sampling
        sequences = continuations(session, sampling=sampling, numbers=numbers)
        chosen = extend(sequences, session.log_probabilities, session.steps, sampling=sampling).tolist()
        jobs = [Job(number, sequences[row], state, row, fed[row], chosen[row]) for row, number in enumerate(numbers)]
        self.waiting += [job for job in jobs if not job.sequence.done]
        return [(job.number, job.sequence.result) for job in jobs if job.sequence.done]

    def admit(self, free: list[int]) -> None:
        """Move waiting requests to rows that are ``free``; those that stay free are removed."""
        taken = [(row, self.waiting.popleft()) for row in free[: len(self.waiting)]]
        for row, job in taken:
            self.stream.load(job.state.cache, job.state.source, sequence=job.row, fed=job.fed, at=row)
            self.jobs[row] = job
        if taken:
            starts = [(row, job.next, job.fed) for row, job in taken]
            rows, tokens, places = torch.tensor(starts, device=self.stream.position.device).unbind(1)
            self._feed(tokens, at=rows, place=places)
        if left := set(free[len(taken) :]):
            kept = [row for row in range(len(self.jobs)) if row not in left]
            self.stream.keep(torch.tensor(kept, dtype=torch.long, device=self.stream.position.device))
            self.jobs = [self.jobs[row] for row in kept]

    def _feed(self, tokens: Int[Tensor, "fed"], *, at: Int[Tensor, "fed"], place: Int[Tensor, "fed"]) -> None:
        """Start tokens in the rows ``at``."""
        self.stream.enter(self.model.target.embedding(tokens.unsqueeze(0)).squeeze(0), at=at, position=place)

    def step(self) -> list[tuple[int, Generated]]:
        """One call of the block, then the next token of rows whose token is finished. Returns finished requests."""
        ended = self.stream.step()
        rows: list[int] = ended.tolist()
        if not rows:
            return []
        states, steps, places = self.stream.result(ended)
        logits = self.model.target.logits(states.unsqueeze(0)).squeeze(0)
        jobs = [job for row in rows if (job := self.jobs[row]) is not None]
        following = next_log_probabilities(logits, config=self.model.config)
        chosen = extend([job.sequence for job in jobs], following, steps, sampling=self.options.sampling)
        goes_on = torch.tensor([not job.sequence.done for job in jobs], device=ended.device)
        if bool(goes_on.any()):
            self._feed(chosen[goes_on], at=ended[goes_on], place=places[goes_on] + 1)
        return [(job.number, job.sequence.result) for job in jobs if job.sequence.done]
