"""The page that ``ut explore`` opens: its files and the questions that it asks, with the guard of ``ut serve``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from universal_transformer.data.example import Example, size
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import refuse
from universal_transformer.explore.calls import StreamCall, TestCall, TraceCall
from universal_transformer.explore.page_model import CARD, page_model, same_test
from universal_transformer.explore.saved_page import SCRIPTS, TRACES, asset, page_without_traces
from universal_transformer.explore.story import CONTINUATION, SHOWN, Given, given
from universal_transformer.files import decode_json
from universal_transformer.serve.app import answered, error_event, routed
from universal_transformer.serve.completions import Chosen, event_of, fields_of
from universal_transformer.serve.engine import Engine
from universal_transformer.serve.guard import App, Guard
from universal_transformer.tasks.task import Task
from universal_transformer.typed import Range

POLICY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
"""Of the page. Plot writes styles into its figures."""
FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/backend.js": ("server_backend.js", "text/javascript"),
    **{f"/{name}": (name, "text/javascript") for name in ("page.js", *SCRIPTS.values())},
}
"""Path -> file and its type; there are no others."""
MOST_NEW = 400
"""Tokens that an answer may have at most, where a number is asked for."""
LOOKED_AT = 200
"""Test examples among which the first input is looked for."""


@dataclass(frozen=True, kw_only=True)
class AskedTrace(Chosen):
    """Of which input and at which depth a trace is asked for: a text, or a test example."""

    model: Annotated[int, Range(0, 1)] = 0
    text: str | None = None
    set: str | None = None
    number: Annotated[int, Range(0)] = 0
    calibrated: bool = True
    """Whether the depth is that of a calibration where nothing else chooses it."""
    max_new_tokens: Annotated[int, Range(1, MOST_NEW)] | None = None


@dataclass(frozen=True, kw_only=True)
class AskedTest(AskedTrace):
    """The same of a whole test: so many examples of each set."""

    limit: Annotated[int, Range(1, 5000)] = 300


@dataclass(frozen=True)
class Explored:
    """A model and the test of its run. Without a task ``obstacle`` says why, and ``samples`` are inputs to open."""

    name: str
    engine: Engine
    task: Task | None = None
    obstacle: str = ""
    samples: Sequence[str] = ()

    @property
    def sets(self) -> dict[str, int]:
        """How many examples each set has that the page opens."""
        if self.task is None:
            return {CARD: len(self.samples)} if self.samples else {}
        return {name: len(examples) for name, examples in self.task.test.items()}

    def options(self, asked: AskedTrace, *, most: int | None) -> DecodingOptions:
        """The depth that is asked for, and at most so many new tokens; UserError where these do not fit the model."""
        own = self.engine.pipeline
        chosen = asked.exit is not None or asked.max_steps is not None or asked.halting_threshold is not None
        plain = DecodingOptions(sampling=own.options.sampling)
        base = plain if chosen or not asked.calibrated else own.options
        options = asked.of(base, own.model.config, most=most, calibrated=False)
        options.check(own.model)
        return options

    def given(self, asked: AskedTrace) -> Given:
        """The input that is asked for. A test example is read as if its text were typed, where it is a text."""
        codec, pipeline = self.engine.pipeline.codec, self.engine.pipeline
        refuse(((asked.text is None) == (asked.set is None), "text, set: expected one of them"))
        if asked.set is not None and asked.number >= self.sets.get(asked.set, 0):
            raise HTTPException(404, self.obstacle or "no such test example")
        text = self.samples[asked.number] if self.task is None and asked.set else asked.text
        if text is not None:
            typed = pipeline.example(text, 1)
            refuse((typed is None and not codec.target.continues, "an empty text; expected input"), at="text")
            return Given(text, Example(source=(), target=()) if typed is None else typed, None)
        assert self.task is not None
        return given(self.task.test[asked.set or ""][asked.number], codec)

    def first(self) -> tuple[str, int] | None:
        """The test example that the page begins with: of facts, the one with the most supporting facts that fits."""
        if self.task is None:
            return (CARD, 0) if self.samples else None
        for name, examples in self.task.test.items():
            some = [examples[number] for number in range(min(LOOKED_AT, len(examples)))]
            if some:
                fits = [(len(each.source) in SHOWN, len(each.supports), -number) for number, each in enumerate(some)]
                return name, -max(fits)[2]
        return None

    def about(self) -> dict[str, Any]:
        """What the page says of the model and offers of its depth."""
        pipeline = self.engine.pipeline
        found = page_model(self.name, pipeline.model, pipeline.codec)
        found |= {"calibration": bool(pipeline.options.depth.chosen), "sets": self.sets, "first": self.first()}
        return found | {"obstacle": self.obstacle}


@dataclass(frozen=True)
class Explorer:
    """The page of one model, or of two side by side."""

    models: Sequence[Explored]

    async def about(self, request: Request) -> Response:
        """``GET /api/models``."""
        del request
        alike = len(self.models) > 1 and same_test(*[(each.task, each.engine.pipeline.codec) for each in self.models])
        found = {"models": [each.about() for each in self.models], "most_new": MOST_NEW, "same_test": alike, "note": ""}
        return JSONResponse(found)

    async def trace(self, request: Request) -> Response:
        """``POST /api/trace``: the text of the input and its trace."""
        explored, given, fields = await self._asked(request)
        (found,) = await answered(request, explored.engine, TraceCall, **fields)
        return JSONResponse({"text": given.text, "trace": found})

    async def stream(self, request: Request) -> Response:
        """``POST /api/stream``: the same as events, with each token of the answer before it."""
        explored, given, fields = await self._asked(request)
        return StreamingResponse(self._parts(explored.engine, given, fields), media_type="text/event-stream")

    async def _parts(self, engine: Engine, given: Given, fields: Mapping[str, Any]) -> AsyncIterator[str]:
        events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        call = StreamCall(answers=asyncio.get_running_loop().create_future(), events=events, **fields)
        call.answers.add_done_callback(lambda _: events.put_nowait(None))
        try:
            async with asyncio.timeout(engine.limits.seconds):
                engine.submit(questions=[call])
                while (event := await events.get()) is not None:
                    yield event_of(event)
                yield event_of({"text": given.text, "trace": (await call.answers)[-1]})
        except Exception as error:  # an answer has begun: what is wrong can only be its last event
            yield error_event(error)
        finally:
            engine.cancel([call])

    async def test(self, request: Request) -> Response:
        """``POST /api/test``: error and steps of examples of the test."""
        asked: AskedTest = fields_of(decode_json(await request.body(), where="body"), AskedTest)
        explored = self._model(asked)
        if explored.task is None:
            raise HTTPException(404, explored.obstacle)
        fields = {"task": explored.task, "options": explored.options(asked, most=None), "limit": asked.limit}
        return JSONResponse({"rows": await answered(request, explored.engine, TestCall, **fields)})

    async def _asked(self, request: Request) -> tuple[Explored, Given, dict[str, Any]]:
        asked: AskedTrace = fields_of(decode_json(await request.body(), where="body"), AskedTrace)
        explored = self._model(asked)
        continues = explored.engine.pipeline.codec.target.continues
        options = explored.options(asked, most=asked.max_new_tokens or (CONTINUATION if continues else None))
        given = await run_in_threadpool(explored.given, asked)
        tokens, longest = size(given.example), explored.engine.limits.longest
        if tokens > longest:
            raise HTTPException(413, f"an input of {tokens:,} tokens; at most {longest:,} on this page")
        fields = {"example": given.example, "options": options, "name": explored.name, "right": given.right}
        return explored, given, fields

    def _model(self, asked: AskedTrace) -> Explored:
        refuse((asked.model >= len(self.models), "this page has one model"), at="model")
        return self.models[asked.model]

    def app(self) -> App:
        """The application: guarded routes, for names of this machine alone."""

        def served_file(name: str, kind: str) -> Any:
            async def answer(request: Request) -> Response:
                del request
                return Response(asset(name), media_type=kind, headers=POLICY)

            return answer

        async def saved(request: Request) -> Response:
            del request
            return JSONResponse({"page": page_without_traces(), "place": TRACES})

        routes = [Route(path, served_file(*file), methods=["GET"]) for path, file in FILES.items()]
        routes += [
            Route("/api/models", self.about, methods=["GET"]),
            Route("/api/saved", saved, methods=["GET"]),
            Route("/api/trace", self.trace, methods=["POST"]),
            Route("/api/stream", self.stream, methods=["POST"]),
            Route("/api/test", self.test, methods=["POST"]),
        ]
        inner = routed(routes, [each.engine for each in self.models])
        inner.add_middleware(GZipMiddleware, minimum_size=10_000, compresslevel=1)  # attention is mostly near zero
        return Guard(inner, pages={"/"})
