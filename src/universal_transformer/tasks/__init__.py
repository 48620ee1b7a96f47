"""Tasks: where examples come from, how they are encoded, how answers are scored. Nothing here imports torch."""

from __future__ import annotations

from universal_transformer.tasks.agreement import AgreementData
from universal_transformer.tasks.algorithmic import AlgorithmicData
from universal_transformer.tasks.babi import BabiData
from universal_transformer.tasks.codecs import load_codec
from universal_transformer.tasks.labelled import LabelledData
from universal_transformer.tasks.lambada import LambadaData, ReadingData
from universal_transformer.tasks.learning_to_execute import LearningToExecuteData
from universal_transformer.tasks.pairs import PairsData
from universal_transformer.tasks.stories import StoriesData
from universal_transformer.tasks.task import Codec, Prediction, Task, TaskData
from universal_transformer.tasks.text import TextData
from universal_transformer.tasks.translation import TranslationData

TASKS: dict[str, type[TaskData]] = {
    "stories": StoriesData,
    "babi": BabiData,
    "algorithmic": AlgorithmicData,
    "learning-to-execute": LearningToExecuteData,
    "pairs": PairsData,
    "text": TextData,
    "labelled": LabelledData,
    "translation": TranslationData,
    "agreement": AgreementData,
    "lambada": LambadaData,
    "reading": ReadingData,
}

__all__ = [
    "TASKS",
    "AgreementData",
    "AlgorithmicData",
    "BabiData",
    "Codec",
    "LabelledData",
    "LambadaData",
    "LearningToExecuteData",
    "PairsData",
    "Prediction",
    "ReadingData",
    "StoriesData",
    "Task",
    "TaskData",
    "TextData",
    "TranslationData",
    "load_codec",
]
