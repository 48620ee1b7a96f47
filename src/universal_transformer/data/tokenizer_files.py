"""Tokenizers that were learned elsewhere: a ``tokenizer.json`` of Hugging Face, or a ``.model`` of SentencePiece.

A token of the file with id i has the id i + 4 here, after ``<pad> <start> <end> <unknown>``; the unknown token of the
file is `UNKNOWN`. No start or end is added by the file. A run keeps a copy of the file, and does not need it again.

A ``tokenizer.json`` can name components that abort the process, such as a huge padding or a bad regular expression.
Only components of a list are accepted, regular expressions only if they are those of well-known models, and no padding
and no truncation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from universal_transformer.data.tokenizer import KINDS, MAX_VOCABULARY, SPECIAL, UNKNOWN, Tokenizer, check_tokenizer
from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import parse_json, read_bytes, show, show_path, write_bytes

FIRST = len(SPECIAL)
ENDINGS = (".json", ".model")
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
        "Sequence",
        "ByteLevel",
        "WordPiece",
        "Metaspace",
        "BPEDecoder",
        "Fuse",
        "Strip",
        "Replace",
        "ByteFallback",
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
}
"""Regular expressions of GPT-4, Llama 3, Qwen 2 and GPT-2, and that of runs of blanks."""


NEAR = 8
"""A part of a text is looked for among so many characters after the part before it."""


@runtime_checkable
class Rules(Protocol):
    """What both libraries do, with the ids of the file."""

    suffix: str
    """Ending of the name of its file in a run."""
    size: int
    unknown: int
    """Id of the unknown token; -1 if there is none."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""

    def parts(self, text: str) -> list[tuple[int, str]]:
        """Return the id of each token with its part of the text."""

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""

    def piece(self, index: int) -> str:
        """Return one token as it is in the file."""


class FileTokenizer(Tokenizer):
    """A tokenizer from a file, with the ids of this program."""

    def __init__(self, data: bytes, rules: Rules) -> None:
        self.kind = "file"
        self.lower_case = False
        self._data = data
        self._file = rules

    def __eq__(self, other: object) -> bool:
        """Two tokenizers of files are equal if they are of one kind with the same bytes."""
        return isinstance(other, FileTokenizer) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @property
    def _content(self) -> tuple[str, bytes]:
        return self._file.suffix, self._data

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without start or end."""
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UserError(f"half of a surrogate pair in {show(text)}; expected whole characters")
        return [self._ours(index) for index in self._file.encode(text)]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each of `texts`."""
        return [self.encode(text) for text in texts]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return for each id of `encode` its characters of `text`; none for a token that the file has rewritten."""
        found, place = [], 0
        for _, part in self._file.parts(text):
            part = part.strip(" ")
            first = text.find(part, place, place + len(part) + NEAR)
            found.append((first, first + len(part)) if first >= 0 else (place, place))
            place = found[-1][1]
        return found

    def _ours(self, index: int) -> int:
        return UNKNOWN if index == self._file.unknown else index + FIRST

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids` without padding, start and end; the unknown id gives ``<unknown>``."""
        parts: list[list[int] | None] = [[]]
        for index in ids:
            if index >= FIRST:
                if parts[-1] is None:
                    parts.append([])
                parts[-1].append(index - FIRST)  # type: ignore[union-attr]
            elif index == UNKNOWN:
                parts.append(None)
        texts = (f" {SPECIAL[UNKNOWN]} " if part is None else self._file.decode(part) for part in parts if part != [])
        return "".join(texts).strip(" ") if None in parts else "".join(texts)

    def unknown(self, text: str) -> tuple[str, ...]:
        """Return the parts of `text` that are encoded as unknown, in their order, each once."""
        found = (part for index, part in self._file.parts(text) if index == self._file.unknown)
        return tuple(dict.fromkeys(part.strip() or part for part in found))

    def piece(self, index: int) -> str:
        """Return one token as the file has it."""
        return SPECIAL[index] if index < FIRST else self._file.piece(index - FIRST)

    def tokens(self) -> list[str]:
        """Return the token of every id as the file has it."""
        return [self.piece(index) for index in range(len(self))]

    def __len__(self) -> int:
        return FIRST + self._file.size

    def save(self, path: Path) -> None:
        """Write the copy of the file next to `path`, with the ending of its kind."""
        write_bytes(path.with_suffix(self._file.suffix), self._data)


class HuggingFaceRules:
    """A ``tokenizer.json`` whose components are all known."""

    suffix = ".huggingface.json"

    def __init__(self, data: bytes, name: str) -> None:
        from tokenizers import Tokenizer as Library

        try:
            fields = parse_json(data.decode("utf-8"), where=name)
        except UnicodeDecodeError as error:
            raise UserError(f"{name}: not UTF-8; expected the tokenizer.json of Hugging Face") from error
        _check(fields, name)
        plain = json.dumps({**fields, "post_processor": None})  # it adds special tokens, which are not wanted
        self._library = _guarded(lambda: Library.from_str(plain), f"{name}: not a tokenizer.json of Hugging Face")
        ids = self._library.get_vocab().values()
        if not ids or max(ids) >= MAX_VOCABULARY:
            raise UserError(f"{name}: a vocabulary of {len(ids):,} tokens; expected 1 to {MAX_VOCABULARY:,}")
        self.size = max(ids) + 1  # some ids may not be used
        model = fields["model"]
        token = model.get("unk_token")
        found = self._library.token_to_id(token) if isinstance(token, str) else model.get("unk_id")
        self.unknown = found if isinstance(found, int) else -1
        if self.unknown < 0 and model["type"] != "BPE":
            raise UserError(
                f"{name}: a {model['type']} model whose unknown token is {show(token)}; expected one of its vocabulary"
            )

    def encode(self, text: str) -> list[int]:
        return list(self._library.encode(text, add_special_tokens=False).ids)

    def parts(self, text: str) -> list[tuple[int, str]]:
        found = self._library.encode(text, add_special_tokens=False)
        return [(index, text[first:end]) for index, (first, end) in zip(found.ids, found.offsets, strict=True)]

    def decode(self, ids: list[int]) -> str:
        return self._library.decode(ids, skip_special_tokens=False)

    def piece(self, index: int) -> str:
        return self._library.id_to_token(index) or f"<{index}>"


class SentencePieceRules:
    """A ``.model`` of SentencePiece, which has its own normalisation."""

    suffix = ".model"

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
        self.size, self.unknown = int(self._library.GetPieceSize()), int(self._library.unk_id())
        if not 0 < self.size <= MAX_VOCABULARY:
            raise UserError(f"{name}: a vocabulary of {self.size:,} tokens; expected 1 to {MAX_VOCABULARY:,}")

    def encode(self, text: str) -> list[int]:
        return list(self._library.EncodeAsIds(text))

    def parts(self, text: str) -> list[tuple[int, str]]:
        pieces = (piece.replace("▁", " ") for piece in self._library.EncodeAsPieces(text))
        return list(zip(self.encode(text), pieces, strict=True))

    def decode(self, ids: list[int]) -> str:
        return str(self._library.DecodeIds(ids))

    def piece(self, index: int) -> str:
        return str(self._library.IdToPiece(index))


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
    """Load the tokenizer that `Tokenizer.save` wrote to `folder`/`name`.json, or next to it for a tokenizer file."""
    for rules in (HuggingFaceRules, SentencePieceRules):
        if (path := folder / f"{name}{rules.suffix}").is_file():
            return load_file(path)
    return Tokenizer.load(folder / f"{name}.json")


def load_file(path: Path) -> FileTokenizer:
    """Load a tokenizer file; one that is too large, damaged or has unknown components is a UserError."""
    data = read_bytes(path, what="a tokenizer file")
    kind = SentencePieceRules if path.suffix == ".model" else HuggingFaceRules
    return FileTokenizer(data, kind(data, show_path(path)))


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
    for section, found in types.items():
        for kind in found:
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
