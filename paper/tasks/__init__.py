"""Tasks that only tables of the paper need, with their data and recipes. To import this package registers them."""

from __future__ import annotations

from paper.tasks.agreement import AgreementData as AgreementData
from paper.tasks.blimp import load_blimp
from paper.tasks.lambada import LambadaData as LambadaData
from paper.tasks.lambada import ReadingData as ReadingData
from paper.tasks.learning_to_execute import LearningToExecuteData as LearningToExecuteData
from paper.tasks.pieces import Pieces
from paper.tasks.pieces import PiecesData as PiecesData
from paper.tasks.recipes import add_recipes
from paper.tasks.translation import TranslationData as TranslationData
from paper.tasks.words import Passage, Words
from universal_transformer.tasks import OTHER_TESTS, TASKS
from universal_transformer.tasks.sides import SIDES

TASKS |= {
    "agreement": AgreementData,
    "lambada": LambadaData,
    "lambada-pieces": PiecesData,
    "reading": ReadingData,
    "learning-to-execute": LearningToExecuteData,
    "translation": TranslationData,
}
OTHER_TESTS["blimp"] = load_blimp
SIDES |= {side.kind: side for side in (Words, Passage, Pieces)}
add_recipes()
