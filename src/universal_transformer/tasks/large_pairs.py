"""Pairs that do not fit in memory: encoded once into a store of tokens, from which every run reads them.

In memory are a sample of the rows, those that are held out, and the rows that are encoded together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np

from universal_transformer.data.example import Example
from universal_transformer.data.survey import batches, survey
from universal_transformer.data.text_sources import source_rows
from universal_transformer.data.text_table import Columns, TextRow, header_note, is_header, is_whole, no_rows
from universal_transformer.data.token_store import DiskWriter, TokenStore, smallest_kind
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.large import Reading, check_space, learned_note, source_store
from universal_transformer.tasks.lazy import MappedExamples
from universal_transformer.tasks.sides.tokenized import Text

HELD_OUT_ROWS = 5_000
"""Rows that are held out at most; twice as many, if rows have the same source."""
HELD_OUT_CHARACTERS = 20_000_000
AT_ONCE = 2**22
"""Offsets that are looked at together for the longest target."""


@dataclass(frozen=True, kw_only=True)
class PairsSource:
    """Where training pairs come from, and how many of them are held out."""

    source: str
    target: str
    """The target side, if it is a source of its own."""
    columns: Columns
    held_out: float
    """Share of the rows; 0 for none."""
    seed: int

    def rows(self) -> Iterator[TextRow]:
        """Yield every row, also one with a blank column."""
        return source_rows(self.source, self.target, columns=self.columns, part="train")


def map_pairs(
    pairs: PairsSource, *, learn: Callable[[Sequence[TextRow]], Codec[Text, Text]], key: Sequence[Any]
) -> TokenStore:
    """Return the store of pairs: "tokens", source then target of each pair, and the "offsets" where each side begins.

    `learn` returns the codec, given a sample of the rows; `key` has the values that it depends on. Rows are held out by
    a hash of seed and source, so that rows with the same source are in the same part.
    """
    name, columns = show_path(pairs.source), pairs.columns.names

    def make(writer: DiskWriter) -> None:
        progress = Reading(pairs.source)
        found = survey(progress.seen(pairs.rows(), size=_size, what="first look"), size=_size)
        held = _HeldOut(share=min(pairs.held_out, HELD_OUT_ROWS / max(1, found.count)), seed=pairs.seed)
        sample = [row for row in found.sample if is_whole(row) and not held.chooses(row)]
        if not sample:
            raise no_rows(name, found.tail[-1].line if found.tail else 1, columns=columns)
        codec = learn(sample)
        codec.save(writer.folder)
        encoder = _RowEncoder(codec, writer)
        check_space(writer.folder, encoder.bytes_of(sample[:1000]) / sum(map(_size, sample[:1000])) * found.characters)
        rows = progress.seen(pairs.rows(), size=_size, total=found.characters, what="tokens")
        for batch in batches(rows, size=_size):
            whole = [row for row in batch if is_whole(row)]
            encoder.blank += len(batch) - len(whole)
            encoder.header = encoder.header or next((row for row in whole if is_header(row, columns)), None)
            encoder.write([row for row in whole if not held.takes(row)])
        if not encoder.kept or (pairs.held_out and not held.rows):
            raise UserError(
                f"{name}: {encoder.kept:,} pairs to train on and {len(held.rows):,} held out; expected both: name a "
                "file with --data.validation, or raise --data.max-length"
            )
        if pairs.held_out:
            writer.index.held_out = {"validation": [pairs.columns.written(row) for row in held.rows]}
        notes = learned_note(len(found.sample), found.count, what="rows")
        writer.index.notes = (*notes, *encoder.notes(name, count=found.count), *held.notes(name))

    settings = [*key, *columns, pairs.columns.group, pairs.held_out, pairs.seed]
    return source_store([pairs.source, pairs.target], settings, make)


def mapped_pairs(store: TokenStore, *, padding_id: int) -> MappedExamples:
    """Return the pairs of a store."""
    tokens, offsets = store.arrays["tokens"], store.arrays["offsets"]

    def pair(index: int) -> Example:
        first, middle, end = offsets[2 * index : 2 * index + 3].tolist()
        source, target = tuple(tokens[first:middle].tolist()), tuple(tokens[middle:end].tolist())
        return Example(source=source, target=target, padding_id=padding_id)

    def sizes(indices: np.ndarray) -> np.ndarray:
        first, middle, end = (offsets[2 * indices + place] for place in range(3))
        return np.maximum(middle - first, end - middle)

    parts = (offsets[first : first + AT_ONCE + 1] for first in range(0, len(offsets) - 1, AT_ONCE))
    return MappedExamples(
        pair,
        count=(len(offsets) - 1) // 2,
        sizes=sizes,
        digest=f"pairs: {store.digest}",
        longest_target=max(int(np.diff(part)[1::2].max()) for part in parts),
    )


def _size(row: TextRow) -> int:
    return len(row.first) + len(row.second) + 1


@dataclass
class _RowEncoder:
    """Writes rows as tokens and offsets, without those that are too long."""

    codec: Codec[Text, Text]
    writer: DiskWriter
    blank: int = 0
    header: TextRow | None = None
    """The first row that looks like the names of the columns."""
    long: int = 0
    kept: int = 0
    end: int = 0
    """Tokens that are written."""

    def __post_init__(self) -> None:
        self.kind = smallest_kind(max(len(self.codec.source.tokenizer), len(self.codec.target.tokenizer)))
        self.writer.append("tokens", np.empty(0), kind=self.kind)
        self.writer.append("offsets", np.zeros(1), kind="int64")

    def _encode(self, rows: Sequence[TextRow]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        source, target = self.codec.source, self.codec.target
        pairs = zip(
            source.encode_many([row.first for row in rows], []),
            target.encode_many([row.second for row in rows], []),
            strict=True,
        )
        return [pair for pair in pairs if source.fits(pair[0]) and target.fits(pair[1])]

    def bytes_of(self, rows: Sequence[TextRow]) -> int:
        """Return how many bytes the rows need."""
        tokens = sum(len(side) for pair in self._encode(rows) for side in pair)
        return tokens * np.dtype(self.kind).itemsize + 16 * len(rows)

    def write(self, rows: Sequence[TextRow]) -> None:
        """Encode rows and add them to the store."""
        pairs = self._encode(rows)
        sides = list(chain.from_iterable(pairs))
        offsets = self.end + np.cumsum([len(side) for side in sides], dtype=np.int64)
        self.writer.append("tokens", np.fromiter(chain.from_iterable(sides), dtype=np.int32), kind=self.kind)
        self.writer.append("offsets", offsets, kind="int64")
        self.kept, self.long = self.kept + len(pairs), self.long + len(rows) - len(pairs)
        self.end = int(offsets[-1]) if pairs else self.end

    def notes(self, name: str, *, count: int) -> list[str]:
        """Say how many rows were left out."""
        blank = f"{name}: {self.blank:,} of {count:,} lines left out: blank or with an empty column"
        longer = f"longer than --data.max-length {self.codec.source.max_length} tokens"
        long = f"{name}: {self.long:,} of {count - self.blank:,} examples left out: {longer}"
        header = [header_note(self.header, name)] if self.header else []
        return header + [blank] * bool(self.blank) + [long] * bool(self.long)


@dataclass
class _HeldOut:
    """The rows that are held out."""

    share: float
    seed: int
    rows: list[TextRow] = field(default_factory=list)
    characters: int = 0
    left_out: int = 0

    def chooses(self, row: TextRow) -> bool:
        """Return whether the hash of a row's source says that it is held out."""
        digest = blake2b(f"{self.seed} {row.first}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) / 2**64 < self.share

    def takes(self, row: TextRow) -> bool:
        """Hold a row out if it is chosen; return whether it is no row to train on."""
        if not self.chooses(row):
            return False
        if len(self.rows) < 2 * HELD_OUT_ROWS and self.characters + _size(row) <= HELD_OUT_CHARACTERS:
            self.rows.append(row)
            self.characters += _size(row)
        else:
            self.left_out += 1
        return True

    def notes(self, name: str) -> list[str]:
        """Say how many rows are held out."""
        if not self.share:
            return []
        more = f"; {self.left_out:,} more with the sources of these are left out" if self.left_out else ""
        return [f"validation: {len(self.rows)} pairs of {name} held out by seed {self.seed}{more}"]
