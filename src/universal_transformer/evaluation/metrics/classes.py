"""One class for each example: the class of the largest logit."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from universal_transformer.data.example import Example, ids_of
from universal_transformer.evaluation.metrics.metric import Inference, Metric
from universal_transformer.evaluation.scores import ACCURACY, ERROR, FAILED_ABOVE, MACRO_F1, Score, ScoreSums
from universal_transformer.evaluation.tensors import Called
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.evaluation.word_counts import NaiveBayes


class ClassMetric(Metric):
    """A metric of the class of the largest logit, of an example or of each of its positions."""

    writes = "classes"

    def answers(self, inference: Inference, examples: Sequence[Example]) -> list[ScoreSums]:
        called = Called.with_examples(inference.model, examples, inference.options)
        answers = zip(examples, called.logits.argmax(-1).tolist(), called.source_steps, strict=True)
        return [self.sums(example, given).after(encoder=made) for example, given, made in answers]

    @abstractmethod
    def sums(self, example: Example, given: Any) -> ScoreSums:
        """What the class, or the classes, that an example was given add."""

    def counted(self, pairs: Counter[tuple[int, int]]) -> Counter[tuple[int, int]]:
        """The pairs of true class and class given, of a metric that needs them."""
        return pairs if MACRO_F1 in self.shown else Counter()


class Accuracy(ClassMetric):
    """Share of examples whose class the largest logit names. The baseline answers the most frequent class."""

    architecture = "classifier"
    shown: ClassVar[tuple[Score, ...]] = (ACCURACY,)
    decisive = "accuracy"
    chosen_by_loss = right_or_wrong = True

    def sums(self, example: Example, given: int) -> ScoreSums:
        (truth,) = ids_of(example.target)
        pairs = self.counted(Counter({(truth, given): 1}))
        return ScoreSums(sums={"wrong": float(given != truth)}, confusion=pairs, answer=(given,))

    def text_of(self, sums: ScoreSums, example: Example) -> str:
        del example
        return self.codec.render(sums.answer[0])

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        return {"accuracy": 1 - sums.mean("wrong")}

    def example_score(self, sums: ScoreSums) -> float:
        return 1.0 - sums.sums["wrong"]

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        return self.sums(example, baseline.classes(example.source)[0])


class ErrorRate(Accuracy):
    """Per cent of examples whose class the largest logit does not name; groups can fail, as in table 1."""

    shown: ClassVar[tuple[Score, ...]] = (ERROR,)
    decisive = "error"
    failed_above: ClassVar[float | None] = FAILED_ABOVE

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        return {"error": 100 * sums.sums["wrong"] / sums.count}


class ClassScores(ErrorRate):
    """Error, accuracy, macro-F1 and the confusion matrix. The baseline counts words (`NaiveBayes`)."""

    statistics = NaiveBayes
    shown, failed_above = (ERROR, ACCURACY, MACRO_F1), None

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        wrong = sums.mean("wrong")
        return {"error": 100 * wrong, "accuracy": 1 - wrong, "macro_f1": macro_f1(sums.confusion)}


def macro_f1(confusion: Mapping[tuple[int, int], int]) -> float:
    """``1/K Σ_c 2 TP_c / (2 TP_c + FP_c + FN_c)``, each class with the same weight.

    The K classes are those that an example has or that the model gave; ``TP_c`` counts the examples of class c that
    were given c, ``FP_c`` the others that were given c, ``FN_c`` the other answers to examples of c.
    """
    named: Counter[int] = Counter()  # 2 TP + FP + FN
    for (truth, given), count in confusion.items():
        named.update({truth: count})
        named.update({given: count})
    f1 = (2 * confusion.get((index, index), 0) / number for index, number in named.items())
    return sum(f1) / max(1, len(named))
