"""Scores of free-running output against its target, as in the paper's tables 4 to 6.

Both are cut at their first end id, which is not scored itself. Places are compared one by one from the left:

- character accuracy = (places of the target where the prediction has the same id) / (length of the target);
  a place the prediction does not reach is wrong, what it has beyond the target is not counted;
- sequence accuracy = 1 if the two are equal, lengths included, else 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from universal_transformer.data.tokenizer import END


def until_end(ids: Sequence[int], *, end_id: int = END) -> Sequence[int]:
    """Return what stands before the first end id."""
    return ids[: list(ids).index(end_id)] if end_id in ids else ids


def character_accuracy(predicted: Sequence[int], target: Sequence[int], *, end_id: int = END) -> float:
    """Return the share of the target's ids that the prediction has in the same place.

    An empty target is met (1.0) by an empty prediction only.
    """
    predicted, target = until_end(predicted, end_id=end_id), until_end(target, end_id=end_id)
    if not target:
        return float(not predicted)
    return sum(left == right for left, right in zip(predicted, target, strict=False)) / len(target)


def sequence_accuracy(predicted: Sequence[int], target: Sequence[int], *, end_id: int = END) -> float:
    """Return 1.0 where prediction and target are the same up to their ends, else 0.0."""
    return float(list(until_end(predicted, end_id=end_id)) == list(until_end(target, end_id=end_id)))
