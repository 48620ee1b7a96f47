"""The routes of a server."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from universal_transformer.data.example import Example, size
from universal_transformer.errors import UserError, refuse
from universal_transformer.evaluation.pipeline import line_of
from universal_transformer.evaluation.prediction import with_words
from universal_transformer.files import decode_json
from universal_transformer.serve.completions import (
    Chosen,
    Completion,
    CompletionChoices,
    fields_of,
    is_calibrated,
    requests_of,
)
from universal_transformer.serve.engine import Engine, Fault, Full, PredictCall, Ticket, TokenEvent, WholeCall
from universal_transformer.serve.guard import LOCAL, App, Guard, error_body
from universal_transformer.tasks.task import Prediction
from universal_transformer.typed import Positive, Range

PATIENCE = 10.0
"""Seconds beyond those of a request in which its client must have read the answer."""
FAULT = "an error of the server, which its log has"
STATUS: Mapping[type[Exception], tuple[int, str]] = {
    HTTPException: (0, ""),
    UserError: (400, ""),
    Full: (503, "as many requests wait as may; try again later"),
    TimeoutError: (504, "the answer took longer than a request may"),
    Fault: (500, FAULT),
    Exception: (500, FAULT),
}
"""Kind of an error -> its status, and its message where it has none of its own."""
MOST_INPUTS = 256
"""Of one request."""
IGNORED = ("user", "metadata", "store", "service_tier")
"""Fields of OpenAI's clients that are not about the answer."""


class ReadInput(NamedTuple):
    """An input of ``/predict`` as a line, and its example: None of an empty line, or where there is a problem."""

    line: str
    example: Example | None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Inputs(Chosen):
    """The body of ``/predict``."""

    inputs: tuple[str | tuple[str, ...], ...]
    """Each as ``ut predict`` reads it; columns, such as two texts, in a list."""
    beams: Annotated[int, Range(1, 16)] | None = None
    max_new_tokens: Positive | None = None
    choices: Annotated[int, Range(1, 100)] = 3


@dataclass
class Service:
    """An engine and its routes."""

    engine: Engine
    name: str
    started: float = field(default_factory=time.time)
    answered: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    async def completions(self, request: HttpRequest) -> Response:
        """``POST /v1/completions``."""
        body = decode_json(await request.body(), where="body")
        asked: Completion = fields_of(body, Completion, ignored=IGNORED)
        if asked.model not in ("", self.name):
            raise HTTPException(404, f"model: this server has {self.name!r} alone")
        engine = self.engine
        if engine.batch is None:
            raise UserError(f"this model has no completions here ({engine.obstacle}); POST /predict answers")
        batch = engine.batch
        given = await run_in_threadpool(lambda: list(requests_of(asked, batch, pipeline=engine.pipeline)))
        prompts = [each.tokens for each in given[:: asked.n]]
        self._check_longest(map(len, prompts))
        most = engine.limits.queue
        refuse((len(given) > most, f"{len(given)} answers in one request; at most {most} here"), at="n")
        events: asyncio.Queue[TokenEvent] = asyncio.Queue()
        tickets = [Ticket(each, choice, events) for choice, each in enumerate(given)]
        choices = CompletionChoices(engine, asked, self.name, prompts, tickets, events)
        engine.submit(tickets)
        if asked.stream:
            return StreamingResponse(self._streamed(choices), media_type="text/event-stream")
        try:
            return JSONResponse(await unless_gone(request, choices.whole(), seconds=engine.limits.seconds))
        finally:
            engine.cancel(tickets)

    async def _streamed(self, choices: CompletionChoices) -> AsyncIterator[str]:
        """The events of a stream, the last of which may be an error."""
        try:
            async with asyncio.timeout(self.engine.limits.seconds):
                async for part in choices.parts():
                    yield part
        except (UserError, TimeoutError, Fault) as error:
            yield error_event(error)
        finally:
            self.engine.cancel(choices.tickets)

    async def predict(self, request: HttpRequest) -> Response:
        """``POST /predict``: what ``ut predict --format jsonl`` prints for each input."""
        body = decode_json(await request.body(), where="body")
        asked: Inputs = fields_of(body, Inputs)
        count = len(asked.inputs)
        refuse((not 1 <= count <= MOST_INPUTS, f"found {count}; expected 1 to {MOST_INPUTS}"), at="inputs")
        pipeline = self.engine.pipeline
        calibrated, config = is_calibrated(pipeline), pipeline.model.config
        options = asked.of(
            pipeline.options, config, most=asked.max_new_tokens, calibrated=calibrated, beams=asked.beams
        )
        options.check(pipeline.model)
        read = await run_in_threadpool(self._read, asked)
        examples = [each.example for each in read if each.example is not None]
        self._check_longest(map(size, examples))
        found: list[Prediction] = []
        if examples:
            found = await answered(
                request, self.engine, PredictCall, examples=examples, options=options, num_choices=asked.choices
            )
        left = iter(found)
        results = [
            {"error": each.problem}
            if each.problem
            else _shown(Prediction(text="", score=0.0))
            if each.example is None
            else _shown(with_words(next(left), codec=pipeline.codec, line=each.line, example=each.example))
            for each in read
        ]
        return JSONResponse({"model": self.name, "predictions": results})

    def _read(self, asked: Inputs) -> list[ReadInput]:
        found = list[ReadInput]()
        for number, text in enumerate(asked.inputs):
            line = line_of(text, number, segments=self.engine.pipeline.codec.source.segments)
            try:
                found.append(ReadInput(line, self.engine.pipeline.example(line, number)))
            except UserError as error:
                found.append(ReadInput(line, None, str(error)))
        return found

    def _check_longest(self, sizes: Any) -> None:
        longest = max(sizes, default=0)
        if longest > (most := self.engine.limits.longest):
            raise HTTPException(413, f"an input of {longest:,} tokens; at most {most:,} here (--longest)")

    async def models(self, request: HttpRequest) -> Response:
        """``GET /v1/models``."""
        del request
        model = {"id": self.name, "object": "model", "created": int(self.started), "owned_by": "local"}
        return JSONResponse({"object": "list", "data": [model]})

    async def health(self, request: HttpRequest) -> Response:
        """``GET /health``: 200 as long as the engine works."""
        del request
        alive = self.engine.is_alive()
        return JSONResponse({"status": "ok" if alive else "stopped"}, status_code=200 if alive else 503)

    async def metrics(self, request: HttpRequest) -> Response:
        """``GET /metrics`` in the text format of Prometheus."""
        del request
        engine, counts = self.engine, self.engine.counts
        lines = [f"ut_{name}_total {value}" for name, value in vars(counts).items()]
        lines += [f"ut_running {engine.running}", f"ut_waiting {engine.waiting}"]
        for (path, status), count in sorted(self.answered.items()):
            lines.append(f'ut_requests_total{{path="{path}",status="{status}"}} {count}')
        lines += [
            f'ut_request_seconds_total{{path="{path}"}} {spent:.6f}' for path, spent in sorted(self.seconds.items())
        ]
        return PlainTextResponse("\n".join(lines) + "\n")

    def app(self, *, hosts: Collection[str] = LOCAL) -> App:
        """The application: guarded routes. The engine starts and stops with it."""
        routes = [
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/predict", self.predict, methods=["POST"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]

        inner = routed(routes, [self.engine])
        return Guard(_Counted(inner, self, paths={route.path for route in routes}), hosts=hosts)


def routed(routes: Sequence[Route], engines: Sequence[Engine]) -> Starlette:
    """The routes, with the errors of `STATUS`; the engines start and stop with them."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        for engine in engines:
            engine.start_in(asyncio.get_running_loop())
        yield
        for engine in engines:
            engine.stop()
        for engine in engines:
            await run_in_threadpool(engine.join, engine.limits.seconds)

    handlers: Mapping[Any, Any] = dict.fromkeys(STATUS, _failure)
    inner = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    inner.router.redirect_slashes = False
    return inner


@dataclass
class _Counted:
    """EngineCounts answers and their time by route."""

    app: App
    service: Service
    paths: Collection[str]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, begun = scope["path"] if scope["path"] in self.paths else "other", time.perf_counter()

        async def counting(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.service.answered[path, message["status"]] += 1
            await send(message)

        try:
            async with asyncio.timeout(self.service.engine.limits.seconds + PATIENCE):
                await self.app(scope, receive, counting)
        finally:
            self.service.seconds[path] += time.perf_counter() - begun


async def unless_gone(request: HttpRequest, answer: Any, *, seconds: float) -> Any:
    """What is awaited, unless it takes too long or the client goes first."""
    task = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(_gone(request))
    try:
        done, _ = await asyncio.wait((task, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            return task.result()
        if not done:
            raise TimeoutError
        raise HTTPException(499, "the client has gone")
    finally:
        task.cancel()
        gone.cancel()


async def answered(request: HttpRequest, engine: Engine, kind: type[WholeCall], **fields: Any) -> list[Any]:
    """The answers of an engine to a call of this kind; nothing is made of it when its client has gone."""
    call = kind(answers=asyncio.get_running_loop().create_future(), **fields)
    engine.submit(questions=[call])
    try:
        found: list[Any] = await unless_gone(request, call.answers, seconds=engine.limits.seconds)
        return found
    finally:
        engine.cancel([call])


async def _gone(request: HttpRequest) -> None:
    """Wait until the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def error_event(error: Exception) -> str:
    """The last event of a stream that fails."""
    return f"data: {json.dumps(error_body(*_status_of(error)))}\n\n"


def _status_of(error: Exception) -> tuple[int, str]:
    """The status and the message of an error."""
    status, message = next(found for kind, found in STATUS.items() if issubclass(type(error), kind))
    return getattr(error, "status_code", status), message or str(getattr(error, "detail", error))


async def _failure(request: HttpRequest, error: Exception) -> Response:
    """The answer to a request that fails."""
    del request
    status, message = _status_of(error)
    headers = {"retry-after": "1"} if status == 503 else {}
    return JSONResponse(error_body(status, message), status_code=status, headers=headers)


def _shown(answer: Prediction) -> dict[str, Any]:
    """A prediction as JSON; the content of a file as base64."""
    content = {"content": base64.b64encode(answer.content).decode()} if answer.content else {}
    return answer.to_dict() | content
