"""Metrics: one class each, in the one registry that evaluation, training and the command line know.

`Metric` is their protocol. A metric is added by a subclass in a file of its own and one line of `METRICS`; from outside
the package by ``METRICS["name"] = MyMetric``. A task names its metric (`Task.metric`).
"""

from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics.actions import Actions, Plans
from universal_transformer.evaluation.metrics.bleu import Bleu
from universal_transformer.evaluation.metrics.brackets import BracketF1
from universal_transformer.evaluation.metrics.classes import Accuracy, ClassScores, ErrorRate
from universal_transformer.evaluation.metrics.edits import CharacterErrors, PhonemeErrors, WordErrors
from universal_transformer.evaluation.metrics.frames import FrameErrors
from universal_transformer.evaluation.metrics.intensities import Intensities
from universal_transformer.evaluation.metrics.labels import LabelScores
from universal_transformer.evaluation.metrics.metric import Inference as Inference
from universal_transformer.evaluation.metrics.metric import Metric as Metric
from universal_transformer.evaluation.metrics.perplexity import LastWord, Perplexity
from universal_transformer.evaluation.metrics.ranking import Ranking
from universal_transformer.evaluation.metrics.rouge import Rouge
from universal_transformer.evaluation.metrics.sequence import SequenceAccuracy
from universal_transformer.evaluation.metrics.tags import Positions, TagScores
from universal_transformer.evaluation.scores import Score as Score
from universal_transformer.files import show
from universal_transformer.tasks.task import Task
from universal_transformer.typed import listed

METRICS: dict[str, type[Metric]] = {
    "error": ErrorRate,
    "sequence": SequenceAccuracy,
    "bleu": Bleu,
    "perplexity": Perplexity,
    "accuracy": Accuracy,
    "last_word": LastWord,
    "ranking": Ranking,
    "classes": ClassScores,
    "labels": LabelScores,
    "positions": Positions,
    "tags": TagScores,
    "rouge": Rouge,
    "words": WordErrors,
    "characters": CharacterErrors,
    "phonemes": PhonemeErrors,
    "brackets": BracketF1,
    "intensities": Intensities,
    "actions": Actions,
    "plans": Plans,
    "frames": FrameErrors,
}
"""Name -> metric. Every class says what it computes."""


def metric_of(task: Task) -> Metric:
    check_metric(task.metric, where=f"task {task.name}: metric")
    return METRICS[task.metric](task)


def check_metric(name: str, *, where: str) -> None:
    if name not in METRICS:
        raise UserError(f"{where}: expected one of {listed(METRICS)}, found {show(name)}")


def scores() -> dict[str, Score]:
    return {score.name: score for metric in METRICS.values() for score in metric.shown}
