"""A training run in progress: updates, and between them validations and checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from universal_transformer.axes import Tensor
from universal_transformer.errors import UserError
from universal_transformer.evaluation.collapse import fake
from universal_transformer.evaluation.report import Side
from universal_transformer.execution.context_parallel import make_context_parallel
from universal_transformer.files import write_json
from universal_transformer.models.components import ENCODERS
from universal_transformer.models.model import Model
from universal_transformer.nn.trace import Trace
from universal_transformer.tasks.task import Task
from universal_transformer.training import checkpoint as checkpoints
from universal_transformer.training import folder as folders
from universal_transformer.training import halting_schedule
from universal_transformer.training import optimizer as optimizers
from universal_transformer.training.averages import ExponentialMovingAverage, ValidationAverage
from universal_transformer.training.batches import TrainingBatches
from universal_transformer.training.comparison import BaselineComparison
from universal_transformer.training.config import BASELINE, CHECKPOINTS, CONFIG, METRICS, RunConfig
from universal_transformer.training.gradient import Moment, backward
from universal_transformer.training.interruption import StopRequest, never
from universal_transformer.training.processes import ALONE, Processes
from universal_transformer.training.provenance import code_in_use
from universal_transformer.training.randomness import random_states, restore_random_states
from universal_transformer.training.recorded_data import data_digest, data_files, read_data_file
from universal_transformer.training.replica import Replica, gathered, make_whole, replicated, sharded, whole
from universal_transformer.training.resume import GivenRun
from universal_transformer.training.score_text import numbers, steps_name
from universal_transformer.training.state import AVERAGED, RunState, Snapshot, first_non_finite
from universal_transformer.training.task_metric import TaskMetric
from universal_transformer.training.tracking import Display, Metrics, TensorBoard, UpdateStatus, Value
from universal_transformer.training.validation import Interrupted, Score, Validation
from universal_transformer.training.warm_start import starting_weights

Reason = Literal["max_updates", "minutes", "patience", "interrupted"]


class TrainingRun:
    """A training run: `start`, then `run` until there is a reason to stop, `save`, `close`."""

    def __init__(
        self,
        config: RunConfig,
        *,
        folder: Path,
        task: Task,
        model: Model,
        device: torch.device,
        shown: Display,
        processes: Processes = ALONE,
    ) -> None:
        self.config, self.training, self.folder, self.task = config, config.training, folder, task
        self.model, self.device, self.shown, self.processes = model, device, shown, processes
        self.divided = ALONE if self.training.parallel == "positions" else processes  # those that divide a batch
        self.classes = model.config.architecture in ENCODERS
        halting_schedule.prepare_units(model, self.training)
        self.optimizer = optimizers.build_optimizer(model, self.training)
        metric = TaskMetric.chosen(task, self.training)
        self.validation = Validation(
            task.validation,
            batch_tokens=self.training.batch_tokens,
            device=device,
            precision=self.precision,
            metric=metric,
            processes=self.divided,
        )
        self.averager = ValidationAverage(self.training.average_checkpoints)
        self.running = ExponentialMovingAverage(self.training.ema_decay)
        self.best_weights: dict[str, Tensor] = {}
        self.state = RunState()
        self.saved_at = time.monotonic()
        self.warnings: list[str] = []
        self.data = data_digest(task.train, task.validation)
        self.files = {name: read_data_file(path) for name, path in data_files(config.data).items()}
        self.comparison = BaselineComparison(task, model, metric=metric)
        self.metrics: Metrics | None = None
        self.board: TensorBoard | None = None

    def start(self, changes: list[str], *, resume: bool, taken: list[str], accepted: Collection[str] = ()) -> None:
        """Load the last checkpoint of a resumed run, write config.json, open the metrics, and report the start.

        `changes` are those since the last config.json. `taken` says what the weights were taken over from; a resume
        that finds no checkpoint takes them over again. `accepted` are the fields that a resume changes deliberately:
        then a checkpoint with the new configuration is written at once.
        """
        folder = self.folder / CHECKPOINTS
        given = GivenRun(self.folder, self.config, self.data, self.files, self._surroundings(), tuple(accepted))
        self._set_batches(self.state)
        warnings: list[str] = []
        if resume:
            found, warnings = checkpoints.load_newest(folder, read=partial(self._read, given=given))
            if found is not None:
                changes = given.compare(found) or changes
                warnings += given.warnings(found)
                if 0 < self.training.max_updates < found.state.update:
                    raise UserError(
                        f"training.max_updates={self.training.max_updates}: this run has {found.state.update:,} "
                        "updates already; expected at least as many"
                    )
                self._restore(found)
            elif self.config.warm_start is not None:
                taken = starting_weights(self.model, self.task.codec, self.config)
                halting_schedule.prepare_units(self.model, self.training)
        if self.processes.first:
            self._open_files(resume=resume)
        if self.training.compile:
            self.model.compile_blocks()
        self.started = time.monotonic() - self.state.seconds
        self.agreed_seconds = self.update_began = self.state.seconds
        self.write("resume" if resume else "start", self._description(changes, taken))
        for text in taken:
            self.shown.note(text)
        if resume:
            self.shown.note(f"continuing {self.folder} after update {self.state.update}")
        for text in [*(f"changed: {change}" for change in changes), *warnings]:
            self.warn(text)
        if accepted and self.state.saves:
            self.save()

    def _open_files(self, *, resume: bool) -> None:
        """Write what describes the run, and open its metrics."""
        checkpoints.remove_partial(self.folder / CHECKPOINTS)
        after = self.state.update
        if not resume:  # a folder with metrics and no configuration would be no run
            write_json(self.folder / CONFIG, self.config.to_dict())
        self.metrics = Metrics(self.folder / METRICS, after=after if resume else None)
        if resume:  # a resume that cannot read the metrics leaves the configuration as it was
            write_json(self.folder / CONFIG, self.config.to_dict())
        self.comparison.baseline.save(self.folder / BASELINE)
        if self.training.tensorboard:
            self.board = TensorBoard(self.folder / folders.TENSORBOARD, after=after)

    def connect(self) -> None:
        """Make the model a replica of that of the first process, or divide it, after `start` in all processes."""
        self.call: nn.Module = Replica(self.model)
        if self.processes.size == 1:
            return
        if self.training.parallel == "shards":
            moments = optimizers.optimizer_tensors(self.model, self.optimizer)
            self.call = sharded(self.model, device=self.device, size=self.processes.size)
            self.optimizer = optimizers.build_optimizer(self.model, self.training)
            optimizers.load_optimizer(self.model, self.optimizer, tensors=moments)
            self.running.load(self.running.weights, like=self.model)
            return
        if self.training.parallel == "positions":
            make_context_parallel(self.model)
        self.call = replicated(self.model, device=self.device)

    def disconnect(self) -> None:
        """Make the model whole again in every process, after the last update."""
        mean = self.running.tensors()
        make_whole(self.call)
        self.running.load(mean, like=self.model)

    def _set_batches(self, state: RunState) -> None:
        self.batches = TrainingBatches(
            self.task.train,
            batch_tokens=self.training.batch_tokens,
            seed=self.training.seed,
            device=self.device,
            start=(state.epoch, state.batch),
            passes=self.training.accumulate,
            processes=self.divided,
        )

    def _read(self, found: checkpoints.Checkpoint, name: str, *, given: GivenRun) -> Snapshot:
        """Return a checkpoint of this run after every check; UserError for damage, OtherRunError for another run."""
        snapshot = Snapshot.from_checkpoint(found, name=name)
        given.compare(snapshot)
        snapshot.check_tensors(self.model)
        self._set_batches(snapshot.state)
        return snapshot

    def _restore(self, snapshot: Snapshot) -> None:
        tensors = snapshot.tensors
        self.state = snapshot.state
        checkpoints.load_weights(self.model, tensors["model"])
        optimizers.load_optimizer(self.model, self.optimizer, tensors=tensors["optimizer"])
        restore_random_states(tensors["random"], device=self.device)
        self.best_weights = dict(tensors["best"])
        self.averager.load(tensors["averaged"])
        self.running.load(tensors.get("ema", {}), like=self.model)

    def _surroundings(self) -> dict[str, int | str]:
        return {"threads": torch.get_num_threads(), "torch": torch.__version__, "device": self.device.type}

    def _description(self, changes: list[str], taken: list[str]) -> dict[str, Value]:
        return {
            "recipe": self.config.recipe,
            "config": self.config.digest(),
            "folder": str(self.folder.absolute()),
            "data": self.data,
            "train_examples": len(self.task.train),
            "validation_examples": len(self.task.validation),
            "parameters": self.model.num_parameters(),
            **self._surroundings(),
            **code_in_use().values(),  # after the surroundings: the version of torch as results state it
            **({"warm_start": "; ".join(taken)} if taken else {}),
            **self.comparison.figures(),
            "changes": "; ".join(changes),
        }

    def run(self, stop: StopRequest) -> Reason:
        """Make updates, with validations and checkpoints between them, until there is a reason to stop; return it."""
        while True:
            due = self.state.update > self.state.validated and self.state.update % self.training.validate_every == 0
            if due and self.validation:
                try:
                    self._validate(stop)
                except Interrupted:
                    return "interrupted"
            if reason := self._reason_to_stop(stopped=self._stopped(stop)):
                return reason
            if 0 < 60 * self.training.save_minutes < time.monotonic() - self.saved_at:
                self.save()
            self._update()

    def _stopped(self, stop: StopRequest) -> bool:
        """Return whether any process was asked to stop. All processes go by the clock of the first one."""
        if self.processes.size == 1:
            return stop()
        clock = time.monotonic() - self.started if self.processes.first else 0.0
        requests, self.agreed_seconds = self.processes.sum(torch.tensor([float(stop()), clock]).double()).tolist()
        return requests > 0

    def _reason_to_stop(self, *, stopped: bool) -> Reason | None:
        training, state = self.training, self.state
        if stopped:
            return "interrupted"
        if training.max_updates and state.update >= training.max_updates:
            return "max_updates"
        if training.minutes and self.seconds >= 60 * training.minutes:
            return "minutes"
        return "patience" if training.patience and state.stale >= training.patience else None

    @property
    def seconds(self) -> float:
        """Seconds of training, over all resumes."""
        return time.monotonic() - self.started if self.processes.size == 1 else self.agreed_seconds

    def precision(self) -> AbstractContextManager[object]:
        """Return the autocast context of the run's precision."""
        enabled = self.training.precision == "bfloat16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def _update(self) -> None:
        """``θ ← θ - Adam(clip(∇L))``, unless the loss or the gradient is not finite, or an outlier."""
        began = time.perf_counter()
        state, training, model = self.state, self.training, self.model
        update, self.update_began = state.update + 1, self.seconds
        parts, own_targets = self.batches.current()
        num_examples, num_targets = self.batches.rows, int(self.divided.sum(torch.tensor(own_targets)))
        self.call.train(training.stage == "all")  # weights that stay as they are see no dropout
        figures, traces = backward(
            model,
            parts,
            call=self.call,
            training=training,
            moment=Moment(update, self.update_began),
            precision=self.precision,
            processes=self.divided,
        )
        if self._halting_delayed(update):
            halting_schedule.discard_gradients(model)
        figures["gradient_norm"] = optimizers.gradient_norm(model)
        self.batches.advance()  # before the values are read: a GPU is still computing here
        found = self.processes.sum(torch.stack([value.float() for value in figures.values()])) / self.processes.size
        values = dict(zip(figures, found.tolist(), strict=True))
        rate = optimizers.learning_rate(training, update=update, seconds=self.seconds)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        optimizers.refuse_non_finite(model, update=update, loss=values["loss"], norm=values["gradient_norm"])
        if (left_out := state.outliers.inspect(values, sigmas=training.skip_outliers)) is None:
            optimizers.clip(model, norm=values["gradient_norm"], limit=training.clip_norm)
            self.optimizer.step()
            self.running.add(model, update=update)
        self.optimizer.zero_grad(set_to_none=True)
        state.update, state.epoch, state.batch = update, self.batches.epoch, self.batches.index
        state.examples += num_examples
        state.targets += num_targets
        if left_out is not None:
            self.write("outlier", {"text": left_out})
            self.shown.note(f"update {update} is left out: its {left_out}")
        counts = {"updates": 1, "examples": num_examples, "targets": num_targets}
        self._log(traces, values | counts | {"seconds": time.perf_counter() - began}, rate=rate)

    def _halting_delayed(self, update: int) -> bool:
        """Return whether `update`, which is the last one or is being made, comes before halting is trained."""
        halts, seconds = self.model.config.halts, self.update_began
        return halts and halting_schedule.halting_delayed(self.training, update=update, seconds=seconds)

    def _log(self, traces: Mapping[Side, Trace], values: dict[str, float], *, rate: float) -> None:
        state, window = self.state, self.state.window
        for name, value in values.items():
            window[name] = window.get(name, 0.0) + value
        if state.update % self.training.log_every == 0:
            averaged = (*AVERAGED, *map(steps_name, traces))
            line: dict[str, Value] = {name: window[name] / window["updates"] for name in averaged}
            line |= {"learning_rate": rate, "epoch": state.epoch}
            line |= {f"{unit}_per_second": window[unit] / window["seconds"] for unit in ("examples", "targets")}
            self.write("update", line)
            state.window = {}
            self._look_at_halting(traces, updates=int(window["updates"]))
        seconds, training = self.seconds, self.training
        by_updates = state.update / training.max_updates if training.max_updates else 0.0
        by_time = seconds / (60 * training.minutes) if training.minutes else 0.0
        self.shown.show(
            UpdateStatus(
                update=state.update,
                seconds=seconds,
                fraction=min(1.0, max(by_updates, by_time)),
                loss=values["loss"],
                steps={side: values[steps_name(side)] for side in traces},
                handled=state.examples if self.classes else state.targets,
            )
        )

    def _look_at_halting(self, traces: Mapping[Side, Trace], *, updates: int) -> None:
        # at random depth the cap differs from update to update; where the unit is fitted alone, and where the loss is
        # an expectation over steps (rule ponder), all positions make all steps
        all_steps = self.training.stage == "halting" or self.model.config.expects_loss
        unknown = self._halting_delayed(self.state.update) or all_steps or self.training.depth == "random"
        decided = {} if unknown else traces
        for side, watch in self.state.collapse.items():
            most = self.model.config.max_steps_of(decoder=side == "decoder")
            found = decided.get(side)
            if warning := watch.inspect(found, side=side, max_steps=most, updates=updates, processes=self.divided):
                self.warn(warning)

    def interrupting(self, stop: StopRequest) -> StopRequest | Callable[[], bool]:
        """Return what ends a validation before its end: nothing among several processes, which make the same calls."""
        return stop if self.processes.size == 1 else never

    def _validate(self, stop: StopRequest) -> None:
        state = self.state
        with gathered(self.call):
            score = self.validation.score(self.model, stopped=self.interrupting(stop))
        state.validated = state.update
        weights = checkpoints.copy_weights(self.model)
        delayed = self._halting_delayed(state.update)
        if not delayed:
            self.averager.add(weights)
        rank, best = score.rank(classes=self.classes), state.best
        before = best.rank(classes=self.classes) if best else (math.inf, math.inf)
        # before halting is trained the model never halts: its weights are not candidates. Where it is fitted alone,
        # the fewest errors would choose the unit that stops latest
        candidate = not delayed and self.training.stage == "all"
        better = candidate and math.isfinite(score.cross_entropy) and rank < before
        if candidate:
            # equal errors with a smaller loss are better weights, but not a reason to continue
            state.stale = 0 if rank[0] < before[0] else state.stale + 1
        if better:
            state.best, state.best_update, self.best_weights = score, state.update, weights
        self.write("validation", numbers(score) | {"best": better})
        self.shown.note(f"update {state.update}: validation {self.comparison.text(score)}{' (best)' if better else ''}")
        if better:
            self.save()

    def check_exit(self, score: Score) -> None:
        """Warn if the loss of `score` is above its expectation over the steps at which positions may stop."""
        if self.model.config.expects_loss and (
            found := fake(score.cross_entropy, expected=self.validation.expected_loss(self.model))
        ):
            self.warn(found)

    def save(self) -> None:
        """Write a checkpoint; NonFiniteError instead of one with a number that is not finite."""
        state = self.state
        tensors: dict[str, checkpoints.Tensors] = {
            "model": {name: whole(tensor) for name, tensor in self.model.tensors().items()},
            "optimizer": optimizers.optimizer_tensors(self.model, self.optimizer),
            "random": random_states(self.device),
            "best": self.best_weights,
            "averaged": self.averager.tensors(),
            **({"ema": self.running.tensors()} if self.running.decay else {}),
        }
        if (name := first_non_finite(tensors)) is not None:
            raise optimizers.NonFiniteError(
                f"update {state.update}: {name} has values that are not finite: no checkpoint of it is saved"
            )
        state.seconds = self.seconds
        state.saves += 1
        self.saved_at = time.monotonic()
        if not self.processes.first:
            return
        snapshot = Snapshot(
            state=state,
            config=self.config,
            digest=self.config.digest(),
            data=self.data,
            files=self.files,
            surroundings=self._surroundings(),
            tensors=tensors,
        )
        if self.metrics is not None:
            self.metrics.sync()
        checkpoints.save(self.folder / CHECKPOINTS, snapshot.checkpoint(), name=snapshot.name)
        self.saved_at = time.monotonic()

    def write(self, event: str, values: Mapping[str, Value]) -> None:
        """Add a line to the metrics, in the first process."""
        if self.metrics is None:
            return
        self.metrics.write(event, update=self.state.update, seconds=self.seconds, values=values)
        if self.board is not None and event in ("update", "validation"):
            self.board.write(event, update=self.state.update, values=values)

    def warn(self, text: str) -> None:
        """Keep a warning, write it to the metrics, and show it."""
        self.warnings.append(text)
        self.write("warning", {"text": text})
        self.shown.note(f"warning: {text}")

    def close(self) -> None:
        """Close the files."""
        for writer in (self.metrics, self.board):
            if writer is not None:
                writer.close()
