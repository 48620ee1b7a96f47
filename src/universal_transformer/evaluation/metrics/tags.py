"""One class for each position of an example; positions without a class are not scored."""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from universal_transformer.data.example import PADDING, Example, ids_of
from universal_transformer.evaluation.metrics.classes import ClassMetric, macro_f1
from universal_transformer.evaluation.metrics.metric import share_changed
from universal_transformer.evaluation.scores import MACRO_F1, SEQUENCE_ACCURACY, Score, ScoreSums
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.evaluation.word_counts import TagOfWord

POSITION_ACCURACY = Score("position_accuracy", "position accuracy", 3, "high")


class Positions(ClassMetric):
    """Share of examples with the right class at every position, and share of positions.

    The baseline answers the most frequent class at every position.
    """

    architecture = "tagger"
    shown: ClassVar[tuple[Score, ...]] = (SEQUENCE_ACCURACY, POSITION_ACCURACY)
    decisive = "sequence_accuracy"
    right_or_wrong = True

    def sums(self, example: Example, given: Sequence[int]) -> ScoreSums:
        given = given[: len(example.source)]  # without the positions that fill a batch
        pairs = Counter(pair for pair in zip(ids_of(example.target), given, strict=True) if pair[0] != PADDING)
        positions = pairs.total()
        right = sum(count for (truth, guess), count in pairs.items() if truth == guess)
        return ScoreSums(
            sums={"right": float(right), "positions": float(positions), "sequences": float(right == positions)},
            confusion=self.counted(pairs),
            answer=tuple(given),
        )

    def text_of(self, sums: ScoreSums, example: Example) -> str:
        assert isinstance(example.source, tuple)
        return self.codec.render([sums.answer[place] for place in self.codec.source.word_places(example.source)])

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        positions = sums.ratio("right", over="positions")
        return {"sequence_accuracy": sums.mean("sequences"), "position_accuracy": positions}

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        return self.sums(example, baseline.classes(example.source))


class TagScores(Positions):
    """Share of positions with the right class, macro-F1 over the classes, share of examples with the right class at
    every position, and the confusion matrix. The baseline answers the most frequent tag of each token.
    """

    statistics = TagOfWord
    shown = (POSITION_ACCURACY, MACRO_F1, SEQUENCE_ACCURACY)
    decisive = "position_accuracy"
    chosen_by_loss, right_or_wrong = True, False

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        return super().scores(sums) | {"macro_f1": macro_f1(sums.confusion)}

    def changed(self, before: Sequence[int], after: Sequence[int]) -> float:
        return share_changed(before, after)
