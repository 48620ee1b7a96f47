"""English text to words in lower case as in the Penn treebank: the form of LAMBADA's passages.

``"I don't know," said Mr. Smith.`` gives ```` `` i do n't know , '' said mr. smith . ````. Every run of characters
between blanks is split separately. Text that is split already stays the same, except for less than 1 word in 1,000 (of
LAMBADA's development passages), which is split once more.
"""

from __future__ import annotations

import re

_PIECE = re.compile(
    r"``|''|-[lr][crs]b-"
    r"|n't(?!\w)|'(?:s|d|ll|re|ve|m)(?!\w)|'(?:tis|twas|em|til)(?!\w)"
    r"|(?:mrs?|ms|dr|st|messrs|esq)\.|[ap]\.m\."
    r"|\d+(?:[.,:]\d+)*(?:st|nd|rd|th)?"
    r"|(?:o|ma)'[^\W_]+"
    r"|[^\W_]+?(?=n't(?!\w))"
    r"|[^\W_]+(?:-[^\W_]+)*"
    r"|-{2,}|\.{2,}"
    r"|[^\w\s]"
)
_SAME = str.maketrans({"’": "'", "‘": "`", "“": "``", "”": "''", "—": "--", "–": "--", "…": "...", "_": " "})
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-"}
_OPENING = frozenset(("", *"-([{`'\""))
SENTENCE_ENDS = frozenset((".", "?", "!", "..."))
CLOSERS = frozenset(("''", "'", "-rrb-", "-rsb-"))
"""Marks after the end of a sentence that belong to it."""


def split_words(text: str) -> list[str]:
    """Return the words and punctuation marks of `text`, lower case."""
    return [word for chunk in text.split() for word in cut(chunk)]


def cut(chunk: str) -> tuple[str, ...]:
    """Return the words and punctuation marks of a run of characters without blanks."""
    words = []
    plain = chunk.lower().translate(_SAME)
    for found in _PIECE.finditer(plain):
        piece = found.group()
        opens = found.end() < len(plain) and plain[found.start() - 1 : found.start()] in _OPENING
        if piece == '"':
            piece = "``" if opens else "''"
        elif piece == "'" and opens:
            piece = "`"
        elif piece.startswith("--"):
            piece = "--"
        elif piece.startswith(".."):
            piece = "..."
        words.append(_BRACKETS.get(piece, piece))
    return tuple(words)
