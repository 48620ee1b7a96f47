"""Tokenizers from files: a ``tokenizer.json`` of Hugging Face, a ``.model`` of SentencePiece, or that of a run.

Ids are those of the file. A file without a token for padding, start, end or unknown gets one after its last id.

A ``tokenizer.json`` can name components that abort the process, such as a huge padding or a bad regular expression, or
that make gigabytes of a word. Only components of a list are accepted, regular expressions only if they are those of
well-known models or of this program, and no padding and no truncation. Together they make a text at most `MOST_GROWTH`
times as long.
"""

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
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
    EncodedText,
    Tokenizer,
)
from universal_transformer.errors import UserError, optional, refuse, suggestion
from universal_transformer.files import parse_json, read_bytes, show, show_path

if TYPE_CHECKING:
    import tokenizers

SENTENCEPIECE = ".model"
ENDINGS = (Tokenizer.suffix, SENTENCEPIECE)
COMPONENTS = (
    *("BPE", "Unigram", "WordLevel", "WordPiece", "BPEDecoder", "ByteLevel", "Metaspace", "ByteFallback", "Fuse"),
    *("Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "BertNormalizer", "Strip", "StripAccents", "Prepend"),
    *("Replace", "Nmt", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits", "Split", "BertPreTokenizer"),
    "CharDelimiterSplit",
)
"""Types of models, normalizers, pre-tokenizers and decoders that are accepted."""
ADDED = ("content", "prepend", "replacement", "prefix", "suffix")
"""Fields of components whose text they add."""
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
MOST_GROWTH = 16
"""How many times as long the components of a file may make a text: twice, with a `Replace` of "a" by "aa"."""
MOST_COMPONENTS = 100
LONGEST_TOKEN = 1024
"""Characters of a token or of what a component adds; the longest of well-known models are runs of 128 blanks."""
NUM_BYTES = 256
NEAR = 8
"""A part of a text is looked for among so many characters after the part before it."""


def check_choice(choice: str, vocabulary_size: int, *, lower_case: bool) -> None:
    """UserError for what is neither a kind of tokenizer nor a tokenizer file, or a size that the kind cannot have."""
    least = len(SPECIAL) + (NUM_BYTES if choice == "bpe" else 1)
    named = choice.endswith(ENDINGS)
    refuse(
        (
            not named and choice not in KINDS,
            f"--data.tokenizer {show(choice)}: expected one of {', '.join(KINDS)}{suggestion(choice, KINDS)}, or "
            "a file: tokenizer.json of Hugging Face, or a .model of SentencePiece",
        ),
        (
            not named and not least <= vocabulary_size <= MAX_VOCABULARY,
            f"--data.vocabulary-size {vocabulary_size}: expected {least} to {MAX_VOCABULARY:,} for {choice} tokens",
        ),
        (
            named and lower_case,
            f"--data.lower-case: the tokenizer file {show_path(choice)} decides that; leave it out",
        ),
    )


def make_tokenizer(choice: str, texts: Iterable[str], *, vocabulary_size: int, lower_case: bool) -> Tokenizer:
    """Learn a tokenizer of a kind from `texts`, or load the file that `choice` names."""
    if kind := next((kind for kind in KINDS if kind == choice), None):
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
    vocabulary, model = library.get_vocab(), fields["model"]
    _check_vocabulary(vocabulary, max(vocabulary.values(), default=-1) + 1, name)
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
    vocabulary = library.get_vocab()  # with special tokens that it lacked
    if len(set(vocabulary.values())) < len(vocabulary):
        raise UserError(f"{name}: two tokens with one id; expected every id once")
    return tokenizer


class SentencePieceTokenizer(Tokenizer):
    """A ``.model`` of SentencePiece, which has its own normalisation."""

    suffix = SENTENCEPIECE

    def __init__(self, data: bytes, *, name: str) -> None:
        package = optional("sentencepiece", needed=f"{name}: a SentencePiece model", extra="sentencepiece")
        library = package.SentencePieceProcessor()
        _guarded(lambda: library.LoadFromSerializedProto(data), f"{name}: not a SentencePiece model")
        size = int(library.GetPieceSize())
        self._tokens = list(map(str, map(library.IdToPiece, range(size))))
        _check_vocabulary(self._tokens, size, name)
        given = dict(
            zip(SPECIAL, (library.pad_id(), library.bos_id(), library.eos_id(), library.unk_id()), strict=True)
        )
        added = [token for token, index in given.items() if index < 0]
        special = [size + added.index(token) if index < 0 else int(index) for token, index in given.items()]
        self._tokens += added
        super().__init__(library, special=special, size=len(self._tokens), content=data)

    def _encoding(self, text: str) -> EncodedText:
        """Return ids with the characters of each; none for a token that the file has rewritten."""
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UserError(f"half of a surrogate pair in {show(text)}; expected whole characters")
        offsets, place = [], 0
        for piece in self._library.EncodeAsPieces(text):
            part = piece.replace("▁", BLANK).strip(BLANK)
            first = text.find(part, place, place + len(part) + NEAR)
            offsets.append((first, first + len(part)) if first >= 0 else (place, place))
            place = offsets[-1][1]
        return EncodedText(list(self._library.EncodeAsIds(text)), offsets)

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return list(map(self.encode, texts))

    def _text(self, ids: list[int]) -> str:
        return str(self._library.DecodeIds(ids))

    def _token(self, index: int) -> str:
        return self._tokens[index]


def _check_vocabulary(tokens: Collection[str], size: int, name: str) -> None:
    if not 0 < size <= MAX_VOCABULARY:
        raise UserError(f"{name}: a vocabulary of {len(tokens):,} tokens; expected 1 to {MAX_VOCABULARY:,}")
    if len(longest := max(tokens, key=len)) > LONGEST_TOKEN:
        found = f"the token {show(longest)} of {len(longest):,} characters"
        raise UserError(f"{name}: {found}; expected at most {LONGEST_TOKEN:,}")


def _check(fields: Any, name: str) -> None:
    model = fields.get("model") if isinstance(fields, dict) else None
    if not isinstance(model, dict):
        raise UserError(f'{name}: found {show(fields)}; expected a tokenizer.json with a section "model"')
    refuse(
        *(
            (fields.get(section), f'a section "{section}"; expected none: set it to null in a copy of the file')
            for section in ("padding", "truncation")
        ),
        (
            model.get("dropout"),
            f"model.dropout is {show(model.get('dropout'))}; expected null: encoding must not be random",
        ),
        at=name,
    )
    # some versions of the library `tokenizers` leave the type of the model out
    parts = {"model": {"type": model.get("type", "BPE")}}
    parts |= {part: found for part in ("normalizer", "pre_tokenizer", "decoder") if (found := fields.get(part))}
    for part, component in parts.items():
        growths = list(_check_component(component, where := f"{name}: {part}"))
        growth = math.prod(growths)
        refuse(
            (len(growths) > MOST_COMPONENTS, f"{len(growths):,} components; expected at most {MOST_COMPONENTS}"),
            (
                growth > MOST_GROWTH,
                f"its components make a text {growth:.3g} times as long; expected at most {MOST_GROWTH} times",
            ),
            at=where,
        )


def _check_component(component: Any, where: str) -> Iterator[float]:
    """Yield how many times as long a component, and each one in it, can make a text.

    UserError unless types and regular expressions are known.
    """
    if not isinstance(component, dict):
        raise UserError(f"{where} is {show(component)}; expected an object with a type")
    if component.get("type") not in COMPONENTS:
        raise UserError(f"{where} of type {show(component.get('type'))}; expected one of {', '.join(COMPONENTS)}")
    match component.get("pattern"):
        case None:
            replaced = 1
        case {"String": str(text)} if text:
            replaced = len(text)
        case {"Regex": str(regex)} if regex in REGEXES:
            replaced = 1
        case pattern:
            raise UserError(
                f"{where}: the pattern {show(pattern)}; expected a string or the expression of a known model"
            )
    for added in filter(None, map(component.get, ADDED)):
        if not isinstance(added, str) or len(added) > LONGEST_TOKEN:
            raise UserError(f"{where}: {show(added)}; expected a text of at most {LONGEST_TOKEN:,} characters")
    content = component.get("content")
    yield max(1.0, len(content) / replaced) if component["type"] == "Replace" and isinstance(content, str) else 1.0
    for inside in ("normalizers", "pretokenizers", "decoders"):
        children = component.get(inside, [])
        for child in children if isinstance(children, list) else [children]:
            yield from _check_component(child, where)


def _guarded(load: Any, message: str) -> Any:
    """Return ``load()``; an error of the library, or the panic of one in Rust, is a UserError."""
    try:
        return load()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic is no Exception
        raise UserError(f"{message} ({show(str(error))})") from error
