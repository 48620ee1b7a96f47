"""The score by which models of a task are compared, on validation examples."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from universal_transformer.data.example import Example, sizes, spread
from universal_transformer.data.sampler import batches_by_size
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics import Inference, Metric, metric_of, scores
from universal_transformer.evaluation.scores import ScoreSums, total
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.models.model import Model
from universal_transformer.tasks.task import Task
from universal_transformer.training.run_config import TrainingConfig

SHARE = 0.05
"""Of the time of training, that a score may take which only is shown."""
LEAST_JUDGED = 20
"""Examples whose score is compared with that of the baseline."""


@dataclass(frozen=True, kw_only=True)
class TaskScore:
    """The decisive score of a metric over so many examples."""

    name: str
    value: float
    count: int
    chooses: bool
    """Whether weights are chosen by it; else it is shown only, over as many examples as there was time for."""

    @property
    def rank(self) -> float:
        return self.value if scores()[self.name].best == "low" else -self.value

    @property
    def text(self) -> str:
        score = scores()[self.name]
        of = "" if self.chooses else f" of {self.count:,} example{'s' * (self.count != 1)}"
        return f"{score.title} {score.text(self.value)}{of}"


@dataclass
class TaskMetric:
    """The score of a task on `examples` of its validation set, in float32.

    Where weights are chosen by the loss it is only shown. Then it takes at most `SHARE` of the time of training: it is
    the score of as many examples as there is time for, and none before there is time for one.
    """

    metric: Metric
    examples: Sequence[Example]
    """In an order whose beginning is a fair sample."""
    batch_tokens: int
    chooses: bool
    spent: float = field(default=0.0, compare=False)
    """Seconds of a score that is only shown."""

    @classmethod
    def of(cls, task: Task, training: TrainingConfig) -> TaskMetric | None:
        """Return the metric of a task; None where the loss, or the error of classes, is what it measures.

        UserError if a package of the metric is missing, and weights are chosen by it.
        """
        metric, chooses = metric_of(task), training.select_by == "metric"
        if metric.chosen_by_loss:
            return None
        try:
            metric.check_packages()
        except UserError:
            if chooses:
                raise
            return None
        examples = spread(task.validation, count=training.select_examples)
        if not chooses:
            random.Random(0).shuffle(examples)
        return cls(metric, examples, training.batch_tokens, chooses)

    def score(self, model: Model, *, seconds: float, check: Callable[[], None]) -> TaskScore | None:
        """Return the score as `evaluate` computes it, after so many seconds of training; None of no examples.

        `check` is called for each batch. Of a score that is only shown, each part has as many examples as all before.
        """
        began, done, sums = time.monotonic(), 0, ScoreSums(count=0)
        free = SHARE * seconds - self.spent
        while done < len(self.examples):
            used = time.monotonic() - began
            if not self.chooses and (free <= 0 or 2 * used > free):
                break
            part = self.examples[done:] if self.chooses else self.examples[done : 2 * done + 1]
            for indices in batches_by_size(sizes(part), batch_tokens=self.batch_tokens):
                check()
                answers = self.metric.answers(Inference(model, DecodingOptions()), [part[index] for index in indices])
                sums.add(total(answers))
            done += len(part)
        self.spent += time.monotonic() - began
        return self._score(sums)

    def trivial(self, baseline: TrivialBaseline, *, count: int | None = None) -> TaskScore | None:
        """Return the same score of the baseline, of the first `count` examples (None: of all)."""
        return self._score(total(self.metric.trivial(baseline, example) for example in self.examples[:count]))

    def _score(self, sums: ScoreSums) -> TaskScore | None:
        name = self.metric.decisive
        if not sums.count:
            return None
        return TaskScore(name=name, value=self.metric.scores(sums)[name], count=sums.count, chooses=self.chooses)
