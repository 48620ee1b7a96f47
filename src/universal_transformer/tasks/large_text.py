"""A text as a store of tokens: in memory, or on disk where it is encoded once and every run reads its blocks from.

Of a text on disk, a sample of the lines, the last lines and the lines that are encoded together are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from universal_transformer.data.example import PADDING, Example
from universal_transformer.data.survey import Survey, batches, survey
from universal_transformer.data.text_sources import source_lines
from universal_transformer.data.token_store import DiskWriter, MemoryWriter, StoreWriter, TokenStore, smallest_kind
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.data.tokenizer_files import saved_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.tasks.large import Reading, check_space, learned_note, source_store
from universal_transformer.tasks.lazy import LazyExamples, MappedExamples

TOKENIZER = "tokenizer"
"""Name of the tokenizer in a store, for `saved_tokenizer`."""
Learn = Callable[[Sequence[str]], Tokenizer]
"""Returns the tokenizer of lines to train on, or of a sample of them."""


def read_text(source: str, *, learn: Learn, held_out: Mapping[str, float]) -> tuple[Tokenizer, TokenStore]:
    """Return the tokenizer and the store in memory of a text: "tokens", with an end id after each line.

    The last lines are held out: `held_out` has the parts in their order in the text, and the share of all lines for
    each. Blank lines at the end are left out.
    """
    found, writer = survey(_lines(source), size=_size, whole=True), MemoryWriter()
    num_train = _hold_out(found, held_out, writer=writer, source=source)
    tokenizer = learn(found.sample[:num_train])
    _write(found.sample[:num_train], tokenizer, writer)
    return tokenizer, writer.store()


def map_text(
    source: str, *, learn: Learn, key: Sequence[Any], held_out: Mapping[str, float]
) -> tuple[Tokenizer, TokenStore]:
    """Do what `read_text` does, on disk; `key` has the values that `learn` depends on."""

    def make(writer: DiskWriter) -> None:
        progress = Reading(source)
        found = survey(progress.seen(_lines(source), size=_size, what="first look"), size=_size)
        num_train = _hold_out(found, held_out, writer=writer, source=source)
        sample = found.sample[: -(-num_train // found.stride)]
        tokenizer = learn(sample)
        tokenizer.save(writer.folder / f"{TOKENIZER}.json")
        first = next(batches(sample, size=_size))
        tokens = len(tokenizer.encode_lines(first)) / sum(map(_size, first)) * found.characters
        check_space(writer.folder, tokens * np.dtype(smallest_kind(len(tokenizer))).itemsize)
        lines = islice(_lines(source), num_train)
        _write(progress.seen(lines, size=_size, total=found.characters, what="tokens"), tokenizer, writer)
        writer.index.notes = (*learned_note(len(sample), num_train, what="lines"), *writer.index.notes)

    store = source_store([source], [*key, sorted(held_out.items())], make)
    assert store.folder is not None
    return saved_tokenizer(store.folder, TOKENIZER), store


def _write(lines: Iterable[str], tokenizer: Tokenizer, writer: StoreWriter) -> None:
    for batch in batches(lines, size=_size):
        writer.append("tokens", tokenizer.encode_lines(batch), kind=smallest_kind(len(tokenizer)))


def blocks(tokens: np.ndarray, *, length: int, padding_id: int = PADDING) -> LazyExamples:
    """Return examples of `length` tokens each (the last may be shorter) from one array."""
    return LazyExamples(
        lambda index: Example((), tuple(tokens[index * length : (index + 1) * length].tolist()), padding_id=padding_id),
        count=-(-len(tokens) // length),
    )


def stored_blocks(store: TokenStore, *, length: int, padding_id: int) -> LazyExamples:
    """Return the tokens of a text as such examples."""
    tokens = store.arrays["tokens"]
    examples = blocks(tokens, length=length, padding_id=padding_id)
    if store.folder is None:
        return examples
    return MappedExamples(
        examples.__getitem__,
        count=len(examples),
        sizes=lambda indices: np.minimum(length, len(tokens) - indices * length),
        digest=f"blocks of {length}: {store.digest}",
        longest_target=min(length, len(tokens)),
    )


def _lines(source: str) -> Iterator[str]:
    return (text for _, text in source_lines(source, part="train"))


def _size(line: str) -> int:
    return len(line) + 1


def _hold_out(found: Survey[str], shares: Mapping[str, float], *, writer: StoreWriter, source: str) -> int:
    """Give the last lines of the survey to the parts; return how many lines are left to train on.

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
        writer.index.held_out[part] = [{"text": line} for line in lines]
        writer.index.notes += (f"{part}: the last {size:,} {where}",)
        where = f"lines before those of the {part}"
    return count
