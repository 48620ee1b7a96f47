import os
import shutil
from pathlib import Path

import pytest
import torch

from universal_transformer.errors import UserError
from universal_transformer.runs import checkpoint as checkpoints
from universal_transformer.runs.checkpoint import Checkpoint, load_newest, save


def made(number: int) -> Checkpoint:
    generator = torch.Generator().manual_seed(number)
    weights = {"a": torch.randn(3, 4, generator=generator), "b/c": torch.arange(5, dtype=torch.uint8)}
    return Checkpoint(tensors={"model": weights, "best": {}}, state={"number": number, "third": 1 / 3})


def name(number: int) -> str:
    return f"{number:09d}-{number + 1:06d}"


def same(a: Checkpoint, b: Checkpoint) -> bool:
    assert a.tensors.keys() == b.tensors.keys()
    return a.state == b.state and all(
        torch.equal(a.tensors[part][one], b.tensors[part][one]) for part in a.tensors for one in a.tensors[part]
    )  # fmt: skip


def test_what_is_saved_comes_back_and_two_are_kept(tmp_path: Path):
    assert load_newest(tmp_path / "none") == (None, [])
    for number in range(4):
        save(tmp_path, made(number), name=name(number))
        found, warnings = load_newest(tmp_path)
        assert found is not None
        assert same(found, made(number))
        assert warnings == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [name(2), name(3)]


def test_any_damage_to_the_newest_falls_back_with_a_warning(tmp_path: Path):
    draw = torch.Generator().manual_seed(0)
    for attempt in range(60):
        folder = tmp_path / str(attempt)
        save(folder, made(0), name=name(0))
        newest = save(folder, made(1), name=name(1))
        files = sorted(newest.iterdir())
        path = files[attempt % len(files)]
        data = bytearray(path.read_bytes())
        place = int(torch.randint(len(data), (), generator=draw))
        if attempt % 3 == 0:
            data = data[:place]
        elif attempt % 3 == 1:
            data[place] ^= 1 << int(torch.randint(8, (), generator=draw))
        if attempt % 3 == 2:
            path.unlink()
        else:
            path.write_bytes(data)
        found, warnings = load_newest(folder)
        assert found is not None
        if warnings:
            assert same(found, made(0))
            assert str(newest) in warnings[0]
            assert not newest.exists()
        else:
            # white space of the manifest, the only bytes that carry nothing
            assert path.name == "manifest.json"
            assert same(found, made(1))


def test_when_all_are_damaged_it_says_so_every_time(tmp_path: Path):
    for number in range(2):
        (save(tmp_path, made(number), name=name(number)) / "state.json").write_text("{}")
    for _ in range(2):
        with pytest.raises(UserError, match="no checkpoint is intact"):
            load_newest(tmp_path)


def test_a_disk_that_refuses_leaves_what_was_there(tmp_path: Path, monkeypatch):
    sync, calls = os.fsync, 0
    save(tmp_path, made(0), name=name(0))

    def failing(descriptor):
        nonlocal calls
        calls += 1
        if calls == allowed:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    for failing_call in range(1, 6):
        allowed, calls = failing_call, 0
        with pytest.raises(UserError, match="could not be saved: No space left on device"):
            save(tmp_path, made(1), name=name(1))
        assert [path.name for path in tmp_path.iterdir()] == [name(0)]
    allowed = 0
    save(tmp_path, made(1), name=name(1))
    found, _ = load_newest(tmp_path)
    assert found is not None
    assert same(found, made(1))


def test_leftovers_of_a_killed_save_are_not_loaded_and_go(tmp_path: Path):
    save(tmp_path, made(0), name=name(0))
    (tmp_path / f".{name(1)}.partial").mkdir()
    found, warnings = load_newest(tmp_path)
    assert found is not None
    assert warnings == []
    save(tmp_path, made(2), name=name(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == [name(0), name(2)]


#: Names near that of a checkpoint, which only the user can have given.
UNKNOWN = [
    "keep_best",
    "my_backup",
    "000000009-000009 (copy)",
    "000000009-000009\n",
    "00000009-000009",
    "0000000009-000009",
    "٠٠٠٠٠٠٠٠٩-٠٠٠٠٠٩",
    "damaged-old_notes",
    ".mine.partial",
    ".000000009-000009x.partial",
]


def test_folders_of_the_user_are_never_counted_deleted_or_renamed(tmp_path: Path):
    """`my_backup` was loaded in place of the checkpoints, which were deleted."""
    for number in range(2):
        save(tmp_path, made(number), name=name(number))
    for other in UNKNOWN:
        shutil.copytree(tmp_path / name(0), tmp_path / other)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / f".{name(7)}.partial").write_text("a file of the user")
    users = snapshot(tmp_path, *UNKNOWN, "notes.txt", f".{name(7)}.partial")
    found, warnings = load_newest(tmp_path)
    assert found is not None
    assert same(found, made(1))
    assert warnings == []
    checkpoints.remove_partial(tmp_path)
    for number in range(2, 5):
        save(tmp_path, made(number), name=name(number))
    (tmp_path / name(4) / "state.json").write_text("{}")
    found, warnings = load_newest(tmp_path)
    assert found is not None
    assert same(found, made(3))
    assert len(warnings) == 1
    assert snapshot(tmp_path, *UNKNOWN, "notes.txt", f".{name(7)}.partial") == users
    assert sorted(path.name for path in tmp_path.iterdir() if path.name not in users) == [
        name(3),
        f"damaged-{name(4)}",
    ]


def snapshot(folder: Path, *names: str) -> dict[str, dict[str, bytes]]:
    """Return the content of every file in files and folders of these names."""
    return {
        one: {str(path): path.read_bytes() for path in (folder / one, *(folder / one).rglob("*")) if path.is_file()}
        for one in names
    }


def test_a_link_to_a_folder_is_no_checkpoint(tmp_path: Path):
    folder, elsewhere = tmp_path / "checkpoints", tmp_path / "elsewhere"
    save(folder, made(0), name=name(0))
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("mine")
    before = snapshot(tmp_path, "elsewhere")
    (folder / name(5)).symlink_to(elsewhere)
    for number in range(6, 10):
        save(folder, made(number), name=name(number))
    found, warnings = load_newest(folder)
    assert found is not None
    assert same(found, made(9))
    assert warnings == []
    assert {path.name for path in folder.iterdir() if path.is_symlink()} == {name(5)}
    assert snapshot(tmp_path, "elsewhere") == before


def test_a_checkpoint_that_may_not_be_read_is_not_damaged(tmp_path: Path, monkeypatch):
    for number in range(2):
        save(tmp_path, made(number), name=name(number))
    monkeypatch.setattr(os, "access", lambda path, _: name(1) not in str(path))
    with pytest.raises(PermissionError):
        load_newest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [name(0), name(1)]
