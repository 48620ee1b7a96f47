"""``ut evaluate``: the scores of a run, as a table and as ``report.json``."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from universal_transformer.cli.clone import from_clone, in_clone
from universal_transformer.cli.output import check_writable, is_first, note, say, show_result
from universal_transformer.cli.parser import OptionForm
from universal_transformer.cli.shared_options import Answering, File, GivenArguments, Name, Reporting, Scoring
from universal_transformer.errors import UserError, refuse
from universal_transformer.files import show_path
from universal_transformer.manifest import MODEL
from universal_transformer.models.call import LENGTH_PENALTY
from universal_transformer.pretrained_models import find
from universal_transformer.runs.folder import BASELINE, CONFIG, HELD_OUT, METRICS
from universal_transformer.runs.opened import OwnTests, open_with_task, read_config, with_found_files
from universal_transformer.typed import listed

if TYPE_CHECKING:
    from universal_transformer.data.example import Example
    from universal_transformer.decoding.options import DecodingOptions
    from universal_transformer.evaluation.measure import Progress
    from universal_transformer.evaluation.report import AttentionAtStep, Report
    from universal_transformer.evaluation.scores import ScoreSums
    from universal_transformer.evaluation.trivial import TrivialBaseline
    from universal_transformer.runs.opened import Run
    from universal_transformer.tasks.task import Task

    Answers = dict[tuple[str, int], ScoreSums]
    """What the answers of a model add to the scores, by test set and number."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(Scoring, Answering, Reporting):
    """Score a run; the report is written to RUN/report.json.

    Processes that torchrun starts share the positions of every sequence.
    """

    split: Name = "test"
    """The test, validation, train, or the name of a test set or of a group of its table."""
    metric: Name = ""
    """Score by another metric than that of the training, such as sequence or bleu."""
    predictions: File = ""
    """Also write each answer after its input and its reference: a table with tabs, or FILE.jsonl."""
    record: File = ""
    """Also write the scores with command, hardware, versions and commit."""
    data: Name = ""
    """Score a language model on other data than those of its run: blimp."""
    group: Annotated[str, OptionForm("COLUMN", name="data.group")] | None = None
    """Column of the test files whose values group the figures: a key of JSON lines, or a number of TSV; '' for none
    (default: that of the run)."""
    attention: bool = False
    """Also measure how sharp the attention of questions about facts is at each step, and how much of it the supporting
    facts have; ut plot then shows it."""
    arguments: GivenArguments = ()

    def __call__(self) -> int:
        """Evaluate, print and write the report."""
        if self.data and (self.test or self.test_target or self.group is not None):
            raise UserError(f"--data {self.data} and --data.test: two test sets; leave one out")
        folder, own = find(self.run), OwnTests(files=self.test, targets=self.test_target, group=self.group)
        self._check_files(folder, own)
        run, task = open_with_task(
            folder,
            device=self.device,
            data_dir=self.data_dir,
            other=self.data,
            own=own,
            halting_execution=self.halting_execution,
        )
        run = dataclasses.replace(run, other_reports=self.report)
        unanswered = "a language model is scored without answers; leave it out"
        refuse((self.predictions and not run.model.config.reads, f"--predictions {self.predictions}: {unanswered}"))
        from universal_transformer.evaluation.metrics import METRICS, metric_of

        statistics = metric_of(task).statistics
        if self.metric:
            if in_clone("paper"):
                from_clone("paper.fixed_length", command="evaluate")  # the metric of its tables
            model, kinds = run.model, METRICS.items()
            fitting = [n for n, m in kinds if (m.architecture, m.writes) == (model.config.architecture, model.writes)]
            refuse((self.metric not in METRICS, f"expected one of {listed(fitting)}"), at=f"--metric {self.metric}")
            task = dataclasses.replace(task, metric=self.metric)
        answers: Answers | None = {} if self.predictions else None
        with sharing_positions(run):
            report, name = evaluate_run(run, task, self, answers=answers, statistics=statistics)
        if not is_first():
            return 0
        show_result(report, as_json=self.json)
        if answers is not None:
            _write_predictions(run, task, self, answers)
        path = save_report(report, run, name=name)
        if self.record:
            from universal_transformer.recipes.command import record

            record(Path(self.record), run, report, arguments=[*self.arguments])
        if not self.json:
            say(f"written to {path}")
        return 0

    def _check_files(self, folder: Path, own: OwnTests) -> None:
        """Refuse, before the work, what cannot be written, and files that the run or this call reads."""
        from universal_transformer.tasks.task import file_fields

        self.check_report()
        config = read_config(folder)
        found = with_found_files(config, folder, may_miss=file_fields(config.data))
        read = [*file_fields(found.data).values(), *map(Path, (*own.named().values(), *own.targets))]
        read += [folder / name for name in (CONFIG, METRICS, BASELINE, MODEL, HELD_OUT)]
        for option, file in (("--predictions", self.predictions), ("--record", self.record)):
            if file:
                check_writable(option, file, read=read)
        if self.record:
            _check_record(self.record, folder)

    def inference(self, run: Run) -> tuple[DecodingOptions, str]:
        """Return depth and search, with the depth of the run's calibration, and a note on it (`calibrated`)."""
        from universal_transformer.evaluation.calibration import calibrated

        options = self.decoding()
        if not self.calibration:
            return options, ""
        unlike = f"--data {self.data}" if self.data else ""
        return calibrated(run.folder, options, model=run.folder / MODEL, unlike=unlike)

    def file_name(self, *, calibrated: bool) -> str:
        """Return ``report.json`` for the test sets with the model as trained; other options give other names."""
        chosen = {
            "data-": self.data or None,
            "test-": _as_name("-".join((*OwnTests(self.test).labels(), *self.test_target))) or None,
            "group-": None if self.group is None else _as_name(self.group) or "none",
            "": _as_name(self.split) if self.split != "test" else None,
            "metric-": self.metric or None,
            "steps-": self.max_steps,
            "threshold-": self.halting_threshold,
            "exit-": self.exit and self.exit.replace(":", "-"),
            "limit-": self.limit,
            "beams-": self.beams if self.beams > 1 else None,
            "tokens-": self.max_new_tokens,
            "penalty-": self.length_penalty if self.length_penalty != LENGTH_PENALTY else None,
        }
        parts = ["calibrated"] * calibrated + [f"{name}{value}" for name, value in chosen.items() if value is not None]
        return "-".join(["report", *parts]) + ".json"


def evaluate_run(
    run: Run,
    task: Task,
    options: Evaluate,
    *,
    answers: Answers | None = None,
    statistics: type[TrivialBaseline] | None = None,
) -> tuple[Report, str]:
    """Evaluate as ``ut evaluate RUN`` does; return the report and its name, and add what was answered to `answers`.

    ``statistics``: those of the run's baseline (None: those of the metric). A metric that needs others has no baseline.
    """
    from universal_transformer.decoding.options import DecodingOptions
    from universal_transformer.evaluation.measure import Scored, Selection, evaluate
    from universal_transformer.evaluation.metrics import metric_of

    baseline, metric = run.folder / BASELINE, metric_of(task)  # a pretrained model has no baseline
    metric.check(run.model, DecodingOptions())  # before the baseline is read, which is that of the metric
    known = statistics in (None, metric.statistics)
    inference, note = options.inference(run)
    selection = Selection(options.split, options.limit)
    attention: tuple[AttentionAtStep, ...] = ()
    if options.attention:  # first, because it refuses models of other tasks
        from universal_transformer.evaluation.attention_mass import attention_by_supports

        attention = attention_by_supports(run.model, task, selection, options=inference)

    def watch(scored: Scored) -> None:
        if progress is not None:
            progress(scored.done, scored.whole)
        if answers is not None:
            answers.update(((scored.set, index), sums) for index, sums in scored.answers.items())

    with progress_bar() as progress:
        report = evaluate(
            run.model,
            task,
            selection,
            options=inference,
            batch_tokens=options.batch_tokens,
            baseline=metric.statistics.load(baseline, run.model.config) if known and baseline.exists() else None,
            watch=watch,
        )
    report = dataclasses.replace(report, attention=attention, notes=(*report.notes, *[note] * bool(note)))
    return report, options.file_name(calibrated=inference != options.decoding())


def save_report(report: Report, run: Run, *, name: str) -> Path:
    """Write the report into the run, or for a pretrained model into the current folder; return its path."""
    path = run.reports / name
    try:
        run.reports.mkdir(exist_ok=True)
        report.save(path)
    except OSError as error:
        elsewhere = "--report FOLDER writes it elsewhere"
        raise UserError(f"{show_path(path)}: {error.strerror or error}; {elsewhere}") from error
    return path


def _write_predictions(run: Run, task: Task, options: Evaluate, answers: Answers) -> None:
    """Write what a model is asked, what it answers and what is expected. Where the metric does not keep the
    answers, the model is asked again.
    """
    from universal_transformer.evaluation.measure import Selection, select_examples
    from universal_transformer.evaluation.metrics import metric_of
    from universal_transformer.evaluation.prediction import predict
    from universal_transformer.files import one_line, write_text

    inference, _ = options.inference(run)
    sets, _ = select_examples(task, Selection(options.split, options.limit))
    asked, metric = partial(dataclasses.replace, target=run.codec.unanswered), metric_of(task)

    def texts(name: str, examples: Sequence[Example]) -> Iterator[str]:
        kept = [metric.text_of(answers[name, index], example) for index, example in enumerate(examples)]
        again = [asked(example) for example, text in zip(examples, kept, strict=True) if text is None]
        found = predict(run.model, run.codec, again, options=inference, batch_tokens=options.batch_tokens)
        yield from (next(found).text if text is None else text for text in kept)

    codec, rows = task.codec, []
    for name, examples in sets.items():
        for example, answer in zip(examples, texts(name, examples), strict=True):
            source, target = example.written or (codec.source.input_text(example.source), codec.render(example.target))
            target, answer = (codec.target.completed(text, source) for text in (target, answer))
            rows.append({"set": name, "group": example.group, "source": source, "target": target, "answer": answer})
    if options.predictions.endswith(".jsonl"):
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    else:
        segments = codec.source.segments  # of an input, each a column
        table = [["set", "group", *["source"] * segments, "target", "answer"]]
        for name, group, source, target, answer in map(dict.values, rows):
            table.append([name, group, *source.split("\t", segments - 1), target, answer])
        lines = ["\t".join(one_line(cell).replace("\t", " ") for cell in cells) for cells in table]
    write_text(Path(options.predictions), "".join(f"{line}\n" for line in lines))
    note(f"ut: answers written to {options.predictions}")


@contextmanager
def sharing_positions(run: Run) -> Iterator[None]:
    """Connect the processes that torchrun started, if it did: they share the positions of every sequence."""
    from universal_transformer.execution.context_parallel import make_context_parallel
    from universal_transformer.training.processes import joined, own_device

    device = own_device(next(run.model.parameters()).device)
    with joined(device) as processes:
        if processes.size > 1:
            make_context_parallel(run.model.to(device))
        yield


def _check_record(file: str, folder: Path) -> None:
    """Refuse, before the work, a run without sound metrics of its training."""
    has_metrics = (folder / METRICS).is_file()
    if (folder / MODEL).is_dir() and not has_metrics:
        missing = f"{show_path(folder)} has no {METRICS}, which holds how the run was trained"
        raise UserError(f"--record {file}: {missing}; leave --record out")
    if has_metrics:
        from universal_transformer.runs.journal import read_metrics

        read_metrics(folder / METRICS)


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal or not is_first():
        yield None
        return
    with Bar(console=console, transient=True) as bar:
        row = bar.add_task("evaluating", total=None)
        yield lambda done, total: bar.update(row, completed=done, total=total)


def _as_name(text: str) -> str:
    """Return names that come from data, or paths, as a part of a file name; of a long one the end is kept."""
    return re.sub(r"[^\w.]+", "-", text)[-80:].strip("-")
