"""Continuous batching over depth, for a server: requests that arrive at different times are generated in a fixed number
of rows that do not wait for each other (for looped language models: Schwethelm et al. 2026, arXiv 2608.09444).

In one call of the block every row makes one depth step of its own token. A row whose token has halted goes on to the
next token, and a row whose sequence has ended takes the next request. The result of a request is what
:func:`~universal_transformer.decoding.sampling.generate` returns for it alone.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import torch

from universal_transformer.axes import Int, Tensor
from universal_transformer.decoding.generation import (
    check_model,
    evaluating,
    next_log_probabilities,
    prepared,
    start_generation,
)
from universal_transformer.decoding.ids import lengths_of, prompts_of, sources_of
from universal_transformer.decoding.options import DEFAULTS, DecodingOptions
from universal_transformer.decoding.sampling import Continuation, extend
from universal_transformer.errors import UserError, refuse
from universal_transformer.execution.stream import RowStream
from universal_transformer.files import show
from universal_transformer.models.call import GREEDY, Generated
from universal_transformer.models.model import Model
from universal_transformer.models.target import DecoderState, TargetSide


@dataclass(frozen=True)
class Request:
    """What is continued: the source of an EncoderDecoder, or the prompt of a LanguageModel.

    ``number`` and the seed of its options decide all draws. ``likeliest``: tokens that are noted for each token
    (:class:`~universal_transformer.decoding.sampling.Continuation`).
    """

    number: int
    tokens: Sequence[int]
    options: DecodingOptions = DEFAULTS
    likeliest: int = 0


@dataclass(eq=False)
class Job:
    """A request that has its first token, and all that it has by now."""

    request: Request
    sequence: Continuation
    cancelled: bool = False

    @property
    def over(self) -> bool:
        """Whether its row is free for another request."""
        return self.cancelled or self.sequence.done


class Waiting(NamedTuple):
    """A job until a row is free. Its cache is row ``row`` of ``state``, with ``fed`` tokens; ``next`` is fed next."""

    job: Job
    state: DecoderState
    row: int
    fed: int
    next: int


def generate_stream(
    model: Model,
    requests: Iterable[tuple[int, Sequence[int]]],
    *,
    slots: int = 16,
    capacity: int,
    options: DecodingOptions = DEFAULTS,
) -> Iterator[tuple[int, Generated]]:
    """Yield the number and the result of each request, as soon as it is done.

    A request is a number and the tokens to continue: ``enumerate(prompts)`` gives requests. ``slots`` sequences are
    generated at a time, each of up to ``capacity`` tokens (start token and prompt included; the last new token is not
    stored). Requests are read when rows are free, ``slots`` at a time.

    Raises UserError for what ``generate`` refuses, for a request that does not fit ``capacity``, under autocast, and
    for a model whose rows cannot be at different steps
    (:func:`~universal_transformer.execution.stream.stream_obstacle`): ``generate`` serves it.
    """
    batch = ContinuousBatch(model, slots=slots, capacity=capacity, options=options)
    return _results(batch, (Request(number, tokens, options) for number, tokens in requests))


def _results(batch: "ContinuousBatch", requests: Iterator[Request]) -> Iterator[tuple[int, Generated]]:
    """Make steps until a request is done, until no request is left."""
    while True:
        over: list[Job] = []
        with evaluating(batch.model):
            while not over:
                while batch.free > 0 and (chunk := list(islice(requests, batch.slots))):
                    over += [job for job in batch.prepare(chunk) if job.over]
                if batch.idle:
                    break
                over += [job for job in batch.step() if job.over]
        if not over:
            return
        yield from [(job.request.number, job.sequence.result) for job in over]


class ContinuousBatch:
    """Requests and the rows they run in: ``jobs[row]`` is that of each row. The tokens of a request do not depend on
    what enters or leaves meanwhile.

    :meth:`prepare` takes requests and :meth:`step` goes on with all of them, both inside ``evaluating(batch.model)``;
    ``job.cancelled = True`` frees a row. Sampling, the largest number of new tokens and that of steps are those of each
    request, the steps up to those of ``options``, whose depth holds for all. UserError as `generate_stream`.
    """

    def __init__(self, model: Model, *, slots: int, capacity: int, options: DecodingOptions = DEFAULTS) -> None:
        for name, value in (("slots", slots), ("capacity", capacity)):
            if type(value) is not int or value < 1:
                raise UserError(f"{name}={show(value)}: at least 1, a whole number")
        check_model(model)
        options.depth.check(model.config)
        if not isinstance(model.target, TargetSide) or model.target.config.outputs.kind != "tokens":
            raise UserError(
                f"a model of kind {model.config.kind}: rows cannot be at different depth steps; use generate"
            )
        if torch.is_autocast_enabled(next(model.parameters()).device.type):
            raise UserError("rows cannot be at different depth steps under autocast; use generate")
        self.model, self.slots, self.capacity = prepared(model), slots, capacity
        target = self.model.target
        self.depth = options.depth.of(target.recurrence, head=target.head)
        self.options = replace(options, sampling=GREEDY, max_new_tokens=None)
        self.stream = RowStream(target.recurrence, rows=slots, capacity=capacity, depth=self.depth)
        self.jobs: list[Job] = []
        self.waiting: deque[Waiting] = deque()

    @property
    def free(self) -> int:
        """Rows that no job has or waits for."""
        return self.slots - sum(not job.over for job in self.jobs) - len(self.waiting)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.waiting and all(job.over for job in self.jobs)

    def limit(self, request: Request) -> int:
        """How many tokens a request may get, its end included; UserError for one that cannot be continued here."""
        options, (least, most) = request.options, (self.depth.min_steps, self.depth.max_steps)
        steps = most if options.max_steps is None else options.max_steps
        for name in ("halting_threshold", "exit"):
            if (value := getattr(options, name)) not in (None, own := getattr(self.options, name)):
                raise UserError(f"{name}={value}: requests of one stream share it; here it is {own or 'as trained'}")
        options.check(self.model)
        refuse(
            (not least <= steps <= most, f"max_steps={steps}: this stream makes {least} to {most} steps for a token"),
            (options.num_beams > 1, f"beams={options.num_beams}: a stream searches with one beam; use beam_search"),
        )
        length, fed = self._sizes(request.tokens)
        limit = self.model.target.limit(length, fed=fed, most=options.max_new_tokens)
        if fed + limit - 1 > self.capacity:
            raise UserError(
                f"request {request.number}: {fed} tokens and up to {limit} new ones do not fit "
                f"capacity={self.capacity}: at least {fed + limit - 1} is needed, or fewer max_new_tokens"
            )
        return limit

    def _sizes(self, tokens: Sequence[int]) -> tuple[int, int]:
        """The length of a source or prompt, and how many tokens are fed before the first new one."""
        if self.model.source is None:
            (prompt,) = prompts_of([tokens], model=self.model)
            return len(prompt), len(prompt)
        source = sources_of([tokens], model=self.model)
        return lengths_of(source, padding_id=self.model.config.vocabulary.padding_id)[0], 1

    def room(self, tokens: Sequence[int]) -> int:
        """New tokens of a request that names no limit: as many as the model allows and as fit; at least 1."""
        length, fed = self._sizes(tokens)
        return max(1, min(self.model.target.limit(length, fed=fed), self.capacity - fed + 1))

    def prepare(self, requests: Sequence[Request]) -> list[Job]:
        """Encode sources and feed prompts, together: requests for as many steps each. All have their first token."""
        limits, end_id = list(map(self.limit, requests)), self.model.config.vocabulary.end_id
        steps = requests[0].options.max_steps or self.options.max_steps
        options = replace(self.options, max_steps=steps)
        session = start_generation(self.model, [request.tokens for request in requests], options, reserve=False)
        state: DecoderState = session.state
        jobs = [
            Job(
                request,
                Continuation(
                    limit,
                    end_id,
                    request.options.sampling,
                    request.number,
                    Generated(source_steps=taken),
                    likeliest=request.likeliest,
                ),
            )
            for request, limit, taken in zip(requests, limits, session.source_steps, strict=True)
        ]
        chosen = extend([job.sequence for job in jobs], session.log_probabilities, session.steps).tolist()
        starts = enumerate(zip(jobs, state.lengths.tolist(), chosen, strict=True))
        self.waiting += [Waiting(job, state, row, fed, token) for row, (job, fed, token) in starts if not job.over]
        return jobs

    def step(self) -> list[Job]:
        """One call of the block, then the next token of rows whose token is finished. Returns the jobs that have one
        more.
        """
        self._admit()
        if not self.jobs:
            return []
        ended = self.stream.step()
        rows: list[int] = ended.tolist()
        if not rows:
            return []
        states, steps, places = self.stream.result(ended)
        logits = self.model.target.logits(states.unsqueeze(0)).squeeze(0)
        jobs = [self.jobs[row] for row in rows]
        chosen = extend([job.sequence for job in jobs], next_log_probabilities(logits, config=self.model.config), steps)
        goes_on = torch.tensor([not job.over for job in jobs], device=ended.device)
        if bool(goes_on.any()):
            self._feed(chosen[goes_on], at=ended[goes_on], place=places[goes_on] + 1)
        return jobs

    def clear(self) -> None:
        """Give up all requests."""
        self.jobs = []
        self.waiting.clear()
        self.stream.keep(torch.arange(0, device=self.stream.position.device))

    def _admit(self) -> None:
        """Move waiting jobs to rows that are free; rows that stay free are removed."""
        if any(entry.job.cancelled for entry in self.waiting):
            self.waiting = deque(entry for entry in self.waiting if not entry.job.cancelled)
        device, vacant = self.stream.position.device, [row for row, job in enumerate(self.jobs) if job.over]
        most = len(vacant) + self.slots - len(self.jobs)
        entering = [self.waiting.popleft() for _ in range(min(len(self.waiting), most))]
        if more := entering[len(vacant) :]:
            self.stream.grow(len(more))
            vacant += range(len(self.jobs), len(self.jobs) + len(more))
            self.jobs += [entry.job for entry in more]
        for row, (job, state, sequence, fed, _) in zip(vacant, entering, strict=False):
            depth, self.jobs[row] = state.depth.max_steps, job
            self.stream.load(state.cache, state.source, sequence=sequence, fed=fed, at=row, max_steps=depth)
        if entering:
            starts = [(row, entry.next, entry.fed) for row, entry in zip(vacant, entering, strict=False)]
            rows, tokens, places = torch.tensor(starts, device=device).unbind(1)
            self._feed(tokens, at=rows, place=places)
        if left := set(vacant[len(entering) :]):
            kept = [row for row in range(len(self.jobs)) if row not in left]
            self.stream.keep(torch.tensor(kept, dtype=torch.long, device=device))
            self.jobs = [self.jobs[row] for row in kept]

    def _feed(self, tokens: Int[Tensor, "fed"], *, at: Int[Tensor, "fed"], place: Int[Tensor, "fed"]) -> None:
        """Start tokens in the rows ``at``."""
        self.stream.enter(self.model.target.embedding(tokens.unsqueeze(0)).squeeze(0), at=at, position=place)
