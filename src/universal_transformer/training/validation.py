"""Scores on validation examples, averages of weights, and the detection of collapsed halting."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import get_args

import torch

from universal_transformer.axes import Tensor
from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import NO_CLASS, PADDING, Example, sizes
from universal_transformer.data.sampler import BucketSampler
from universal_transformer.evaluation.collapse import describe, kind_of_collapse
from universal_transformer.evaluation.report import METRICS, Side
from universal_transformer.evaluation.trivial import TrivialBaseline, target_classes
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.nn.trace import Kept, Trace
from universal_transformer.registry import Model
from universal_transformer.training.objective import NEVER, answer, objective
from universal_transformer.training.processes import ALONE, Processes
from universal_transformer.training.step_losses import cross_entropies, expected_loss
from universal_transformer.training.task_metric import TaskMetric
from universal_transformer.typed import NumberOf

Precision = Callable[[], AbstractContextManager[object]]

SIDES: tuple[Side, ...] = get_args(Side)
COLLAPSE_UPDATES = 500
COLLAPSE_LOOKS = 3


@dataclass(frozen=True)
class Score:
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
    """The score of the task by its name in `METRICS`, where weights are chosen by it; empty elsewhere."""

    def rank(self, *, classes: bool) -> tuple[float, float]:
        """Smaller is better: by the score of the task if there is one, else classes by error and tokens by loss."""
        for name, value in self.metric.items():
            return (value if METRICS[name].best == "low" else -value, self.cross_entropy)
        return (self.error, self.cross_entropy) if classes else (self.cross_entropy, self.error)


def trivial_score(baseline: TrivialBaseline, examples: Sequence[Example], *, metric: TaskMetric | None) -> Score | None:
    """Return the score of the baseline on the targets of `examples`; None without targets."""
    ids = [index for row in examples for index in target_classes(row.target) if index != NO_CLASS]
    if not ids:
        return None
    nats = float(baseline.nats[ids].mean())
    if baseline.neighbours is not None:
        nats = sum(baseline.neighbours.nats(target_classes(row.target)) for row in examples) / len(ids)
    wrong = sum(index != baseline.most_frequent for index in ids)
    return Score(
        cross_entropy=nats,
        error=wrong / len(ids),
        mean_steps=0.0,
        metric={} if metric is None else metric.trivial(baseline),
    )


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

    def score(self, model: Model, *, stopped: Callable[[], bool]) -> Score:
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
        return Score(
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
                output = answer(model, batch, {"halting_threshold": NEVER, "keep": Kept(states=True)})
                read = output.decoder or output.encoder
                assert isinstance(output, ModelOutput), "frames have no such loss"
                assert output.step_logits is not None, "states are kept"
                assert read is not None, "a model that halts has a recurrence"
                ignored = NO_CLASS if batch.target.ndim == 1 else PADDING
                total += float(expected_loss(cross_entropies(output.step_logits, batch.target, ignored=ignored), read))
                count += int((batch.target != ignored).sum())
        return total / max(1, count)

    @contextmanager
    def _evaluating(self, model: Model) -> Iterator[None]:
        was_training = model.training
        model.eval()
        devices = [self._device] if self._device.type == "cuda" else []
        try:
            # no inference mode: training uses the tables that the model caches here
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


class Averager:
    """The mean of the weights at the last `count` validations (0 or 1: no average)."""

    def __init__(self, count: int) -> None:
        self._kept: deque[dict[str, Tensor]] = deque(maxlen=count if count > 1 else 0)

    def add(self, weights: dict[str, Tensor]) -> None:
        """Add the weights of one validation."""
        self._kept.append(weights)

    def average(self) -> dict[str, Tensor] | None:
        """Return ``1/k Σ w_i``, or None while there are fewer than two to average."""
        if len(self._kept) < 2:
            return None
        return {
            name: torch.stack([kept[name].double() for kept in self._kept]).mean(0).to(first.dtype)
            for name, first in self._kept[0].items()
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return all kept weights by name, oldest first."""
        return {f"{index}/{name}": t for index, kept in enumerate(self._kept) for name, t in kept.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Undo `tensors`."""
        by_index = by_validation(tensors)
        self._kept.extend(by_index[index] for index in sorted(by_index, key=int))


def by_validation(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return the weights of each validation in what `Averager.tensors` returns, by its number as text."""
    found: dict[str, dict[str, Tensor]] = {}
    for full_name, tensor in tensors.items():
        index, _, name = full_name.partition("/")
        found.setdefault(index, {})[name] = tensor
    return found


@dataclass
class CollapseWatch:
    """Detects halting of one side that has been collapsed for long, by the definition of `evaluation.collapse`."""

    updates: NumberOf = 0
    """Updates since halting was last not collapsed."""
    looks: NumberOf = 0
    """Inspected updates since then."""
    warned: bool = False

    def look(
        self, trace: Trace | None, *, side: Side, max_steps: int, updates: int, processes: Processes = ALONE
    ) -> str | None:
        """Inspect the last of `updates` updates (None: halting is not trained); return a warning, once a run.

        `trace` is that of this process.
        """
        kind, found = None, ""
        if trace is not None and trace.probability is not None:
            steps = trace.steps if trace.padding is None else trace.steps[~trace.padding]
            steps = steps.double()
            sums = torch.stack([torch.ones_like(steps).sum(), steps.sum(), steps.square().sum()])
            count, total, squares = processes.sum(sums).tolist()
            mean = total / count
            spread = math.sqrt(max(0.0, squares / count - mean**2))
            kind = kind_of_collapse(mean, spread, max_steps=max_steps)
            if kind is not None:
                found = describe(kind, mean, spread, side=side, max_steps=max_steps)
        self.updates = self.updates + updates if kind else 0
        self.looks = self.looks + 1 if kind else 0
        if self.warned or self.updates < COLLAPSE_UPDATES or self.looks < COLLAPSE_LOOKS:
            return None
        self.warned = True
        return (
            f"halting has collapsed ({kind}): in each of the last {self.looks} updates looked at, of {self.updates}, "
            f"{found}"
        )
