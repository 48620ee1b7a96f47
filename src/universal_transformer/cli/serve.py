"""``ut serve``: answers requests over HTTP, as OpenAI's clients make them, until it is interrupted."""

from __future__ import annotations

import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from universal_transformer.cli.output import note
from universal_transformer.cli.parser import OptionForm
from universal_transformer.cli.shared_options import Answering, Name, OfRun
from universal_transformer.errors import UserError, optional
from universal_transformer.manifest import MODEL
from universal_transformer.models.call import GREEDY
from universal_transformer.serve.limits import Limits
from universal_transformer.typed import Range

if TYPE_CHECKING:
    from universal_transformer.serve.guard import App


@dataclass(frozen=True, kw_only=True)
class Serve(Answering, Limits, OfRun):
    """Answer requests over HTTP: /v1/completions (as OpenAI's clients), /predict, /v1/models, /health, /metrics."""

    host: Name = "127.0.0.1"
    """Address to listen at; with another one than this, name the hosts that clients ask for (--allow-host)."""
    port: Annotated[int, Range(0, 65535)] = 8000
    """Port to listen at; 0: any that is free."""
    allow_host: Annotated[tuple[str, ...], OptionForm("NAME")] = ()
    """Names of this server, in addition to 127.0.0.1 and localhost; requests to other names are refused."""

    def __call__(self) -> int:
        """Serve until SIGINT or SIGTERM; requests that have begun are answered."""
        check_packages("ut serve")
        from universal_transformer.evaluation.calibration import calibrated, written_freely
        from universal_transformer.evaluation.pipeline import Pipeline, sampling_of
        from universal_transformer.runs.opened import open_run
        from universal_transformer.serve.app import Service
        from universal_transformer.serve.engine import Engine
        from universal_transformer.serve.guard import LOCAL

        run = open_run(Path(self.run), device=self.device, halting_execution=self.halting_execution)
        if suffixes := run.codec.source.suffixes:
            raise UserError(
                f"{self.run}: this model reads files ({', '.join(suffixes)}), which no request has; use ut predict"
            )
        options, found = self.decoding(sampling_of(run.codec) if self.beams == 1 else GREEDY), ""
        options.check(run.model)
        if self.calibration:
            unlike = written_freely(run.model.config)
            options, found = calibrated(run.folder, options, model=run.folder / MODEL, unlike=unlike)
        engine = Engine(Pipeline(run.model, run.codec, options, found), self)
        name = run.folder.resolve().name
        with listen(self.host, self.port) as listening:
            host, port = listening.getsockname()[:2]
            app = Service(engine, name).app(hosts={*LOCAL, _bracketed(self.host), *map(str.lower, self.allow_host)})
            greedy = self.beams > 1 and "--beams is for /predict: /v1/completions takes the likeliest token or samples"
            for line in filter(None, (found, f"no /v1/completions: {engine.obstacle}" if engine.obstacle else greedy)):
                note(f"ut: {line}")
            routes = "/predict" if engine.obstacle else "/v1/completions and /predict"
            print(f"{name}: http://{_bracketed(host)}:{port}{routes}; Ctrl-C ends it", flush=True)
            run_server(app, listening, seconds=self.seconds)
        return 0


def run_server(app: App, listening: socket.socket, *, seconds: float) -> None:
    """Serve until SIGINT or SIGTERM, and answer what has begun within so many seconds."""
    import uvicorn

    from universal_transformer.serve.guard import PROTOCOL

    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=max(1, round(seconds)), **PROTOCOL)
    # uvicorn sends itself the signal again when all is answered
    signal.signal(signal.SIGTERM, lambda *_: None)
    uvicorn.Server(config).run(sockets=[listening])


def check_packages(command: str) -> None:
    """UserError where the packages of a server are missing."""
    for package in ("uvicorn", "starlette"):
        optional(package, needed=f"{command} needs starlette and uvicorn", extra="serve")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; UserError where the address is not there or is taken."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise UserError(f"--host {host} --port {port}: {error.strerror or error}") from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()
