"""A training run in progress: updates, and between them validations and checkpoints."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch

from universal_transformer.data.batch import Batch
from universal_transformer.evaluation.report import Side
from universal_transformer.models.model import Model
from universal_transformer.nn.trace import Trace
from universal_transformer.tasks.task import Task
from universal_transformer.training import halting_schedule, optimizer, selection
from universal_transformer.training.batches import Counts, PlaceInData, TrainingBatches
from universal_transformer.training.display import Display, Tensors, UpdateStatus, Value
from universal_transformer.training.interruption import StopRequest
from universal_transformer.training.objective import Loss, objective
from universal_transformer.training.processes import ALONE, Clock, Processes
from universal_transformer.training.randomness import depth_of, random_states, restore_random_states, seed_update
from universal_transformer.training.replica import backward, connected, gathered, make_whole, whole
from universal_transformer.training.run_config import RunConfig, TrainingConfig
from universal_transformer.training.selection import Choice, WeightSelection
from universal_transformer.training.task_metric import TaskMetric
from universal_transformer.training.validation import SIDES, Interrupted, Validation, ValidationScore
from universal_transformer.training.watches import CollapseWatch, OutlierWatch

VALIDATIONS = 8
"""Validations of a run that is limited by minutes, at least."""
VALIDATING = 0.25
"""Validations that are due because of the time take at most so much of it, as a part of that of the updates."""
Reason = Literal["max_updates", "minutes", "patience", "interrupted"]


@dataclass
class RunState:
    """Every scalar of a run that its next update, validation or line of metrics depends on."""

    update: int = 0
    epoch: int = 0
    batch: int = 0
    """Batches of the epoch that are finished."""
    longest: int | None = None
    """What a curriculum lets in (`PlaceInData.longest`); None without one."""
    examples: int = 0
    targets: int = 0
    seconds: float = 0.0
    saves: int = 0
    lines: int = 0
    """Lines of metrics that were written before it was saved."""
    validated: int = 0
    """Update of the last validation."""
    validation_ended: float = 0.0
    """Seconds of training at the end of the last validation, or of the start."""
    validation_took: float = 0.0
    """Seconds of the last validation."""
    best: ValidationScore | None = None
    best_update: int = 0
    stale: int = 0
    """Validations since the last improvement."""
    window: dict[str, float] = field(default_factory=dict)
    """Sums since the last line of metrics."""
    collapse: dict[Side, CollapseWatch] = field(default_factory=lambda: {side: CollapseWatch() for side in SIDES})
    outliers: OutlierWatch = field(default_factory=OutlierWatch)

    def judge(self, score: ValidationScore, *, classes: bool) -> bool:
        """Return whether a validation at this update is the best so far, and keep it then."""
        rank = score.rank(classes=classes)
        before = self.best.rank(classes=classes) if self.best else (math.inf, math.inf)
        # equal errors with a smaller loss are better weights, but not a reason to continue
        self.stale = 0 if rank[0] < before[0] else self.stale + 1
        if not math.isfinite(score.cross_entropy) or rank >= before:
            return False
        self.best, self.best_update = score, self.update
        return True


class Journal:
    """Where a run reports to. This one only shows it; `runs/journal.py` also writes lines and checkpoints."""

    def __init__(self, shown: Display) -> None:
        self.shown = shown
        self.warnings: list[str] = []

    def write(self, event: str, *, update: int, seconds: float, values: Mapping[str, Value]) -> None:
        """Keep a line of numbers."""

    def save(self, state: RunState, tensors: Mapping[str, Tensors]) -> None:
        """Keep all that the run continues from."""


class TrainingRun:
    """A training run: `restore` what it continues from, then `run` until there is a reason to stop, and `choose`."""

    def __init__(
        self,
        config: RunConfig,
        *,
        task: Task,
        model: Model,
        device: torch.device,
        journal: Journal,
        processes: Processes = ALONE,
    ) -> None:
        self.training, self.task, self.model, self.device = config.training, task, model, device
        self.journal, self.processes, training = journal, processes, config.training
        self.divided = ALONE if training.parallel == "positions" else processes  # those that divide a batch
        self.classes = not model.config.decodes
        self.precision = partial(torch.autocast, device.type, torch.bfloat16, training.precision == "bfloat16")
        halting_schedule.prepare_units(model, training)
        if training.compile:
            model.compile_blocks()
        self.call = connected(model, parallel=training.parallel, device=device, processes=processes)
        self.optimizers = optimizer.build_optimizers(model, training)
        self.validation = Validation(
            task.validation,
            batch_tokens=training.batch_tokens,
            device=device,
            precision=self.precision,
            metric=TaskMetric.of(task, training),
            unknown_id=task.codec.target.unknown_id,
            processes=self.divided,
        )
        self.selection = WeightSelection(training)
        self.state = RunState(longest=None if training.curriculum is None else 0)
        self.clock, self.seconds_at_update = Clock(processes), 0.0

    def restore(self, state: RunState, tensors: Mapping[str, Tensors]) -> None:
        """Continue from what `save` gave to the journal."""
        self.state, self.clock, self.seconds_at_update = state, Clock(self.processes, state.seconds), state.seconds
        selection.load_weights(self.model, tensors["model"])
        optimizer.load_optimizers(self.model, self.optimizers, tensors=tensors["optimizer"])
        restore_random_states(tensors["random"], device=self.device)
        self.selection.load(tensors, like=self.model)
        self.validation.restore(seconds=state.seconds)

    def run(self, stop: StopRequest) -> Reason:
        """Make updates, with validations and checkpoints between them, until there is a reason to stop; return it."""
        state, training = self.state, self.training
        self.batches = TrainingBatches(
            self.task.train,
            batch_tokens=training.batch_tokens,
            seed=training.seed,
            device=self.device,
            start=PlaceInData(state.epoch, state.batch, state.longest),
            passes=training.accumulate,
            processes=self.divided,
        )
        while True:
            if self.validation and validation_due(self.training, state, seconds=self.clock.seconds):
                try:
                    self.validate(stop)
                except Interrupted:
                    return "interrupted"
            if reason := self.reason_to_stop(stop):
                return reason
            # since the last one, by the clock of all processes: they exchange tensors to save them
            if training.save_minutes and self.clock.seconds - state.seconds > 60 * training.save_minutes:
                self.save()
            self.update()

    def reason_to_stop(self, stop: StopRequest) -> Reason | None:
        """Return why the run ends here; None if it goes on."""
        training, state = self.training, self.state
        if self.clock.stopped(stop):
            return "interrupted"
        if training.max_updates and state.update >= training.max_updates:
            return "max_updates"
        if training.minutes and self.clock.seconds >= 60 * training.minutes:
            return "minutes"
        return "patience" if training.patience and state.stale >= training.patience else None

    def loss(self, batch: Batch, *, update: int, counts: Counts | None = None) -> Loss:
        training, model = self.training, self.model
        with self.precision():
            return objective(
                model,
                batch,
                counts=counts,
                label_smoothing=training.label_smoothing,
                ponder_weight=halting_schedule.ponder_weight(training, update=update, seconds=self.seconds_at_update),
                max_steps=depth_of(training, update=update, most=model.config.max_steps),
                step_loss="stop" if training.stage == "halting" else training.step_loss,
            )

    def update(self) -> None:
        """``θ ← θ - Adam(clip(∇L))``, unless the loss or the gradient is not finite, or an outlier."""
        began = time.perf_counter()
        state, training, model = self.state, self.training, self.model
        update, self.seconds_at_update = state.update + 1, self.clock.seconds
        parts, own_targets = self.batches.parts, self.batches.targets
        num_examples, num_targets = self.batches.rows, int(self.divided.sum(torch.tensor(own_targets)))
        model.train(training.stage == "all")  # weights that stay as they are see no dropout
        if self.call is None and len(parts) == 1:
            loss = self.loss(parts[0].batch, update=update)
            torch.autograd.backward(loss.total)
            figures, traces = loss.figures(), loss.traces
        else:
            if self.divided.size > 1:  # dropout and random positions depend on the number of processes
                seed_update(training.seed, update=update, rank=self.divided.rank)
            loss_of = partial(self.loss, update=update)
            figures, traces = backward(parts, loss_of, model=model, call=self.call, processes=self.divided)
        if self.halting_delayed(update):
            halting_schedule.discard_gradients(model)
        figures["gradient_norm"] = optimizer.gradient_norm(model)
        self.batches.advance()  # before the values are read: a GPU is still computing here
        sums = self.processes.sum(torch.stack([value.float() for value in figures.values()])) / self.processes.size
        values = dict(zip(figures, sums.tolist(), strict=True))
        rate = optimizer.learning_rate(training, update=update, seconds=self.clock.seconds)
        optimizer.set_rate(self.optimizers, rate)
        optimizer.refuse_non_finite(model, update=update, loss=values["loss"], norm=values["gradient_norm"])
        outlier = state.outliers.inspect(values, sigmas=training.skip_outliers) if training.skip_outliers else None
        if outlier is None:
            optimizer.clip(model, norm=values["gradient_norm"], limit=training.clip_norm)
            optimizer.step(self.optimizers)
            self.selection.add_update(model, update=update)
        model.zero_grad(set_to_none=True)
        state.update, state.epoch, state.batch = update, self.batches.epoch, self.batches.index
        state.longest = self.batches.longest
        state.examples += num_examples
        state.targets += num_targets
        if outlier is not None:
            self.write("outlier", {"text": outlier})
            self.journal.shown.note(f"update {update} is left out: its {outlier}")
        counts = {"updates": 1, "examples": num_examples, "targets": num_targets}
        self.log(traces, values | counts | {"seconds": time.perf_counter() - began}, rate=rate)

    def halting_delayed(self, update: int) -> bool:
        """Return whether `update`, which is the last one or is being made, comes before halting is trained."""
        delayed = halting_schedule.halting_delayed(self.training, update=update, seconds=self.seconds_at_update)
        return self.model.config.halts and delayed

    def log(self, traces: Mapping[Side, Trace], values: Mapping[str, float], *, rate: float) -> None:
        """Show an update, and write a line for every `log_every` of them."""
        state, training = self.state, self.training
        for name, value in values.items():
            state.window[name] = state.window.get(name, 0.0) + value
        if state.update % training.log_every == 0:
            line = line_of(state.window, traces) | {"learning_rate": rate, "epoch": state.epoch}
            self.write("update", line | curriculum(self))
            updates, state.window = int(state.window["updates"]), {}
            for text in collapsed(self, traces, updates=updates):
                self.warn(text)
        self.journal.shown.show(status(self, values, traces))

    def validate(self, stop: StopRequest) -> None:
        """Score the model; keep its weights, and save, if they are the best so far."""
        state, began = self.state, self.clock.seconds
        with self.selection.validated(self.model):
            with gathered(self.call):
                stopped = self.clock.interrupting(stop)
                score = self.validation.score(self.model, stopped=stopped, seconds=self.clock.seconds)
            weights = selection.copy_weights(self.model)
        self.clock.stopped(stop)  # so that several processes agree on the time, and on when the next one is due
        state.validated, state.validation_ended = state.update, self.clock.seconds
        state.validation_took = state.validation_ended - began
        delayed = self.halting_delayed(state.update)
        if not delayed:
            self.selection.add(weights)
        # before halting is trained the model never halts: its weights are not candidates. Where it is fitted alone,
        # the fewest errors would choose the unit that stops latest
        better = not delayed and self.training.stage == "all" and state.judge(score, classes=self.classes)
        if better:
            self.selection.best = weights
        self.write("validation", score.values() | {"best": better})
        text = score.text(self.model)
        self.journal.shown.note(f"update {state.update}: validation {text}{' (best)' if better else ''}")
        if better:
            self.save()

    def save(self) -> None:
        """Give a checkpoint to the journal; NonFiniteError instead of one with a number that is not finite."""
        tensors = {
            "model": {name: whole(tensor) for name, tensor in self.model.tensors().items()},
            "optimizer": optimizer.optimizer_tensors(self.model, self.optimizers),
            "random": random_states(self.device),
            **self.selection.tensors(),
        }
        optimizer.refuse_to_save(tensors, update=self.state.update)
        self.state.seconds = self.clock.seconds
        self.state.saves += 1
        self.journal.save(self.state, tensors)

    def write(self, event: str, values: Mapping[str, Value]) -> None:
        self.journal.write(event, update=self.state.update, seconds=self.clock.seconds, values=values)

    def warn(self, text: str) -> None:
        """Keep a warning, write it, and show it."""
        self.journal.warnings.append(text)
        self.write("warning", {"text": text})
        self.journal.shown.note(f"warning: {text}")


def validation_due(training: TrainingConfig, state: RunState, *, seconds: float) -> bool:
    """Return whether a validation follows the last update: also in each eighth of the minutes, unless validations would
    take more than a part of the time.
    """
    if state.update % training.validate_every == 0 or state.update == state.validated:
        return state.update > state.validated
    interval = 60 * (training.minutes or math.inf) / VALIDATIONS
    begins = seconds // interval > state.validation_ended // interval
    return begins and seconds - state.validation_ended >= state.validation_took / VALIDATING


AVERAGED = ("loss", "cross_entropy", "ponder", "mean_steps", "gradient_norm")
"""Values of an update whose means a line of metrics states; the steps of each side are added to them."""


def line_of(window: Mapping[str, float], sides: Iterable[Side]) -> dict[str, Value]:
    averaged = (*AVERAGED, *(f"{side}_steps" for side in sides))
    line: dict[str, Value] = {name: window[name] / window["updates"] for name in averaged}
    return line | {f"{unit}_per_second": window[unit] / window["seconds"] for unit in ("examples", "targets")}


def curriculum(run: TrainingRun) -> dict[str, Value]:
    """Let longer batches in if the window's loss is low enough; return how long they were in it, for its line."""
    longest, limit, window = run.state.longest, run.training.curriculum, run.state.window
    if limit is not None and window["cross_entropy"] < limit * window["updates"]:
        run.state.longest = run.batches.grow()
    return {} if longest is None else {"longest": longest}


def collapsed(run: TrainingRun, traces: Mapping[Side, Trace], *, updates: int) -> Iterator[str]:
    """Yield a warning for each side whose halting has collapsed, by the last of so many updates."""
    training, config = run.training, run.model.config
    # at random depth the cap differs between updates; in a second stage, and where the loss is an expectation over
    # steps (rule ponder), all positions make all steps
    decides = training.stage == "all" and training.depth == "fixed" and not config.expects_loss
    decides = decides and not run.halting_delayed(run.state.update)
    for side, watch in run.state.collapse.items():
        trace, most = traces.get(side) if decides else None, config.max_steps_of(decoder=side == "decoder")
        if text := watch.inspect(trace, side=side, max_steps=most, updates=updates, processes=run.divided):
            yield text


def status(run: TrainingRun, values: Mapping[str, float], sides: Iterable[Side]) -> UpdateStatus:
    state, seconds = run.state, run.clock.seconds
    return UpdateStatus(
        update=state.update,
        seconds=seconds,
        fraction=optimizer.nearest_end(run.training, update=state.update, seconds=seconds),
        loss=values["loss"],
        steps={side: values[f"{side}_steps"] for side in sides},
        handled=state.examples if run.classes else state.targets,
    )


@dataclass(frozen=True)
class Candidate:
    """Weights that the run may end with."""

    name: Choice
    score: ValidationScore | None
    weights: Tensors


def choose(run: TrainingRun, *, stop: StopRequest) -> tuple[Candidate, bool]:
    """Return the best on validation of: the best weights so far, the last ones, and the mean of the last few.

    Also return whether the choice was interrupted: then some weights were not validated, and a resume repeats the
    choice. The choice is not part of the checkpoint, so that a run that continues later is not changed by it. The model
    is whole in every process afterwards, with weights that were tried last.
    """
    state, mean = run.state, run.selection.tensors()["ema"]
    make_whole(run.call)
    last = {name: tensor.to("cpu", copy=True) for name, tensor in mean.items()} or selection.copy_weights(run.model)
    chosen = Candidate("last", None, last)
    if state.best is not None:
        chosen = Candidate("best", state.best, run.selection.best)
    others: list[tuple[Choice, Tensors]] = []
    if state.validated != state.update or state.best is None:
        others.append(("last", last))
    if state.validated != state.update:
        run.selection.add(last)
    if (average := run.selection.average()) is not None:
        others.append(("average", average))
    for name, weights in others if run.validation else []:
        selection.load_weights(run.model, weights)
        try:
            stopped = run.clock.interrupting(stop)
            score = run.validation.score(run.model, stopped=stopped, seconds=run.clock.seconds)
        except Interrupted:
            return chosen, True
        run.write("validation", score.values() | {"weights": name})
        if chosen.score is None or score.rank(classes=run.classes) < chosen.score.rank(classes=run.classes):
            chosen = Candidate(name, score, weights)
    return chosen, False
