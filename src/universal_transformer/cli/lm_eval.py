"""``ut lm-eval``: score a language model on the tasks of lm-evaluation-harness."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from universal_transformer.cli.output import check_writable, note, say
from universal_transformer.cli.parser import OptionForm
from universal_transformer.cli.shared_options import Answering, File, Folder, InBatches, OfRun
from universal_transformer.errors import UserError, optional, refuse, suggestion
from universal_transformer.files import show, show_path, write_json
from universal_transformer.manifest import MODEL
from universal_transformer.typed import Positive

if TYPE_CHECKING:
    from universal_transformer.evaluation.harness import HarnessModel

RESAMPLES = 1000
"""Bootstrap samples of a standard error, of the measures that need them; the harness draws 100,000, in minutes."""


@dataclass(frozen=True, kw_only=True)
class LmEval(Answering, InBatches, OfRun):
    """Score a language model on tasks of lm-evaluation-harness, with its figures."""

    tasks: Annotated[tuple[str, ...], OptionForm("TASK")]
    """Names of tasks or groups of the harness, or YAML files. Most tasks need the network for their data."""
    include_path: Folder = ""
    """Folder with YAML files of more tasks."""
    limit: Positive | None = None
    """Use the first N examples of each task."""
    output: File = ""
    """Also write the figures to this file, as JSON."""

    def __call__(self) -> int:
        """Load the tasks, score them, and print the table of the harness."""
        harness = optional("lm_eval", needed="ut lm-eval needs lm-evaluation-harness", extra="lm-eval")
        if self.output:
            check_writable("--output", self.output)
        model = self._model()
        tasks, manager = self._loaded()
        logging.getLogger("lm_eval").setLevel(logging.WARNING)
        found = harness.simple_evaluate(
            model=model,
            tasks=tasks,
            task_manager=manager,
            limit=self.limit,
            log_samples=False,
            bootstrap_iters=RESAMPLES,
        )
        from lm_eval.utils import make_table

        if model.unknown:
            note(f"ut: warning: the tokenizer does not know {model.unknown:,} of {model.tokens:,} scored tokens")
        say(make_table(found).rstrip())
        if found.get("groups"):
            say(make_table(found, "groups").rstrip())
        if self.output:
            kept = ("results", "groups", "versions", "n-shot", "n-samples", "higher_is_better")
            figures = {name: found[name] for name in kept if name in found}
            write_json(Path(self.output), {"model": self.run, "lm_eval": harness.__version__, **figures})
            say(f"written to {self.output}")
        return 0

    def _model(self) -> HarnessModel:
        from universal_transformer.evaluation.calibration import calibrated
        from universal_transformer.evaluation.harness import HarnessModel
        from universal_transformer.evaluation.pipeline import Pipeline
        from universal_transformer.runs.opened import open_run

        run = open_run(Path(self.run), device=self.device, halting_execution=self.halting_execution)
        if not run.codec.target.continues or run.codec.target.exchanged is None:
            raise UserError(
                f"{self.run}: a model of architecture {run.model.config.architecture} and ids of kind "
                f"{run.codec.target.kind}; the harness scores language models of any text (ut train text)"
            )
        options = writing = self.decoding()
        options.check(run.model)
        if self.calibration:
            options, found = calibrated(run.folder, options, model=run.folder / MODEL)
            if found:
                note(f"ut: {found}")
        pipeline = Pipeline(run.model, run.codec, options)
        return HarnessModel(pipeline, writing=writing, batch_tokens=self.batch_tokens)

    def _loaded(self) -> tuple[list[Any], Any]:
        """The tasks with their data; UserError for an unknown name, and for data that cannot be had."""
        from lm_eval.tasks import TaskManager

        path = Path(self.include_path)
        refuse((self.include_path and not path.is_dir(), "no such folder"), at=f"--include-path {show_path(path)}")
        manager = TaskManager(include_path=self.include_path or None)
        known = manager.all_tasks
        for name in self.tasks:
            if name not in known and not Path(name).is_file():
                raise UserError(f"--tasks {show(name)}: no such task of the harness{suggestion(name, known)}")
        try:
            loaded = manager.load(list(self.tasks))
        except Exception as error:  # of many libraries: network, data sets, a file of a task
            reason = show(" ".join(str(error).split()), limit=200)
            raise UserError(f"--tasks {' '.join(self.tasks)}: not loaded ({reason})") from error
        groups = loaded["groups"]
        inside = {child for group in groups.values() for child in group.child_names}
        return [item for name, item in {**groups, **loaded["tasks"]}.items() if name not in inside], manager
