"""Training from a configuration to a model on disk."""

import dataclasses
import math
import random
from collections.abc import Collection, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from universal_transformer.errors import UserError, refuse
from universal_transformer.evaluation.collapse import fake
from universal_transformer.evaluation.tensors import emulates_bfloat16, pick_device
from universal_transformer.files import counted, quoted, show_path
from universal_transformer.manifest import MODEL
from universal_transformer.models.model import Model
from universal_transformer.registry import build
from universal_transformer.runs import checkpoint as checkpoints
from universal_transformer.runs.folder import BASELINE, CHECKPOINTS, claimed, keep_held_out, save_model
from universal_transformer.runs.journal import RunJournal
from universal_transformer.runs.resume import RunOrigin, check_usable, continued, warnings_of
from universal_transformer.runs.trackers import tracker_of
from universal_transformer.tasks.task import Task, with_absolute_files
from universal_transformer.training.display import Display, Tensors, display
from universal_transformer.training.interruption import StopRequest, stop_on_signals
from universal_transformer.training.optimizer import NonFiniteError, learning_rate
from universal_transformer.training.processes import joined, own_device, started
from universal_transformer.training.provenance import code_in_use
from universal_transformer.training.randomness import repeatable
from universal_transformer.training.run import Journal, Reason, RunState, TrainingRun, choose
from universal_transformer.training.run_config import RunConfig, TrainingConfig
from universal_transformer.training.selection import Choice, load_weights
from universal_transformer.training.task_metric import TaskMetric
from universal_transformer.training.validation import BaselineComparison, ValidationScore
from universal_transformer.training.warm_start import starting_weights
from universal_transformer.typed import typed

RISE = 0.01
"""Of a learning rate, of which a resume says that it goes up."""


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run."""

    text: str
    """How it ended, in a line."""
    updates: int
    seconds: float
    stopped: Reason
    chosen: Choice
    """Which weights its model has: of the best validation, the last, the average of the last few, or the running
    mean."""
    score: ValidationScore | None
    """Their validation score; None without a validation."""
    baseline: str
    """The validation score of the baseline, as text; empty without a validation."""
    warnings: tuple[str, ...]


def train(
    config: RunConfig,
    folder: Path,
    *,
    task: Task | None = None,
    resume: bool = False,
    quiet: bool = False,
    deadline: float = math.inf,
    accept_changes: Collection[str] = (),
) -> TrainingResult:
    """Train by `config` in `folder`, and write the best weights to `folder`/model.

    `task` is the result of ``config.data.load()``, for callers that have it already. With `resume` the run in `folder`
    continues from its last checkpoint: on a CPU, bit for bit as if it had never stopped. At `deadline`, a time of
    `time.monotonic`, it stops as on a signal: saved, and "interrupted". `accept_changes` are fields that a resume
    changes deliberately (`resume.ACCEPTABLE`). Raises UserError for a folder that holds something else, changed data or
    configuration, a full disk, or a loss that is not finite.
    """
    if not resume:
        config = dataclasses.replace(config, data=with_absolute_files(config.data))
    first = started().first
    changes = check_usable(folder, config, resume=resume, accepted=accept_changes) if first or resume else []
    tracker = tracker_of(config.training.tracker, folder)
    device = own_device(pick_device(config.training.device, field="training.device"))
    task = task or config.data.load()
    if not task.train:
        raise UserError(f"data: there are no examples to train on in {task.name}")
    metric = TaskMetric.of(task, config.training)  # before anything is written: a package for it may be missing
    torch.manual_seed(config.training.seed)
    random.seed(config.training.seed)
    model = build(task.configure(config.model)).to(device)
    taken = [] if resume else starting_weights(model, task.codec, config)
    with ExitStack() as stack:
        stack.enter_context(repeatable(threads=config.training.threads, device=device))
        stop = stack.enter_context(stop_on_signals(deadline=deadline))
        processes = stack.enter_context(joined(device))  # inside: torchrun sends SIGTERM when a process is lost
        if processes.first:
            stack.enter_context(claimed(folder))
            if not resume:  # another process may have made a run here meanwhile
                check_usable(folder, config, resume=False)
            checkpoints.remove_partial(folder / CHECKPOINTS)
        shown = stack.enter_context(closing(shown_of(model, quiet=quiet or not processes.first)))
        if config.training.precision == "bfloat16" and emulates_bfloat16(device):
            shown.note("this CPU has no bfloat16 instructions: --training.precision float32 is several times faster")
        if metric is None and config.training.select_by == "metric":
            same = "the error chooses the same weights as the metric of this task"
            shown.note(f"note: training.select_by and training.select_examples: without effect: {same}")
        origin = RunOrigin.now(config, task, device, processes=processes.size)
        with processes.one_after_the_other():  # the first one may rename damaged checkpoints
            saved = load(folder, origin, accepted=accept_changes) if resume else None
            if resume and saved is None:
                taken = starting_weights(model, task.codec, config)
            journal = Journal(shown)
            if processes.first:
                journal = RunJournal(shown, folder, origin, after=saved.state if saved else None, tracker=tracker)
                stack.callback(journal.close)
        # at the same time, because other processes would not wait for a pass over many examples
        comparison = BaselineComparison(task, model, metric=metric)
        if processes.first:
            comparison.baseline.save(folder / BASELINE)
        run = TrainingRun(config, task=task, model=model, device=device, journal=journal, processes=processes)
        if saved is not None:
            changes = saved.changes or changes
            run.restore(saved.state, saved.tensors)
        lines = description(run, origin, comparison, folder=folder)
        lines |= {"warm_start": "; ".join(taken)} if taken else {}
        run.write("resume" if saved else "start", lines | {"changes": "; ".join(changes)})
        for text in [*taken, *([f"continuing {folder} after update {run.state.update}"] * resume)]:
            shown.note(text)
        for text in [*(f"changed: {change}" for change in changes), *(saved.warnings if saved else ())]:
            run.warn(text)
        if processes.first:
            keep_held_out(folder, task.held_out)  # after a resume has compared the data
        try:
            if accept_changes and run.state.saves:
                run.save()  # with the new configuration
            return finish(run, comparison, folder=folder, reason=run.run(stop), stop=stop)
        except KeyboardInterrupt:
            shown.note(f"not saved: {kept(folder)[1]}; continue with: ut train --resume {quoted(folder)}")
            raise
        except NonFiniteError as error:
            raise NonFiniteError(f"{error}; {remedy(folder, config.training)}") from error


class SavedRun(NamedTuple):
    """What a run continues from, and what has changed since."""

    state: RunState
    tensors: Mapping[str, Tensors]
    changes: list[str]
    """Changes of its configuration."""
    warnings: list[str]
    """Damaged checkpoints, and changes of surroundings and files."""


def load(folder: Path, now: RunOrigin, *, accepted: Collection[str]) -> SavedRun | None:
    """Return the newest intact checkpoint of the run in `folder`; None before the first one.

    UserError if it is one of another run, nothing may change as it has, or a trained model would be overwritten.
    """
    checkpoint, warnings = checkpoints.load_newest(folder / CHECKPOINTS)
    if checkpoint is None:
        lost = f"no checkpoint, and {show_path(folder / MODEL)} would be overwritten"
        other = f"ut train --config {quoted(folder)} --from {quoted(folder)} --run NEW starts from its weights"
        refuse(((folder / MODEL).exists(), f"{show_path(folder / CHECKPOINTS)}: {lost}; {other}"))
        return None
    where = show_path(folder / CHECKPOINTS / str(checkpoints.newest(folder / CHECKPOINTS)))
    state: RunState = typed(checkpoint.state["run"], RunState, where=where)
    before = RunOrigin.from_dict(checkpoint.state["origin"], where=where)
    changes = continued(before, now, accepted=accepted, folder=show_path(folder), checkpoint=where)
    limit = now.config.training.max_updates
    if limit is not None and limit < state.update:
        made = f"this run has {counted(state.update, 'update')} already"
        raise UserError(f"training.max_updates={limit}: {made}; expected at least as many")
    warnings += [*warnings_of(before, now), *rate_jump(before.config.training, now.config.training, state)]
    return SavedRun(state, checkpoint.tensors, changes, warnings)


def rate_jump(before: TrainingConfig, now: TrainingConfig, state: RunState) -> list[str]:
    old, new = (learning_rate(given, update=state.update + 1, seconds=state.seconds) for given in (before, now))
    if new <= (1 + RISE) * old:
        return []
    last = learning_rate(before, update=state.update, seconds=state.seconds)
    return [
        f"the learning rate goes back up: it was {last:.3g} in update {state.update:,}, and is {new:.3g} in the next"
    ]


def shown_of(model: Model, *, quiet: bool) -> Display:
    """Return the display of a run, after it has shown how long answers may be."""
    shown = display(quiet=quiet, unit=model.writes if model.config.decodes else "examples")
    if limit := model.config.generation.max_new_tokens:
        more = "" if model.config.generation.fixed_length else ", or twice its input plus 10 if that is more"
        shown.note(f"an answer may have {limit:,} {model.writes}{more}; model.generation.max_new_tokens changes it")
    return shown


def description(
    run: TrainingRun, origin: RunOrigin, comparison: BaselineComparison, *, folder: Path
) -> dict[str, float | int | str | bool | None]:
    return {
        "recipe": origin.config.recipe,
        "config": origin.config.digest(),
        "folder": str(folder.absolute()),
        "data": origin.data,
        "train_examples": len(run.task.train),
        "validation_examples": len(run.task.validation),
        "parameters": run.model.num_parameters(),
        "writes": run.model.writes if run.model.config.decodes else "classes",
        "label_smoothing": run.training.label_smoothing,
        "dropout": max((part.p for part in run.model.modules() if isinstance(part, torch.nn.Dropout)), default=0.0),
        **origin.surroundings,
        **code_in_use().values(),  # after the surroundings: the version of torch as results state it
        **comparison.figures(),
    }


def kept(folder: Path) -> tuple[str | None, str]:
    """Return the name of the newest checkpoint, and what is kept as a text."""
    name = checkpoints.newest(folder / CHECKPOINTS)
    text = f"checkpoint {name}, of update {int(name[:9]):,}, is kept" if name else "no checkpoint was saved yet"
    return name, text


def remedy(folder: Path, training: TrainingConfig) -> str:
    """Return what is kept of a run that stops because a number is not finite, and how to continue it.

    A decay that is larger than the inverse of the rate makes weights grow by itself; else a smaller rate is advised.
    """
    decays = training.weight_decay * training.learning_rate > 1
    field, value = ("weight_decay", 0.01) if decays else ("learning_rate", training.learning_rate / 4)
    name, text = kept(folder)
    return (
        f"{text}: {'continue from it' if name else 'begin again'} with ut train --resume {quoted(folder)} "
        f"--{field.replace('_', '-')} {value:g} --accept-change training.{field}"
    )


def finish(
    run: TrainingRun, comparison: BaselineComparison, *, folder: Path, reason: Reason, stop: StopRequest
) -> TrainingResult:
    """Save, choose the best weights, write the model, and report the end."""
    run.save()
    seconds, update = run.state.seconds, run.state.update
    chosen, interrupted = choose(run, stop=stop)
    if interrupted:
        reason = "interrupted"
    load_weights(run.model, chosen.weights)
    if run.processes.first:
        save_model(folder, run.model, run.task.codec)
    score, baseline = chosen.score, ""
    if score is not None:
        baseline = comparison.baseline_text()
        if warning := comparison.warning(score):
            run.warn(warning)
        if not interrupted and run.model.config.expects_loss:
            expected = run.validation.expected_loss(run.model)
            if collapsed := fake(score.cross_entropy, expected=expected):
                run.warn(collapsed)
    run.write("end", {"stopped": reason, "chosen": chosen.name, **(score.values() if score else {})})
    if reason == "interrupted":
        command = f"ut train --resume {quoted(folder)}"
        text = f"stopped by {stop.reason} after update {update}, saved; continue with: {command}"
    else:
        of = f" (update {run.state.best_update:,})" if chosen.name == "best" else ""
        weights = f"{chosen.name} {'weights' if run.training.ema_decay is None else 'running mean of weights'}"
        text = f"done after {counted(update, 'update')} ({reason}): {weights}{of} in {folder / MODEL}"
        if score is not None:
            text += f"; validation {score.text(run.model)}; {baseline}"
    run.journal.shown.note(text)
    return TrainingResult(
        text=text,
        updates=update,
        seconds=seconds,
        stopped=reason,
        chosen=chosen.name,
        score=score,
        baseline=baseline,
        warnings=tuple(run.journal.warnings),
    )
