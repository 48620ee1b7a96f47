import json
import os
from pathlib import Path

import pytest

from damage import damages
from universal_transformer.errors import UserError
from universal_transformer.manifest import (
    MANIFEST,
    check_content,
    encode_manifest,
    entry_of,
    read_listed,
    read_manifest,
)

FILES = {"a": b"first", "b.json": b"{}", "empty": b""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    entries = {name: entry_of(data) for name, data in FILES.items()}
    (tmp_path / MANIFEST).write_bytes(encode_manifest(entries))
    return tmp_path


def test_what_was_written_is_accepted_and_other_files_are_not_looked_at(folder):
    (folder / "notes of the user").write_text("mine")
    check_content(folder)
    entries = read_manifest(folder)
    assert {name: read_listed(folder / name, entry) for name, entry in entries.items()} == FILES


def changed_byte(file: Path) -> None:
    file.write_bytes(b"f1rst")


def shorter(file: Path) -> None:
    file.write_bytes(b"firs")


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def folder_instead(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (changed_byte, "its SHA-256 is not"),
        (shorter, "4 bytes, but manifest.json lists 5"),
        (Path.unlink, "no such file, but manifest.json lists it"),
        (fifo, "no such file"),
        (folder_instead, "no such file"),
    ],
)
def test_a_file_that_is_not_as_it_was_written_is_named(folder, damage, message):
    damage(folder / "a")
    with pytest.raises(UserError, match=f"/a: {message}"):
        check_content(folder)


def test_a_damaged_manifest_is_one_line_whatever_is_wrong_with_it(folder):
    good = json.loads((folder / MANIFEST).read_bytes())
    harmless = {(("files",), "{}"), *((("files", name), "dropped") for name in FILES)}  # fewer files are listed
    for place, damage, broken in damages(good):
        (folder / MANIFEST).write_text(json.dumps(broken))
        if (place, damage) in harmless:
            check_content(folder)
            continue
        with pytest.raises(UserError, match=MANIFEST) as caught:
            check_content(folder)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "/etc/passwd", "sub/a", "a\0"])
def test_a_manifest_names_files_of_its_own_folder_only(folder, name):
    (folder / MANIFEST).write_bytes(encode_manifest({name: entry_of(b"first")}))
    with pytest.raises(UserError, match="is no file name"):
        read_manifest(folder)


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[" * 100_000, b"[]", b"nul"])
def test_a_manifest_that_is_no_json_object_is_refused(folder, data):
    (folder / MANIFEST).write_bytes(data)
    with pytest.raises(UserError, match=MANIFEST):
        read_manifest(folder)
