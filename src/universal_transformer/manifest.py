"""The manifest of a folder: the size and the SHA-256 of every file in it, as ``manifest.json``.

safetensors has no checksum of its own data, so a flipped bit in a weight would otherwise be read as another weight.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from universal_transformer.errors import UserError, refuse
from universal_transformer.files import encode_json, read_json, show, show_path, sync_folder, write_synced
from universal_transformer.typed import NumberOf, check_names, typed

MANIFEST = "manifest.json"
CHANGED = f"its SHA-256 is not the one in {MANIFEST}"
FORMAT = 1
MODEL = "model"
"""Folder of the model, with a manifest, in the folder of a run."""


@dataclass(frozen=True)
class FileEntry:
    """What a manifest states of a file."""

    sha256: str
    """64 hexadecimal digits."""
    bytes: NumberOf


def entry_of(data: bytes) -> FileEntry:
    return FileEntry(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


def entry_of_file(path: Path) -> FileEntry:
    with path.open("rb") as file:
        return FileEntry(sha256=hashlib.file_digest(file, "sha256").hexdigest(), bytes=file.tell())


def seal(folder: Path) -> dict[str, FileEntry]:
    """Write the manifest of all files in `folder` and return its entries; everything is on the disk afterwards."""
    entries = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        entries[path.name] = entry_of_file(path)
    write_synced(folder / MANIFEST, encode_manifest(entries))
    sync_folder(folder)
    return entries


def encode_manifest(entries: Mapping[str, FileEntry]) -> bytes:
    return encode_json({"format": FORMAT, "files": {name: asdict(entry) for name, entry in entries.items()}})


def read_manifest(folder: Path) -> dict[str, FileEntry]:
    """Return the entries of `folder`/manifest.json; each file is there and has the size of its entry.

    Raises a UserError that names what is wrong. `read_listed` and `check_content` compare the content.
    """
    path = folder / MANIFEST
    fields, where = read_json(path), show_path(path)
    check_names(fields, expected={"format", "files"}, where=where)
    if typed(fields["format"], int, where=where, field="format") != FORMAT:
        raise UserError(f"{where}: format {show(fields['format'])}, this version reads {FORMAT}")
    entries: dict[str, FileEntry] = typed(fields["files"], dict[str, FileEntry], where=where, field="files")
    for name, entry in entries.items():
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise UserError(f"{where}: {show(name)} is no file name")
        size = (folder / name).stat().st_size if (folder / name).is_file() else None
        refuse(
            (size is None, f"no such file, but {MANIFEST} lists it"),
            (size != entry.bytes, f"{size or 0:,} bytes, but {MANIFEST} lists {entry.bytes:,}"),
            at=show_path(folder / name),
        )
    return entries


def read_listed(file: Path, entry: FileEntry) -> bytes:
    """Return the content of a file; UserError if its SHA-256 is not the one of its entry."""
    data = file.read_bytes()
    if entry_of(data) != entry:
        raise UserError(f"{show_path(file)}: {CHANGED}")
    return data


def check_content(folder: Path) -> None:
    """UserError unless every file that `folder`/manifest.json lists is as it was written; others are not looked at."""
    for name, entry in read_manifest(folder).items():
        if entry_of_file(folder / name) != entry:
            raise UserError(f"{show_path(folder / name)}: {CHANGED}")
