"""Your own text: a language model, ``p(text) = Π p(token | tokens before it)``.

The text is one row of tokens that is cut into blocks. Every line ends with ``<end>``, so that a model predicts the end
of a line, and continues a prompt to the end of its line. Each block is a separate example: its first token is predicted
from the start token alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from universal_transformer.data.text_sources import IN_MEMORY, is_large, source_lines
from universal_transformer.data.text_table import check_file
from universal_transformer.data.token_store import TokenStore
from universal_transformer.data.tokenizer import KINDS, Tokenizer
from universal_transformer.data.tokenizer_files import check_choice, choice_key, make_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import MAX_WRITTEN_LINE, parse_json, read_lines, show, show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.large import check_same
from universal_transformer.tasks.large_text import blocks, map_text, read_text, stored_blocks
from universal_transformer.tasks.lazy import DeferredExamples, Examples, LazyExamples
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import RunningText
from universal_transformer.tasks.task import HeldOut, Saved, Task
from universal_transformer.typed import AtLeastTwo, NumberOf, Share, check

LINES_AT_ONCE = 10_000


TextCodec = Codec[RunningText, RunningText]


@dataclass(frozen=True, kw_only=True)
class TextData:
    """A language model on your own text files."""

    sides: ClassVar[Sides] = (RunningText, RunningText)
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

    def load(self, saved: Saved | None = None) -> Task:
        """Read the text and cut it into blocks; of a new run, the tokenizer is learned from the training text.

        Of a saved one, other text than the test is read when it is asked for.
        """
        return self._again(saved) if saved else self._new()

    def _new(self) -> Task:
        check_file("train", self.train, needs=("UTF-8 text", "a folder of it"))
        tokenizer, store = self._encoded(self._learn)
        codec = Codec.shared(RunningText(tokenizer=tokenizer, block_length=self.block_length))
        parts = {part: _read(getattr(self, part), part=part) for part in self._named}
        parts |= {part: [str(row["text"]) for row in rows] for part, rows in store.index.held_out.items()}
        examples: dict[str, Examples] = {part: _blocks(codec, lines) for part, lines in parts.items()}
        examples["train"] = _stored(codec, store)
        return self._task(codec, examples, store.index.notes, held_out=store.index.held_out)

    def _again(self, saved: Saved) -> Task:
        codec: TextCodec = saved.codec

        def read(part: str) -> LazyExamples:
            if part == "train":
                tokenizer, store = self._encoded(lambda _: codec.source.tokenizer)
                check_same([tokenizer], [codec.source.tokenizer], source=self.train)
                return _stored(codec, store)
            path = getattr(self, part)
            return _blocks(codec, _read(path, part=part) if path else _read_rows(saved.rows(part)))

        examples: dict[str, Examples] = {
            part: DeferredExamples(partial(read, part)) for part in ("train", "validation")
        }
        notes = [f"{part}: the last lines of the training text" for part in self._held_out if part == "test"]
        return self._task(codec, examples | {"test": read("test")}, notes)

    def _encoded(self, learn: Callable[[Sequence[str]], Tokenizer]) -> tuple[Tokenizer, TokenStore]:
        """Encode the training text, or open its store; `learn` returns the tokenizer of the lines to train on."""
        held_out = {part: getattr(self, f"{part}_fraction") for part in self._held_out}
        if not is_large(self.train, limit=self.memory_mb):
            return read_text(self.train, learn=learn, held_out=held_out)
        key = choice_key(self.tokenizer, vocabulary_size=self.vocabulary_size, lower_case=self.lower_case)
        return map_text(self.train, learn=self._learn, key=key, held_out=held_out)

    def _learn(self, lines: Sequence[str]) -> Tokenizer:
        return make_tokenizer(self.tokenizer, lines, vocabulary_size=self.vocabulary_size, lower_case=self.lower_case)

    def _task(
        self,
        codec: TextCodec,
        examples: Mapping[str, Examples],
        notes: Sequence[str],
        *,
        held_out: HeldOut | None = None,
    ) -> Task:
        size, kind = len(codec.source.tokenizer), self.tokenizer if self.tokenizer in KINDS else "file"
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


def _blocks(codec: TextCodec, lines: Sequence[str]) -> LazyExamples:
    """Text as examples of `block_length` tokens, an end id after each line."""
    side, starts = codec.source, range(0, len(lines), LINES_AT_ONCE)
    tokens = np.concatenate([side.tokenizer.encode_lines(lines[first : first + LINES_AT_ONCE]) for first in starts])
    return blocks(tokens, length=side.block_length, padding_id=codec.padding_id)


def _stored(codec: TextCodec, store: TokenStore) -> LazyExamples:
    """The text of a store as such examples."""
    return stored_blocks(store, length=codec.source.block_length, padding_id=codec.padding_id)
