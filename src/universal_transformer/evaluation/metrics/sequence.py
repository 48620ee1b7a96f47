"""Free-running output against its target, token by token, as in the paper's tables 4 to 6.

Ends are not scored. Ids are compared place by place from the left:

- character accuracy = (places of the target where the prediction has the same id) / (length of the target);
  a place after the end of the prediction is wrong, and ids after the end of the target are not counted;
- sequence accuracy = 1 if the two are equal, lengths included, else 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from universal_transformer.data.example import Example
from universal_transformer.evaluation.metrics.written import Written
from universal_transformer.evaluation.scores import SEQUENCE_ACCURACY, Score, ScoreSums
from universal_transformer.evaluation.tensors import target_ids

NO_TOKEN = -1
"""An id that no target has."""


class SequenceAccuracy(Written):
    """Character and sequence accuracy. An unknown token is never right."""

    shown: ClassVar[tuple[Score, ...]] = (
        Score("character_accuracy", "character accuracy", 3, "high"),
        SEQUENCE_ACCURACY,
    )
    decisive = "sequence_accuracy"
    right_or_wrong = up_to_target = True

    def sums(self, tokens: Sequence[int], example: Example) -> ScoreSums:
        given, target = [NO_TOKEN if self.is_unknown(token) else token for token in tokens], target_ids(example)[:-1]
        return ScoreSums(
            sums={"characters": character_accuracy(given, target), "sequences": sequence_accuracy(given, target)}
        )

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        return {"character_accuracy": sums.mean("characters"), "sequence_accuracy": sums.mean("sequences")}


def character_accuracy(predicted: Sequence[int], target: Sequence[int]) -> float:
    """Return the share of the target's ids that the prediction has in the same place.

    For an empty target it is 1 if the prediction is empty, else 0.
    """
    if not target:
        return float(not predicted)
    return sum(left == right for left, right in zip(predicted, target, strict=False)) / len(target)


def sequence_accuracy(predicted: Sequence[int], target: Sequence[int]) -> float:
    """Return 1.0 where prediction and target are the same, else 0.0."""
    return float(list(predicted) == list(target))
