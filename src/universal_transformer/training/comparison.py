"""Validation scores, compared with that of answers that need no model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from universal_transformer.data.example import NO_CLASS, Example
from universal_transformer.evaluation.metrics import metric_of
from universal_transformer.evaluation.trivial import TrivialBaseline, target_classes
from universal_transformer.models.components import ENCODERS
from universal_transformer.models.model import Model
from universal_transformer.tasks.task import Task
from universal_transformer.training.task_metric import TaskMetric
from universal_transformer.training.validation import ValidationScore

JUDGED = ("cross_entropy", "error")
"""Figures of the baseline that the metrics hold, for the plot of the training."""


class BaselineComparison:
    """The baseline of a task, learned from its training examples, and its score on the validation examples."""

    def __init__(self, task: Task, model: Model, *, metric: TaskMetric | None) -> None:
        self.metric, self.model = metric_of(task), model
        self.classes = model.config.architecture in ENCODERS
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
