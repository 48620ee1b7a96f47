"""Training from a configuration to a model on disk."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch

from universal_transformer.axes import Tensor
from universal_transformer.errors import UserError
from universal_transformer.evaluation.tensors import emulates_bfloat16, pick_device
from universal_transformer.files import quoted
from universal_transformer.models.components import ENCODERS
from universal_transformer.registry import build
from universal_transformer.tasks.task import Task, with_absolute_files
from universal_transformer.training import folder as folders
from universal_transformer.training.checkpoint import copy_weights, load_weights, newest
from universal_transformer.training.config import CHECKPOINTS, MODEL, RunConfig
from universal_transformer.training.interruption import StopRequest, stop_on_signals
from universal_transformer.training.optimizer import NonFiniteError
from universal_transformer.training.processes import joined, own_device, started
from universal_transformer.training.randomness import repeatable
from universal_transformer.training.run import Reason, TrainingRun
from universal_transformer.training.score_text import numbers
from universal_transformer.training.task_metric import TaskMetric
from universal_transformer.training.tracking import display
from universal_transformer.training.validation import Interrupted, Score
from universal_transformer.training.warm_start import starting_weights

Choice = Literal["best", "last", "average", "ema"]


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run; its model is in `folder`/model."""

    folder: Path
    updates: int
    seconds: float
    stopped: Reason
    chosen: Choice
    """Which weights `folder`/model holds: of the best validation, the last, the average of the last few, or the running
    mean."""
    score: Score | None
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
    changes deliberately (`config.ACCEPTABLE`). Raises UserError for a folder that holds something else, changed data or
    configuration, a full disk, or a loss that is not finite.
    """
    if not resume:
        config = dataclasses.replace(config, data=with_absolute_files(config.data))
    first = started().first
    changes = folders.check_usable(folder, config, resume=resume, accepted=accept_changes) if first or resume else []
    check_extras(config)
    device = own_device(pick_device(config.training.device, field="training.device"))
    task = task or config.data.load()
    if not task.train:
        raise UserError(f"data: there are no examples to train on in {task.name}")
    TaskMetric.chosen(task, config.training)  # before anything is written: a package for it may be missing
    torch.manual_seed(config.training.seed)
    random.seed(config.training.seed)
    model = build(task.configure(config.model)).to(device)
    taken = [] if resume else starting_weights(model, task.codec, config)
    with ExitStack() as stack:
        stack.enter_context(disk_errors(folder))
        stack.enter_context(repeatable(threads=config.training.threads, device=device))
        stop = stack.enter_context(stop_on_signals(deadline=deadline))
        processes = stack.enter_context(joined(device))  # inside: torchrun sends SIGTERM when a process is lost
        if processes.first:
            stack.enter_context(folders.claimed(folder))
        written = "frames" if model.writes == "frames" else "tokens"
        unit = "examples" if model.config.architecture in ENCODERS else written
        shown = stack.enter_context(closing(display(quiet=quiet or not processes.first, unit=unit)))
        if limit := model.config.generation.max_new_tokens:
            more = "" if model.config.generation.fixed_length else ", or twice its input plus 10 if that is more"
            shown.note(f"an answer may have {limit:,} {written}{more}; model.generation.max_new_tokens changes it")
        if config.training.precision == "bfloat16" and emulates_bfloat16(device):
            shown.note("this CPU has no bfloat16 instructions: --training.precision float32 is several times faster")
        run = TrainingRun(
            config, folder=folder, task=task, model=model, device=device, shown=shown, processes=processes
        )
        stack.callback(run.close)
        with processes.one_after_the_other():  # the first one may rename damaged checkpoints
            run.start(changes, resume=resume, taken=taken, accepted=accept_changes)
        run.connect()
        if processes.first:
            folders.keep_held_out(folder, task.held_out)  # after a resume has compared the data
        try:
            return finish(run, reason=run.run(stop), stop=stop)
        except NonFiniteError as error:
            raise NonFiniteError(f"{error}; {remedy(run)}") from error


def remedy(run: TrainingRun) -> str:
    """Return what is kept of a run that stops because a number is not finite, and how to continue it."""
    name, rate = newest(run.folder / CHECKPOINTS), run.training.learning_rate / 4
    kept = f"checkpoint {name}, of update {int(name[:9]):,}, is kept" if name else "no checkpoint was saved yet"
    return (
        f"{kept}: {'continue from it' if name else 'begin again'} with ut train --resume {quoted(run.folder)} "
        f"--learning-rate {rate:g} --accept-change training.learning_rate"
    )


def check_extras(config: RunConfig) -> None:
    """Refuse fields that need a library that is missing."""
    if config.training.tensorboard and find_spec("tensorboard") is None:
        raise UserError(
            "training.tensorboard: TensorBoard is not installed; "
            "run pip install 'universal-transformer[tensorboard]' or leave the field off"
        )


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into one line."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or folder}: {error.strerror or error}") from error


@dataclass(frozen=True)
class Candidate:
    """Weights that the run may end with."""

    name: Choice
    score: Score | None
    weights: dict[str, Tensor]


def finish(run: TrainingRun, *, reason: Reason, stop: StopRequest) -> TrainingResult:
    """Save, choose the best weights, write the model, and report the end."""
    run.save()
    run.disconnect()
    seconds, update = run.state.seconds, run.state.update
    chosen, interrupted = _choose(run, stop=stop)
    if interrupted:
        reason = "interrupted"
    load_weights(run.model, chosen.weights)
    model_folder = run.folder / MODEL
    if run.processes.first:
        folders.save_model(run.folder, run.model, run.task.codec)
    figures = numbers(chosen.score) if chosen.score else {}
    if chosen.score and (warning := run.comparison.warning(chosen.score)):
        run.warn(warning)
    baseline = run.comparison.baseline_text() if chosen.score else ""
    if chosen.score and not interrupted:
        run.check_exit(chosen.score)
    run.write("end", {"stopped": reason, "chosen": chosen.name, **figures})
    if reason == "interrupted":
        command = f"ut train --resume {quoted(run.folder)}"
        text = f"stopped by {stop.reason} after update {update}, saved; continue with: {command}"
    else:
        of = f" (update {run.state.best_update:,})" if chosen.name == "best" else ""
        text = f"done after {update:,} updates ({reason}): {chosen.name} weights{of} in {model_folder}"
        if chosen.score:
            text += f"; validation {run.comparison.text(chosen.score)}; {baseline}"
    run.shown.note(text)
    return TrainingResult(
        folder=run.folder,
        updates=update,
        seconds=seconds,
        stopped=reason,
        chosen=chosen.name,
        score=chosen.score,
        baseline=baseline,
        warnings=tuple(run.warnings),
    )


def _choose(run: TrainingRun, *, stop: StopRequest) -> tuple[Candidate, bool]:
    """Return the best on validation of: the best so far, the last weights, the mean of the last few, or of all.

    Also return whether the choice was interrupted: then some weights were not validated, and a resume repeats the
    choice. The choice is not part of the checkpoint, so that a run that continues later is not changed by it.
    """
    state, last = run.state, copy_weights(run.model)
    chosen = Candidate("last", None, last)
    if state.best is not None:
        chosen = Candidate("best", state.best, run.best_weights)
    others: list[tuple[Choice, dict[str, Tensor]]] = []
    if state.validated != state.update or state.best is None:
        others.append(("last", last))
    if state.validated != state.update:
        run.averager.add(last)
    if (average := run.averager.average()) is not None:
        others.append(("average", average))
    if run.running.weights:
        others.append(("ema", run.running.tensors()))
    for name, weights in others if run.validation else []:
        load_weights(run.model, weights)
        try:
            score = run.validation.score(run.model, stopped=run.interrupting(stop))
        except Interrupted:
            return chosen, True
        run.write("validation", numbers(score) | {"weights": name})
        ranks = [s.rank(classes=run.classes) for s in (score, chosen.score) if s is not None]
        if len(ranks) == 1 or ranks[0] < ranks[1]:
            chosen = Candidate(name, score, weights)
    return chosen, False
