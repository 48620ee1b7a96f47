"""Your own text: a language model, ``p(text) = Π p(token | tokens before it)``.

The text is one row of tokens that is cut into blocks. Every line ends with ``<end>``, so that a model predicts the end
of a line, and continues a prompt to the end of its line. Each block is a separate example: its first token is predicted
from the start token alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np

from universal_transformer.data.columns import Columns, Lines
from universal_transformer.data.example import PADDING, Example
from universal_transformer.data.survey import Survey, batches, survey
from universal_transformer.data.text_sources import IN_MEMORY, is_large, is_table, source_lines
from universal_transformer.data.text_table import check_file
from universal_transformer.data.token_store import StoreIndex, StoreWriter, TokenStore, smallest_kind
from universal_transformer.data.tokenizer import KINDS, Tokenizer
from universal_transformer.data.tokenizer_files import check_choice, choice_key, make_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import MAX_WRITTEN_LINE, Line, parse_json, read_lines, show, show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.lazy import DeferredExamples, Examples, LazyExamples, MappedExamples
from universal_transformer.tasks.own_files import input_lines
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import RunningText
from universal_transformer.tasks.stores import ENCODED, SEEN, check_same, learned_note, reported, store_on_disk
from universal_transformer.tasks.task import HeldOut, Saved, Task
from universal_transformer.typed import AtLeastTwo, NumberOf, Share, check

PARTS = ("validation", "test")
"""What may be held out, in this order in the text."""
TextCodec = Codec[RunningText, RunningText]
Learn = Callable[[Sequence[str]], Tokenizer]
"""Returns the tokenizer of lines to train on, or of a sample of them."""


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
    columns: str = ""
    """The column of a table by name or number, text=2. Names are the keys of JSON lines (.jsonl), or stand in the first
    line of other files. A file that ends in .csv may have columns in quotes."""
    separator: str = ""
    """What stands between the columns of a table (default: a tab, in .csv a comma), or a whole line with the name of
    its column in braces: "Title: {text}"."""
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
        assert self.layout, "a UserError for columns that cannot be"
        if self.validation_fraction + self.test_fraction >= 1:
            raise UserError(
                f"--data.validation-fraction {self.validation_fraction} and --data.test-fraction "
                f"{self.test_fraction} leave nothing to train on; expected a sum below 1"
            )

    @property
    def layout(self) -> Columns:
        return Columns("text", chosen=self.columns, separator=self.separator)

    def inputs(self, lines: Lines, *, name: str, codec: TextCodec) -> Iterator[Line]:
        """Yield the prompt of each line, or of each row of a table."""
        del codec
        table = is_table(name, self.layout)
        yield from input_lines(lines, self.layout, name=name) if table else lines

    def load(self, saved: Saved | None = None) -> Task:
        """Read the text and cut it into blocks; of a new run, the tokenizer is learned from the training text.

        Of a saved one, other text than the test is read when it is asked for.
        """
        return self._again(saved) if saved else self._new()

    def _new(self) -> Task:
        check_file("train", self.train, needs=("UTF-8 text", "a folder of it"))
        codec, store = self._encoded(self._learn)
        parts = {part: self._read(part) for part in PARTS if getattr(self, part)}
        parts |= {part: [str(row["text"]) for row in rows] for part, rows in store.index.held_out.items()}
        examples: dict[str, Examples] = {part: _blocks(codec, lines) for part, lines in parts.items()}
        examples["train"] = stored_blocks(store, codec)
        return self._task(codec, examples, store.index.notes, held_out=store.index.held_out)

    def _again(self, saved: Saved) -> Task:
        codec: TextCodec = saved.codec

        def read(part: str) -> LazyExamples:
            if part == "train":
                found, store = self._encoded(lambda _: codec.source.tokenizer)
                check_same(found, codec, source=self.train)
                return stored_blocks(store, codec)
            return _blocks(codec, self._read(part) if getattr(self, part) else _read_rows(saved.rows(part)))

        later = ("train", "validation")
        examples: dict[str, Examples] = {part: DeferredExamples(partial(read, part)) for part in later}
        notes = ["test: the last lines of the training text"] * (not self.test)
        return self._task(codec, examples | {"test": read("test")}, notes)

    def _encoded(self, learn: Learn) -> tuple[TextCodec, TokenStore]:
        """Encode the training text, or open its store; `learn` returns the tokenizer of the lines to train on."""
        shares = {part: getattr(self, f"{part}_fraction") for part in PARTS if not getattr(self, part)}
        if not is_large(self.train, limit=self.memory_mb):
            writer = StoreWriter()
            return self._write(writer, learn=learn, shares=shares), writer.in_memory()
        key = choice_key(self.tokenizer, vocabulary_size=self.vocabulary_size, lower_case=self.lower_case)
        make = partial(self._write, learn=self._learn, shares=shares)
        codec, store = store_on_disk([self.train], [*key, sorted(shares.items()), self.columns, self.separator], make)
        return self._codec(codec.source.tokenizer), store

    def _write(self, writer: StoreWriter, *, learn: Learn, shares: Mapping[str, float]) -> TextCodec:
        """Write "tokens", with an end id after each line; a text that is written to memory is read once."""
        whole = writer.folder is None
        found = survey(self._lines(SEEN), size=_size, whole=whole)
        num_train = hold_out(found, shares, index=writer.index, source=self.train)
        sample = found.sample[: -(-num_train // found.stride)]
        codec = self._codec(learn(sample))
        again = islice(self._lines(f"of {found.characters / 1e6:,.0f} {ENCODED}"), num_train)
        _write(sample if whole else again, codec, writer)
        writer.index.notes = (*learned_note(len(sample), num_train, what="lines"), *writer.index.notes)
        return codec

    def _lines(self, what: str) -> Iterator[str]:
        lines = (text for _, text in source_lines(self.train, part="train", columns=self.layout))
        return reported(lines, self.train, size=_size, what=what)

    def _read(self, part: str) -> list[str]:
        source = getattr(self, part)
        lines = [text for _, text in source_lines(source, part=part, columns=self.layout)]
        if not any(line.strip() for line in lines):
            raise UserError(f"{show_path(source)}:{len(lines)}: all lines up to here are blank; expected text")
        return lines

    def _learn(self, lines: Sequence[str]) -> Tokenizer:
        return make_tokenizer(self.tokenizer, lines, vocabulary_size=self.vocabulary_size, lower_case=self.lower_case)

    def _codec(self, tokenizer: Tokenizer) -> TextCodec:
        return Codec.shared(RunningText(tokenizer=tokenizer, block_length=self.block_length))

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


def _read_rows(path: Path) -> list[str]:
    lines = []
    for number, line in read_lines(path, max_line=MAX_WRITTEN_LINE):
        match parse_json(line, where=f"{show_path(path)}:{number}"):
            case {"text": str(text)}:
                lines.append(text)
            case found:
                raise UserError(f'{show_path(path)}:{number}: found {show(found)}; expected {{"text": a line}}')
    return lines


def _blocks(codec: TextCodec, lines: Sequence[str]) -> LazyExamples:
    _write(lines, codec, writer := StoreWriter())
    return stored_blocks(writer.in_memory(), codec)


def _write(lines: Iterable[str], codec: TextCodec, writer: StoreWriter) -> None:
    tokenizer = codec.source.tokenizer
    for batch in batches(lines, size=_size):
        writer.append("tokens", tokenizer.encode_lines(batch), kind=smallest_kind(len(tokenizer)))


def blocks(tokens: np.ndarray, *, length: int, padding_id: int = PADDING) -> LazyExamples:
    """Return examples of `length` tokens each (the last may be shorter) from one array."""
    return LazyExamples(
        lambda index: Example((), tuple(tokens[index * length : (index + 1) * length].tolist()), padding_id=padding_id),
        count=-(-len(tokens) // length),
    )


def stored_blocks(store: TokenStore, codec: TextCodec) -> LazyExamples:
    tokens, length = store.arrays["tokens"], codec.source.block_length
    examples = blocks(tokens, length=length, padding_id=codec.padding_id)
    if store.folder is None:
        return examples
    return MappedExamples(
        examples.__getitem__,
        count=len(examples),
        sizes=lambda indices: np.minimum(length, len(tokens) - indices * length),
        digest=f"blocks of {length}: {store.digest}",
        longest_target=min(length, len(tokens)),
    )


def _size(line: str) -> int:
    return len(line) + 1


def hold_out(found: Survey[str], shares: Mapping[str, float], *, index: StoreIndex, source: str) -> int:
    """Give the last lines of a text to the parts of `shares`, which are in their order in it, without blank lines at
    its end; return how many lines are left to train on.

    Each part has its share of all lines, as far as the last lines of the survey go.
    """
    name, end = show_path(source), len(found.tail)
    while end and not found.tail[end - 1].strip():
        end -= 1
    rest, count = found.tail[:end], found.count - len(found.tail) + end
    if not rest:
        raise UserError(f"{name}:{found.count}: all lines up to here are blank; expected text")
    most = count if len(rest) == count else len(rest) // max(1, len(shares))
    sizes = {part: min(max(round(share * count), 1), most) for part, share in shares.items()}
    named = f"name a file with --data.{' and --data.'.join(sizes)}"
    if 0 in sizes.values() or sum(sizes.values()) >= count:
        parts = " and ".join(sizes)
        raise UserError(
            f"{name}:{count}: the last line; too few lines, or too long ones, to hold out for {parts}: {named}"
        )
    where = f"lines of {name}"
    for part, size in reversed(sizes.items()):  # the test is cut off first, and so has the last lines
        lines, rest, count = rest[-size:], rest[:-size], count - size
        if not any(map(str.strip, lines)):
            raise UserError(
                f"{name}:{count + 1}: the lines from here on that would be held out for {part} are blank: name a file "
                f"with --data.{part}"
            )
        index.held_out[part] = [{"text": line} for line in lines]
        index.notes += (f"{part}: the last {size:,} {where}",)
        where = f"lines before those of the {part}"
    return count
