"""Sums over examples, and the scores computed from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from universal_transformer.data.example import PADDING, Example
from universal_transformer.errors import UserError
from universal_transformer.evaluation.brackets import SIGNATURE, bracket_f1
from universal_transformer.evaluation.report import Side, StepCounts
from universal_transformer.evaluation.rouge import ROUGE, rouge_signature
from universal_transformer.files import show
from universal_transformer.tasks.task import BleuTokenizer, Codec, Measure
from universal_transformer.tasks.text import TextCodec

RETURNS = ("mean_return", "expert_return")
"""Scores of the episodes in which a model acts, which are those of a whole test set."""
_LARGEST_EXPONENT = 700.0  # of a number in double precision


@dataclass
class ScoreSums:
    """What one example, or a group of them, adds to the scores."""

    count: int = 1
    sums: dict[str, float] = field(default_factory=dict)
    steps: dict[Side, Counter[int]] = field(default_factory=dict)
    texts: list[tuple[str, str]] = field(default_factory=list)
    """Hypothesis and reference, for scores of a whole corpus."""
    confusion: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How often the model gave an example of one class another (or the same): by (true class, class given)."""
    answer: tuple[int, ...] = ()
    """What the model gave to one example: a class, a class for each position, or tokens."""

    def add(self, other: ScoreSums) -> None:
        self.count += other.count
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for side, counts in other.steps.items():
            self.steps.setdefault(side, Counter()).update(counts)
        self.texts += other.texts
        self.confusion.update(other.confusion)

    def step_counts(self, *, limit: int) -> tuple[StepCounts, ...]:
        """Return the steps as a report has them; empty for a model without a recurrence over depth."""
        return tuple(
            StepCounts(side, tuple(counts[n] for n in range(1, limit + 1)))
            for side, counts in self.steps.items()
            if counts
        )


def class_sums(
    example: Example, given: int, *, metric: Measure, steps: Mapping[Side, Counter[int]] = MappingProxyType({})
) -> ScoreSums:
    """Return what the class that a model gave to an example adds to the scores."""
    assert isinstance(example.target, int), "the target of a classifier is one class"
    sums = ScoreSums(sums={"wrong": float(given != example.target)}, steps=dict(steps), answer=(given,))
    if metric == "classes":
        sums.confusion[example.target, given] = 1
    return sums


def position_sums(
    example: Example,
    given: Sequence[int],
    *,
    metric: Measure,
    steps: Mapping[Side, Counter[int]] = MappingProxyType({}),
) -> ScoreSums:
    """Return what the classes that a model gave to the positions of an example add to the scores.

    Positions without a class are not scored.
    """
    assert isinstance(example.target, tuple), "the target of a tagger is one class a position"
    pairs = Counter((truth, found) for truth, found in zip(example.target, given, strict=True) if truth != PADDING)
    positions = pairs.total()
    right = sum(count for (truth, found), count in pairs.items() if truth == found)
    return ScoreSums(
        sums={"right": float(right), "positions": float(positions), "sequences": float(right == positions)},
        steps=dict(steps),
        confusion=pairs if metric == "tags" else Counter(),
        answer=tuple(given),
    )


@dataclass
class GroupSums:
    """What the examples of all test sets add to the scores."""

    groups: dict[tuple[str, str], ScoreSums] = field(default_factory=dict)
    """By test set and group."""
    by_supports: dict[int, ScoreSums] = field(default_factory=dict)
    """By number of supporting facts."""

    def add(self, name: str, examples: Sequence[Example], found: Sequence[ScoreSums]) -> None:
        """Add what was found for examples of one test set."""
        for example, one in zip(examples, found, strict=True):
            self.groups.setdefault((name, example.group), ScoreSums(count=0)).add(one)
            if example.supports:
                self.by_supports.setdefault(len(example.supports), ScoreSums(count=0)).add(one)

    def wholes(self) -> dict[str, ScoreSums]:
        """Return the sums of each test set as a whole."""
        wholes: dict[str, ScoreSums] = {}
        for (name, _), sums in self.groups.items():
            wholes.setdefault(name, ScoreSums(count=0)).add(sums)
        return wholes


def scores(
    found: ScoreSums, *, metric: Measure, codec: Codec, bleu_tokenizer: BleuTokenizer = "13a"
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the scores of a group, and the signatures that say how they were computed."""
    sums = found.sums
    match metric:
        case "error":
            return {"error": 100 * sums["wrong"] / found.count}, {}
        case "classes":
            wrong = sums["wrong"] / found.count
            return {"error": 100 * wrong, "accuracy": 1 - wrong, "macro_f1": macro_f1(found.confusion)}, {}
        case "accuracy":
            return {"accuracy": 1 - sums["wrong"] / found.count}, {}
        case "ranking":
            return {"accuracy": sums["right"] / found.count}, {}
        case "actions":
            means = {name: sums[name] for name in RETURNS if name in sums}
            return means | {"accuracy": 1 - sums["wrong"] / found.count}, {}
        case "sequence":
            names = {"character_accuracy": "characters", "sequence_accuracy": "sequences"}
            return {name: sums[key] / found.count for name, key in names.items()}, {}
        case "positions":
            return {"sequence_accuracy": sums["sequences"] / found.count, "position_accuracy": _right(sums)}, {}
        case "tags":
            whole = sums["sequences"] / found.count
            f1 = macro_f1(found.confusion)
            return {"position_accuracy": _right(sums), "macro_f1": f1, "sequence_accuracy": whole}, {}
        case "intensities":
            return {"bits_per_pixel": sums["nats"] / max(1.0, sums["pixels"]) / math.log(2)}, {}
        case "frames":
            stopped = {"stopped": sums["stopped"] / found.count} if "stopped" in sums else {}
            return {"frame_error": sums["difference"] / max(1.0, sums["frames"]), **stopped}, {}
        case "bleu":
            return corpus_scores(found.texts, tokenizer=bleu_tokenizer)
        case "rouge":
            return {name: 100 * sums[name] / found.count for name in ROUGE}, {"rouge_l": rouge_signature()}
        case "words":
            errors = 100 * sums["errors"] / max(1.0, sums["words"])
            return {"word_error": errors, "sequence_accuracy": sums["sequences"] / found.count}, {}
        case "brackets":
            shares = {"valid_trees": "valid", "sequence_accuracy": "right"}
            found_shares = {name: sums[key] / found.count for name, key in shares.items()}
            return {"bracket_f1": bracket_f1(sums), **found_shares}, {"bracket_f1": SIGNATURE}
    tokens = max(1.0, sums["tokens"])
    result = {"perplexity": _exp(sums["nats"] / tokens), "accuracy": sums["right"] / tokens}
    if metric == "last_word":
        result["known_perplexity"] = _exp(sums["known_nats"] / max(1.0, sums["known"]))
    if isinstance(codec, TextCodec) and codec.tokenizer.by_character:
        result["bits_per_character"] = sums["nats"] / tokens / math.log(2)
    return result, {}


def example_score(found: ScoreSums, *, metric: Measure) -> float:
    """Return the score of one example, from 0 to 1.

    Of a class, a ranking, a sequence or a board it is 1 for a right answer and 0 for a wrong one, of a text the share
    of tokens or tags that are right, of speech 1 less its word error, of a translation its chrF, because BLEU is a
    score of a whole corpus, of a picture the geometric mean of the probabilities of its pixels, and of frames
    ``exp(-error)``.
    """
    sums = found.sums
    match metric:
        case "error" | "classes" | "accuracy" | "actions":
            return 1.0 - sums["wrong"]
        case "ranking":
            return sums["right"]
        case "sequence" | "positions":
            return sums["sequences"]
        case "tags":
            return sums["right"] / max(1.0, sums["positions"])
        case "rouge":
            return sums["rouge_l"]
        case "words":
            return max(0.0, 1.0 - sums["errors"] / max(1.0, sums["words"]))
        case "brackets":
            return bracket_f1(sums)
        case "bleu":
            ((hypothesis, reference),) = found.texts
            return min(1.0, load_sacrebleu().CHRF().sentence_score(hypothesis, [reference]).score / 100)
        case "intensities":
            return math.exp(-sums["nats"] / max(1.0, sums["pixels"]))
        case "frames":
            return math.exp(-sums["difference"] / max(1.0, sums["frames"]))
        case "perplexity" | "last_word":
            return sums["right"] / max(1.0, sums["tokens"])


def macro_f1(confusion: Mapping[tuple[int, int], int]) -> float:
    """``1/K Σ_c 2 TP_c / (2 TP_c + FP_c + FN_c)``, each class with the same weight.

    The K classes are those that an example has or that the model gave; ``TP_c`` counts the examples of class c that
    were given c, ``FP_c`` the others that were given c, ``FN_c`` the other answers to examples of c.
    """
    right: Counter[int] = Counter()
    named: Counter[int] = Counter()  # 2 TP + FP + FN
    for (truth, given), count in confusion.items():
        named.update({truth: count})
        named.update({given: count})
        if truth == given:
            right.update({truth: count})
    return sum(2 * right[one] / total for one, total in named.items()) / max(1, len(named))


def _right(sums: Mapping[str, float]) -> float:
    """Return the share of positions whose class is right."""
    return sums["right"] / max(1.0, sums["positions"])


def _exp(nats: float) -> float:
    return math.exp(min(_LARGEST_EXPONENT, nats))


def load_sacrebleu() -> Any:
    try:
        import sacrebleu
    except ImportError as error:
        raise UserError("scoring by BLEU needs sacreBLEU: run pip install 'universal-transformer[metrics]'") from error
    return sacrebleu


def bleu_scorer(tokenizer: BleuTokenizer) -> Any:
    """Return sacreBLEU's BLEU; UserError, in one line, for a tokenizer whose packages or model are missing."""
    sacrebleu = load_sacrebleu()
    try:
        # force: without it sacreBLEU prints advice about an option of its own where texts end in " ."
        return sacrebleu.BLEU(tokenize=tokenizer, force=True)
    except (RuntimeError, ImportError) as error:
        extra = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}.get(tokenizer, "sentencepiece")
        raise UserError(f"bleu_tokenizer={tokenizer}: a package is missing: run pip install '{extra}'") from error
    except OSError as error:
        raise UserError(
            f"bleu_tokenizer={tokenizer}: sacreBLEU could not download the model of this tokenizer "
            f"({show(str(error))}); allowed without network: 13a, intl, zh, ja-mecab, ko-mecab, char, none"
        ) from error


def corpus_scores(
    texts: Sequence[tuple[str, str]], *, tokenizer: BleuTokenizer = "13a"
) -> tuple[dict[str, float], dict[str, str]]:
    """BLEU and chrF of (hypothesis, reference) pairs, with sacreBLEU's signatures."""
    hypotheses, references = [pair[0] for pair in texts], [[pair[1] for pair in texts]]
    found, signatures = {}, {}
    for name, scorer in (("bleu", bleu_scorer(tokenizer)), ("chrf", load_sacrebleu().CHRF())):
        found[name] = float(scorer.corpus_score(hypotheses, references).score)
        signatures[name] = str(scorer.get_signature())
    return found, signatures
