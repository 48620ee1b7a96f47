"""Labelled bracket F1 of trees (PARSEVAL, Black et al. 1991), counted by PYEVALB.

A bracket is right if the tree of the treebank has one with the same label around the same words, and each of them makes
one right. As in EVALB, the outermost bracket TOP is left out, and punctuation does not count: words that are one of
`PUNCTUATION` are taken out of both trees before brackets are compared. PYEVALB accepts brackets that are not balanced,
so validity is checked first (`data.trees.answer_tree`). An invalid answer counts as a tree of as many brackets as the
right one, all of them wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from universal_transformer.data.example import Example
from universal_transformer.data.trees import PUNCTUATION, Tree, answer_tree, flat
from universal_transformer.errors import optional
from universal_transformer.evaluation.metrics.written import WrittenText
from universal_transformer.evaluation.scores import SEQUENCE_ACCURACY, Score, ScoreSums
from universal_transformer.evaluation.trivial import TrivialBaseline

TOP = "TOP"
SIGNATURE = "PYEVALB; TOP, parts of speech and punctuation are left out, an invalid tree counts as 0"


class Brackets(WrittenText):
    """Labelled bracket F1, share of valid trees, share of right trees. The baseline answers one bracket around the
    sentence, with the label of the most frequent target.
    """

    shown = (
        Score("bracket_f1", "bracket F1", 3, "high"),
        Score("valid_trees", "valid trees", 3, "high"),
        SEQUENCE_ACCURACY,
    )
    decisive = "bracket_f1"
    trivial_answer = "one bracket around the sentence"

    def check_packages(self) -> None:
        load_pyevalb()

    def of_text(self, text: str, example: Example) -> ScoreSums:
        words = self.codec.words(example)
        return ScoreSums(sums=bracket_sums(text, self.reference(example), words=words))

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        shares = {"valid_trees": sums.mean("valid"), "sequence_accuracy": sums.mean("right")}
        return {"bracket_f1": bracket_f1(sums.sums)} | shares

    def signatures(self) -> dict[str, str]:
        return {"bracket_f1": SIGNATURE}

    def example_score(self, sums: ScoreSums) -> float:
        return bracket_f1(sums.sums)

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        answer = flat(self.text(baseline.target[:-1]), words=len(example.source))
        return self.of_text(answer, example)


def bracket_sums(text: str, reference: str, *, words: Sequence[str]) -> dict[str, float]:
    """Return the brackets of an answer that are right, those it has, those of its reference, and whether it is valid.

    `words` are those of the sentence; each is ``XX`` in both texts.
    """
    tree, right = answer_tree(text, words=words), answer_tree(reference, words=words)
    assert right is not None, "the target of an example is a tree of its sentence"
    kept = {place for place, word in enumerate(words) if word not in PUNCTUATION} or set(range(len(words)))
    found = _compare(right if tree is None else tree, right, kept=kept)
    return {  # without the bracket around the whole, which `_compare` adds
        "matched": 0.0 if tree is None else float(found.matched_brackets - 1),
        "brackets": float(found.test_brackets - 1),
        "gold": float(found.gold_brackets - 1),
        "valid": float(tree is not None),
        "right": float(tree == right),
    }


def bracket_f1(sums: Mapping[str, float]) -> float:
    """``2 · matched / (brackets of the answers + brackets of the references)``."""
    return 2 * sums["matched"] / max(1.0, sums["brackets"] + sums["gold"])


def load_pyevalb() -> Any:
    names = ("PYEVALB.parser", "PYEVALB.scorer")
    return tuple(optional(name, needed="scoring trees needs PYEVALB", extra="parsing") for name in names)


def _compare(tree: Tree, reference: Tree, *, kept: Collection[int]) -> Any:
    """Return what PYEVALB counts, in a bracket without a label around each tree in the place of its TOP."""
    parser, scorer = load_pyevalb()
    wholes = (Tree("", one.parts if one.label == TOP else (one,)) for one in (reference, tree))
    texts = [_written(whole, places=iter(range(10**9)), kept=kept)[0] for whole in wholes]
    return scorer.Scorer().score_trees(*map(parser.create_from_bracket_string, texts))


def _written(tree: Tree, *, places: Iterator[int], kept: Collection[int]) -> tuple[str, list[str]]:
    """Return a tree as PYEVALB reads it, and the labels of all brackets around the same words as its outermost one.

    The place of a word stands for the word, and what has no word of `kept` is empty. PYEVALB compares sets of brackets:
    of several of one label around the same words, each has a number in its label, so that each counts.
    """
    parts: list[tuple[str, list[str]]] = []
    for part in tree.parts:
        if not isinstance(part, str):
            parts.append(_written(part, places=places, kept=kept))
        elif (place := next(places)) in kept:
            parts.append((f"(XX {place})", []))
    parts = [(text, labels) for text, labels in parts if text]
    if not parts:
        return "", []
    same = parts[0][1] if len(parts) == 1 else []
    text = f"({tree.label}#{same.count(tree.label) + 1} {' '.join(text for text, _ in parts)})"
    return text, [*same, tree.label]
