"""Character accuracy as the paper's tables 4 to 6 have it: the Neural GPU writes as many symbols as the target has."""

from __future__ import annotations

from collections.abc import Sequence

from paper.definition import FIXED_LENGTH
from universal_transformer.evaluation.metrics import METRICS
from universal_transformer.evaluation.metrics.sequence import SequenceAccuracy, hits
from universal_transformer.evaluation.scores import ScoreSums


class FixedLength(SequenceAccuracy):
    """Mean over examples of the share of a target's places at which the answer has the same token."""

    def compared(self, given: Sequence[int], target: Sequence[int]) -> dict[str, float]:
        return {"share": hits(given, target) / len(target) if target else float(not given)}

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        return {"character_accuracy": sums.mean("share"), "sequence_accuracy": sums.mean("sequences")}

    def signatures(self) -> dict[str, str]:
        return {"character_accuracy": "places with the right token, over those of the target, mean over the examples"}


METRICS[FIXED_LENGTH] = FixedLength
