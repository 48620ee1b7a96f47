"""A run in progress: where it stands, one update after the other, validations and checkpoints between them."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from universal_transformer.axes import Scalar, Tensor
from universal_transformer.errors import UserError
from universal_transformer.models.build import Model
from universal_transformer.nn.trace import Trace
from universal_transformer.tasks.task import Task
from universal_transformer.training import checkpoint as checkpoints
from universal_transformer.training import folder as folders
from universal_transformer.training import optimizer as optimizers
from universal_transformer.training.config import RunConfig
from universal_transformer.training.files import CHECKPOINTS, METRICS
from universal_transformer.training.interruption import StopRequest
from universal_transformer.training.objective import objective
from universal_transformer.training.provenance import Code
from universal_transformer.training.randomness import depth_of, random_states, restore_random_states
from universal_transformer.training.stream import Stream
from universal_transformer.training.tracking import Display, Glance, Metrics, TensorBoard, Value
from universal_transformer.training.validation import Averager, CollapseWatch, Interrupted, Score, Validation

Reason = Literal["max_updates", "minutes", "patience", "interrupted"]

AVERAGED = ("loss", "cross_entropy", "ponder", "mean_steps", "gradient_norm")


@dataclass
class Standing:
    """How far a run is: every scalar that the next update, validation or line of metrics depends on."""

    update: int = 0
    epoch: int = 0
    batch: int = 0
    """Batches of the epoch that are done."""
    examples: int = 0
    targets: int = 0
    seconds: float = 0.0
    saves: int = 0
    validated: int = 0
    """Update of the last validation."""
    best: Score | None = None
    best_update: int = 0
    stale: int = 0
    """Validations since the last improvement."""
    window: dict[str, float] = field(default_factory=dict)
    """Sums since the last line of metrics."""
    collapse: CollapseWatch = field(default_factory=lambda: CollapseWatch(cap=1))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Standing:
        """Undo `dataclasses.asdict`."""
        best = fields["best"] and Score(**fields["best"])
        return cls(**{**fields, "best": best, "collapse": CollapseWatch(**fields["collapse"])})


class Session:
    """A run in progress: `start`, then `run` until there is a reason to stop, `save`, `close`."""

    def __init__(
        self,
        config: RunConfig,
        *,
        folder: Path,
        task: Task,
        model: Model,
        device: torch.device,
        shown: Display,
    ) -> None:
        self.config, self.training, self.folder, self.task = config, config.training, folder, task
        self.model, self.device, self.shown = model, device, shown
        self.classes = model.config.architecture == "classifier"
        if self.training.halting_delay:
            optimizers.flatten_halting(model)
        self.optimizer = optimizers.build_optimizer(model, self.training)
        self.validation = Validation(
            task.validation,
            batch_tokens=self.training.batch_tokens,
            device=device,
            precision=self.precision,
        )
        self.averager = Averager(self.training.average_checkpoints)
        self.best_weights: dict[str, Tensor] = {}
        self.standing = Standing(collapse=CollapseWatch(cap=model.config.max_steps))
        self.saved_at = time.monotonic()
        self.warnings: list[str] = []
        self.data = folders.data_digest(task.train, task.validation)
        self.metrics: Metrics | None = None
        self.board: TensorBoard | None = None

    # -- beginning

    def start(self, changes: list[str], *, resume: bool) -> None:
        """Take up the last checkpoint if there is one, open the metrics, say what is going to happen."""
        folder = self.folder / CHECKPOINTS
        checkpoints.remove_partial(folder)
        found, warnings = checkpoints.load_newest(folder) if resume else (None, [])
        if found is not None:
            warnings += self._restore(found)
        standing = self.standing
        self.stream = Stream(
            self.task.train,
            batch_tokens=self.training.batch_tokens,
            seed=self.training.seed,
            device=self.device,
            epoch=standing.epoch,
            index=standing.batch,
        )
        self.metrics = Metrics(self.folder / METRICS, after=standing.update if resume else None)
        if self.training.tensorboard:
            self.board = TensorBoard(self.folder / "tensorboard", after=standing.update)
        if self.training.compile:
            self.model.compile_blocks()
        self.started = time.monotonic() - standing.seconds
        self.write("resume" if resume else "start", self._description() | {"changes": "; ".join(changes)})
        if resume:
            self.shown.note(f"going on with {self.folder} after update {standing.update}")
        for text in [*(f"changed: {change}" for change in changes), *warnings]:
            self._warn(text)

    def _restore(self, found: checkpoints.Checkpoint) -> list[str]:
        state, tensors = found.state, found.tensors
        if state["data"] != self.data:
            raise UserError(
                f"{self.folder}: the data have changed: examples were {state['data']}, are now {self.data}"
            )
        self.standing = Standing.from_dict(state["standing"])
        checkpoints.load_weights(self.model, tensors["model"])
        optimizers.load_optimizer(self.model, self.optimizer, tensors=tensors["optimizer"])
        restore_random_states(tensors["random"], device=self.device)
        self.best_weights = dict(tensors["best"])
        self.averager.load(dict(tensors["averaged"]))
        now = self._surroundings()
        return [
            f"{key} was {value}, is now {now[key]}: the last bits of the losses may differ"
            for key, value in state["surroundings"].items()
            if value != now[key]
        ]

    def _surroundings(self) -> dict[str, Value]:
        return {"threads": torch.get_num_threads(), "torch": torch.__version__, "device": self.device.type}

    def _description(self) -> dict[str, Value]:
        return {
            "recipe": self.config.recipe,
            "config": self.config.digest(),
            "data": self.data,
            "train_examples": len(self.task.train),
            "validation_examples": len(self.task.validation),
            "parameters": self.model.num_parameters(),
            **self._surroundings(),
            **Code.in_use().values(),  # after them: torch as results name it
        }

    # -- training

    def run(self, stop: StopRequest) -> Reason:
        """Make updates until there is a reason to stop, which is returned."""
        while True:
            if reason := self.between(stop):
                return reason
            self._update()

    def between(self, stop: StopRequest) -> Reason | None:
        """Do what is due between two updates, a validation or a checkpoint; return a reason to stop, if there is."""
        if self._validation_due():
            try:
                self._validate(stop)
            except Interrupted:
                return "interrupted"
        if reason := self._reason_to_stop(stop):
            return reason
        if 0 < 60 * self.training.save_minutes < time.monotonic() - self.saved_at:
            self.save()
        return None

    def _validation_due(self) -> bool:
        update = self.standing.update
        due = update > self.standing.validated and update % self.training.validate_every == 0
        return bool(self.validation) and due

    def _reason_to_stop(self, stop: StopRequest) -> Reason | None:
        training, standing = self.training, self.standing
        if stop():
            return "interrupted"
        if training.max_updates and standing.update >= training.max_updates:
            return "max_updates"
        if training.minutes and self.seconds >= 60 * training.minutes:
            return "minutes"
        return "patience" if training.patience and standing.stale >= training.patience else None

    @property
    def seconds(self) -> float:
        """Time trained, over all resumes."""
        return time.monotonic() - self.started

    def precision(self) -> AbstractContextManager[object]:
        """Return the context that matrix products are computed in."""
        enabled = self.training.precision == "bfloat16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def _update(self) -> None:
        """``θ ← θ - Adam(clip(∇L))``; nothing is changed when the loss or the gradient is not finite."""
        began = time.perf_counter()
        batch, num_targets = self.stream.current()
        self.model.train()
        with self.precision():
            loss = objective(
                self.model,
                batch,
                label_smoothing=self.training.label_smoothing,
                ponder_weight=self.ponder_weight,
                max_steps=depth_of(
                    self.training, update=self.standing.update + 1, most=self.model.config.max_steps
                ),
            )
        torch.autograd.backward(loss.total)
        norm = self.gradient_norm()
        self.stream.advance()  # before the values are waited for: a GPU is still at work here
        parts = (loss.total.detach(), loss.cross_entropy, loss.ponder, loss.mean_steps, norm)
        values = dict(zip(AVERAGED, torch.stack([part.float() for part in parts]).tolist(), strict=True))
        counts = {"updates": 1, "examples": len(batch.indices), "targets": num_targets}
        self.step(values | counts, traces=loss.traces, began=began)

    @property
    def halting_delayed(self) -> bool:
        """Whether the next update is one of those before halting is learned."""
        update, halts = self.standing.update + 1, self.model.config.halting
        return halts and optimizers.halting_delayed(self.training, update=update, seconds=self.seconds)

    def gradient_norm(self) -> Scalar:
        """``sqrt(Σ g²)`` of the gradients of what the next update changes."""
        if self.halting_delayed:
            optimizers.spare_halting(self.model)
        return optimizers.gradient_norm(self.model)

    @property
    def ponder_weight(self) -> float:
        """What thinking costs at the next update."""
        update = self.standing.update + 1
        return optimizers.ponder_weight(self.training, update=update, seconds=self.seconds)

    def step(self, values: dict[str, float], *, traces: Sequence[Trace], began: float) -> None:
        """Change the weights by the gradients that are there, unless something is not finite; and say so.

        `values` are those of `AVERAGED`, and how many updates, examples and targets they are of.
        """
        standing, training = self.standing, self.training
        update = standing.update + 1
        rate = optimizers.learning_rate(training, update=update, seconds=self.seconds)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        optimizers.refuse_non_finite(
            self.model, update=update, loss=values["loss"], norm=values["gradient_norm"]
        )
        optimizers.clip(self.model, norm=values["gradient_norm"], limit=training.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        standing.update, standing.epoch, standing.batch = update, self.stream.epoch, self.stream.index
        standing.examples += int(values["examples"])
        standing.targets += int(values["targets"])
        self._log(traces, values | {"seconds": time.perf_counter() - began}, rate=rate)

    def _log(self, traces: Sequence[Trace], values: dict[str, float], *, rate: float) -> None:
        standing, window = self.standing, self.standing.window
        for name, value in values.items():
            window[name] = window.get(name, 0.0) + value
        if standing.update % self.training.log_every == 0:
            line: dict[str, Value] = {name: window[name] / window["updates"] for name in AVERAGED}
            line |= {"learning_rate": rate, "epoch": standing.epoch}
            line |= {
                f"{unit}_per_second": window[unit] / window["seconds"] for unit in ("examples", "targets")
            }
            self.write("update", line)
            standing.window = {}
            decided = [] if self.halting_delayed else traces
            if warning := standing.collapse.look(decided, updates=int(window["updates"])):
                self._warn(warning)
        seconds = self.seconds
        self.shown.show(
            Glance(
                update=standing.update,
                seconds=seconds,
                fraction=self._fraction(seconds),
                loss=values["loss"],
                mean_steps=values["mean_steps"],
                handled=standing.examples if self.classes else standing.targets,
            )
        )

    def _fraction(self, seconds: float) -> float:
        by_updates = self.standing.update / self.training.max_updates if self.training.max_updates else 0.0
        by_time = seconds / (60 * self.training.minutes) if self.training.minutes else 0.0
        return min(1.0, max(by_updates, by_time))

    def _validate(self, stop: StopRequest) -> None:
        standing = self.standing
        score = self.validation.score(self.model, stopped=stop)
        standing.validated = standing.update
        weights = checkpoints.copy_weights(self.model)
        self.averager.add(weights)
        rank, best = score.rank(classes=self.classes), standing.best
        before = best.rank(classes=self.classes) if best else (math.inf, math.inf)
        # weights from before halting is learned never stop, which is not what was asked for
        better = rank < before and not self.halting_delayed
        if not self.halting_delayed:
            # equal errors with a smaller loss are better weights, but no reason to go on
            standing.stale = 0 if rank[0] < before[0] else standing.stale + 1
        if better:
            standing.best, standing.best_update, self.best_weights = score, standing.update, weights
        self.write("validation", numbers(score) | {"best": better})
        self.shown.note(
            f"update {standing.update}: validation {self.text(score)}{' (best)' if better else ''}"
        )
        if better:
            self.save()

    def text(self, score: Score) -> str:
        """Return a score as a person reads it."""
        measure = f"error {score.error:.2%}" if self.classes else f"loss {score.cross_entropy:.4f} a token"
        return f"{measure} · steps {score.mean_steps:.2f}" if score.mean_steps else measure

    # -- keeping

    def save(self) -> None:
        """Write a checkpoint of this moment."""
        standing = self.standing
        standing.seconds = self.seconds
        standing.saves += 1
        tensors = {
            "model": self.model.tensors(),
            "optimizer": optimizers.optimizer_tensors(self.model, self.optimizer),
            "random": random_states(self.device),
            "best": self.best_weights,
            "averaged": self.averager.tensors(),
        }
        state = {
            "standing": dataclasses.asdict(standing),
            "config": self.config.digest(),
            "data": self.data,
            "surroundings": self._surroundings(),
        }
        if self.metrics is not None:
            self.metrics.sync()
        checkpoints.save(
            self.folder / CHECKPOINTS,
            checkpoints.Checkpoint(tensors=tensors, state=state),
            name=f"{standing.update:09d}-{standing.saves:06d}",
        )
        self.saved_at = time.monotonic()

    # -- saying

    def write(self, event: str, values: Mapping[str, Value]) -> None:
        """Add a line to the metrics."""
        assert self.metrics is not None
        self.metrics.write(event, update=self.standing.update, seconds=self.seconds, values=values)
        if self.board is not None and event in ("update", "validation"):
            self.board.write(event, update=self.standing.update, values=values)

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        self.write("warning", {"text": text})
        self.shown.note(f"warning: {text}")

    def close(self) -> None:
        """Close the files."""
        for writer in (self.metrics, self.board):
            if writer is not None:
                writer.close()


def numbers(score: Score) -> dict[str, Value]:
    """Return a score as metrics hold it."""
    return {**dataclasses.asdict(score), "perplexity": math.exp(min(score.cross_entropy, 100.0))}


__all__ = ["Reason", "Session", "Standing", "numbers"]
