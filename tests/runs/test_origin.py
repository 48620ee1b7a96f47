import dataclasses
import json
from pathlib import Path

import pytest
import torch

from training import tiny
from universal_transformer.manifest import entry_of_file
from universal_transformer.runs.resume import RunOrigin, data_digest, file_changes
from universal_transformer.tasks import PairsData, StoriesData


def test_the_data_digest_changes_with_every_id():
    rows = tiny.examples("encoder_decoder", count=5, seed=0)
    digest = data_digest(rows)
    assert data_digest(list(rows)) == digest
    assert data_digest(rows[:-1]) != digest
    assert data_digest(rows[:2], rows[2:]) != digest
    for index, row in enumerate(rows):
        changed = [*rows]
        changed[index] = dataclasses.replace(row, target=(*row.target[:-1], 7))
        assert data_digest(changed) != digest


def test_only_fields_that_name_a_file_are_data_files(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("a\tb\n")
    (tmp_path / "folder").mkdir()
    for data, files in (
        (PairsData(train="a.tsv", validation="none.tsv", test="folder"), {"train": entry_of_file(Path("a.tsv"))}),
        (StoriesData(), {}),
    ):
        config = dataclasses.replace(tiny.run_config(), data=data)
        assert RunOrigin.now(config, tiny.task(), torch.device("cpu")).files == files


def test_an_origin_is_read_back_equal(tmp_path: Path):
    (file := tmp_path / "a.tsv").write_text("a\tb\n")
    config = dataclasses.replace(tiny.run_config(), data=PairsData(train=str(file)))
    origin = RunOrigin.now(config, tiny.task(), torch.device("cpu"))
    assert RunOrigin.from_dict(json.loads(json.dumps(origin.to_dict())), where="x") == origin


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"a\nb\n", None),
        (b"a\nc\n", "the file of data.train was 4 bytes, is now other 4 bytes"),
        (b"a\nb\nc\n", "the file of data.train was 4 bytes, is now 6 bytes"),
        (b"", "the file of data.train was 4 bytes, is now 0 bytes"),
    ],
)
def test_a_changed_file_is_named_with_its_sizes(tmp_path: Path, content, text):
    file = tmp_path / "train.tsv"
    file.write_bytes(b"a\nb\n")
    before = {"train": entry_of_file(file)}
    moved = file.rename(tmp_path / "moved.tsv")
    moved.write_bytes(content)
    assert file_changes(before, {"train": entry_of_file(moved)}) == ([] if text is None else [text])


def test_files_that_come_and_go_are_named(tmp_path: Path):
    file = tmp_path / "x"
    file.write_bytes(b"x" * 3_000_000)
    found = {"train": entry_of_file(file)}
    assert file_changes(found, {}) == ["the file of data.train was 3,000,000 bytes, is now missing"]
    assert file_changes({}, found) == ["the file of data.train was missing, is now 3,000,000 bytes"]
