"""Labelled bracket F1 of trees (PARSEVAL, Black et al. 1991), counted as EVALB does, but for ADVP and PRT: two labels.

A bracket is right if the tree of the treebank has one with the same label around the same words, and each of them makes
one right. The outermost bracket TOP is left out, and punctuation does not count: words that are one of `PUNCTUATION`
are taken out of both trees before brackets are compared. An invalid answer (`data.trees.answer_tree`) counts as a tree
of as many brackets as the right one, all of them wrong.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from universal_transformer.data.example import Example
from universal_transformer.data.trees import PUNCTUATION, Tree, answer_tree, flat
from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics.written import WrittenText
from universal_transformer.evaluation.scores import SEQUENCE_ACCURACY, Score, ScoreSums
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.files import show

TOP = "TOP"
SIGNATURE = (
    "as EVALB, but for ADVP and PRT, which differ: TOP, parts of speech and punctuation are left out, an invalid tree "
    "counts as 0"
)


class BracketF1(WrittenText):
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

    def of_text(self, text: str, example: Example) -> ScoreSums:
        words = self.codec.words(example)
        return ScoreSums(sums=bracket_sums(text, self.reference(example), words=words))

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        shares = {"valid_trees": sums.mean("valid"), "sequence_accuracy": sums.mean("right")}
        return {"bracket_f1": bracket_f1(sums.sums)} | shares

    def signatures(self) -> dict[str, str]:
        return {"bracket_f1": SIGNATURE}

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        answer = flat(self.text(baseline.target[:-1]), words=len(example.source))
        return self.of_text(answer, example)


def bracket_sums(text: str, reference: str, *, words: Sequence[str]) -> dict[str, float]:
    """Return the brackets of an answer that are right, those it has, those of its reference, and whether it is valid.

    `words` are those of the sentence; each is ``XX`` in both texts.
    """
    tree, right = answer_tree(text, words=words), answer_tree(reference, words=words)
    if right is None:
        raise UserError(f"metric brackets: the target {show(reference)} is no tree of its {len(words)} words")
    kept = {place for place, word in enumerate(words) if word not in PUNCTUATION} or set(range(len(words)))
    given, gold = (brackets(right if one is None else one, kept=kept) for one in (tree, right))
    return {
        "matched": 0.0 if tree is None else float((given & gold).total()),
        "brackets": float(given.total()),
        "gold": float(gold.total()),
        "valid": float(tree is not None),
        "right": float(tree == right),
    }


def bracket_f1(sums: Mapping[str, float]) -> float:
    """``2 · matched / (brackets of the answers + brackets of the references)``."""
    return 2 * sums["matched"] / max(1.0, sums["brackets"] + sums["gold"])


def brackets(tree: Tree, *, kept: Collection[int]) -> Counter[tuple[str, int, int]]:
    """Count the brackets around words of `kept` by label, first word and the one after the last, among these words."""
    found, _ = _spans(tree, 0, places=iter(range(10**9)), kept=kept)
    return Counter(found[:-1] if tree.label == TOP else found)


def _spans(
    tree: Tree, first: int, *, places: Iterator[int], kept: Collection[int]
) -> tuple[list[tuple[str, int, int]], int]:
    """Return the brackets of a tree, its outermost one last, and the word after its last."""
    found, end = list[tuple[str, int, int]](), first
    for part in tree.parts:
        if isinstance(part, str):
            end += next(places) in kept
        else:
            inside, end = _spans(part, end, places=places, kept=kept)
            found += inside
    return ([*found, (tree.label, first, end)] if end > first else found), end
