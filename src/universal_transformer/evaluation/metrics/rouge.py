"""ROUGE (Lin 2004): words, pairs of words and longest common subsequences that an answer shares with its reference.

rouge-score computes it; the words are ours, because those of the library are runs of a-z and 0-9 only, so that every
text in another script would score 0. Here a word is a run of letters, marks and digits of any script, without regard to
case. Each Chinese or Japanese character is a word, because these scripts have no blanks between words.
"""

import re
import unicodedata
from functools import cache
from importlib.metadata import version
from typing import Any

from universal_transformer.data.example import Example
from universal_transformer.errors import optional
from universal_transformer.evaluation.metrics.written import EXACT_MATCH, WrittenText, exact_match
from universal_transformer.evaluation.scores import Score, ScoreSums

ROUGE = {"rouge1": "rouge1", "rouge2": "rouge2", "rouge_l": "rougeL"}
"""Name of a score -> its name in rouge-score."""
_WITHOUT_BLANKS = (("\u3040", "\u30ff"), ("\u3400", "\u9fff"), ("\uf900", "\ufaff"), ("\U00020000", "\U0003ffff"))
_SENTENCE = re.compile(r".*?(?:[.!?](?=\s)|[。！？])")


def first_sentence(text: str) -> str:
    """Return the text up to its first full stop, question or exclamation mark; all of it if it has none."""
    sentence = _SENTENCE.match(text)
    return sentence.group() if sentence else text


class Rouge(WrittenText):
    """ROUGE-1, -2 and -L (F1) and exact matches. The baseline answers the first sentence of the source,
    or the most frequent target.
    """

    shown = (
        Score("rouge1", "ROUGE-1", 2, "high"),
        Score("rouge2", "ROUGE-2", 2, "high"),
        Score("rouge_l", "ROUGE-L", 2, "high"),
        EXACT_MATCH,
    )
    decisive = "rouge_l"
    copies = "the first sentence of the source"

    def check_packages(self) -> None:
        load_rouge()

    def copied(self, source: str) -> str:
        return first_sentence(source)

    def of_text(self, text: str, example: Example) -> ScoreSums:
        reference = self.reference(example)
        return ScoreSums(sums=rouge_sums(text, reference) | exact_match(text, reference))

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        return {name: 100 * sums.sums[name] / sums.count for name in ROUGE} | {"exact_match": sums.mean("exact")}

    def signatures(self) -> dict[str, str]:
        how = f"rouge-score {version('rouge-score')}, mean F1; words of any script, case ignored, no stemmer"
        return {"rouge_l": how}

    def example_score(self, sums: ScoreSums) -> float:
        return sums.sums["rouge_l"]


class Words:
    """The tokenizer that is given to rouge-score."""

    def tokenize(self, text: str) -> list[str]:
        return "".join(map(_spaced, unicodedata.normalize("NFKC", text).casefold())).split()


def rouge_sums(text: str, reference: str) -> dict[str, float]:
    """Return the F1, from 0 to 1, of each kind of ROUGE.

    ``F1 = 2 P R / (P + R)``, where ``P`` is the share of what the text has that the reference has too, and ``R`` the
    share of what the reference has that the text has too.
    """
    found = _scorer().score(reference, text)
    return {name: float(found[kind].fmeasure) for name, kind in ROUGE.items()}


def load_rouge() -> Any:
    return optional("rouge_score.rouge_scorer", needed="ROUGE needs rouge-score", extra="rouge")


@cache
def _scorer() -> Any:
    return load_rouge().RougeScorer(list(ROUGE.values()), tokenizer=Words())


def _spaced(character: str) -> str:
    if unicodedata.category(character)[0] not in "LMN":
        return " "
    alone = any(first <= character <= last for first, last in _WITHOUT_BLANKS)
    return f" {character} " if alone else character
