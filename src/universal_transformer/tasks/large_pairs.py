"""Pairs that do not fit in memory: encoded once into a store of tokens, from which every run reads them.

In memory are a sample of the rows, those that are held out, and the rows that are encoded together.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from universal_transformer.data.columns import TextRow
from universal_transformer.data.example import Example
from universal_transformer.data.survey import batches, survey
from universal_transformer.data.text_table import WholeRows, collect
from universal_transformer.data.token_store import StoreWriter, TokenStore, smallest_kind
from universal_transformer.files import show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.lazy import MappedExamples
from universal_transformer.tasks.own_files import OwnFiles, RowEncoder
from universal_transformer.tasks.stores import ENCODED, SEEN, learned_note, reported, store_on_disk

HELD_OUT_ROWS, HELD_OUT_CHARACTERS = 5_000, 20_000_000
"""About how many rows, and how many characters of them, are held out at most."""


def map_pairs(
    data: OwnFiles, rows: Callable[[], Iterator[TextRow]], *, sources: Sequence[str], key: Sequence[Any]
) -> tuple[Codec[Any, Any], TokenStore]:
    """Return codec and store of pairs: "tokens", source then target of each pair, and "offsets" where a side begins.

    `rows` returns all rows of the sources, also those with a blank column; `key` has what the rows and `OwnFiles.learn`
    depend on. The codec is learned from a sample of the rows.
    """
    name, columns = show_path(sources[0]), data.layout.names

    def make(writer: StoreWriter) -> Codec[Any, Any]:
        found = survey(reported(rows(), sources[0], size=_size, what=SEEN), size=_size)
        table = collect(name, found.sample, columns=columns)
        draw = data.hold_out(table, most=min(HELD_OUT_ROWS / found.count, HELD_OUT_CHARACTERS / found.characters))
        sample = [row for row in table.rows if row not in draw]
        codec = data.learn(sample, table)
        encoder, pairs = RowEncoder(data, codec, name), _PairWriter(codec, writer)
        whole, held = WholeRows(name), list[TextRow]()
        read = reported(rows(), sources[0], size=_size, what=f"of {found.characters / 1e6:,.0f} {ENCODED}")
        for batch in batches(whole.of(read), size=_size):
            pairs.write(encoder([row for row in batch if row not in draw]))
            held += [row for row in batch if row in draw]
        writer.index.held_out = {"validation": [data.layout.written(row) for row in held]}
        learned = learned_note(len(found.sample), found.count, what="rows")
        writer.index.notes = (*learned, *whole.notes, *encoder.notes(), *data.held_note(len(held), name))
        return codec

    fields = [*columns, *data.layout.read, data.separator, data.max_length, data.seed, data.validation_fraction]
    return store_on_disk(sources, [*key, *fields, data.has("validation")], make)


def mapped_pairs(store: TokenStore, *, padding_id: int) -> MappedExamples:
    tokens, offsets = store.arrays["tokens"], store.arrays["offsets"]

    def pair(index: int) -> Example:
        first, middle, end = offsets[2 * index : 2 * index + 3].tolist()
        source, target = tuple(tokens[first:middle].tolist()), tuple(tokens[middle:end].tolist())
        return Example(source=source, target=target, padding_id=padding_id)

    def sizes(indices: np.ndarray) -> np.ndarray:
        first, middle, end = (offsets[2 * indices + place] for place in range(3))
        return np.maximum(middle - first, end - middle)

    return MappedExamples(
        pair,
        count=(len(offsets) - 1) // 2,
        sizes=sizes,
        digest=f"pairs: {store.digest}",
        longest_target=store.index.longest_target,
    )


def _size(row: TextRow) -> int:
    return len(row.first) + len(row.second) + 1


class _PairWriter:
    """Writes pairs as tokens and offsets."""

    def __init__(self, codec: Codec[Any, Any], writer: StoreWriter) -> None:
        self._kind = smallest_kind(max(len(codec.source.tokenizer), len(codec.target.tokenizer)))
        self._writer, self._end = writer, 0
        writer.append("tokens", np.empty(0), kind=self._kind)
        writer.append("offsets", np.zeros(1), kind="int64")

    def write(self, examples: Sequence[Example]) -> None:
        sides: list[Any] = list(chain.from_iterable((example.source, example.target) for example in examples))
        if not sides:
            return
        lengths = np.array(list(map(len, sides)), dtype=np.int64)
        index = self._writer.index
        index.longest_target = max(index.longest_target, int(lengths[1::2].max()))
        self._writer.append("tokens", np.fromiter(chain.from_iterable(sides), dtype=np.int32), kind=self._kind)
        self._writer.append("offsets", self._end + np.cumsum(lengths), kind="int64")
        self._end += int(lengths.sum())
