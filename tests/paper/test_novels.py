import io
import json
import tarfile

import numpy as np
import pytest

from paper.tasks import novels
from paper.tasks.novels import BETWEEN, read_novels
from paper.tasks.treebank import split_words
from universal_transformer.errors import UserError

TEXTS = {"a.txt": b"\xef\xbb\xbfThe cat sat. The\ncat ran!\n", "b.txt": "“Don’t,” he said.".encode()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("UT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data/novels/corpus").mkdir(parents=True)
    for name, content in TEXTS.items():
        (tmp_path / "data/novels/corpus" / name).write_bytes(content)
    # what the registry knows must be there for the data set to count as there
    (tmp_path / "data/novels/corpus/Anon_Clara_1864.txt").write_bytes(b"Clara.")
    return tmp_path / "data"


def archive(folder, members):
    path = folder / "novels/corpus.tar.xz"
    with tarfile.open(path, "w:xz") as packed:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    return path


def words(found):
    return [found.types[index] for index in found.tokens]


EXPECTED = [
    *(w for text in (b"Clara.", *TEXTS.values()) for w in (*split_words(text.decode("utf-8-sig")), "")),
]


def test_words_of_all_novels_in_order(folder):
    found = read_novels(folder)
    assert words(found) == EXPECTED
    assert found.count == 3
    assert found.tokens.dtype == np.int32
    frequencies = dict(zip(found.types, found.frequencies().tolist(), strict=True))
    assert frequencies["cat"] == 2
    assert frequencies[found.types[BETWEEN]] == 3


def test_an_archive_is_read_like_a_folder(folder):
    from_folder = read_novels(folder)
    archive(
        folder,
        {"corpus/Anon_Clara_1864.txt": b"Clara.", **{f"corpus/{n}": c for n, c in TEXTS.items()}, "x": b"no"},
    )
    assert words(read_novels(folder)) == words(from_folder)


def test_novels_are_split_once(folder, monkeypatch):
    first = read_novels(folder)
    monkeypatch.setattr(novels, "_cut", None)  # cutting again would fail
    again = read_novels(folder)
    assert isinstance(again.tokens, np.memmap)
    assert (words(again), again.count) == (words(first), first.count)


@pytest.mark.parametrize("harm", ["tokens", "types", "range"])
def test_a_damaged_cache_entry_is_replaced(folder, harm):
    expected = words(read_novels(folder))
    (entry,) = novels.cache_folder().glob("novels-*")
    if harm == "tokens":
        (entry / "tokens.npy").write_bytes((entry / "tokens.npy").read_bytes()[:-7])
    elif harm == "types":
        (entry / "types.json").write_text("{")
    else:
        fields = json.loads((entry / "types.json").read_text())
        (entry / "types.json").write_text(json.dumps(fields | {"types": fields["types"][:3]}))
    assert words(read_novels(folder)) == expected
    assert [path.name for path in novels.cache_folder().iterdir()] == [entry.name]


def test_other_novels_are_another_entry(folder):
    read_novels(folder)
    (folder / "novels/corpus/c.txt").write_bytes(b"More.")
    assert words(read_novels(folder))[-3:] == ["more", ".", ""]


def test_novels_are_read_without_a_writable_cache(folder, monkeypatch):
    (folder / "file").write_text("")
    monkeypatch.setenv("UT_CACHE", str(folder / "file"))
    assert words(read_novels(folder)) == EXPECTED


def test_without_a_home_there_is_no_cache(folder, monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("UT_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(novels.Path, "home", nowhere)
    assert novels.cache_folder() is None
    assert words(read_novels(folder)) == EXPECTED


def test_too_large_a_novel_is_not_read(folder, monkeypatch):
    monkeypatch.setattr(novels, "MAX_MEMBER_BYTES", 10)
    monkeypatch.setattr(novels, "entry_of_file", None)  # reading it would fail
    with pytest.raises(UserError, match=r"a\.txt: more than 10 bytes; expected one novel"):
        read_novels(folder)


def test_what_is_no_novel_is_refused(folder, monkeypatch):
    path = archive(folder, {"corpus/a.txt": b"\xff\xfe"})
    with pytest.raises(UserError, match=r"corpus\.tar\.xz: 'corpus/a\.txt': not UTF-8 at byte 0"):
        read_novels(folder)
    path.write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"corpus\.tar\.xz: not the archive expected"):
        read_novels(folder)
    archive(folder, TEXTS)
    monkeypatch.setattr("universal_transformer.data.archive.MAX_MEMBERS", 1)
    with pytest.raises(UserError, match="more than 1 members"):
        read_novels(folder)


def test_the_error_of_missing_novels_says_how_to_get_them(tmp_path):
    with pytest.raises(UserError, match=r"no such file in the data folder .*ut data fetch novels"):
        read_novels(tmp_path)
