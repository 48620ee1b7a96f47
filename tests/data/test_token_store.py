import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from universal_transformer.data.token_store import StoreWriter, open_or_make, open_store, smallest_kind
from universal_transformer.errors import UserError
from universal_transformer.manifest import MANIFEST, encode_manifest, entry_of


def make(writer):
    writer.append("tokens", np.arange(5), kind="uint8")
    writer.append("tokens", np.arange(250, 256), kind="uint8")
    writer.append("offsets", np.array([0, 2**40]), kind="int64")
    (writer.folder / "words.txt").write_text("a b\n")
    writer.index.notes = ("a note",)
    writer.index.held_out["test"] = [{"text": "é"}]


def never(writer):
    raise AssertionError(f"made again in {writer.folder}")


def test_what_was_written_is_mapped_and_made_once(tmp_path):
    store = open_or_make(tmp_path / "of" / "a", make)
    assert store.arrays["tokens"].tolist() == [*range(5), *range(250, 256)]
    assert store.arrays["offsets"].tolist() == [0, 2**40]
    assert isinstance(store.arrays["tokens"], np.memmap)
    assert not store.arrays["tokens"].flags.writeable
    assert (store.index.notes, store.index.held_out) == (("a note",), {"test": [{"text": "é"}]})
    assert open_or_make(tmp_path / "of" / "a", never).digest == store.digest
    other = open_or_make(tmp_path / "of" / "b", lambda writer: writer.append("tokens", np.arange(1), kind="uint8"))
    assert other.digest != store.digest
    assert {path.name for path in (tmp_path / "of").iterdir()} == {"a", "b", "lock"}


def test_processes_that_need_the_same_store_wait_for_the_one_that_makes_it(tmp_path):
    began, go_on, made = Event(), Event(), []

    def slow(writer):
        made.append(writer.folder)
        began.set()
        go_on.wait(20)
        make(writer)

    with ThreadPoolExecutor(3) as pool:  # a lock of a file holds between its openings, also in one process
        first = pool.submit(open_or_make, tmp_path / "a", slow)
        assert began.wait(20)
        others = [pool.submit(open_or_make, tmp_path / "a", slow) for _ in range(2)]
        go_on.set()
        stores = [one.result() for one in (first, *others)]
    assert len(made) == 1
    assert len({store.digest for store in stores}) == 1


def test_an_array_may_be_empty(tmp_path):
    store = open_or_make(tmp_path / "a", lambda writer: writer.append("tokens", np.empty(0), kind="int32"))
    assert store.arrays["tokens"].shape == (0,)


@pytest.mark.parametrize(
    ("size", "kind"), [(1, "uint8"), (256, "uint8"), (257, "uint16"), (65_537, "int32"), (2**31 + 1, "int64")]
)
def test_ids_have_the_smallest_type(size, kind):
    assert smallest_kind(size) == kind


def test_every_damaged_byte_is_refused_in_one_line(tmp_path):
    folder = open_or_make(tmp_path / "a", make).folder
    whole = tmp_path / "whole"
    shutil.copytree(folder, whole)
    checked = 0
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        damaged = [content[:-2], content + b"\0", None]  # the last byte of the index is a line feed
        damaged += [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(0, len(content), 17)]
        for found in damaged:
            path.unlink() if found is None else path.write_bytes(found)
            with pytest.raises(UserError, match="remove the folder") as caught:
                open_store(folder)
            assert str(caught.value).isprintable()
            checked += 1
        path.write_bytes(content)
    assert checked > 30
    assert open_store(folder).digest == open_store(whole).digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrays": {"tokens": "object"}}, "arrays.tokens"),
        ({"arrays": {"nowhere": "int64"}}, "nowhere"),
        ({"arrays": {"tokens": "int64"}}, "multiple of the data-type size"),
        ({"notes": [1]}, "notes"),
    ],
)
def test_an_index_cannot_have_other_types(tmp_path, changes, message):
    folder = open_or_make(tmp_path / "a", make).folder
    path = folder / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    entries = {path.name: entry_of(path.read_bytes()) for path in folder.iterdir() if path.name != MANIFEST}
    (folder / MANIFEST).write_bytes(encode_manifest(entries))
    with pytest.raises(UserError, match=f"{message}.*remove the folder"):
        open_store(folder)


def test_a_store_in_memory_has_the_same_arrays(tmp_path):
    def of_ten(writer):
        for first in (0, 5):
            writer.append("tokens", np.arange(first, first + 5), kind="uint8")

    of_ten(memory := StoreWriter())
    disk = open_or_make(tmp_path / "a", of_ten)
    assert memory.in_memory().arrays["tokens"].tolist() == disk.arrays["tokens"].tolist() == list(range(10))
    assert memory.in_memory().arrays["tokens"].dtype == disk.arrays["tokens"].dtype


def test_nothing_is_left_of_a_store_that_is_not_whole(tmp_path):
    def fail(writer):
        make(writer)
        raise OSError(28, "No space left on device", str(writer.folder / "tokens"))

    with pytest.raises(UserError, match=r"tokens: No space left on device; .*--data-dir or UT_DATA") as caught:
        open_or_make(tmp_path / "a", fail)
    assert str(caught.value).isprintable()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    (tmp_path / ".a.killed.partial").mkdir()
    open_or_make(tmp_path / "a", make)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "lock"}


def test_few_stores_of_one_source_are_kept(tmp_path):
    for age, name in enumerate("abc"):
        open_or_make(tmp_path / name, make)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    open_or_make(tmp_path / "d", make)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "d", "lock"}
