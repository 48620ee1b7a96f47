"""Error rates by edit distance of free-running output: of words as speech recognition is scored, of characters, of
phonemes. The distance is that of Levenshtein: each unit that is exchanged, left out or added counts 1.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.errors import optional
from universal_transformer.evaluation.metrics.written import WrittenText
from universal_transformer.evaluation.scores import SEQUENCE_ACCURACY, Score, ScoreSums


class WordErrors(WrittenText):
    """Words exchanged, left out or added, per cent of those of the targets, and share of examples without one.

    Words stand between blanks. Another error rate has a score of its own, and other units of a text.
    """

    shown: ClassVar[tuple[Score, ...]] = (Score("word_error", "word error %", 2, "low"), SEQUENCE_ACCURACY)
    decisive = "word_error"

    def check_packages(self) -> None:
        levenshtein()

    def units(self, text: str) -> Sequence[str]:
        return text.split()

    def of_text(self, text: str, example: Example) -> ScoreSums:
        given, wanted = self.units(text), self.units(self.reference(example))
        counts = {"errors": levenshtein().distance(given, wanted), "units": len(wanted), "sequences": given == wanted}
        return ScoreSums(sums={name: float(count) for name, count in counts.items()})

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        errors = 100 * sums.ratio("errors", over="units")
        return {self.decisive: errors, "sequence_accuracy": sums.mean("sequences")}

    def example_score(self, sums: ScoreSums) -> float:
        return max(0.0, 1.0 - sums.ratio("errors", over="units"))


class PhonemeErrors(WordErrors):
    """The same of pronunciations, whose phonemes stand between blanks."""

    shown = (Score("phoneme_error", "phoneme error %", 2, "low"), SEQUENCE_ACCURACY)
    decisive = "phoneme_error"


class CharacterErrors(WordErrors):
    """Characters exchanged, left out or added, blanks among them, per cent of those of the targets."""

    shown = (Score("character_error", "character error %", 2, "low"), SEQUENCE_ACCURACY)
    decisive = "character_error"

    def units(self, text: str) -> Sequence[str]:
        return text


def levenshtein() -> Any:
    return optional("rapidfuzz.distance.Levenshtein", needed="error rates need rapidfuzz", extra="metrics")
