"""Text to ids and back: a tokenizer of the `tokenizers` library, learned from the training text or read from a file.

=========== ============================================================ ===========================================
kind        a token is                                                   ``decode(encode(text))``
=========== ============================================================ ===========================================
character   one character; one never seen in training is unknown         the text, if its characters are known
whitespace  what stands between two blanks, as it is                     the known tokens with one blank between them
word        a run of letters and digits, or one other mark, each with    the text, if its tokens are known
            the blank before it, if there is one
bpe         a run of bytes, merged by frequency (Sennrich et al.)        the text, always
=========== ============================================================ ===========================================

For words, a line begins as if a blank were before it, so that a first word is the token that it is elsewhere.
`tokenizer_files` reads tokenizers that were learned elsewhere or saved with a run.

A learned vocabulary begins with ``<pad> <start> <end> <unknown>``; one of a file keeps its ids. These four are no words
of the text: the text ``<end>`` is encoded as its characters, so that a file cannot end or pad a sequence. Training is a
function of the text alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from universal_transformer.data.example import PADDING
from universal_transformer.errors import UserError
from universal_transformer.files import show, write_bytes

if TYPE_CHECKING:
    import tokenizers

Kind = Literal["character", "whitespace", "word", "bpe"]
KINDS: tuple[Kind, ...] = get_args(Kind)

START, END, UNKNOWN = 1, 2, 3
"""Ids of vocabularies that are made here, after `PADDING`; those of a file are the attributes of its tokenizer."""
SPECIAL = ("<pad>", "<start>", "<end>", "<unknown>")
USUAL_NAMES = (
    (SPECIAL[PADDING], "[PAD]", "<|pad|>", "<|padding|>"),
    (SPECIAL[START], "<s>", "<bos>", "[CLS]", "[BOS]", "<|startoftext|>", "<|begin_of_text|>"),
    (SPECIAL[END], "</s>", "<eos>", "[SEP]", "[EOS]", "<|endoftext|>", "<|end_of_text|>"),
    (SPECIAL[UNKNOWN], "<unk>", "[UNK]", "<|unk|>"),
)
"""What files name padding, start, end, and an unknown token."""
BLANK = " "
CHARACTER = r"[\s\S]"
WHITE, BETWEEN_BLANKS = r"\s+", r" \S+"
WORDS = r" ?[^\W_]+| ?[^\w\s]| ?_|\s"
"""A run of letters and digits, or one other mark, with the blank before it; or one white space."""
UNKNOWN_TOKEN = f"^{SPECIAL[UNKNOWN]}$"
MAX_VOCABULARY = 1_000_000
MAX_TOKEN = 256  # characters: a longer "word" is a file of the wrong kind


def until_end(ids: Sequence[int], *, end_id: int = END) -> Sequence[int]:
    """Return the ids before the first end id."""
    return ids[: list(ids).index(end_id)] if end_id in ids else ids


class EncodedText(NamedTuple):
    """An encoded text, as far as a `tokenizers.Encoding` is used here."""

    ids: list[int]
    offsets: list[tuple[int, int]]
    """The first character of each token in the text, and the next after its last."""


class Tokenizer:
    """A vocabulary with its rules, from `Tokenizer.train` or `tokenizer_files.load_file`."""

    suffix = ".json"
    """Ending of the name of a saved one."""
    by_character = False
    """Whether each character is a token, as it is written."""
    _bytes = False
    """Whether the vocabulary has bytes, written as letters."""

    def __init__(self, library: Any, *, special: Sequence[int], size: int, content: bytes) -> None:
        self._library, self._size, self._content = library, size, content
        self.padding_id, self.start_id, self.end_id, self.unknown_id = special
        self._not_text = frozenset(special) - {self.unknown_id}

    @classmethod
    def of_library(cls, library: tokenizers.Tokenizer, *, unknown: str | None = None) -> Tokenizer:
        """Return the tokenizer of an object of the library, with special tokens for the roles for which it has none.

        `unknown` is the token of its model for what it does not know. Text is never encoded as special tokens.
        """
        known = library.get_vocab().keys() - {unknown}
        names = [next((name for name in usual if name in known), usual[0]) for usual in USUAL_NAMES]
        names[UNKNOWN] = names[UNKNOWN] if unknown is None else unknown
        library.add_special_tokens(names)
        library.encode_special_tokens = True
        ids, content = library.get_vocab(), library.to_str(pretty=True).encode()
        tokenizer = cls(library, special=[ids[name] for name in names], size=1 + max(ids.values()), content=content)
        fields = json.loads(content)
        cut = (fields["pre_tokenizer"] or {}).get("pattern")
        tokenizer.by_character = cut == {"Regex": CHARACTER} and not fields["normalizer"]
        tokenizer._bytes = '"ByteLevel"' in json.dumps(fields["decoder"])
        return tokenizer

    @classmethod
    def of_characters(cls, symbols: str) -> Tokenizer:
        """Return a tokenizer with a token for each of `symbols`, after the special ones."""
        from tokenizers import models

        rules = _rules("character", lower_case=False)
        vocabulary = {token: index for index, token in enumerate((*SPECIAL, *symbols))}
        rules.model = models.WordLevel(vocabulary, unk_token=SPECIAL[UNKNOWN])
        return cls.of_library(rules)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        kind: Kind,
        vocabulary_size: int,
        lower_case: bool = False,
        least_count: int = 1,
        always: str = "",
    ) -> Tokenizer:
        """Learn at most `vocabulary_size` tokens (special ones included) from `texts`.

        Tokens that occur less than `least_count` times are left out: 2 makes some of the training text unknown, so that
        a model learns what an unknown word is. The tokens of the text `always` are added if `texts` do not give them,
        also to a vocabulary of full size. Both do not change ``bpe``.
        """
        from tokenizers import models, pre_tokenizers, trainers

        rules = _rules(kind, lower_case=lower_case)
        common: dict[str, Any] = {
            "vocab_size": vocabulary_size,
            "special_tokens": list(SPECIAL),
            "show_progress": False,
        }
        if kind == "bpe":
            alphabet = pre_tokenizers.ByteLevel.alphabet()
            trainer = trainers.BpeTrainer(initial_alphabet=alphabet, max_token_length=64, **common)
            rules.train_from_iterator(texts, trainer)
            return cls.of_library(rules)
        rules.train_from_iterator(texts, trainers.WordLevelTrainer(min_frequency=least_count, **common))
        ids = rules.get_vocab()
        tokens = [token for token in sorted(ids, key=ids.__getitem__) if len(token) <= MAX_TOKEN]
        if kind == "word" and BLANK not in tokens:  # so that any number of blanks is kept
            tokens = [*tokens[: len(SPECIAL)], BLANK, *tokens[len(SPECIAL) :]][:vocabulary_size]
        normal = rules.normalizer.normalize_str(always) if rules.normalizer else always
        tokens += [token for token, _ in rules.pre_tokenizer.pre_tokenize_str(normal)]
        vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
        rules.model = models.WordLevel(vocabulary, unk_token=SPECIAL[UNKNOWN])
        return cls.of_library(rules)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without start or end."""
        return self._encoding(text).ids

    def _encoding(self, text: str) -> EncodedText | tokenizers.Encoding:
        try:
            encoding: tokenizers.Encoding = self._library.encode(text, add_special_tokens=False)
            return encoding
        except TypeError as error:  # the library raises it for a str that is not Unicode
            raise UserError(f"half of a surrogate pair in {show(text)}; expected whole characters") from error

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return for each id of `encode` which characters of `text` it stands for: the first, and the next after it."""
        return self._encoding(text).offsets

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each of `texts`, on all cores."""
        try:
            return [encoding.ids for encoding in self._library.encode_batch(list(texts), add_special_tokens=False)]
        except TypeError:  # one at a time, to name the one that is not Unicode
            return [*map(self.encode, texts)]

    def encode_lines(self, lines: Sequence[str]) -> NDArray[np.int32]:
        """Return the ids of lines, which have no line feed, as one array with the end id after each of them."""
        if self.by_character:
            codes = np.frombuffer("".join(f"{line}\n" for line in lines).encode("utf-32-le"), dtype=np.uint32)
            return self._ids_of_characters[codes]
        ids = chain.from_iterable((*encoded, self.end_id) for encoded in self.encode_many(lines))
        return np.fromiter(ids, dtype=np.int32)

    @cached_property
    def _ids_of_characters(self) -> NDArray[np.int32]:
        """The id of each character by its number, and the end id for a line feed: 60 times as fast as the library."""
        ids = np.full(sys.maxunicode + 1, self.unknown_id, dtype=np.int32)
        for token, index in self._library.get_vocab().items():
            if len(token) == 1:
                ids[ord(token)] = index
        ids[ord("\n")] = self.end_id
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids` without padding, start and end; the unknown id gives the name of its token."""
        return self._text([index for index in ids if index not in self._not_text])

    def _text(self, ids: list[int]) -> str:
        return str(self._library.decode(ids, skip_special_tokens=False))

    def _token(self, index: int) -> str:
        return self._library.id_to_token(index) or f"<{index}>"

    def unknown(self, text: str) -> tuple[str, ...]:
        """Return the parts of `text` that are encoded as unknown, in their order, each once."""
        encoding = self._encoding(text)
        places = zip(encoding.ids, encoding.offsets, strict=True)
        parts = (text[first:end] for index, (first, end) in places if index == self.unknown_id)
        return tuple(dict.fromkeys(part.strip() or part for part in parts))

    def tokens(self) -> list[str]:
        """Return the token of every id as the vocabulary has it: different ids have different tokens."""
        return list(map(self._token, range(len(self))))

    def piece(self, index: int) -> str:
        """Return one token with its blanks visible, as ``▁``."""
        as_text = self._bytes and index not in self._not_text
        return (self._text([index]) if as_text else self._token(index)).replace(BLANK, "▁")

    def label(self, index: int) -> str:
        """Return one token as a label of a plot: its name if special, ``␣`` for a blank."""
        return self.piece(index) if index in self._not_text else self.decode([index]).strip() or "␣"

    @property
    def content(self) -> str:
        """What `save` writes, of a tokenizer of the library."""
        return self._content.decode()

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        """Two tokenizers are equal if they encode every text alike: equal rules, vocabularies and merges."""
        return isinstance(other, Tokenizer) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    def save(self, path: Path) -> None:
        """Write the ``tokenizer.json`` of the library, or the file of another one with its ending, whole or not at all.

        `tokenizer_files.saved_tokenizer` reads it.
        """
        write_bytes(path.with_suffix(self.suffix), self._content)


def _rules(kind: Kind, *, lower_case: bool) -> tokenizers.Tokenizer:
    """Return how texts of a kind are cut and joined, without a vocabulary."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    prepared: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lower_case else []
    rules = Tokenizer(models.BPE() if kind == "bpe" else models.WordLevel({}, unk_token=SPECIAL[UNKNOWN]))
    with_blanks = decoders.Sequence(
        [decoders.Replace(Regex(UNKNOWN_TOKEN), BLANK + SPECIAL[UNKNOWN]), decoders.Fuse(), decoders.Strip(BLANK, 1, 0)]
    )
    match kind:
        case "bpe":
            rules.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            rules.decoder = decoders.ByteLevel()
        case "character":
            rules.pre_tokenizer = pre_tokenizers.Split(Regex(CHARACTER), "isolated")
            rules.decoder = decoders.Fuse()
        case "whitespace":  # a blank before every word: so none of them is a special token
            prepared += [normalizers.Replace(Regex(WHITE), BLANK), normalizers.Strip(), normalizers.Prepend(BLANK)]
            rules.pre_tokenizer = pre_tokenizers.Split(Regex(BETWEEN_BLANKS), "isolated")
            rules.decoder = with_blanks
        case "word":
            prepared.append(normalizers.Prepend(BLANK))
            rules.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "isolated")
            rules.decoder = with_blanks
    if prepared:
        rules.normalizer = prepared[0] if len(prepared) == 1 else normalizers.Sequence(prepared)
    return rules
