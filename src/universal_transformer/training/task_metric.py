"""The metric of a task on validation examples, computed while a model trains: exact matches, BLEU, …"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from universal_transformer.data.example import Example, sizes, spread
from universal_transformer.data.sampler import BucketSampler
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.evaluation.metrics import Inference, Metric, metric_of
from universal_transformer.evaluation.scores import ScoreSums, total
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.models.model import Model
from universal_transformer.tasks.task import Task
from universal_transformer.training.run_config import TrainingConfig


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
        for indices in BucketSampler(sizes(self.examples), self.batch_tokens, seed=0, shuffle=False).epoch(0):
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
