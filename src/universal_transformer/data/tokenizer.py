"""Text to ids and back: characters, words, or byte pairs, learned from the training text.

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
`tokenizer_files` loads tokenizers that were learned elsewhere.

Ids 0 to 3 are ``<pad> <start> <end> <unknown>``. They are not words of the text: the text ``<end>`` is encoded as its
characters, so that a file cannot end or pad a sequence. Training is a function of the text alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from universal_transformer.data.example import PADDING
from universal_transformer.errors import UserError
from universal_transformer.files import MAX_JSON_BYTES, read_json, show, show_path, write_text

if TYPE_CHECKING:
    import tokenizers

Kind = Literal["character", "whitespace", "word", "bpe"]
KINDS: tuple[Kind, ...] = get_args(Kind)

START, END, UNKNOWN = 1, 2, 3
SPECIAL = ("<pad>", "<start>", "<end>", "<unknown>")
BLANK = " "
WORDS = r" ?[^\W_]+| ?[^\w\s]| ?_|\s"
"""A run of letters and digits, or one other mark, with the blank before it; or one white space."""
MAX_VOCABULARY = 1_000_000
MAX_TOKEN = 256  # characters: a longer "word" is a file of the wrong kind
NUM_BYTES = 256


class Tokenizer:
    """A vocabulary with its rules, from `Tokenizer.train` or `Tokenizer.load`."""

    def __init__(self, vocabulary: Mapping[str, int], *, kind: Kind, lower_case: bool, merges: Sequence = ()):
        self.kind: str = kind
        self.lower_case = lower_case
        self._rules = _rules(dict(vocabulary), kind=kind, lower_case=lower_case, merges=merges)

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
        ``bpe`` starts from the 256 bytes, so its least size is 260.
        """
        check_tokenizer(kind, vocabulary_size)
        from tokenizers import pre_tokenizers, trainers

        rules = _rules({SPECIAL[UNKNOWN]: UNKNOWN}, kind=kind, lower_case=lower_case, merges=())
        common: dict[str, Any] = {"vocab_size": vocabulary_size, "special_tokens": list(SPECIAL)}
        trainer: trainers.Trainer = trainers.WordLevelTrainer(min_frequency=least_count, show_progress=False, **common)
        if kind == "bpe":
            alphabet = pre_tokenizers.ByteLevel.alphabet()
            trainer = trainers.BpeTrainer(initial_alphabet=alphabet, max_token_length=64, show_progress=False, **common)
        rules.train_from_iterator(texts, trainer)
        model = json.loads(rules.to_str())["model"]
        # Built from the vocabulary, because the trainer has registered <pad> and others as words of the text.
        tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
        if kind != "bpe":
            tokens = [token for token in tokens if len(token) <= MAX_TOKEN]
        if kind == "word" and BLANK not in tokens:  # so that any number of blanks is kept
            tokens = [*tokens[: len(SPECIAL)], BLANK, *tokens[len(SPECIAL) :]][:vocabulary_size]
        if kind != "bpe":
            normal = rules.normalizer.normalize_str(always) if rules.normalizer else always
            found = rules.pre_tokenizer.pre_tokenize_str(normal)
            tokens = list(dict.fromkeys([*tokens, *(token for token, _ in found)]))
        vocabulary = {token: index for index, token in enumerate(tokens)}
        return cls(vocabulary, kind=kind, lower_case=lower_case, merges=model.get("merges", ()))

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without start or end."""
        return self._encoding(text).ids

    def _encoding(self, text: str) -> tokenizers.Encoding:
        try:
            return self._rules.encode(text, add_special_tokens=False)
        except TypeError as error:  # the library raises it for a str that is not Unicode
            raise UserError(f"half of a surrogate pair in {show(text)}; expected whole characters") from error

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return for each id of `encode` which characters of `text` it stands for: the first, and the next after it."""
        return self._encoding(text).offsets

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each of `texts`, on all cores."""
        return [encoding.ids for encoding in self._rules.encode_batch(list(texts), add_special_tokens=False)]

    def encode_lines(self, lines: Sequence[str]) -> NDArray[np.int32]:
        """Return the ids of lines, which have no line feed, as one array with ``<end>`` after each of them."""
        if self.kind == "character" and not self.lower_case:
            codes = np.frombuffer("".join(f"{line}\n" for line in lines).encode("utf-32-le"), dtype=np.uint32)
            return self._ids_of_characters[codes]
        ids = chain.from_iterable((*found, END) for found in self.encode_many(lines))
        return np.fromiter(ids, dtype=np.int32)

    @cached_property
    def _ids_of_characters(self) -> NDArray[np.int32]:
        """The id of each character by its number, and the end id for a line feed: 60 times as fast as the library."""
        found = np.full(sys.maxunicode + 1, UNKNOWN, dtype=np.int32)
        for token, index in self._rules.get_vocab().items():
            if len(token) == 1:
                found[ord(token)] = index
        found[ord("\n")] = END
        return found

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids` without padding, start and end; the unknown id gives ``<unknown>``."""
        kept = [index for index in ids if index not in (PADDING, START, END)]
        if self.kind in ("word", "whitespace"):
            return "".join(map(self._token, kept)).removeprefix(BLANK)
        return self._rules.decode(kept, skip_special_tokens=False)

    def _token(self, index: int) -> str:
        return f"{BLANK}{SPECIAL[UNKNOWN]}" if index == UNKNOWN else self._rules.id_to_token(index) or ""

    def unknown(self, text: str) -> tuple[str, ...]:
        """Return the parts of `text` that are encoded as unknown, in their order, each once."""
        encoding = self._encoding(text)
        places = zip(encoding.ids, encoding.offsets, strict=True)
        return tuple(
            dict.fromkeys(
                text[first:end].strip() or text[first:end] for index, (first, end) in places if index == UNKNOWN
            )
        )

    def piece(self, index: int) -> str:
        """Return one token with its blanks visible, as ``▁``."""
        if index < len(SPECIAL):
            return SPECIAL[index]
        return (self._token(index) if self.kind == "word" else self.decode([index])).replace(BLANK, "▁")

    def tokens(self) -> list[str]:
        """Return the token of every id as the vocabulary has it: different ids have different tokens."""
        return [*SPECIAL, *(self._rules.id_to_token(index) or "" for index in range(len(SPECIAL), len(self)))]

    def label(self, index: int) -> str:
        """Return one token as a label of a plot: its name if special, ``␣`` for a blank."""
        if index < len(SPECIAL):
            return SPECIAL[index]
        return self.decode([index]).strip() or "␣"

    def __len__(self) -> int:
        return self._rules.get_vocab_size()

    def __eq__(self, other: object) -> bool:
        """Two tokenizers are equal if they encode every text alike: equal rules, vocabularies and merges."""
        return type(other) is Tokenizer and self._rules.to_str() == other._rules.to_str()

    def __hash__(self) -> int:
        return hash(self._rules.to_str())

    def save(self, path: Path) -> None:
        """Write the ``tokenizer.json`` of the `tokenizers` library, whole or not at all."""
        write_text(path, self._rules.to_str(pretty=True))

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read what `save` wrote; anything else is a `UserError`.

        A ``tokenizer.json`` can name components that abort the process (a huge padding, a bad regular expression).
        So its rules are not executed: they must be exactly those of one of the three kinds, and only its vocabulary
        and merges are used, after they are checked.
        """
        name = show_path(path)
        fields = read_json(path, max_bytes=MAX_JSON_BYTES)
        model = fields.get("model")
        if not isinstance(model, dict):
            raise UserError(f'{name}: "model" is {show(model)}; expected an object')
        vocabulary = _check_vocabulary(model.get("vocab"), name)
        kind, lower_case = _recognise(fields, name)
        merges = _check_merges(model.get("merges"), vocabulary, name) if kind == "bpe" else ()
        return cls(vocabulary, kind=kind, lower_case=lower_case, merges=merges)


def check_tokenizer(kind: str, vocabulary_size: int) -> None:
    """Raise `UserError` for an unknown kind, or a size that the kind cannot have."""
    if kind not in KINDS:
        raise UserError(f"--data.tokenizer {show(kind)}: expected one of {', '.join(KINDS)}")
    least = len(SPECIAL) + (NUM_BYTES if kind == "bpe" else 1)
    if not least <= vocabulary_size <= MAX_VOCABULARY:
        allowed = f"{least} to {MAX_VOCABULARY:,} for {kind} tokens"
        raise UserError(f"--data.vocabulary-size {vocabulary_size}: expected {allowed}")


def _rules(vocabulary: dict[str, int], *, kind: Kind, lower_case: bool, merges: Sequence) -> tokenizers.Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    prepared: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lower_case else []
    rules = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[UNKNOWN]))
    match kind:
        case "bpe":
            rules = Tokenizer(models.BPE(vocab=vocabulary, merges=[tuple(pair) for pair in merges]))
            rules.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            rules.decoder = decoders.ByteLevel()
        case "character":
            rules.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
            rules.decoder = decoders.Fuse()
        case "whitespace":  # a blank before every word: so none of them is a special token
            prepared += [normalizers.Replace(Regex(r"\s+"), BLANK), normalizers.Strip(), normalizers.Prepend(BLANK)]
            rules.pre_tokenizer = pre_tokenizers.Split(Regex(r" \S+"), "isolated")
        case "word":
            prepared.append(normalizers.Prepend(BLANK))
            rules.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "isolated")
    if prepared:
        rules.normalizer = prepared[0] if len(prepared) == 1 else normalizers.Sequence(prepared)
    return rules


@cache
def _known(kind: Kind, lower_case: bool) -> dict[str, Any]:
    """The whole ``tokenizer.json`` of a kind, but for vocabulary and merges."""
    fields = json.loads(_rules({SPECIAL[UNKNOWN]: UNKNOWN}, kind=kind, lower_case=lower_case, merges=()).to_str())
    fields["model"].pop("vocab")
    fields["model"].pop("merges", None)
    return fields


def _recognise(fields: dict[str, Any], name: str) -> tuple[Kind, bool]:
    model = {key: value for key, value in fields["model"].items() if key not in ("vocab", "merges")}
    found = {**fields, "model": model}
    for kind in KINDS:
        for lower_case in (False, True):
            if _same(found, _known(kind, lower_case)):
                return kind, lower_case
    for section in ("padding", "truncation", "added_tokens", "post_processor"):
        if found.get(section):
            raise UserError(
                f'{name}: a section "{section}" ({show(found[section])}); expected a tokeniser saved by this '
                "program, which has none"
            )
    raise UserError(f"{name}: unknown tokeniser rules; expected those of a kind of this program: {', '.join(KINDS)}")


def _same(found: Any, known: Any) -> bool:
    """Whether all of `found` is in `known`; one that is missing has its default in the library `tokenizers`."""
    if isinstance(known, dict) and isinstance(found, dict):
        if "type" in known and "type" not in found:
            return False
        return all(key in known and _same(value, known[key]) for key, value in found.items())
    if isinstance(known, list) and isinstance(found, list):
        return len(found) == len(known) and all(map(_same, found, known))
    return type(found) is type(known) and bool(found == known)


def _check_vocabulary(vocabulary: Any, name: str) -> dict[str, int]:
    if not isinstance(vocabulary, dict) or not len(SPECIAL) <= len(vocabulary) <= MAX_VOCABULARY:
        raise UserError(f"{name}: expected a vocabulary of {len(SPECIAL)} to {MAX_VOCABULARY:,} tokens")
    for token, index in vocabulary.items():
        if type(index) is not int or not 0 <= index < len(vocabulary):
            raise UserError(f"{name}: id {show(index)} of {show(token)}; expected 0 to {len(vocabulary) - 1}")
        if len(token) > MAX_TOKEN or any("\ud800" <= letter <= "\udfff" for letter in token):
            raise UserError(f"{name}: the token {show(token)}; expected at most {MAX_TOKEN} whole characters")
    if len(set(vocabulary.values())) < len(vocabulary):
        raise UserError(f"{name}: two tokens with one id; expected every id once")
    for index, token in enumerate(SPECIAL):
        if vocabulary.get(token) != index:
            raise UserError(f"{name}: {token} has id {show(vocabulary.get(token))}; expected {index}")
    return vocabulary


def _check_merges(merges: Any, vocabulary: dict[str, int], name: str) -> list[tuple[str, str]]:
    from tokenizers import pre_tokenizers

    missing = set(pre_tokenizers.ByteLevel.alphabet()) - vocabulary.keys()
    if missing:
        raise UserError(f"{name}: {len(missing)} of the 256 bytes are not in the vocabulary; expected all")
    if not isinstance(merges, list) or len(merges) > MAX_VOCABULARY:
        raise UserError(f'{name}: "merges" is {show(merges)}; expected a list')
    checked = []
    for merge in merges:
        pair = isinstance(merge, list) and len(merge) == 2 and all(isinstance(part, str) for part in merge)
        if not pair or any(part not in vocabulary for part in (*merge, "".join(merge))):
            raise UserError(f"{name}: the merge {show(merge)}; expected two tokens whose sum is a token")
        if {*merge, "".join(merge)} & set(SPECIAL):
            raise UserError(f"{name}: the merge {show(merge)} makes a special token; expected none to do so")
        checked.append((merge[0], merge[1]))
    return checked
