"""Your own text: a language model, ``p(text) = Π p(token | tokens before it)``.

The text is one row of tokens that is cut into blocks. Every line ends with ``<end>``, so that a model predicts the end
of a line, and continues a prompt to the end of its line. Each block is a separate example: its first token is predicted
from the start token alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from universal_transformer.data.example import Example
from universal_transformer.data.text_sources import IN_MEMORY, is_large, source_lines
from universal_transformer.data.text_table import check_file
from universal_transformer.data.token_store import TokenStore
from universal_transformer.data.tokenizer import KINDS, Tokenizer
from universal_transformer.data.tokenizer_files import check_choice, choice_key, make_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import MAX_WRITTEN_LINE, parse_json, read_lines, show, show_path
from universal_transformer.tasks.codecs import SavedCodec, special_ids, token_fields
from universal_transformer.tasks.large import check_same
from universal_transformer.tasks.large_text import blocks, map_text, read_text, stored_blocks
from universal_transformer.tasks.lazy import DeferredExamples, Examples, LazyExamples
from universal_transformer.tasks.task import Codec, HeldOut, Saved, Task
from universal_transformer.typed import AtLeastTwo, NumberOf, Share, check

LINES_AT_ONCE = 10_000


@dataclass(frozen=True)
class TextCodec(SavedCodec):
    """A tokeniser, and the limit of a prompt."""

    kind: ClassVar[str] = "text"
    tokenizer: Tokenizer
    block_length: int

    @property
    def by_character(self) -> bool:
        """Whether a token is one character."""
        return self.tokenizer.by_character

    @property
    def model_fields(self) -> dict[str, Any]:
        """Return the fields of a model that follow from the tokenizer."""
        return token_fields("language_model", size=len(self.tokenizer)) | special_ids(self.tokenizer)

    def blocks(self, lines: Sequence[str]) -> LazyExamples:
        """Return text as examples of `block_length` tokens, an end id after each line."""
        tokens = _encode(lines, self.tokenizer)
        return blocks(tokens, length=self.block_length, padding_id=self.tokenizer.padding_id)

    def stored(self, store: TokenStore) -> LazyExamples:
        """Return the text of a store as such examples."""
        return stored_blocks(store, length=self.block_length, padding_id=self.tokenizer.padding_id)

    @property
    def tokens_by_side(self) -> Mapping[str, Sequence[str]]:
        return {side: self.tokenizer.tokens() for side in ("source", "target")}

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one prompt, as `target`, for every line; an empty line is a prompt too."""
        for number, text in lines:
            ids = tuple(self.tokenizer.encode(text))
            if len(ids) >= self.block_length:
                raise UserError(
                    f"{name}:{number}: a prompt of {len(ids)} tokens; this run takes at most "
                    f"{self.block_length - 1} (below --data.block-length of its training)"
                )
            unknown = self.tokenizer.unknown(text)
            yield Example(source=(), target=ids, unknown=unknown, padding_id=self.tokenizer.padding_id)

    def render(self, target: int | Sequence[int]) -> str:
        """Return the text of ids; an ``<end>`` between them becomes a line break."""
        assert not isinstance(target, int), "a target is a sequence of ids"
        end_id = self.tokenizer.end_id
        ids = target[:-1] if target and target[-1] == end_id else target
        ends = [place for place, index in enumerate(ids) if index == end_id]
        bounds = zip([0, *(place + 1 for place in ends)], [*ends, len(ids)], strict=True)
        return "\n".join(self.tokenizer.decode(ids[first:end]) for first, end in bounds)

    def spans(self, text: str) -> list[tuple[int, int]]:
        return self.tokenizer.spans(text)

    @property
    def vocabulary(self) -> str:
        return f"{len(self.tokenizer):,} tokens"

    def pieces(self, example: Example) -> tuple[list[str], list[str]]:
        assert isinstance(example.target, tuple)
        return [], [self.tokenizer.piece(index) for index in example.target]

    def words(self, example: Example) -> list[str]:
        assert isinstance(example.target, tuple)
        return [self.tokenizer.label(index) for index in example.target]


@dataclass(frozen=True, kw_only=True)
class TextData:
    """A language model on your own text files."""

    codec_class: ClassVar[type[Codec]] = TextCodec
    FILES: ClassVar[tuple[str, ...]] = ("train", "validation", "test", "tokenizer")
    train: str = ""
    """Training text: UTF-8, one sentence, verse or paragraph a line; the file may end in .gz. Or a folder of such
    files, read in the order of their names, or hf:NAME[:CONFIG[:SPLIT]], a data set of the hub, or hf:FOLDER."""
    validation: str = ""
    """Validation text; without it the training text's last lines are held out."""
    test: str = ""
    """Test text; without it the training text's very last lines are held out."""
    tokenizer: str = "character"
    """What a token is: character; whitespace (what stands between two blanks); word (a word or punctuation mark); bpe
    (byte pairs merged by frequency); or a file, FILE.json of Hugging Face or FILE.model of SentencePiece."""
    vocabulary_size: int = 8000
    """At most so many different tokens."""
    lower_case: bool = False
    """Turn all text into lower case."""
    block_length: AtLeastTwo = 256
    """Tokens of one example; a token sees those before it in its block."""
    validation_fraction: Share = 0.05
    """Part of the lines held out for validation if no file is named."""
    test_fraction: Share = 0.05
    """Part of the lines held out as the test if no file is named."""
    memory_mb: NumberOf = IN_MEMORY
    """Training text of more megabytes is not read into memory: it is encoded once, into files in the folder
    `tokens` of the data folder, with a tokenizer learned from a sample, and at most the last 2 million characters are
    held out."""

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice(self.tokenizer, self.vocabulary_size, lower_case=self.lower_case)
        if self.validation_fraction + self.test_fraction >= 1:
            raise UserError(
                f"--data.validation-fraction {self.validation_fraction} and --data.test-fraction "
                f"{self.test_fraction} leave nothing to train on; expected a sum below 1"
            )

    def load(self) -> Task:
        """Read the files, learn the tokeniser from the training text, cut all text into blocks."""
        check_file("train", self.train, needs=("UTF-8 text", "a folder of it"))
        tokenizer, store = self._encoded(self._learn)
        codec = TextCodec(tokenizer=tokenizer, block_length=self.block_length)
        parts = {part: _read(getattr(self, part), part=part) for part in self._named}
        parts |= {part: [str(row["text"]) for row in rows] for part, rows in store.index.held_out.items()}
        examples: dict[str, Examples] = {part: codec.blocks(lines) for part, lines in parts.items()}
        examples["train"] = codec.stored(store)
        return self._task(codec, examples, store.index.notes, held_out=store.index.held_out)

    def _encoded(self, learn: Callable[[Sequence[str]], Tokenizer]) -> tuple[Tokenizer, TokenStore]:
        """Encode the training text, or open its store; `learn` returns the tokenizer of the lines to train on."""
        held_out = {part: getattr(self, f"{part}_fraction") for part in self._held_out}
        if not is_large(self.train, limit=self.memory_mb):
            return read_text(self.train, learn=learn, held_out=held_out)
        key = choice_key(self.tokenizer, vocabulary_size=self.vocabulary_size, lower_case=self.lower_case)
        return map_text(self.train, learn=self._learn, key=key, held_out=held_out)

    def _learn(self, lines: Sequence[str]) -> Tokenizer:
        return make_tokenizer(self.tokenizer, lines, vocabulary_size=self.vocabulary_size, lower_case=self.lower_case)

    def reload(self, saved: Saved) -> Task:
        """Read the test text and encode it with the saved codec; other text is read when it is asked for."""
        codec = saved.codec
        assert isinstance(codec, TextCodec)

        def read(part: str) -> LazyExamples:
            if part == "train":
                tokenizer, store = self._encoded(lambda _: codec.tokenizer)
                check_same([tokenizer], [codec.tokenizer], source=self.train)
                return codec.stored(store)
            if path := getattr(self, part):
                return codec.blocks(_read(path, part=part))
            return codec.blocks(_read_rows(saved.rows(part)))

        examples: dict[str, Examples] = {
            part: DeferredExamples(partial(read, part)) for part in ("train", "validation")
        }
        notes = [f"{part}: the last lines of the training text" for part in self._held_out if part == "test"]
        return self._task(codec, examples | {"test": read("test")}, notes)

    def _task(
        self,
        codec: TextCodec,
        examples: Mapping[str, Examples],
        notes: Sequence[str],
        *,
        held_out: HeldOut | None = None,
    ) -> Task:
        size, kind = len(codec.tokenizer), self.tokenizer if self.tokenizer in KINDS else "file"
        note = (
            f"perplexity is per token of a vocabulary of {size} ({kind}), line ends counted, "
            f"each block of {self.block_length} separately"
        )
        return Task(
            name="text",
            codec=codec,
            train=examples["train"],
            validation=examples["validation"],
            test={"test": examples["test"]},
            metric="perplexity",
            model_fields=codec.model_fields,
            notes=(*notes, note),
            held_out=held_out or {},
        )

    @property
    def _held_out(self) -> list[str]:
        """Parts without a file of their own, in their order in the training text."""
        return [part for part in ("validation", "test") if not getattr(self, part)]

    @property
    def _named(self) -> list[str]:
        """Parts with a file of their own, but for training."""
        return [part for part in ("validation", "test") if getattr(self, part)]


def _read_rows(path: Path) -> list[str]:
    lines = []
    for number, line in read_lines(path, max_line=MAX_WRITTEN_LINE):
        match parse_json(line, where=f"{show_path(path)}:{number}"):
            case {"text": str(text)}:
                lines.append(text)
            case found:
                raise UserError(f'{show_path(path)}:{number}: found {show(found)}; expected {{"text": a line}}')
    return lines


def _read(source: str, *, part: str) -> list[str]:
    lines = [text for _, text in source_lines(source, part=part)]
    if not any(line.strip() for line in lines):
        raise UserError(f"{show_path(source)}:{len(lines)}: all lines up to here are blank; expected text")
    return lines


def _encode(lines: Sequence[str], tokenizer: Tokenizer) -> np.ndarray:
    batches = range(0, len(lines), LINES_AT_ONCE)
    return np.concatenate([tokenizer.encode_lines(lines[first : first + LINES_AT_ONCE]) for first in batches])
