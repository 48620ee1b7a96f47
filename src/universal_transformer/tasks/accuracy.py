"""Scores of free-running output against its target, as in the paper's tables 4 to 6.

Both are cut at their first end id, which is not scored. Ids are compared place by place from the left:

- character accuracy = (places of the target where the prediction has the same id) / (length of the target);
  a place after the end of the prediction is wrong, and ids after the end of the target are not counted;
- sequence accuracy = 1 if the two are equal, lengths included, else 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from universal_transformer.data.tokenizer import END


def until_end(ids: Sequence[int], *, end_id: int = END) -> Sequence[int]:
    """Return the ids before the first end id."""
    return ids[: list(ids).index(end_id)] if end_id in ids else ids


def character_accuracy(predicted: Sequence[int], target: Sequence[int], *, end_id: int = END) -> float:
    """Return the share of the target's ids that the prediction has in the same place.

    For an empty target it is 1 if the prediction is empty, else 0.
    """
    predicted, target = until_end(predicted, end_id=end_id), until_end(target, end_id=end_id)
    if not target:
        return float(not predicted)
    return sum(left == right for left, right in zip(predicted, target, strict=False)) / len(target)


def sequence_accuracy(predicted: Sequence[int], target: Sequence[int], *, end_id: int = END) -> float:
    """Return 1.0 where prediction and target are the same up to their ends, else 0.0."""
    return float(list(until_end(predicted, end_id=end_id)) == list(until_end(target, end_id=end_id)))
