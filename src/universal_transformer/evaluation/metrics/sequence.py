"""Free-running output against its target, token by token. Ends are not scored.

- character accuracy = ``Σ hits / Σ max(length of answer, length of target)`` over all examples, where a hit is a place,
  counted from the left, at which answer and target have the same id: what an answer has too little or too much is
  wrong;
- sequence accuracy = the share of answers that are equal to their targets.
"""

from collections.abc import Sequence
from typing import ClassVar

from universal_transformer.data.example import Example, ids_of
from universal_transformer.evaluation.metrics.written import Written
from universal_transformer.evaluation.scores import SEQUENCE_ACCURACY, Score, ScoreSums

NO_TOKEN = -1
"""An id that no target has."""
CHARACTER_ACCURACY = Score("character_accuracy", "character accuracy", 3, "high")


class SequenceAccuracy(Written):
    """Character and sequence accuracy. An unknown token is never right."""

    shown: ClassVar[tuple[Score, ...]] = (CHARACTER_ACCURACY, SEQUENCE_ACCURACY)
    decisive = "sequence_accuracy"
    right_or_wrong = True

    def sums(self, tokens: Sequence[int], example: Example) -> ScoreSums:
        given, target = [NO_TOKEN if self.is_unknown(token) else token for token in tokens], ids_of(example.target)[:-1]
        return ScoreSums(sums=self.compared(given, target) | {"sequences": float(given == list(target))})

    def compared(self, given: Sequence[int], target: Sequence[int]) -> dict[str, float]:
        """Hits, and the places that they are a share of; an empty answer to an empty target is one hit."""
        longer = max(len(given), len(target))
        return {"hits": float(hits(given, target) if longer else 1), "places": float(longer or 1)}

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        characters = sums.ratio("hits", over="places")
        return {"character_accuracy": characters, "sequence_accuracy": sums.mean("sequences")}

    def signatures(self) -> dict[str, str]:
        shares = "places with the right token, over the longer of answer and target, both summed over the examples"
        return {"character_accuracy": shares} if CHARACTER_ACCURACY in self.shown else {}

    def example_score(self, sums: ScoreSums) -> float:
        return sums.sums["sequences"]


def hits(given: Sequence[int], target: Sequence[int]) -> int:
    return sum(left == right for left, right in zip(given, target, strict=False))
