"""Scores on validation examples: the loss, the metric of the task, and both of answers that need no model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import get_args

import torch

from universal_transformer.axes import Tensor
from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import NO_CLASS, Example, sizes, spread
from universal_transformer.data.sampler import batches_by_size
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.evaluation.metrics import Inference, Metric, metric_of, scores
from universal_transformer.evaluation.report import Side
from universal_transformer.evaluation.scores import ScoreSums, total
from universal_transformer.evaluation.trivial import TrivialBaseline, target_classes
from universal_transformer.models.model import Model
from universal_transformer.tasks.task import Task
from universal_transformer.training.display import Value, steps_text
from universal_transformer.training.objective import Precision, objective
from universal_transformer.training.processes import ALONE, Processes
from universal_transformer.training.run_config import TrainingConfig

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
        loss = f"loss {self.cross_entropy:.4f} a {model.writes.removesuffix('s')}"
        measure = loss if model.config.decodes else f"error {self.error:.2%}"
        return " · ".join([measure, *self.metric_text(), *steps_text(self.steps)])

    def metric_text(self) -> list[str]:
        """Return the score of the task for a message; an empty list where weights are not chosen by it."""
        return [f"{scores()[name].title} {scores()[name].text(value)}" for name, value in self.metric.items()]


@dataclass(frozen=True)
class TaskMetric:
    """The score by which models of a task are compared, on `examples` of its validation set, in float32."""

    metric: Metric
    examples: Sequence[Example]
    batch_tokens: int

    @classmethod
    def chosen(cls, task: Task, training: TrainingConfig) -> TaskMetric | None:
        """Return what `training.select_by` asks for; None where the loss, or the error of classes, decides.

        UserError if a package of the metric is missing.
        """
        metric = metric_of(task)
        if training.select_by == "loss" or metric.chosen_by_loss:
            return None
        metric.check_packages()
        examples = spread(task.validation, count=training.select_examples)
        return cls(metric, examples, training.batch_tokens)

    def score(self, model: Model, *, check: Callable[[], None]) -> dict[str, float]:
        """Return the score by its name, as `evaluate` computes it; `check` is called for each batch."""
        sums = ScoreSums(count=0)
        for indices in batches_by_size(sizes(self.examples), batch_tokens=self.batch_tokens):
            check()
            examples = [self.examples[index] for index in indices]
            sums.add(total(self.metric.answers(Inference(model, DecodingOptions()), examples)))
        return self._decisive(sums)

    def trivial(self, baseline: TrivialBaseline) -> dict[str, float]:
        """Return the same score of the baseline."""
        return self._decisive(total(self.metric.trivial(baseline, example) for example in self.examples))

    def _decisive(self, sums: ScoreSums) -> dict[str, float]:
        name = self.metric.decisive
        return {name: self.metric.scores(sums)[name]} if sums.count else {}


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
        self._batches = batches_by_size(sizes(examples), batch_tokens=batch_tokens) if examples else []

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
        loss = objective(model, self._batch(indices), label_smoothing=0.0, ponder_weight=0.0)
        made, positions = [], []
        for side in SIDES:
            trace = loss.traces.get(side)
            made.append(0 if trace is None else trace.steps.sum())
            positions.append(0 if trace is None else trace.num_positions())
        parts = (loss.cross_entropy * loss.num_targets, loss.num_correct, loss.num_targets, *made, *positions)
        return torch.stack([torch.as_tensor(part, device=self._device).double() for part in parts])


JUDGED = ("cross_entropy", "error")
"""Figures of the baseline that the metrics hold, for the plot of the training."""


class BaselineComparison:
    """The baseline of a task, learned from its training examples, and its score on the validation examples."""

    def __init__(self, task: Task, model: Model, *, metric: TaskMetric | None) -> None:
        self.metric, self.model = metric_of(task), model
        self.classes = not model.config.decodes
        self.baseline = self.metric.learn(task.train, model.config)
        self.score = trivial_score(self.baseline, task.validation, metric=metric)

    def figures(self) -> dict[str, float]:
        """Return the score of the baseline by the names of metrics; empty without validation examples."""
        return {} if self.score is None else {f"baseline_{name}": getattr(self.score, name) for name in JUDGED}

    def baseline_text(self) -> str:
        """Return how the baseline answers, and its score; empty without validation examples."""
        if self.score is None:
            return ""
        if self.score.metric:
            return f"baseline ({self.metric.describe(self.baseline)}) {self.score.metric_text()[0]}"
        how = "most frequent class" if self.classes else self.baseline.loss_of
        return f"baseline ({how}) {self.score.text(self.model)}"

    def warning(self, score: ValidationScore) -> str:
        """Return a warning if `score` is not better than that of the baseline, otherwise an empty text."""
        if self.score is None or score.rank(classes=self.classes)[0] < self.score.rank(classes=self.classes)[0]:
            return ""
        return f"validation {score.text(self.model)} is not better than the {self.baseline_text()}"


def trivial_score(
    baseline: TrivialBaseline, examples: Sequence[Example], *, metric: TaskMetric | None
) -> ValidationScore | None:
    """Return the score of the baseline on the targets of `examples`; None without targets."""
    targets = [tuple(index for index in target_classes(row) if index != NO_CLASS) for row in examples]
    if not (ids := [*chain.from_iterable(targets)]):
        return None
    wrong = sum(index != baseline.most_frequent for index in ids)
    return ValidationScore(
        cross_entropy=baseline.loss(targets),
        error=wrong / len(ids),
        mean_steps=0.0,
        metric={} if metric is None else metric.trivial(baseline),
    )
