"""Labelled bracket F1 of trees (PARSEVAL, Black et al. 1991), counted by PYEVALB.

A bracket is right if the tree of the treebank has one with the same label around the same words. As in EVALB, the
outermost bracket TOP is left out, and punctuation does not count: words that are one of `PUNCTUATION` are taken out of
both trees before brackets are compared. PYEVALB accepts brackets that are not balanced, so validity is checked first
(`tasks.trees.answer_tree`). An invalid answer counts as a tree of as many brackets as the right one, all of them wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from universal_transformer.errors import UserError
from universal_transformer.tasks.trees import Tree, answer_tree

PUNCTUATION = frozenset((",", ".", ":", ";", "?", "!", "...", "-", "--", "–", "—", "``", "''", '"', "“", "”"))
SIGNATURE = "PYEVALB; TOP, parts of speech and punctuation are left out, an invalid tree counts as 0"


def bracket_sums(text: str, reference: str, *, words: Sequence[str]) -> dict[str, float]:
    """Return the brackets of an answer that are right, those it has, those of its reference, and whether it is valid.

    `words` are those of the sentence; each is ``XX`` in both texts.
    """
    tree, right = answer_tree(text, words=words), answer_tree(reference, words=words)
    assert right is not None, "the target of an example is a tree of its sentence"
    kept = {place for place, word in enumerate(words) if word not in PUNCTUATION} or set(range(len(words)))
    found = _compare(right if tree is None else tree, right, kept=kept)
    return {
        "matched": 0.0 if tree is None else float(found.matched_brackets),
        "brackets": float(found.test_brackets),
        "gold": float(found.gold_brackets),
        "valid": float(tree is not None),
        "right": float(tree == right),
    }


def bracket_f1(sums: Mapping[str, float]) -> float:
    """``2 · matched / (brackets of the answers + brackets of the references)``."""
    return 2 * sums["matched"] / max(1.0, sums["brackets"] + sums["gold"])


def load_pyevalb() -> Any:
    try:
        from PYEVALB import parser, scorer
    except ImportError as error:
        raise UserError("scoring trees needs PYEVALB: run pip install 'universal-transformer[parsing]'") from error
    return parser, scorer


def _compare(tree: Tree, reference: Tree, *, kept: Collection[int]) -> Any:
    parser, scorer = load_pyevalb()
    texts = (_written(one, places=iter(range(10**9)), kept=kept) for one in (reference, tree))
    return scorer.Scorer().score_trees(*map(parser.create_from_bracket_string, texts))


def _written(tree: Tree, *, places: Iterator[int], kept: Collection[int]) -> str:
    """Return a tree as PYEVALB reads it, with the place of a word as the word; empty if no word of it is `kept`.

    Of two brackets of one label around the same words one is written: PYEVALB would count both, and match one.
    """
    parts = []
    for part in tree.parts:
        if not isinstance(part, str):
            parts.append((_written(part, places=places, kept=kept), part.label))
        elif (place := next(places)) in kept:
            parts.append((f"(XX {place})", ""))
    parts = [(text, label) for text, label in parts if text]
    if [label for _, label in parts] == [tree.label]:
        return parts[0][0]
    return f"({tree.label} {' '.join(text for text, _ in parts)})" if parts else ""
