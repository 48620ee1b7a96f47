"""Parse the test sentences of the recipe `parsing` with the grammar that made them: what no parser can exceed by much.

    python experiments/parsing_ceiling.py [SENTENCES]

The likeliest tree of each sentence is found by dynamic programming over spans, with the weights of the grammar. It is
scored as an answer of a model is. It is not always right, because the words of a sentence do not say which of its trees
was meant. The limit of depth, which the sentences obey, is not used. SENTENCES of each test set are parsed, evenly
spread (default: all).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from universal_transformer.data.example import spread
from universal_transformer.data.trees import Tree, joined
from universal_transformer.evaluation.metrics.brackets import bracket_f1, bracket_sums
from universal_transformer.evaluation.scores import ScoreSums
from universal_transformer.tasks import ParsingData
from universal_transformer.tasks.grammar import RULES, WORDS


class Found(NamedTuple):
    """The logarithm of a probability, and the trees and words that have it."""

    score: float
    parts: tuple[Tree | str, ...]


NONE = Found(-math.inf, ())


def parse(words: Sequence[str]) -> Tree:
    """Return the likeliest tree of a sentence."""

    @cache
    def symbol(name: str, first: int, end: int) -> Found:
        if name in WORDS:
            known = end == first + 1 and words[first] in WORDS[name]
            return Found(-math.log(len(WORDS[name])), (words[first],)) if known else NONE
        total = math.log(sum(weight for weight, _ in RULES[name]))
        best = NONE
        for weight, right in RULES[name]:
            score, parts = sequence(right, first, end)
            if (score := score + math.log(weight) - total) > best.score:
                best = Found(score, (Tree(name, parts),))
        return best

    @cache
    def sequence(names: tuple[str, ...], first: int, end: int) -> Found:
        """Return the likeliest way in which these symbols follow each other."""
        if len(names) > end - first:
            return NONE
        if len(names) == 1:
            return symbol(names[0], first, end)
        best = NONE
        for middle in range(first + 1, end - len(names) + 2):
            if (left := symbol(names[0], first, middle)).score > best.score:
                right = sequence(names[1:], middle, end)
                if left.score + right.score > best.score:
                    best = Found(left.score + right.score, left.parts + right.parts)
        return best

    (top,) = symbol("TOP", 0, len(words)).parts
    assert isinstance(top, Tree)
    sentence, mark = top.parts
    assert isinstance(sentence, Tree)
    return Tree(sentence.label, (*sentence.parts, mark))


def main() -> None:
    task = ParsingData().load()
    for name, examples in task.test.items():
        sums = ScoreSums(count=0)
        for example in spread(examples, count=int(sys.argv[1]) if sys.argv[1:] else len(examples)):
            assert isinstance(example.target, tuple)
            words = task.codec.words(example)
            answer, target = joined([*parse(words).tokens()]), task.codec.render(example.target)
            sums.add(ScoreSums(sums=bracket_sums(answer, target, words=words)))
        right = sums.sums["right"] / sums.count
        print(f"{name}: {sums.count} sentences, bracket F1 {bracket_f1(sums.sums):.3f}, right trees {right:.3f}")


if __name__ == "__main__":
    main()
