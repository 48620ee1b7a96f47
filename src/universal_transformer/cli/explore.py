"""``ut explore``: a page that shows what a trained model does with an input, step by step."""

from __future__ import annotations

import threading
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from universal_transformer.cli.output import note
from universal_transformer.cli.parser import OptionForm
from universal_transformer.cli.serve import check_packages, listen, run_server
from universal_transformer.cli.shared_options import OfRun, OnData
from universal_transformer.errors import UserError
from universal_transformer.manifest import MODEL
from universal_transformer.serve.limits import Limits
from universal_transformer.typed import Range

if TYPE_CHECKING:
    from universal_transformer.explore.explorer import Explored

HOST = "127.0.0.1"
LIMITS = Limits(rows=1, longest=512, queue=8, seconds=60.0)
"""A page asks one question at a time."""


@dataclass(frozen=True, kw_only=True)
class Explore(OnData, OfRun):
    """Open a page that shows what a model does with any input, step by step, until Ctrl-C."""

    compare: Annotated[str, OptionForm("RUN")] = ""
    """Another run, or a pretrained model, that is shown next to it on the same input."""
    port: Annotated[int, Range(0, 65535)] = 8080
    """Port to listen at, of this machine alone; 0: any that is free."""
    browser: bool = True
    """Open the page in the browser."""

    def __call__(self) -> int:
        """Serve the page until SIGINT or SIGTERM."""
        check_packages("ut explore")
        from universal_transformer.explore.explorer import Explorer

        explorer = Explorer([self.opened(name) for name in (self.run, self.compare) if name])
        with listen(HOST, self.port) as listening:
            address = f"http://{HOST}:{listening.getsockname()[1]}/"
            print(f"{self.run}: {address}; Ctrl-C ends it", flush=True)
            if self.browser:
                threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()
            run_server(explorer.app(), listening, seconds=LIMITS.seconds)
        return 0

    def opened(self, name: str) -> Explored:
        """Load a model, and its test where the data are there."""
        from universal_transformer.decoding.options import DecodingOptions
        from universal_transformer.evaluation.calibration import calibrated, written_freely
        from universal_transformer.evaluation.pipeline import Pipeline, sampling_of
        from universal_transformer.explore.explorer import Explored
        from universal_transformer.explore.page_model import brought_inputs
        from universal_transformer.runs.opened import open_run, open_with_task
        from universal_transformer.serve.engine import Engine

        task, obstacle = None, ""
        try:
            run, task = open_with_task(Path(name), data_dir=self.data_dir, device="cpu")
        except UserError as error:
            run, obstacle = open_run(Path(name)), f"{error}."
            note(f"ut: {name}: no test: {error}")
        if not run.model.config.max_steps:
            raise UserError(f"{name}: a model of kind {run.model.config.kind} has no depth: there are no steps to show")
        plain, unlike = DecodingOptions(sampling=sampling_of(run.codec)), written_freely(run.model.config)
        options, found = calibrated(run.folder, plain, model=run.folder / MODEL, unlike=unlike)
        engine = Engine(Pipeline(run.model, run.codec, options, found), LIMITS)
        return Explored(run.folder.resolve().name, engine, task, obstacle, brought_inputs(run.folder))
