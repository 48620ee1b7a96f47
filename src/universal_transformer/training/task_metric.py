"""The metric of a task on validation examples, computed while a model trains: exact matches, BLEU, …"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from universal_transformer.data.example import Example, sizes, spread
from universal_transformer.data.sampler import BucketSampler
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.evaluation.report import PRIMARY_SCORE
from universal_transformer.evaluation.scores import ScoreSums, scores
from universal_transformer.evaluation.scoring import Scorer
from universal_transformer.evaluation.texts import check_packages
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.models.model import Model
from universal_transformer.tasks.task import Task
from universal_transformer.training.config import TrainingConfig

OF_VALIDATION = ("error", "classes", "accuracy", "perplexity", "tags", "intensities", "actions", "frames")
"""Metrics that are computed from what every validation computes: they choose the same weights as error and loss."""


@dataclass(frozen=True)
class TaskMetric:
    """The score by which models of a task are compared, on `examples` of its validation set, in float32."""

    task: Task
    examples: Sequence[Example]
    batch_tokens: int

    @classmethod
    def chosen(cls, task: Task, training: TrainingConfig) -> TaskMetric | None:
        """Return what `training.select_by` asks for; None where the loss, or the error of classes, decides.

        UserError if a package of the metric is missing.
        """
        if training.select_by == "loss" or task.metric in OF_VALIDATION:
            return None
        check_packages(task)
        examples = spread(task.validation, count=training.select_examples)
        return cls(task, examples, training.batch_tokens)

    def score(self, model: Model, *, check: Callable[[], None]) -> dict[str, float]:
        """Return the score by its name in `METRICS`, as `evaluate` computes it; `check` is called for each batch."""
        scorer = Scorer(model, self.task.codec, self.task.metric, DecodingOptions())
        sums = ScoreSums(count=0)
        for indices in BucketSampler(sizes(self.examples), self.batch_tokens, seed=0, shuffle=False).epoch(0):
            check()
            for found in scorer([self.examples[index] for index in indices]):
                sums.add(found)
        return self._decisive(sums)

    def trivial(self, baseline: TrivialBaseline) -> dict[str, float]:
        """Return the same score of the baseline."""
        sums = ScoreSums(count=0)
        for found in baseline.sums(self.examples, metric=self.task.metric, codec=self.task.codec):
            sums.add(found)
        return self._decisive(sums)

    def _decisive(self, sums: ScoreSums) -> dict[str, float]:
        task, name = self.task, PRIMARY_SCORE[self.task.metric]
        found, _ = scores(sums, metric=task.metric, codec=task.codec, bleu_tokenizer=task.bleu_tokenizer)
        return {name: found[name]} if sums.count else {}
