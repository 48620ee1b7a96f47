"""Scores on validation examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import get_args

import torch

from universal_transformer.axes import Tensor
from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import Example, sizes
from universal_transformer.data.sampler import BucketSampler
from universal_transformer.evaluation.metrics import scores
from universal_transformer.evaluation.report import Side
from universal_transformer.models.components import ENCODERS
from universal_transformer.models.model import Model
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.nn.context import Kept
from universal_transformer.training.display import Value, steps_text
from universal_transformer.training.objective import NEVER, Precision, inputs_of, objective
from universal_transformer.training.processes import ALONE, Processes
from universal_transformer.training.step_losses import cross_entropies, expected_loss
from universal_transformer.training.task_metric import TaskMetric

SIDES: tuple[Side, ...] = get_args(Side)


@dataclass(frozen=True)
class ValidationScore:
    """The result of a validation, over all its targets."""

    cross_entropy: float
    """Mean over targets, in nats, without smoothing."""
    error: float
    """Share of targets that the largest logit does not name."""
    mean_steps: float
    """N, mean over the real positions of both sides; 0 for a model without depth."""
    steps: dict[Side, float] = field(default_factory=dict)
    """N of each side that has a recurrence over depth."""
    metric: dict[str, float] = field(default_factory=dict)
    """The score of the task by its name, where weights are chosen by it; empty elsewhere."""

    def rank(self, *, classes: bool) -> tuple[float, float]:
        """Smaller is better: by the score of the task if there is one, else classes by error and tokens by loss."""
        for name, value in self.metric.items():
            return (value if scores()[name].best == "low" else -value, self.cross_entropy)
        return (self.error, self.cross_entropy) if classes else (self.cross_entropy, self.error)

    def values(self) -> dict[str, Value]:
        """Return the values of a line of metrics."""
        values: dict[str, Value] = {"cross_entropy": self.cross_entropy, "error": self.error}
        values |= {"mean_steps": self.mean_steps} | {f"{side}_steps": mean for side, mean in self.steps.items()}
        for name, value in self.metric.items():
            values |= {"metric_name": name, "metric": value}
        return values | {"perplexity": math.exp(min(self.cross_entropy, 100.0))}

    def text(self, model: Model) -> str:
        """Return the measure that the weights of `model` are compared by, with others, for a message."""
        unit = "frame" if model.writes == "frames" else "token"
        classes = model.config.architecture in ENCODERS
        measure = f"error {self.error:.2%}" if classes else f"loss {self.cross_entropy:.4f} a {unit}"
        return " · ".join([measure, *self.metric_text(), *steps_text(self.steps)])

    def metric_text(self) -> list[str]:
        """Return the score of the task for a message; an empty list where weights are not chosen by it."""
        return [f"{scores()[name].title} {scores()[name].text(value)}" for name, value in self.metric.items()]


class Interrupted(Exception):  # noqa: N818  not an error: a stop was requested
    """A validation was ended by a request to stop."""


class Validation:
    """Scores a model on the same examples in the same batches each time, without touching any random state."""

    def __init__(
        self,
        examples: Sequence[Example],
        *,
        batch_tokens: int,
        device: torch.device,
        precision: Precision,
        metric: TaskMetric | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self._examples, self._device, self._precision, self._metric = examples, device, precision, metric
        self._processes = processes
        sampler = BucketSampler(sizes(examples), batch_tokens=batch_tokens, seed=0, shuffle=False)
        self._batches = sampler.epoch(0) if examples else []

    def __bool__(self) -> bool:
        return bool(self._batches)

    def score(self, model: Model, *, stopped: Callable[[], bool]) -> ValidationScore:
        """Return the score; raise Interrupted as soon as `stopped` returns true.

        Of several processes each scores every n-th batch, and all compute the metric of the task.
        """

        def check() -> None:
            if stopped():
                raise Interrupted

        totals = torch.zeros(3 + 2 * len(SIDES), dtype=torch.float64, device=self._device)
        with self._evaluating(model):
            with self._precision():
                for indices in self._batches[self._processes.rank :: self._processes.size]:
                    check()
                    totals += self._batch_totals(model, indices)
            totals = self._processes.sum(totals)
            metric = {} if self._metric is None else self._metric.score(model, check=check)
        loss, correct, targets, *counts = totals.tolist()
        targets = max(1.0, targets)
        made, positions = counts[: len(SIDES)], counts[len(SIDES) :]
        by_side = zip(SIDES, made, positions, strict=True)
        return ValidationScore(
            cross_entropy=loss / targets,
            error=1 - correct / targets,
            mean_steps=sum(made) / max(1.0, sum(positions)),
            steps={side: steps / number for side, steps, number in by_side if steps},
            metric=metric,
        )

    def expected_loss(self, model: Model) -> float:
        """Return the mean over targets of ``Σ_t p_t CE_t`` (PonderNet), in calls in which nothing halts."""
        total, count = 0.0, 0
        with self._evaluating(model), self._precision():
            for indices in self._batches:
                batch = self._batch(indices)
                output = model(*inputs_of(batch, model=model), halting_threshold=NEVER, keep=Kept(states=True))
                read = output.decoder or output.encoder
                assert isinstance(output, ModelOutput), "frames have no such loss"
                assert output.step_logits is not None, "states are kept"
                assert read is not None, "a model that halts has a recurrence"
                each = cross_entropies(output.step_logits, batch.target, ignored=batch.ignored)
                total += float(expected_loss(each, read))
                count += int((batch.target != batch.ignored).sum())
        return total / max(1, count)

    @contextmanager
    def _evaluating(self, model: Model) -> Iterator[None]:
        was_training = model.training
        model.eval()
        devices = [self._device] if self._device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices), torch.no_grad():
                yield
        finally:
            model.train(was_training)

    def _batch(self, indices: list[int]) -> Batch:
        return collate([self._examples[index] for index in indices], indices=indices).to(self._device)

    def _batch_totals(self, model: Model, indices: list[int]) -> Tensor:
        loss = objective(model, self._batch(indices), label_smoothing=0.0, ponder_weight=0.0)
        made, positions = [], []
        for side in SIDES:
            trace = loss.traces.get(side)
            made.append(0 if trace is None else trace.steps.sum())
            positions.append(0 if trace is None else trace.num_positions())
        parts = (loss.cross_entropy * loss.num_targets, loss.num_correct, loss.num_targets, *made, *positions)
        return torch.stack([torch.as_tensor(part, device=self._device).double() for part in parts])
