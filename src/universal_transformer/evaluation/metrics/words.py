"""Word error rate of free-running output, as speech recognition is scored."""

from __future__ import annotations

from universal_transformer.data.example import Example
from universal_transformer.evaluation.metrics.written import WrittenText
from universal_transformer.evaluation.scores import SEQUENCE_ACCURACY, Score, ScoreSums


class WordErrors(WrittenText):
    """Words exchanged, left out or added, per cent of those of the targets, and share of examples without one."""

    shown = (Score("word_error", "word error %", 2, "low"), SEQUENCE_ACCURACY)
    decisive = "word_error"

    def of_text(self, text: str, example: Example) -> ScoreSums:
        return ScoreSums(sums=word_errors(text, self.reference(example)))

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        errors = 100 * sums.sums["errors"] / max(1.0, sums.sums["words"])
        return {"word_error": errors, "sequence_accuracy": sums.mean("sequences")}

    def example_score(self, sums: ScoreSums) -> float:
        return max(0.0, 1.0 - sums.ratio("errors", over="words"))


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
