"""Sentences of a probabilistic context-free grammar, with English words, and their trees.

Each rule has a weight; its probability is the weight divided by the sum of the weights of all rules of its left side.
Left sides in capitals are constituents, those in small letters parts of speech. Prepositional phrases follow nouns or
verbs, and sentences, nouns, verbs and adjectives are coordinated, so that many sentences have several trees. Their
words do not say which is meant, so that no parser is always right.
"""

from collections.abc import Collection, Iterator
from random import Random
from typing import NamedTuple
from zlib import crc32

from universal_transformer.data.trees import CLOSE, WORD, joined
from universal_transformer.errors import UserError

Production = tuple[int, tuple[str, ...]]


class Drawn(NamedTuple):
    """The words of a sentence, and the tokens of its tree (`trees`)."""

    words: tuple[str, ...]
    tree: tuple[str, ...]


RULES: dict[str, tuple[Production, ...]] = {
    "TOP": ((9, ("S", ".")), (1, ("SQ", "?"))),
    "S": ((8, ("NP", "VP")), (1, ("S", "cc", "S")), (1, ("PP", ",", "NP", "VP"))),
    "SQ": ((1, ("aux", "NP", "VP")),),
    "NP": (
        *((5, ("det", "n")), (2, ("det", "ADJP", "n")), (2, ("name",)), (2, ("pron",)), (1, ("QP", "ns"))),
        *((3, ("NP", "PP")), (1, ("NP", "cc", "NP")), (1, ("NP", "SBAR"))),
    ),
    "VP": (
        *((2, ("vi",)), (5, ("vt", "NP")), (3, ("vt", "NP", "PP")), (1, ("vd", "NP", "NP")), (1, ("vi", "PP"))),
        *((1, ("vs", "SBAR")), (1, ("vo", "INF")), (1, ("is", "ADJP")), (1, ("vp", "PRT", "NP"))),
        *((1, ("ADVP", "VP")), (1, ("VP", "cc", "VP"))),
    ),
    "PP": ((1, ("p", "NP")),),
    "SBAR": ((1, ("that", "S")), (1, ("WHNP", "VP"))),
    "WHNP": ((1, ("who",)),),
    "INF": ((1, ("to", "VP")),),
    "ADJP": ((5, ("adj",)), (1, ("adv", "adj")), (1, ("adj", "cc", "adj"))),
    "ADVP": ((1, ("adv",)),),
    "QP": ((2, ("num",)), (1, ("more", "than", "num"))),
    "PRT": ((1, ("prt",)),),
}
"""Left side -> weights and right sides. In a tree, the mark after a sentence is its last part, and TOP is left out."""

WORDS: dict[str, tuple[str, ...]] = {
    "det": ("the", "a", "every", "this", "that", "no"),
    "n": (
        *("dog", "cat", "child", "teacher", "farmer", "doctor", "king", "garden", "house", "river", "boat", "letter"),
        *("book", "telescope", "bridge", "song"),
    ),
    "ns": ("dogs", "cats", "children", "teachers", "letters", "books", "boats", "songs"),
    "name": ("Anna", "Boris", "Chen", "Dora", "Emil", "Fatima"),
    "pron": ("he", "she", "it", "they", "someone"),
    "vi": ("slept", "laughed", "waited", "arrived", "sang"),
    "vt": ("saw", "painted", "followed", "found", "carried", "liked", "wrote"),
    "vd": ("gave", "sent", "showed"),
    "vs": ("said", "thought", "knew"),
    "vo": ("wanted", "tried", "began"),
    "vp": ("picked", "turned", "gave"),
    "prt": ("up", "off", "in"),
    "is": ("was", "seemed"),
    "p": ("with", "in", "near", "on", "under", "from"),
    "adj": ("old", "small", "red", "happy", "tired"),
    "adv": ("very", "often", "slowly"),
    "num": ("two", "three", "ten"),
    "more": ("more",),
    "than": ("than",),
    "cc": ("and", "or", "but"),
    "aux": ("did", "will"),
    "that": ("that",),
    "who": ("who", "that"),
    "to": ("to",),
    ",": (",",),
    ".": (".",),
    "?": ("?",),
}
"""Part of speech -> words; each is equally frequent."""

MOST_CONSTITUENTS = 8
"""Depth of the deepest tree: constituents inside of each other."""
TRIES = 100_000
HASHES = 10
PARTS: dict[str, Collection[int]] = {"test": (0,), "longer": (0,), "validation": (1,), "train": range(2, HASHES)}
"""Which hash values of a tree, without its words, belong to a part."""


def sentences(part: str, *, lengths: tuple[int, int], seed: int) -> Iterator[Drawn]:
    """Yield different sentences of a part, of so many words (fewest, most; punctuation counts), without end.

    A hash of the tree without its words decides to which part it belongs: no tree is in two of training, validation and
    test. UserError if such sentences are too rare to be found.
    """
    draw, misses = Random(f"grammar {seed} {part}"), 0
    found: set[tuple[str, ...]] = set()
    while misses < TRIES:
        drawn = _draw(draw, most_words=lengths[1])
        misses += 1
        if drawn is None or len(drawn.words) < lengths[0] or drawn.words in found:
            continue
        if crc32(joined(drawn.tree).encode()) % HASHES in PARTS[part]:
            found.add(drawn.words)
            misses = 0
            yield drawn
    least, most = lengths
    raise UserError(f"no other sentence of {least} to {most} words in {TRIES:,} draws; ask for fewer, or other lengths")


def _draw(draw: Random, *, most_words: int) -> Drawn | None:
    """Draw a sentence; None for one that has more words, or is deeper than `MOST_CONSTITUENTS`."""
    first, mark = _right("TOP", draw)
    rest, depth = [f"{CLOSE}{first}", mark, *reversed(_right(first, draw))], 1
    words, tree = [], [f"({first}"]
    while rest:
        name = rest.pop()
        if name in RULES:
            depth += 1
            tree.append(f"({name}")
            rest += [f"{CLOSE}{name}", *reversed(_right(name, draw))]
        elif name.startswith(CLOSE):
            depth -= 1
            tree.append(name)
        else:
            words.append(draw.choice(WORDS[name]))
            tree.append(WORD)
        if depth > MOST_CONSTITUENTS or len(words) > most_words:
            return None
    return Drawn(tuple(words), tuple(tree))


def _right(label: str, draw: Random) -> tuple[str, ...]:
    weights, rights = zip(*RULES[label], strict=True)
    (found,) = draw.choices(rights, weights)
    return found
