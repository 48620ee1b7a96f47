"""Novels as one array of numbered words, which is cached on disk and memory-mapped.

They are read from ``novels/corpus.tar.xz``, or from the files ``novels/corpus/*.txt`` that ``ut data fetch novels``
downloads. The cache is the folder in UT_CACHE, else ``universal_transformer`` in XDG_CACHE_HOME or ``~/.cache``. An
entry is named after the SHA-256 of the novels. Where it is damaged or cannot be written, or where there is no home
folder, the words are computed again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from paper.tasks.treebank import cut
from universal_transformer.data.archive import MAX_MEMBER_BYTES, members
from universal_transformer.data.download import data_folder, find
from universal_transformer.errors import UserError
from universal_transformer.files import read_json, show, show_path, write_json
from universal_transformer.manifest import entry_of_file

ARCHIVE = "corpus.tar.xz"
FOLDER = "corpus"
VERSION = 2  # of the splitting into words: another number makes other cache entries
BETWEEN = 0
"""The number after the last word of each novel."""


@dataclass(frozen=True)
class Novels:
    """Words by number: ``types[tokens[i]]`` is word i; the number 0 ends each novel."""

    tokens: np.ndarray
    """int32, [words]; memory-mapped if it comes from the cache."""
    types: tuple[str, ...]
    names: tuple[str, ...]
    """Of the files of the novels, in their order."""

    @property
    def count(self) -> int:
        return len(self.names)

    def frequencies(self) -> np.ndarray:
        return np.bincount(self.tokens, minlength=len(self.types))

    def split(self, share: float) -> tuple[Novels, Novels]:
        """All but a share of the novels, and this share, chosen by the digests of their names: at least one of two."""
        digests = [hashlib.sha256(name.encode()).digest() for name in self.names]
        number = min(max(1, round(share * self.count)), self.count - 1)
        held_out = set(sorted(range(self.count), key=digests.__getitem__)[:number])
        return self._of([place for place in range(self.count) if place not in held_out]), self._of(sorted(held_out))

    def _of(self, places: Sequence[int]) -> Novels:
        ends = np.append(0, np.flatnonzero(self.tokens == BETWEEN) + 1).tolist()
        tokens = [self.tokens[ends[place] : ends[place + 1]] for place in places]
        return Novels(
            np.concatenate(tokens or [self.tokens[:0]]), self.types, tuple(self.names[place] for place in places)
        )


def cache_folder() -> Path | None:
    """Return the folder of cached files; None if there is no home folder."""
    if named := os.environ.get("UT_CACHE"):
        return Path(named)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "universal_transformer"
    try:
        return Path.home() / ".cache" / "universal_transformer"
    except RuntimeError:
        return None  # not a shared folder such as /tmp, where others could write what is read here


def read_novels(folder: str | Path | None = None) -> Novels:
    """Return the novels of the data folder; UserError where there are none, or a file is not as expected."""
    archive = data_folder(folder) / "novels" / ARCHIVE
    packed = archive.is_file()
    paths = [archive] if packed else _files(folder)
    digests = [bytes.fromhex(entry_of_file(path).sha256) for path in paths]
    named = b"".join(os.fsencode(path.name) + one for path, one in zip(paths, digests, strict=True))
    digest = digests[0] if packed else hashlib.sha256(named).digest()
    cache = cache_folder()
    entry = None if cache is None else cache / f"novels-{VERSION}-{digest.hex()[:16]}"
    if entry is not None and (kept := _load(entry)) is not None:
        return kept
    if packed:
        packed_texts = members(archive, lambda name: name.endswith(".txt"))
        novels = _cut((name, f"{show_path(archive)}: {show(name)}", content) for name, content in packed_texts)
    else:
        novels = _cut((path.name, show_path(path), path.read_bytes()) for path in paths)
    if entry is not None:
        _keep(entry, novels)
    return novels


def _files(folder: str | Path | None) -> list[Path]:
    root = find("novels", folder) / FOLDER
    paths = sorted(root.glob("*.txt"))
    if not paths:
        raise UserError(f"{show_path(root)}: no novels (*.txt) in it; get them with `ut data fetch novels`")
    for path in paths:
        if path.stat().st_size > MAX_MEMBER_BYTES:
            raise UserError(f"{show_path(path)}: more than {MAX_MEMBER_BYTES:,} bytes; expected one novel")
    return paths


def _cut(texts: Iterator[tuple[str, str, bytes]]) -> Novels:
    numbers: dict[str, int] = {"": BETWEEN}

    class Chunks(dict[str, tuple[int, ...]]):
        """Numbers of the words of a run of characters, computed once: most runs occur many times."""

        def __missing__(self, chunk: str) -> tuple[int, ...]:
            found = self[chunk] = tuple(numbers.setdefault(word, len(numbers)) for word in cut(chunk))
            return found

    chunks = Chunks()
    tokens = array("i")
    names = []
    for name, where, content in texts:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(f"{where}: not UTF-8 at byte {error.start}; expected a novel as text") from error
        tokens.extend(chain.from_iterable(map(chunks.__getitem__, text.split())))
        tokens.append(BETWEEN)
        names.append(name.rpartition("/")[2])
    return Novels(tokens=np.array(tokens, dtype=np.int32), types=tuple(numbers), names=tuple(names))


def _load(entry: Path) -> Novels | None:
    """Return what `_keep` wrote; None if the entry is missing or damaged."""
    try:
        fields = read_json(entry / "types.json")
        types, names = tuple(fields["types"]), tuple(fields["names"])
        tokens = np.load(entry / "tokens.npy", mmap_mode="r", allow_pickle=False)
    except (UserError, OSError, ValueError, KeyError, TypeError, EOFError):
        return None
    sound = tokens.dtype == np.int32 and tokens.ndim == 1 and len(tokens) == fields.get("length")
    if not sound or not len(tokens) or tokens.min() < 0 or tokens.max() >= len(types):
        return None
    return Novels(tokens=tokens, types=types, names=names)


def _keep(entry: Path, novels: Novels) -> None:
    """Write a cache entry, whole or not at all."""
    fields = {"types": list(novels.types), "names": list(novels.names), "length": len(novels.tokens)}
    staging = None
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".novels-", dir=entry.parent))
        np.save(staging / "tokens.npy", novels.tokens, allow_pickle=False)
        write_json(staging / "types.json", fields)
        shutil.rmtree(entry, ignore_errors=True)
        staging.rename(entry)
    except OSError:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
