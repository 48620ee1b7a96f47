"""What text and pairs that do not fit in memory share: the place of their store, the space it needs, and progress."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from universal_transformer.data.download import data_folder
from universal_transformer.data.text_sources import signature
from universal_transformer.data.token_store import DiskWriter, TokenStore, open_or_make
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.tasks.reports import Reports

STORES = "tokens"
"""Folder of all stores in the data folder."""

Item = TypeVar("Item")


def source_store(sources: Sequence[str], key: Sequence[Any], make: Callable[[DiskWriter], None]) -> TokenStore:
    """Open the store of training sources with this key, or make it; UserError if a source changes meanwhile.

    The key has every value but the sources that `make` depends on. The stores of the same sources are in one folder.
    """
    named = [source for source in sources if source]
    try:
        before = [signature(source, part="train") for source in named]
    except OSError as error:
        raise UserError(f"{show_path(error.filename or named[0])}: {error.strerror}") from error

    def checked(writer: DiskWriter) -> None:
        make(writer)
        if [signature(source, part="train") for source in named] != before:
            raise UserError(f"{show_path(named[0])}: it has changed while it was read; begin again")

    names = [str(Path(source).absolute()) for source in named]
    bare = re.sub(r"[^A-Za-z0-9]+", "-", Path(named[0]).name)[:40]
    return open_or_make(data_folder() / STORES / f"{bare}-{_digest(names)[:8]}" / _digest([before, *key])[:16], checked)


def _digest(values: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def check_space(folder: Path, needed: float) -> None:
    """UserError if the disk of a folder has not as many free bytes."""
    if (free := shutil.disk_usage(folder).free) < needed:
        raise UserError(
            f"{show_path(folder)}: {free / 1e9:,.1f} GB are free, and the tokens need about {needed / 1e9:,.1f} GB; "
            "--data-dir or UT_DATA names a folder on another disk"
        )


def check_same(found: Sequence[Tokenizer], saved: Sequence[Tokenizer], *, source: str) -> None:
    """UserError if the tokenizers of a store are not those that a run saved."""
    if [one.tokens() for one in found] != [one.tokens() for one in saved]:
        raise UserError(
            f"{show_path(source)}: the tokenizer that is learned from it is another than that of the run: the text has "
            "changed since training; name the part to score with --data.test"
        )


def learned_note(sample: int, count: int, *, what: str) -> list[str]:
    """Say what a tokenizer was learned from, if that is not everything."""
    if sample == count:
        return []
    return [f"the tokenizer is learned from {sample:,} of {count:,} {what}, evenly spread"]


class Reading:
    """Says how much of a source was read."""

    def __init__(self, source: str) -> None:
        self._source = show_path(source)
        self._reports = Reports()

    def seen(self, items: Iterable[Item], *, size: Callable[[Item], int], total: int = 0, what: str) -> Iterator[Item]:
        """Yield items as they are, of `total` characters; 0 if that is not known."""
        done = 0
        for item in items:
            yield item
            done += size(item)
            if self._reports.due():
                of = f" of {total / 1e6:,.0f}" if total else ""
                self._reports.say(f"{self._source}: {what}: {done / 1e6:,.0f}{of} million characters")
