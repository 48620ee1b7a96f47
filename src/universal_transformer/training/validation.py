"""Scores on validation examples: the loss, the metric of the task, and both of answers that need no model."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import get_args

import torch

from universal_transformer.axes import Tensor
from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import NO_CLASS, Example, sizes
from universal_transformer.data.sampler import batches_by_size
from universal_transformer.evaluation.metrics import metric_of
from universal_transformer.evaluation.report import Side
from universal_transformer.evaluation.trivial import TrivialBaseline, target_classes
from universal_transformer.models.model import Model
from universal_transformer.tasks.task import Task
from universal_transformer.training.display import Value, steps_text
from universal_transformer.training.objective import Precision, objective
from universal_transformer.training.processes import ALONE, Processes
from universal_transformer.training.task_metric import LEAST_JUDGED, SHARE, TaskMetric, TaskScore

SIDES: tuple[Side, ...] = get_args(Side)


@dataclass(frozen=True)
class ValidationScore:
    """The result of a validation, over all its targets."""

    cross_entropy: float
    """Mean over targets, in nats, without smoothing."""
    error: float
    """Share of targets that the largest logit does not name, or that are the unknown token. Examples whose class
    training does not have are left out, of which `evaluate` has each as an error.
    """
    mean_steps: float
    """N, mean over the real positions of both sides; 0 for a model without depth."""
    steps: dict[Side, float] = field(default_factory=dict)
    """N of each side that has a recurrence over depth."""
    metric: TaskScore | None = field(default=None, compare=False)
    """The score of the task; None where it is the loss or the error, and where there was no time for it."""

    def rank(self, *, classes: bool) -> tuple[float, float]:
        """Smaller is better: by the score of the task if it chooses, else classes by error and tokens by loss."""
        if self.metric is not None and self.metric.chooses:
            return (self.metric.rank, self.cross_entropy)
        return (self.error, self.cross_entropy) if classes else (self.cross_entropy, self.error)

    def values(self) -> dict[str, Value]:
        values: dict[str, Value] = {"cross_entropy": self.cross_entropy, "error": self.error}
        values |= {"mean_steps": self.mean_steps} | {f"{side}_steps": mean for side, mean in self.steps.items()}
        if (metric := self.metric) is not None:
            values |= {"metric_name": metric.name, "metric": metric.value, "metric_examples": metric.count}
        return values | {"perplexity": math.exp(min(self.cross_entropy, 100.0))}

    def text(self, model: Model) -> str:
        """Return the measure that the weights of `model` are compared by, with others, for a message."""
        unit = model.writes.removesuffix("s")
        loss = [f"loss {self.cross_entropy:.4f} a {unit}"]
        if model.writes == "tokens":
            loss.append(f"{TEACHER_FORCED.format('')} {self.error:.2%}")
        measures = loss if model.config.decodes else [f"error {self.error:.2%}"]
        metric = [] if self.metric is None else [self.metric.text]
        return " · ".join([*measures, *metric, *steps_text(self.steps)])


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
        unknown_id: int | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self._examples, self._device, self._precision, self.metric = examples, device, precision, metric
        self._processes, self._unknown_id = processes, unknown_id
        self._batches = batches_by_size(sizes(examples), batch_tokens=batch_tokens) if examples else []

    def __bool__(self) -> bool:
        return bool(self._batches)

    def score(self, model: Model, *, stopped: Callable[[], bool], seconds: float = 0.0) -> ValidationScore:
        """Return the score after so many seconds of training; raise Interrupted as soon as `stopped` returns true.

        Of several processes each scores every n-th batch, and all compute the metric of the task if it chooses.
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
            metric = None
            if self.metric is not None and (self.metric.chooses or self._processes.size == 1):
                metric = self.metric.score(model, seconds=seconds, check=check)
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

    def restore(self, *, seconds: float) -> None:
        if self.metric is not None:
            self.metric.spent = SHARE * seconds

    def expected_loss(self, model: Model) -> float:
        """Return the mean over targets of ``Σ_t p_t CE_t`` (PonderNet), in calls in which nothing halts."""
        total, count = 0.0, 0
        with self._evaluating(model), self._precision():
            for indices in self._batches:
                batch = self._batch(indices)
                loss = objective(model, batch, label_smoothing=0.0, ponder_weight=0.0, step_loss="expected")
                total += float(loss.total * loss.num_targets)
                count += int(loss.num_targets)
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
        batch = self._batch(indices)
        loss = objective(model, batch, label_smoothing=0.0, ponder_weight=0.0)
        right = loss.right if self._unknown_id is None else loss.right & (batch.target != self._unknown_id)
        made, positions = [], []
        for side in SIDES:
            trace = loss.traces.get(side)
            made.append(0 if trace is None else trace.steps.sum())
            positions.append(0 if trace is None else trace.num_positions())
        parts = (loss.cross_entropy * loss.num_targets, right.sum(), loss.num_targets, *made, *positions)
        return torch.stack([torch.as_tensor(part, device=self._device).double() for part in parts])


TEACHER_FORCED = "token error{} (teacher forcing)"
"""What the error of a validation is where a model writes tokens, with a place for a unit."""
JUDGED = ("cross_entropy", "error")
"""Figures of the baseline that the metrics hold, for the plot of the training."""


class BaselineComparison:
    """The baseline of a task, learned from its training examples, and its score on the validation examples."""

    def __init__(self, task: Task, model: Model, *, metric: TaskMetric | None) -> None:
        self.metric, self.model, self.sample = metric_of(task), model, metric
        self.classes = not model.config.decodes
        self.baseline = self.metric.learn(task.train, model.config)
        unknown = task.codec.target.unknown_id
        self.score = trivial_score(self.baseline, task.validation, metric=metric, unknown_id=unknown)

    def figures(self) -> dict[str, float]:
        """Return the score of the baseline by the names of metrics; empty without validation examples."""
        if self.score is None:
            return {}
        figures = {f"baseline_{name}": float(getattr(self.score, name)) for name in JUDGED}
        return figures if self.score.metric is None else figures | {"baseline_metric": self.score.metric.value}

    def baseline_text(self) -> str:
        """Return how the baseline answers, and its score; empty without validation examples."""
        if self.score is None:
            return ""
        answers = self.metric.describe(self.baseline)
        if self.score.metric is not None and self.score.metric.chooses:
            return f"baseline ({answers}) {self.score.metric.text}"
        if self.classes:
            return f"baseline ({answers}) error {self.score.error:.2%}"
        loss = f"baseline ({self.baseline.loss_of}) loss {self.score.cross_entropy:.4f}"
        return loss if self.score.metric is None else f"{loss} · ({answers}) {self.score.metric.text}"

    def warning(self, score: ValidationScore) -> str:
        """Return a warning if `score` is not better than that of the baseline, otherwise an empty text."""
        if self.score is None:
            return ""
        if score.rank(classes=self.classes)[0] >= self.score.rank(classes=self.classes)[0]:
            return f"validation {score.text(self.model)} is not better than the {self.baseline_text()}"
        ours, sample = score.metric, self.sample
        if ours is None or sample is None or ours.count < LEAST_JUDGED:
            return ""
        theirs = sample.trivial(self.baseline, count=ours.count)
        if theirs is None or ours.rank < theirs.rank:
            return ""
        answers = self.metric.describe(self.baseline)
        return f"validation {ours.text} is not better than the baseline ({answers}) {theirs.text}"


def trivial_score(
    baseline: TrivialBaseline,
    examples: Sequence[Example],
    *,
    metric: TaskMetric | None,
    unknown_id: int | None = None,
) -> ValidationScore | None:
    """Return the score of the baseline on the targets of `examples`, where the unknown token is never a right answer;
    None without targets.
    """
    targets = [tuple(index for index in target_classes(row) if index != NO_CLASS) for row in examples]
    if not (count := sum(map(len, targets))):
        return None
    return ValidationScore(
        cross_entropy=baseline.loss(targets),
        error=1.0 if baseline.most_frequent == unknown_id else sum(map(baseline.errors, examples)) / count,
        mean_steps=0.0,
        metric=None if metric is None else metric.trivial(baseline),
    )
