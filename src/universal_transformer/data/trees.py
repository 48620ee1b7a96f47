"""Trees of sentences as text in brackets, one tree a line.

Treebank form has the words, each with its part of speech: ``(TOP (S (NP-SBJ (DT the) (NN dog)) (VP (VBD barked))))``.
The form of an answer has ``XX`` for each word, and no parts of speech (Vinyals et al. 2015, "Grammar as a Foreign
Language"): ``(S (NP XX XX) (VP XX))``. A model writes its tokens in depth-first order, brackets with their labels:
``(S``, ``(NP``, ``XX``, ``XX``, ``)NP``, ``(VP``, ``XX``, ``)VP``, ``)S``. In text, a closing bracket has no label,
unless it is not that of the bracket which it closes: then the text is no valid tree.

Reading a treebank leaves out:

- an outermost bracket without a label, or with ``TOP`` or ``ROOT``, around one constituent;
- parts of speech;
- functions of labels (``NP-SBJ-1`` and ``NP=2`` are ``NP``);
- empty elements (``-NONE-``) and constituents of nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from universal_transformer.errors import UserError
from universal_transformer.files import show

WORD, OPEN, CLOSE = "XX", "(", ")"
OUTERMOST = ("", "TOP", "ROOT")
EMPTY = "-NONE-"
PUNCTUATION = frozenset((",", ".", ":", ";", "?", "!", "...", "-", "--", "–", "—", "``", "''", '"', "“", "”"))
"""Words that scores leave out."""
_BRACKET_WORDS = str.maketrans({"(": "-LRB-", ")": "-RRB-"})
MOST_DEPTH = 100
"""Brackets inside of each other; no sentence of a treebank has half as many."""
_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True)
class Tree:
    """A constituent: its label, and its constituents and words from left to right."""

    label: str
    parts: tuple[Tree | str, ...]

    def words(self) -> Iterator[str]:
        for part in self.parts:
            if isinstance(part, str):
                yield part
            else:
                yield from part.words()

    def tokens(self) -> Iterator[str]:
        """Yield the tokens of the form of an answer."""
        yield from (WORD if word else token for token, word in self._pieces())

    def __str__(self) -> str:
        """Return the tree in brackets, with its words."""
        return joined([token for token, _ in self._pieces()])

    def _pieces(self) -> Iterator[tuple[str, bool]]:
        """Yield brackets and words, and whether each is a word."""
        yield f"({self.label}", False
        for part in self.parts:
            if isinstance(part, str):
                yield part, True
            else:
                yield from part._pieces()
        yield f"{CLOSE}{self.label}", False


def joined(tokens: Sequence[str]) -> str:
    """Return the text of tokens: a closing bracket has only a label that it should not have."""
    opened: list[str] = []
    text = ""
    for token in tokens:
        if token.startswith(CLOSE):
            expected = opened.pop() if opened else ""
            text += CLOSE if token[1:] in ("", expected) else f" {token}"
            continue
        if token.startswith(OPEN):
            opened.append(token[1:])
        text += f" {token}"
    return text.strip()


def treebank_word(word: str) -> str:
    """Return a word as treebanks write it, with ``-LRB-`` and ``-RRB-`` for brackets."""
    return word.translate(_BRACKET_WORDS)


def read_tree(text: str) -> Tree:
    """Read one tree in brackets; UserError, without a place, for anything else.

    The first word after an opening bracket is the label; only the outermost bracket can have none. Each bracket has at
    least one word or bracket inside, and at most `MOST_DEPTH` brackets are open at a time.
    """
    opened: list[tuple[str, list[Tree | str]]] = []
    before, tree = "", None
    for piece in _TOKEN.findall(text):
        if tree is not None:
            raise UserError(f"{show(piece)} after the end of the tree; expected one tree a line")
        if piece == "(":
            if len(opened) == MOST_DEPTH:
                raise UserError(f"more than {MOST_DEPTH} brackets inside of each other; expected fewer")
            if before == "(" and len(opened) > 1:
                raise UserError("a bracket without a label; expected (LABEL …)")
            opened.append(("", []))
        elif not opened:
            raise UserError(f"{show(piece)} before the first bracket; expected (LABEL …)")
        elif piece == CLOSE:
            label, parts = opened.pop()
            if not parts:
                raise UserError(f"the bracket ({label}) has nothing inside; expected words or brackets")
            found = Tree(label, tuple(parts))
            if opened:
                opened[-1][1].append(found)
            else:
                tree = found
        elif before == "(":
            opened[-1] = (piece, [])
        else:
            opened[-1][1].append(piece)
        before = piece
    if tree is None:
        raise UserError(
            f"{len(opened)} brackets are not closed; expected a closing bracket for each, and one tree a line"
            if opened
            else "no bracket; expected (LABEL …)"
        )
    return tree


def read_treebank_tree(text: str) -> Tree:
    """Read a tree in treebank form, without what the description of this module lists."""
    outer = read_tree(text)
    match outer.label, _bare(outer):
        case label, Tree(parts=(Tree() as only,)) if label in OUTERMOST:
            return only
        case label, Tree() as tree:
            return Tree("TOP", tree.parts) if label in OUTERMOST else tree
        case _, str() as word:
            return Tree("TOP", (word,))
    raise UserError("a tree of empty elements only; expected at least one word")


def _bare(tree: Tree) -> Tree | str | None:
    """Return the word of a part of speech, or a constituent without what is left out; None if nothing remains."""
    match tree.parts:
        case (str() as word,):
            return None if tree.label == EMPTY else word
    for part in tree.parts:
        if isinstance(part, str):
            raise UserError(f"the word {show(part)} without a part of speech; expected (TAG {part})")
    parts = tuple(part for part in map(_bare, tree.parts) if part is not None)  # type: ignore[arg-type]
    return Tree(re.split(r"(?<!^)[-=]", tree.label)[0], parts) if parts else None


def answer_tree(text: str, *, words: Sequence[str]) -> Tree | None:
    """Return the tree of an answer, with the words of its sentence; None if it is not a valid tree of this sentence.

    Valid is a tree with a label in each bracket, and with ``XX`` as many times as the sentence has words.
    """
    try:
        tree = read_tree(text)
    except UserError:
        return None
    places = list(tree.words())
    if not tree.label or len(places) != len(words) or set(places) != {WORD}:
        return None
    return _filled(tree, iter(words))


def _filled(tree: Tree, words: Iterator[str]) -> Tree:
    parts = tuple(next(words) if isinstance(part, str) else _filled(part, words) for part in tree.parts)
    return Tree(tree.label, parts)


def flat(text: str, *, words: int) -> str:
    """Return the answer of one bracket around so many words, with the label of the outermost bracket of `text`."""
    return joined([f"({read_tree(text).label}", *[WORD] * words, CLOSE])
