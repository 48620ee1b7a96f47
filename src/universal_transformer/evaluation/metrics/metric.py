"""The protocol of a metric: what is asked of a model, how answers add up, and the scores that follow."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import refuse
from universal_transformer.evaluation.scores import Score, ScoreSums
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.models.model import Model
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Task

Answer = Callable[[Sequence[Example]], list[ScoreSums]]
"""Returns what the answers of a model to examples add to the scores."""


@dataclass(frozen=True)
class Inference:
    """A model, and how it is run."""

    model: Model
    options: DecodingOptions


@dataclass(frozen=True)
class Metric(ABC):
    """How the answers of a model to the examples of a task are scored.

    A metric is a subclass and its line in `METRICS`. Every method takes and returns sums (`ScoreSums`), whose
    names are its own.
    """

    task: Task

    architecture: ClassVar[str]
    """Of the models that it can score."""
    writes: ClassVar[str] = "tokens"
    """What these models write (`Model.writes`)."""
    shown: ClassVar[tuple[Score, ...]]
    """The scores that it computes, in the order of a report. Accuracies, F1 and shares lie in [0, 1]; error, BLEU,
    chrF and ROUGE in [0, 100]."""
    decisive: ClassVar[str]
    """The score by which models are compared, and weights are chosen if they are chosen by a score."""
    free_running: ClassVar[bool] = False
    """Whether the model writes by itself, without a target token, so that search and limit of a call matter."""
    chosen_by_loss: ClassVar[bool] = False
    """Whether error and loss of a validation choose the same weights as the decisive score."""
    right_or_wrong: ClassVar[bool] = False
    """Whether an example is right or wrong as a whole, so that its score is 0 or 1."""
    numeric: ClassVar[bool] = False
    """Whether answers are numbers, which always change a little."""
    failed_above: ClassVar[float | None] = None
    """The decisive score above which a group counts as failed; None for a metric without this."""
    trivial_answer: ClassVar[str] = ""
    """What the baseline answers, in words, where this does not depend on what it learned."""
    statistics: ClassVar[type[TrivialBaseline]] = TrivialBaseline
    """What the trivial baseline learns from the training targets."""

    @property
    def codec(self) -> Codec[Any, Any]:
        return self.task.codec

    def check_packages(self) -> None:  # noqa: B027  most metrics need none
        """UserError if a package that the metric needs is missing."""

    def check(self, model: Model, options: DecodingOptions) -> None:
        name, metric, config = self.task.name, self.task.metric, model.config
        scored, temperature = f"task {name} is scored by {metric}", options.sampling.temperature
        needed = f'needs architecture "{self.architecture}"; this model has "{config.architecture}"'
        refuse(
            (config.architecture != self.architecture, f"{scored}, which {needed}"),
            (model.writes != self.writes, f"{scored}; this model writes {model.writes}"),
        )
        self.check_packages()
        beams = options.num_beams if options.num_beams > 1 else None
        unwritten, greedy = f"task {name} is scored without writing text", "scores are those of greedy or beam search"
        refuse(
            *(
                (value is not None and not self.free_running, f"{field}={value}: {unwritten}; leave it out")
                for field, value in (("beams", beams), ("max_new_tokens", options.max_new_tokens))
            ),
            (temperature > 0, f"temperature={temperature:g}: {greedy}; leave it out"),
        )
        options.check(model)

    @abstractmethod
    def answers(self, inference: Inference, examples: Sequence[Example]) -> list[ScoreSums]:
        """Ask the model, and return what its answer to each example adds to the scores."""

    def text_of(self, sums: ScoreSums, example: Example) -> str | None:
        """The answer to an example as text; None if the sums do not have it."""
        del sums, example
        return None

    @abstractmethod
    def scores(self, sums: ScoreSums) -> dict[str, float]:
        """The scores of a group of examples, by the names of `shown`."""

    def shown_scores(self, sums: ScoreSums) -> dict[str, float]:
        found = self.scores(sums)
        return {score.name: found[score.name] for score in self.shown if score.name in found}

    def notes(self, sums: ScoreSums) -> list[str]:
        """What the sums of all examples say of the scores."""
        del sums
        return []

    def signatures(self) -> dict[str, str]:
        """How scores are computed, by their names, where libraries or choices decide."""
        return {}

    def example_score(self, sums: ScoreSums) -> float:
        """The score of one example, from 0 to 1: what a calibration counts as lost."""
        return self.scores(sums)[self.decisive]

    def changed(self, before: Sequence[int], after: Sequence[int]) -> float:
        """How much of one answer differs from another (`ScoreSums.answer`), from 0 to 1."""
        return float(tuple(before) != tuple(after))

    def uncalibrated(self, loss: str) -> str:
        """Why the losses of examples ("drop" or "changed") prove nothing about this metric; empty if they do."""
        if self.numeric and loss == "changed":
            return 'loss="changed": the answers of this task are numbers, which always change a little; use loss="drop"'
        return ""

    def of_set(self, name: str, *, limit: int | None, answer: Answer | None) -> dict[str, float]:
        """The sums of the test set `name` that no single example has; `answer` None: those of the baseline."""
        del name, limit, answer
        return {}

    def learn(self, examples: Iterable[Example], config: BaseConfig) -> TrivialBaseline:
        """Learn the baseline of a model with this configuration from the training examples."""
        return self.statistics.learn(examples, config)

    @abstractmethod
    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        """What the answer of the baseline to an example adds to the scores."""

    def describe(self, baseline: TrivialBaseline) -> str:
        """What the baseline answers, in words."""
        return self.trivial_answer or baseline.describe(self.codec.render)


def share_changed(before: Sequence[int], after: Sequence[int]) -> float:
    return sum(one != other for one, other in zip(before, after, strict=False)) / max(1, len(before))
