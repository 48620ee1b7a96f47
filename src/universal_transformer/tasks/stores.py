"""The tokens of a training file: in memory, or on disk where they are made once and every run reads them from."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from universal_transformer.data.download import data_folder
from universal_transformer.data.text_sources import signature
from universal_transformer.data.token_store import StoreWriter, TokenStore, open_or_make
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.reports import Reports

STORES = "tokens"
"""Folder of all stores in the data folder."""
SEEN, ENCODED = "million characters seen", "million characters encoded"

Item = TypeVar("Item")
Make = Callable[[StoreWriter], Codec[Any, Any]]
"""Writes the tokens of a source, and returns their codec."""


def store_on_disk(sources: Sequence[str], key: Sequence[Any], make: Make) -> tuple[Codec[Any, Any], TokenStore]:
    """Open the store of training sources with this key, or make it; UserError if a source changes meanwhile.

    The key has every value but the sources that `make` depends on. The stores of the same sources are in one folder.
    """
    named = [source for source in sources if source]
    try:
        before = [signature(source, part="train") for source in named]
    except OSError as error:
        raise UserError(f"{show_path(error.filename or named[0])}: {error.strerror}") from error

    def checked(writer: StoreWriter) -> None:
        assert writer.folder is not None
        make(writer).save(writer.folder)
        if [signature(source, part="train") for source in named] != before:
            raise UserError(f"{show_path(named[0])}: it has changed while it was read; begin again")

    names = [str(Path(source).absolute()) for source in named]
    bare = re.sub(r"[^A-Za-z0-9]+", "-", Path(named[0]).name)[:40]
    folder = data_folder() / STORES / f"{bare}-{_digest(names)[:8]}" / _digest([before, *key])[:16]
    store = open_or_make(folder, checked)
    return Codec.load(folder), store


def _digest(values: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def check_same(found: Codec[Any, Any], saved: Codec[Any, Any], *, source: str) -> None:
    """UserError if the tokenizers of a store are not those that a run saved."""
    if [found.source.tokens, found.target.tokens] != [saved.source.tokens, saved.target.tokens]:
        raise UserError(
            f"{show_path(source)}: the tokenizer that is learned from it is another than that of the run: the text has "
            "changed since training; name the part to score with --data.test"
        )


def learned_note(sample: int, count: int, *, what: str) -> list[str]:
    """Say what a tokenizer was learned from, if that is not everything."""
    return [f"the tokenizer is learned from {sample:,} of {count:,} {what}, evenly spread"] * (sample < count)


def reported(items: Iterable[Item], source: str, *, size: Callable[[Item], int], what: str) -> Iterator[Item]:
    """Yield items as they are, and say from time to time how many characters were read, in the words of `what`."""
    reports, done = Reports(), 0
    for item in items:
        yield item
        done += size(item)
        if reports.due():
            reports.say(f"{show_path(source)}: {done / 1e6:,.0f} {what}")
