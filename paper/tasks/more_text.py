"""Sentences of other texts for a language model on the sentences about agreement: novels, and a part of WikiText-2.

They are written as Linzen's files are: lower case, with brackets as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paper.tasks.novels import read_novels
from paper.tasks.treebank import CLOSERS, SENTENCE_ENDS, cut
from universal_transformer.data.download import find
from universal_transformer.files import read_lines

PART = "valid.txt"
"""Of WikiText-2: its test part is left to tests."""
RARE = "<unk>"
"""What stands for a rare word in WikiText-2."""
_HEADING = "="
_JOINED = {" @-@ ": "-", " @,@ ": ",", " @.@ ": "."}
_BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]"}
SHORTEST, LONGEST = 4, 50
"""Words of a sentence."""


def sentences(words: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Cut words after the marks that end a sentence, with what closes it, and at empty words."""
    sentence: list[str] = []
    ended = False
    for word in words:
        if not word or (ended and word not in SENTENCE_ENDS and word not in CLOSERS):
            if SHORTEST <= len(sentence) <= LONGEST:
                yield tuple(sentence)
            sentence, ended = [], False
        if word:
            sentence.append(_BRACKETS.get(word, word))
            ended = ended or word in SENTENCE_ENDS


def novel_sentences(data_dir: str) -> Iterator[tuple[str, ...]]:
    novels = read_novels(data_dir)
    return sentences(map(novels.types.__getitem__, novels.tokens.tolist()))


def wikitext_sentences(data_dir: str) -> Iterator[tuple[str, ...]]:
    return sentences(_wikitext_words(data_dir))


def _wikitext_words(data_dir: str) -> Iterator[str]:
    for _, line in read_lines(find("wikitext2", data_dir, file=PART)):
        text = line.strip()
        if not text or text.startswith(_HEADING):
            continue
        for written, joined in _JOINED.items():
            text = text.replace(written, joined)
        for chunk in text.split():
            yield from (chunk,) if chunk == RARE else cut(chunk)
        yield ""
