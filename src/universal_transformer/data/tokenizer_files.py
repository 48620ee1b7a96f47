"""Tokenizers from files: a ``tokenizer.json`` of Hugging Face, a ``.model`` of SentencePiece, or that of a run.

Ids are those of the file. A file without a token for padding, start, end or unknown gets one after its last id.

A ``tokenizer.json`` can name components that abort the process, such as a huge padding or a bad regular expression.
Only components of a list are accepted, regular expressions only if they are those of well-known models or of this
program, and no padding and no truncation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from universal_transformer.data.tokenizer import (
    BETWEEN_BLANKS,
    BLANK,
    CHARACTER,
    KINDS,
    MAX_VOCABULARY,
    SPECIAL,
    UNKNOWN_TOKEN,
    WHITE,
    WORDS,
    Tokenizer,
    check_tokenizer,
)
from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import parse_json, read_bytes, show, show_path

if TYPE_CHECKING:
    import tokenizers

SENTENCEPIECE = ".model"
ENDINGS = (Tokenizer.suffix, SENTENCEPIECE)
COMPONENTS = {
    "model": {"BPE", "Unigram", "WordLevel", "WordPiece"},
    "normalizer": {
        *("Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "BertNormalizer", "Strip", "StripAccents"),
        *("Prepend", "Replace", "Nmt"),
    },
    "pre_tokenizer": {
        *("Sequence", "ByteLevel", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits", "Metaspace", "Split"),
        *("BertPreTokenizer", "CharDelimiterSplit"),
    },
    "decoder": {
        *("Sequence", "ByteLevel", "WordPiece", "Metaspace", "BPEDecoder", "Fuse", "Strip", "Replace", "ByteFallback"),
    },
}
"""Section of a ``tokenizer.json`` -> types that are accepted in it."""
REGEXES = {
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    *(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        for digits in (r"\p{N}{1,3}", r"\p{N}")
    ),
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    " {2,}",
    *(CHARACTER, WHITE, BETWEEN_BLANKS, WORDS, UNKNOWN_TOKEN),
}
"""Regular expressions of GPT-4, Llama 3, Qwen 2 and GPT-2, that of runs of blanks, and those of the kinds of this
program.
"""
NEAR = 8
"""A part of a text is looked for among so many characters after the part before it."""


def check_choice(choice: str, vocabulary_size: int, *, lower_case: bool) -> None:
    """Raise `UserError` for what is neither a kind of tokenizer nor the name of a tokenizer file."""
    if not choice.endswith(ENDINGS):
        if choice not in KINDS:
            raise UserError(
                f"--data.tokenizer {show(choice)}: expected one of {', '.join(KINDS)}{suggestion(choice, KINDS)}, or "
                "a file: tokenizer.json of Hugging Face, or a .model of SentencePiece"
            )
        check_tokenizer(choice, vocabulary_size)
    elif lower_case:
        raise UserError(f"--data.lower-case: the tokenizer file {show_path(choice)} decides that; leave it out")


def make_tokenizer(choice: str, texts: Iterable[str], *, vocabulary_size: int, lower_case: bool) -> Tokenizer:
    """Learn a tokenizer of a kind from `texts`, or load the file that `choice` names."""
    for kind in KINDS:
        if kind == choice:
            return Tokenizer.train(texts, kind=kind, vocabulary_size=vocabulary_size, lower_case=lower_case)
    return load_file(Path(choice))


def choice_key(choice: str, *, vocabulary_size: int, lower_case: bool) -> list[str | int | bool]:
    """Return the values that `make_tokenizer` depends on, but for the texts: of a file, its SHA-256."""
    if choice in KINDS:
        return [choice, vocabulary_size, lower_case]
    return [hashlib.sha256(read_bytes(Path(choice), what="a tokenizer file")).hexdigest()]


def saved_tokenizer(folder: Path, name: str) -> Tokenizer:
    """Load the tokenizer that `Tokenizer.save` wrote to `folder`/`name` with the ending of its kind."""
    model = folder / f"{name}{SENTENCEPIECE}"
    return load_file(model if model.is_file() else folder / f"{name}{Tokenizer.suffix}")


def load_file(path: Path) -> Tokenizer:
    """Load a tokenizer file; one that is too large, damaged or has unknown components is a UserError."""
    data, name = read_bytes(path, what="a tokenizer file"), show_path(path)
    if path.suffix == SENTENCEPIECE:
        return SentencePieceTokenizer(data, name=name)
    try:
        fields = parse_json(data.decode("utf-8"), where=name)
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not UTF-8; expected the tokenizer.json of Hugging Face") from error
    _check(fields, name)
    return _of_fields(fields, name)


def _of_fields(fields: dict[str, Any], name: str) -> Tokenizer:
    """Return the tokenizer of a checked ``tokenizer.json``."""
    from tokenizers import Tokenizer as Library

    plain = json.dumps({**fields, "post_processor": None})  # it adds special tokens, which are not wanted
    library: tokenizers.Tokenizer
    library = _guarded(lambda: Library.from_str(plain), f"{name}: not a tokenizer.json of Hugging Face")
    ids, model = library.get_vocab().values(), fields["model"]
    if not ids or max(ids) >= MAX_VOCABULARY:
        raise UserError(f"{name}: a vocabulary of {len(ids):,} tokens; expected 1 to {MAX_VOCABULARY:,}")
    unknown = model.get("unk_token")
    if isinstance(number := model.get("unk_id"), int):
        unknown = library.id_to_token(number)
    if not isinstance(unknown, str) or library.token_to_id(unknown) is None:
        if (kind := type(library.model).__name__) != "BPE":
            raise UserError(
                f"{name}: a {kind} model whose unknown token is {show(unknown)}; expected one of its vocabulary"
            )
        unknown = None
    tokenizer = Tokenizer.of_library(library, unknown=unknown)
    vocabulary = library.get_vocab()
    if len(set(vocabulary.values())) < len(vocabulary):
        raise UserError(f"{name}: two tokens with one id; expected every id once")
    return tokenizer


class SentencePieceTokenizer(Tokenizer):
    """A ``.model`` of SentencePiece, which has its own normalisation."""

    suffix = SENTENCEPIECE

    def __init__(self, data: bytes, *, name: str) -> None:
        rules = SentencePieceRules(data, name)
        super().__init__(rules, special=rules.special, content=data)


@dataclass(frozen=True)
class _Encoding:
    ids: list[int]
    offsets: list[tuple[int, int]]


class SentencePieceRules:
    """The `data.tokenizer.Rules` of the library of SentencePiece."""

    def __init__(self, data: bytes, name: str) -> None:
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError as error:
            raise UserError(
                f"{name}: a SentencePiece model needs the package sentencepiece: "
                "run pip install 'universal-transformer[sentencepiece]'"
            ) from error
        self._library = SentencePieceProcessor()
        _guarded(lambda: self._library.LoadFromSerializedProto(data), f"{name}: not a SentencePiece model")
        self._size = int(self._library.GetPieceSize())
        if not 0 < self._size <= MAX_VOCABULARY:
            raise UserError(f"{name}: a vocabulary of {self._size:,} tokens; expected 1 to {MAX_VOCABULARY:,}")
        library = self._library
        given = (library.pad_id(), library.bos_id(), library.eos_id(), library.unk_id())
        self._added = [token for token, index in zip(SPECIAL, given, strict=True) if index < 0]
        self.special = [
            self._size + self._added.index(token) if index < 0 else int(index)
            for token, index in zip(SPECIAL, given, strict=True)
        ]

    def encode(self, text: str, /, *, add_special_tokens: bool) -> _Encoding:
        """Return ids with the characters of each; none for a token that the file has rewritten."""
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise TypeError("not Unicode")
        assert not add_special_tokens
        offsets, place = [], 0
        for piece in self._library.EncodeAsPieces(text):
            part = piece.replace("▁", BLANK).strip(BLANK)
            first = text.find(part, place, place + len(part) + NEAR)
            offsets.append((first, first + len(part)) if first >= 0 else (place, place))
            place = offsets[-1][1]
        return _Encoding(list(self._library.EncodeAsIds(text)), offsets)

    def encode_batch(self, texts: list[str], /, *, add_special_tokens: bool) -> list[_Encoding]:
        return [self.encode(text, add_special_tokens=add_special_tokens) for text in texts]

    def decode(self, ids: list[int], /, *, skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return str(self._library.DecodeIds(ids))

    def id_to_token(self, index: int, /) -> str:
        return self._added[index - self._size] if index >= self._size else str(self._library.IdToPiece(index))

    def get_vocab(self) -> dict[str, int]:
        return {self.id_to_token(index): index for index in range(self._size + len(self._added))}


def _check(fields: Any, name: str) -> None:
    if not isinstance(fields, dict) or not isinstance(fields.get("model"), dict):
        raise UserError(f'{name}: found {show(fields)}; expected a tokenizer.json with a section "model"')
    for section in ("padding", "truncation"):
        if fields.get(section) is not None:
            raise UserError(f'{name}: a section "{section}"; expected none: set it to null in a copy of the file')
    model = fields["model"]
    if model.get("dropout"):
        raise UserError(
            f"{name}: model.dropout is {show(model['dropout'])}; expected null: encoding must not be random"
        )
    # some versions of the library `tokenizers` leave the type of the model out
    types = {"model": [model.get("type", "BPE")]} | {
        section: list(_types(fields.get(section), f"{name}: {section}")) for section in COMPONENTS if section != "model"
    }
    for section, named in types.items():
        for kind in named:
            if kind not in COMPONENTS[section]:
                raise UserError(
                    f"{name}: {section} of type {show(kind)}; expected one of {', '.join(sorted(COMPONENTS[section]))}"
                )


def _types(component: Any, where: str) -> Iterator[object]:
    """Yield the type of a component and of those in it; a regular expression that is not known is a UserError."""
    if component is None:
        return
    if not isinstance(component, dict) or not isinstance(component.get("type"), str):
        raise UserError(f"{where} is {show(component)}; expected an object with a type")
    yield component["type"]
    match component.get("pattern"):
        case None | {"String": str()}:
            pass
        case {"Regex": str(regex)} if regex in REGEXES:
            pass
        case pattern:
            raise UserError(
                f"{where}: the pattern {show(pattern)}; expected a string or the expression of a known model"
            )
    for inside in ("normalizers", "pretokenizers", "decoders"):
        children = component.get(inside, [])
        if not isinstance(children, list):
            raise UserError(f"{where}.{inside} is {show(children)}; expected a list")
        for child in children:
            yield from _types(child, where)


def _guarded(load: Any, message: str) -> Any:
    """Return ``load()``; an error of the library, or the panic of one in Rust, is a UserError."""
    try:
        return load()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic is no Exception
        raise UserError(f"{message} ({show(str(error))})") from error
