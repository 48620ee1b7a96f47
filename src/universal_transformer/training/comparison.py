"""Validation scores, compared with that of answers that need no model."""

from __future__ import annotations

from collections.abc import Sequence

from universal_transformer.data.example import NO_CLASS, Example
from universal_transformer.evaluation.trivial import TrivialBaseline, target_classes
from universal_transformer.models.components import ENCODERS
from universal_transformer.models.model import Model
from universal_transformer.tasks.task import Task
from universal_transformer.training.task_metric import TaskMetric
from universal_transformer.training.validation import Score

JUDGED = ("cross_entropy", "error")
"""Figures of the baseline that the metrics hold, for the plot of the training."""


class BaselineComparison:
    """The baseline of a task, learned from its training examples, and its score on the validation examples."""

    def __init__(self, task: Task, model: Model, *, metric: TaskMetric | None) -> None:
        self.task, self.model = task, model
        self.classes = model.config.architecture in ENCODERS
        self.baseline = TrivialBaseline.learn(task.train, model.config)
        self.score = trivial_score(self.baseline, task.validation, metric=metric)

    def figures(self) -> dict[str, float]:
        """Return the score of the baseline by the names of metrics; empty without validation examples."""
        return {} if self.score is None else {f"baseline_{name}": getattr(self.score, name) for name in JUDGED}

    def baseline_text(self) -> str:
        """Return how the baseline answers, and its score; empty without validation examples."""
        if self.score is None:
            return ""
        if self.score.metric:
            how = self.baseline.describe(metric=self.task.metric, codec=self.task.codec)
            return f"baseline ({how}) {self.score.metric_text()[0]}"
        how = "most frequent class" if self.classes else "frequency of each token"
        if self.baseline.neighbours is not None:
            how = "four neighbours of each pixel"
        return f"baseline ({how}) {self.score.text(self.model)}"

    def warning(self, score: Score) -> str:
        """Return a warning if `score` is not better than that of the baseline, otherwise an empty text."""
        if self.score is None or score.rank(classes=self.classes)[0] < self.score.rank(classes=self.classes)[0]:
            return ""
        return f"validation {score.text(self.model)} is not better than the {self.baseline_text()}"


def trivial_score(baseline: TrivialBaseline, examples: Sequence[Example], *, metric: TaskMetric | None) -> Score | None:
    """Return the score of the baseline on the targets of `examples`; None without targets."""
    ids = [index for row in examples for index in target_classes(row) if index != NO_CLASS]
    if not ids:
        return None
    nats = float(baseline.nats[ids].mean())
    if baseline.neighbours is not None:
        nats = sum(baseline.neighbours.nats(target_classes(row)) for row in examples) / len(ids)
    wrong = sum(index != baseline.most_frequent for index in ids)
    return Score(
        cross_entropy=nats,
        error=wrong / len(ids),
        mean_steps=0.0,
        metric={} if metric is None else metric.trivial(baseline),
    )
