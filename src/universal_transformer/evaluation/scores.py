"""Sums over examples, and the scores computed from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from universal_transformer.data.example import Example
from universal_transformer.errors import UserError
from universal_transformer.evaluation.report import Side, StepCounts
from universal_transformer.tasks.task import Codec, Measure
from universal_transformer.tasks.text import TextCodec

_LARGEST_EXPONENT = 700.0  # of a number in double precision


@dataclass
class ScoreSums:
    """What one example, or a group of them, adds to the scores."""

    count: int = 1
    sums: dict[str, float] = field(default_factory=dict)
    steps: dict[Side, Counter[int]] = field(default_factory=dict)
    texts: list[tuple[str, str]] = field(default_factory=list)
    """Hypothesis and reference, for scores of a whole corpus."""

    def add(self, other: ScoreSums) -> None:
        self.count += other.count
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for side, counts in other.steps.items():
            self.steps.setdefault(side, Counter()).update(counts)
        self.texts += other.texts

    def step_counts(self, *, limit: int) -> tuple[StepCounts, ...]:
        """Return the steps as a report has them; empty for a model without a recurrence over depth."""
        return tuple(
            StepCounts(side, tuple(counts[n] for n in range(1, limit + 1)))
            for side, counts in self.steps.items()
            if counts
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


def scores(found: ScoreSums, *, metric: Measure, codec: Codec) -> tuple[dict[str, float], dict[str, str]]:
    """Return the scores of a group, and the signatures that say how they were computed."""
    sums = found.sums
    match metric:
        case "error":
            return {"error": 100 * sums["wrong"] / found.count}, {}
        case "accuracy":
            return {"accuracy": 1 - sums["wrong"] / found.count}, {}
        case "ranking":
            return {"accuracy": sums["right"] / found.count}, {}
        case "sequence":
            names = {"character_accuracy": "characters", "sequence_accuracy": "sequences"}
            return {name: sums[key] / found.count for name, key in names.items()}, {}
        case "bleu":
            return corpus_scores(found.texts)
    tokens = max(1.0, sums["tokens"])
    result = {"perplexity": _exp(sums["nats"] / tokens), "accuracy": sums["right"] / tokens}
    if metric == "last_word":
        result["known_perplexity"] = _exp(sums["known_nats"] / max(1.0, sums["known"]))
    if isinstance(codec, TextCodec) and codec.tokenizer.kind == "character":
        result["bits_per_character"] = sums["nats"] / tokens / math.log(2)
    return result, {}


def _exp(nats: float) -> float:
    return math.exp(min(_LARGEST_EXPONENT, nats))


def load_sacrebleu() -> Any:
    try:
        import sacrebleu
    except ImportError as error:
        raise UserError("scoring by BLEU needs sacreBLEU: run pip install 'universal-transformer[metrics]'") from error
    return sacrebleu


def corpus_scores(texts: Sequence[tuple[str, str]]) -> tuple[dict[str, float], dict[str, str]]:
    """BLEU and chrF of (hypothesis, reference) pairs, with sacreBLEU's signatures."""
    sacrebleu = load_sacrebleu()
    hypotheses, references = [pair[0] for pair in texts], [[pair[1] for pair in texts]]
    found, signatures = {}, {}
    # force: without it sacreBLEU prints advice about an option of its own where texts end in " ."
    for name, scorer in (("bleu", sacrebleu.BLEU(force=True)), ("chrf", sacrebleu.CHRF())):
        found[name] = float(scorer.corpus_score(hypotheses, references).score)
        signatures[name] = str(scorer.get_signature())
    return found, signatures
