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


def word_errors(given: str, reference: str) -> dict[str, float]:
    """Return the counts of which a word error rate is made: errors, words of the reference, and exact matches.

    Errors are the fewest words that have to be exchanged, left out and added to turn the one text into the other
    (Levenshtein); words stand between blanks.
    """
    words, wanted = given.split(), reference.split()
    row = list(range(len(wanted) + 1))
    for count, word in enumerate(words, start=1):
        before, row[0] = row[0], count
        for place, other in enumerate(wanted, start=1):
            exchanged = before + (word != other)
            before, row[place] = row[place], min(exchanged, row[place] + 1, row[place - 1] + 1)
    return {"errors": float(row[-1]), "words": float(len(wanted)), "sequences": float(words == wanted)}
