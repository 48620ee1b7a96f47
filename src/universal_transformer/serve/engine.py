"""The thread that owns a model: requests enter between two calls of the block, and each token leaves as it is made."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from universal_transformer.data.example import Example
from universal_transformer.decoding.continuous import ContinuousBatch, Job, Request
from universal_transformer.decoding.generation import evaluating, prepared
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.pipeline import Pipeline
from universal_transformer.evaluation.prediction import predict
from universal_transformer.serve.limits import Limits
from universal_transformer.tasks.task import Prediction

SLICE = 0.02
"""Seconds of predictions between two calls of the block; a batch that is begun is finished."""


class TokenEvent(NamedTuple):
    """What a turn of the engine made of a choice: a token (None: the end), or nothing if it has failed."""

    choice: int
    token: int | None = None
    score: float = 0.0
    steps: float = 0.0
    likeliest: Sequence[tuple[int | None, float]] = ()
    finish: str | None = None
    """Why it is over: stop (an end), length (its limit); None: it goes on."""
    error: UserError | Fault | None = None


@dataclass(eq=False)
class Ticket:
    """A choice on its way: what is asked, and where its tokens go."""

    request: Request
    choice: int
    events: asyncio.Queue[TokenEvent]
    job: Job | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """Make no more of it."""
        self.cancelled = True
        if self.job is not None:
            self.job.cancelled = True


@dataclass(eq=False, kw_only=True)
class WholeCall:
    """What is answered as a whole, a while at a time. ``answers`` is completed in the loop of the server."""

    answers: asyncio.Future[list[Any]]
    cancelled: bool = False

    def cancel(self) -> None:
        """Make no more of it."""
        self.cancelled = True

    def begin(self, pipeline: Pipeline, *, batch_tokens: int) -> Iterator[Any]:
        """Yield the answers, in batches of so many positions."""
        raise NotImplementedError


@dataclass(eq=False, kw_only=True)
class PredictCall(WholeCall):
    """Inputs that are answered as by ``ut predict``."""

    examples: Sequence[Example]
    options: DecodingOptions
    num_choices: int

    def begin(self, pipeline: Pipeline, *, batch_tokens: int) -> Iterator[Prediction]:
        return predict(
            pipeline.model,
            pipeline.codec,
            self.examples,
            options=self.options,
            num_choices=self.num_choices,
            batch_tokens=batch_tokens,
        )


class Full(Exception):  # noqa: N818 - a state of the server, not a mistake
    """As many answers wait as may."""


class Fault(Exception):  # noqa: N818
    """The computation of an answer has failed; the log says why."""


@dataclass
class EngineCounts:
    """What an engine has done since it began."""

    tokens: int = 0
    steps: float = 0.0
    block_calls: int = 0
    row_steps: int = 0
    predictions: int = 0
    failures: int = 0


class Engine(threading.Thread):
    """Answers requests. `submit`, `cancel` and `stop` may be called in any thread; results arrive in the loop in which
    `start_in` was called.

    ``obstacle`` says why the rows of this model cannot be at different depth steps; None if they can.
    """

    loop: asyncio.AbstractEventLoop

    def __init__(self, pipeline: Pipeline, limits: Limits) -> None:
        super().__init__(name="engine", daemon=True)
        self.pipeline = replace(pipeline, model=prepared(pipeline.model))
        self.limits, self.counts = limits, EngineCounts()
        self.obstacle: str | None = None
        self.batch: ContinuousBatch | None = None
        try:
            self.batch = self._new_batch()
        except UserError as error:
            self.obstacle = str(error)
        self._changed = threading.Condition()
        self._tickets: deque[Ticket] = deque()
        self._questions: deque[WholeCall] = deque()
        self._sent: dict[Job, Ticket] = {}
        self._asked: BegunCall | None = None
        self._stopping = False

    def start_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread."""
        self.loop = loop
        self.start()

    def _new_batch(self) -> ContinuousBatch:
        limits, options = self.limits, replace(self.pipeline.options, beams=1)
        reach = self.pipeline.model.target.reach if self.pipeline.model.writes == "tokens" else None
        capacity = min(limits.capacity, reach or limits.capacity)
        return ContinuousBatch(self.pipeline.model, slots=limits.rows, capacity=capacity, options=options)

    @property
    def waiting(self) -> int:
        """Answers that nothing has been computed of."""
        return len(self._tickets) + len(self._questions)

    @property
    def running(self) -> int:
        """Sequences that are being continued."""
        return len(self._sent)

    def submit(self, tickets: Sequence[Ticket] = (), *, questions: Sequence[WholeCall] = ()) -> None:
        """Let choices and questions wait for their turn; `Full` if too many wait."""
        with self._changed:
            if self.waiting + len(tickets) + len(questions) > self.limits.queue or self._stopping:
                raise Full
            self._tickets += tickets
            self._questions += questions
            self._changed.notify()

    def cancel(self, given: Sequence[Ticket | WholeCall]) -> None:
        """Make no more of what was asked: its client is gone, or has enough."""
        with self._changed:
            for asked in given:
                asked.cancel()
            self._tickets = deque(ticket for ticket in self._tickets if not ticket.cancelled)
            self._questions = deque(question for question in self._questions if not question.cancelled)

    def stop(self) -> None:
        """Let the thread end as soon as nothing is left to do."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def run(self) -> None:
        """Work until `stop`."""
        with evaluating(self.pipeline.model):
            while self._wait():
                self._turn()

    def _wait(self) -> bool:
        """Wait for work; false at the end."""
        with self._changed:
            while not (self._tickets or self._questions or self._sent or self._asked):
                if self._stopping:
                    return False
                self._changed.wait()
        return True

    def _turn(self) -> None:
        """Let requests enter, make one call of the block, send the tokens, and give questions their share of time."""
        made: list[tuple[Ticket, TokenEvent]] = []
        if group := self._entering():
            made += self._start(group)
        if self.batch is not None and not self.batch.idle:
            made += self._advance(self.batch)
        for job in [job for job in self._sent if job.over]:
            del self._sent[job]
        if made:
            self._send(partial(_deliver, made))
        self._answer()

    def _send(self, call: Callable[[], None]) -> None:
        """Call in the loop of the server."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call)

    def _entering(self) -> list[Ticket]:
        """The next choices, as many as rows are free and one prefill may have; they make equally many steps."""
        group: list[Ticket] = []
        longest = 0
        with self._changed:
            while self.batch is not None and self._tickets and len(group) < self.batch.free:
                asked = self._tickets[0].request
                longest = max(longest, len(asked.tokens) + 1)
                together = not group or asked.options.max_steps == group[0].request.options.max_steps
                if group and not (together and longest * (len(group) + 1) <= self.limits.prefill):
                    break
                group.append(self._tickets.popleft())
        return group

    def _start(self, group: Sequence[Ticket]) -> list[tuple[Ticket, TokenEvent]]:
        assert self.batch is not None
        try:
            jobs = self.batch.prepare([ticket.request for ticket in group])
        except Exception as error:  # one bad request ends nothing
            return self._failed(group, error)
        for ticket, job in zip(group, jobs, strict=True):
            ticket.job = job
            if ticket.cancelled:
                job.cancelled = True
            self._sent[job] = ticket
        return list(map(self._made, jobs))

    def _advance(self, batch: ContinuousBatch) -> list[tuple[Ticket, TokenEvent]]:
        try:
            moved = batch.step()
        except Exception as error:
            tickets = list(self._sent.values())
            self._sent.clear()
            batch.clear()
            return self._failed(tickets, error)
        self.counts.block_calls += 1
        self.counts.row_steps += len(batch.jobs)
        return [self._made(job) for job in moved if job in self._sent]

    def _made(self, job: Job) -> tuple[Ticket, TokenEvent]:
        """The last token of a job."""
        ticket, sequence, result = self._sent[job], job.sequence, job.sequence.result
        noted = sequence.noted[-1] if sequence.noted else []
        finish = None if not sequence.done else "stop" if result.finished else "length"
        self.counts.tokens += 1
        self.counts.steps += result.token_steps[-1]
        return ticket, TokenEvent(
            ticket.choice,
            None if result.finished else result.tokens[-1],
            result.token_scores[-1],
            result.token_steps[-1],
            [(None if token == sequence.end_id else token, score) for token, score in noted],
            finish,
        )

    def _failed(self, tickets: Sequence[Ticket], error: Exception) -> list[tuple[Ticket, TokenEvent]]:
        known = self._reported(error)
        return [(ticket, TokenEvent(ticket.choice, error=known)) for ticket in tickets]

    def _reported(self, error: Exception) -> UserError | Fault:
        """What a client reads of an error; the log has the rest."""
        self.counts.failures += 1
        if isinstance(error, UserError):
            return error
        traceback.print_exception(error, file=sys.stderr)
        return Fault()

    def _answer(self) -> None:
        """Go on with the first question for a while."""
        if self._asked is None:
            with self._changed:
                if not self._questions:
                    return
                self._asked = BegunCall(self._questions.popleft(), self.pipeline, batch_tokens=self.limits.prefill)
        asked = self._asked
        found: list[Any] | UserError | Fault | None
        try:
            found = asked.work()
        except Exception as error:
            found = self._reported(error)
        if found is not None:
            self.counts.predictions += len(asked.found)
            self._send(partial(_settle, asked.call.answers, found))
        if found is not None or asked.call.cancelled:
            self._asked = None


class BegunCall:
    """A call whose answers are made a while at a time, between calls of the block for others."""

    def __init__(self, call: WholeCall, pipeline: Pipeline, *, batch_tokens: int) -> None:
        self.call, self.found = call, list[Any]()
        self._answers = call.begin(pipeline, batch_tokens=batch_tokens)

    def work(self) -> list[Any] | None:
        """Go on for a while; all answers, or None before the end."""
        until = time.monotonic() + SLICE
        while not self.call.cancelled and time.monotonic() < until:
            if (answer := next(self._answers, None)) is None:
                return self.found
            self.found.append(answer)
        return None


def _deliver(made: Sequence[tuple[Ticket, TokenEvent]]) -> None:
    for ticket, event in made:
        if not ticket.cancelled:
            ticket.events.put_nowait(event)


def _settle(answers: asyncio.Future[list[Any]], found: list[Any] | Exception) -> None:
    if answers.done():
        return
    if isinstance(found, Exception):
        answers.set_exception(found)
    else:
        answers.set_result(found)
