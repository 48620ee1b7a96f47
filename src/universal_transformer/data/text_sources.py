"""Where the lines of a text come from: a file, the files of a folder in sorted order, or a data set of the hub."""

import gzip
import math
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

from universal_transformer.data import hub
from universal_transformer.data.columns import CSV, JSON_LINES, Columns, TextRow, ending
from universal_transformer.data.text_table import parallel_rows, table_rows
from universal_transformer.errors import UserError
from universal_transformer.files import is_gzip, most_unpacked, read_lines, show_path, unpacks_to_too_much

MEGABYTE = 10**6
IN_MEMORY = 64
"""Megabytes of training text that are read into memory by default: they take about ten times as much there."""
COMPRESSED = 4
"""Bytes of text that one byte of a ``.gz`` file is taken for."""
CONTINUED = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that do not begin a character."""
LEAST_LINE = 25
"""Bytes of text that a line counts for at least: a row takes about ten times as many in memory, however short it is."""


def text_files(path: str | Path) -> list[Path]:
    """Return the file itself, or what is in a folder by name, without hidden files; UserError if that is nothing."""
    if not Path(path).is_dir():
        return [Path(path)]
    paths = sorted(child for child in Path(path).iterdir() if not child.name.startswith("."))
    if not paths:
        raise UserError(f"{show_path(path)}: a folder without files; expected text files")
    return paths


def source_lines(source: str, *, part: str, columns: Columns) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a source, or those of the only column of a table; `part` names the split of a data
    set of the hub.

    Numbers begin again in each file of a folder; errors name the file.
    """
    if hub.is_hub(source):
        yield from hub.lines(source, part=part, column=columns.read[0])
        return
    for path in text_files(source):
        if is_table(path, columns):
            rows = table_rows(path, columns)
            yield from ((row.line, line.removesuffix("\r")) for row in rows for line in row.first.split("\n"))
        else:
            yield from read_lines(path)


def is_table(path: str | Path, columns: Columns) -> bool:
    """Return whether a file of text has columns, of which one is read: by its name, or because one is chosen."""
    return bool(columns.chosen or columns.separator) or ending(path) in (CSV, *JSON_LINES)


def source_rows(source: str, target: str, *, columns: Columns, part: str) -> Iterator[TextRow]:
    """Yield the rows of a source: two columns, or (with `target`) the lines of two sources with the same number."""
    if hub.is_hub(source):
        yield from hub.rows(source, part=part, columns=columns)
    elif target:
        for first, second in zip_longest(text_files(source), text_files(target)):
            if first is None or second is None:
                raise UserError(f"{show_path(source)} and {show_path(target)}: expected as many files in both")
            yield from parallel_rows(first, second)
    else:
        for path in text_files(source):
            yield from table_rows(path, columns)


def megabytes(source: str) -> float:
    """Return the approximate size of the text of files; 0 for what is not there. Reading it says why it is not."""
    try:
        found = [(path.stat().st_size, is_gzip(path)) for path in text_files(source)]
    except (OSError, UserError):
        return 0.0
    return sum(size * (COMPRESSED if compressed else 1) for size, compressed in found) / MEGABYTE


def is_large(*sources: str, limit: int) -> bool:
    """Return whether sources have together more than `limit` megabytes, or as much in short lines; those of the hub are
    always large.
    """
    given = [source for source in sources if source]
    if any(map(hub.is_hub, given)) or sum(map(megabytes, given)) > limit:
        return True
    return sum(map(_lines_of, given)) * LEAST_LINE > limit * MEGABYTE


def _lines_of(source: str) -> int:
    """Count the line ends of files; 0 for what cannot be read. Reading it says why.

    UserError for a ``.gz`` file that unpacks to too much: its lines would be read for minutes before.
    """
    count, refused = 0, None
    with suppress(OSError, EOFError, UserError, zlib.error):
        for path in text_files(source):
            unpacked, most = 0, most_unpacked(path) if is_gzip(path) else math.inf
            with (gzip.open if is_gzip(path) else open)(path, "rb") as stream:
                while unpacked <= most and (chunk := stream.read(MEGABYTE)):
                    count += chunk.count(b"\n")
                    unpacked += len(chunk.translate(None, CONTINUED)) if is_gzip(path) else 0
            if unpacked > most:
                refused = unpacks_to_too_much(f"{show_path(path)}: {unpacked:,} characters and more")
    if refused is not None:
        raise refused
    return count


def signature(source: str, *, part: str) -> list[Any]:
    """Return JSON values that change when the content does: names, sizes and times of the files, or a fingerprint."""
    if hub.is_hub(source):
        return [source, hub.fingerprint(source, part=part)]
    stats = [(path, path.stat()) for path in text_files(source)]
    return [[str(path.absolute()), stat.st_size, stat.st_mtime_ns] for path, stat in stats]
