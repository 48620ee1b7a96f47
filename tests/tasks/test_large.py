"""Training files that are read from disk: the same ids and the same batches as in memory, in less memory."""

import dataclasses
import gzip
import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from random import Random

import numpy as np
import pytest

from universal_transformer.data import survey, text_sources, text_table, token_store
from universal_transformer.data.columns import Columns
from universal_transformer.data.example import size
from universal_transformer.data.text_sources import is_large
from universal_transformer.data.tokenizer import KINDS
from universal_transformer.errors import UserError
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.tasks import PairsData, TextData, large_pairs, stores
from universal_transformer.tasks.lazy import MappedExamples
from universal_transformer.tasks.task import Saved, Task, with_absolute_files

WORDS = ("red", "green", "blue", "hat", "box", "é", "naïve", "a" * 30)
DRAW = Random(0)
LINES = [" ".join(DRAW.choices(WORDS, k=DRAW.randint(0, 9))) for _ in range(400)]
PAIRS = [(f"{line} {number}", line.upper() or "-") for number, line in enumerate(LINES)]


@pytest.fixture(autouse=True)
def data_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("UT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def write(path, lines=LINES):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def write_pairs(path, pairs=PAIRS):
    return write(path, ["\t".join(pair) for pair in pairs])


def text(part, codec):
    return codec.render([index for example in part for index in example.target])


def mapped(data) -> Task:
    task = dataclasses.replace(data, memory_mb=0).load()
    assert isinstance(task.train, MappedExamples)
    return task


@pytest.mark.parametrize("kind", KINDS)
def test_text_on_disk_has_the_ids_of_text_in_memory(tmp_path, kind):
    data = TextData(train=write(tmp_path / "a.txt"), tokenizer=kind, block_length=7, vocabulary_size=300)
    memory, disk = data.load(), mapped(data)
    assert list(disk.train) == list(memory.train)
    assert disk.train[-1] == memory.train[-1]
    assert disk.codec.source.tokenizer.tokens() == memory.codec.source.tokenizer.tokens()
    assert disk.held_out == memory.held_out
    assert (list(disk.validation), list(disk.test["test"])) == (list(memory.validation), list(memory.test["test"]))
    assert disk.configure(ModelConfig()) == memory.configure(ModelConfig())
    assert disk.train.sizes(np.arange(len(disk.train))).tolist() == [size(one) for one in memory.train]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_pairs_on_disk_have_the_ids_of_pairs_in_memory(tmp_path, kind, shared):
    lines = ["\t".join(pair) for pair in PAIRS]
    path = write(tmp_path / "a.tsv", [lines[0], "", "only a source\t ", *lines[1:]])
    valid = write_pairs(tmp_path / "b.tsv", PAIRS[:9])
    data = PairsData(
        train=path, validation=valid, tokenizer=kind, shared_vocabulary=shared, vocabulary_size=300, max_length=9
    )
    memory, disk = data.load(), mapped(data)
    assert list(disk.train) == list(memory.train)
    assert 0 < len(disk.train) < len(PAIRS)
    assert disk.validation == memory.validation
    assert disk.held_out == memory.held_out == {}
    assert sorted(disk.notes) == sorted(memory.notes)
    assert disk.configure(ModelConfig()) == memory.configure(ModelConfig())
    assert disk.train.sizes(np.arange(len(disk.train))).tolist() == [size(one) for one in memory.train]


@pytest.mark.parametrize("memory_mb", [0, 64])
def test_held_out_pairs_have_other_sources_than_those_to_train_on(tmp_path, memory_mb):
    pairs = [*PAIRS, *((source, "again") for source, _ in PAIRS)]
    data = PairsData(train=write_pairs(tmp_path / "a.tsv", pairs), tokenizer="character", validation_fraction=0.25)
    task = dataclasses.replace(data, memory_mb=memory_mb).load()
    train, held = ({example.source for example in part} for part in (task.train, task.validation))
    assert not train & held
    assert len(train | held) == len(PAIRS)
    assert len(task.validation) == 2 * round(0.25 * len(PAIRS))
    assert task.test == {"validation": task.validation}
    assert task.held_out == mapped(data).held_out
    other = dataclasses.replace(data, memory_mb=memory_mb, seed=1).load()
    assert {example.source for example in other.validation} != held
    write_pairs(tmp_path / "a.tsv", pairs[::-1])
    assert {example.source for example in data.load().validation} == held


@pytest.mark.parametrize(("name", "most"), [("HELD_OUT_ROWS", 10), ("HELD_OUT_CHARACTERS", 500)])
def test_few_pairs_of_a_large_file_are_held_out(tmp_path, monkeypatch, name, most):
    path = write_pairs(tmp_path / "a.tsv")
    characters = sum(len(source) + len(target) + 1 for source, target in PAIRS)
    share = most / len(PAIRS) if name == "HELD_OUT_ROWS" else most / characters
    monkeypatch.setattr(large_pairs, name, most)
    task = mapped(PairsData(train=path, tokenizer="character", validation_fraction=0.2))
    assert len(task.validation) == round(share * len(PAIRS)) < 0.2 * len(PAIRS)


def test_rows_that_are_encoded_together_may_all_be_held_out(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "TOGETHER", 1)
    data = PairsData(train=write_pairs(tmp_path / "a.tsv", PAIRS[:4]), tokenizer="character", validation_fraction=0.75)
    for seed in range(4):  # of four rows, three are held out: of some seed the first
        task = mapped(dataclasses.replace(data, seed=seed))
        assert (len(task.train), len(task.validation)) == (1, 3)


def test_the_tokens_are_made_once_for_a_text_and_a_tokenizer(tmp_path, data_dir, monkeypatch):
    path = write(tmp_path / "a.txt")
    data = TextData(train=path)
    made = []
    finish = token_store.StoreWriter.finish
    monkeypatch.setattr(token_store.StoreWriter, "finish", lambda *given: made.append(1) or finish(*given))
    first = mapped(data)
    assert (
        mapped(dataclasses.replace(data, block_length=9)).codec.source.tokenizer.tokens()
        == first.codec.source.tokenizer.tokens()
    )
    assert len(made) == 1
    mapped(dataclasses.replace(data, lower_case=True))
    assert len(made) == 2
    write(tmp_path / "a.txt", [*LINES, "one more"])
    assert mapped(data).train.digest != first.train.digest
    assert len(made) == 3
    stores = [child for child in data_dir.glob("tokens/*/*") if child.is_dir()]
    assert len(stores) == 3
    for store in stores:
        (store / "index.json").write_text("{}")
    with pytest.raises(UserError, match=r"index\.json: .* remove the folder"):
        mapped(data)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_many_short_lines_are_large_and_a_table_in_memory_has_a_limit_of_rows(tmp_path, monkeypatch, ending):
    path = tmp_path / f"a.tsv{ending}"
    with gzip.open(path, "wb") if ending else path.open("wb") as file:
        file.write(b"a\tb\n" * 41_000)
    assert is_large(str(path), limit=1)
    assert not is_large(str(path), limit=2)
    monkeypatch.setattr(text_table, "MOST_ROWS", 1000)
    with pytest.raises(UserError, match=r"a\.tsv.*:1001: more than 1,000 rows; use fewer of them in this file"):
        text_table.read_table(path, Columns("source", "target"))


def test_a_folder_is_its_files_in_the_order_of_their_names(tmp_path):
    for name, lines in {"b.txt": LINES[150:], "a.txt": LINES[:150], ".hidden": ["no"]}.items():
        write(tmp_path / "texts" / name, lines)
        write_pairs(tmp_path / "pairs" / f"{name}.tsv", [(f"{line} x", line or "-") for line in lines])
    one, folder = (TextData(train=path) for path in (write(tmp_path / "one.txt"), str(tmp_path / "texts")))
    assert list(folder.load().train) == list(one.load().train) == list(mapped(folder).train)
    whole = write_pairs(tmp_path / "one.tsv", [(f"{line} x", line or "-") for line in LINES])
    one, folder = (
        PairsData(train=path, validation=whole, tokenizer="word") for path in (whole, str(tmp_path / "pairs"))
    )
    assert folder.load().train == one.load().train == list(mapped(folder).train)
    sides = {"train": "source", "train_target": "target"}
    for field, side in sides.items():
        for number, part in enumerate((LINES[:150], LINES[150:])):
            lines = [f"{line} x" if field == "train" else line or "-" for line in part]
            write(tmp_path / side / f"{number}.txt", lines)
    parallel = PairsData(**{field: str(tmp_path / side) for field, side in sides.items()}, validation=whole)
    parallel = dataclasses.replace(parallel, tokenizer="word")
    assert parallel.load().train == one.load().train == list(mapped(parallel).train)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty: a folder without files"):
        TextData(train=str(tmp_path / "empty")).load()


def test_a_tokenizer_of_a_large_text_is_learned_from_a_sample_of_all_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "SAMPLE", 200)
    lines = ["abc"] * 500 + ["xyz"] * 500
    task = mapped(TextData(train=write(tmp_path / "a.txt", lines), vocabulary_size=12))
    assert set("abcxyz") <= set(task.codec.source.tokenizer.tokens())
    assert any("learned from 29 of 900 lines" in note for note in task.notes)


@pytest.mark.parametrize("data", [TextData(), PairsData(tokenizer="character")])
def test_a_saved_run_is_evaluated_without_the_training_file(tmp_path, data):
    path = write_pairs(tmp_path / "a.tsv")
    data = dataclasses.replace(data, train=path, memory_mb=0)
    task = data.load()
    (tmp_path / "held").mkdir()
    for part, rows in task.held_out.items():
        (tmp_path / "held" / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    saved = Saved(codec=task.codec, held_out=tmp_path / "held")
    assert list(data.load(saved).train) == list(task.train)
    write_pairs(tmp_path / "a.tsv", [(f"other {number}", "text ☃") for number in range(300)])
    with pytest.raises(UserError, match="the text has changed since training"):
        len(data.load(saved).train)
    Path(path).unlink()
    again = data.load(saved)
    (name,) = task.test
    assert list(again.test[name]) == list(task.test[name])
    assert list(again.validation) == list(task.validation)


@pytest.mark.parametrize(
    ("lines", "changes", "message"),
    [
        ([" ", ""], {}, "a.txt:2: all lines up to here are blank"),
        (
            ["one", "two"],
            {},
            "a.txt:2: the last line; too few lines, or too long ones, to hold out for validation and test: name",
        ),
        (
            [*"abcdefgh" * 9, *[""] * 20, "a"],
            {},
            "a.txt:84: the lines .* held out for validation are blank: name a file",
        ),
        (["a" * 3_000_000], {}, "a.txt:1: a line of more than 1,000,000 characters"),
        (["a\0b"], {}, "a.txt:1: a NUL character"),
    ],
)
def test_what_cannot_be_read_leaves_no_tokens(tmp_path, data_dir, lines, changes, message):
    with pytest.raises(UserError, match=message) as caught:
        mapped(TextData(train=write(tmp_path / "a.txt", lines), **changes))
    assert str(caught.value).isprintable()
    assert not list(data_dir.glob("tokens/*/*/index.json"))


def test_pairs_that_cannot_be_read(tmp_path, data_dir):
    for lines, message in (
        ([" "], "a.tsv:1: no row with both source and target"),
        (["a\tb", "c"], "a.tsv:2: found 1 column"),
        (["a\tb"], "a.tsv:1: this is the only row, so none can be held out for validation"),
    ):
        with pytest.raises(UserError, match=message):
            mapped(PairsData(train=write(tmp_path / "a.tsv", lines), tokenizer="character"))
    with pytest.raises(UserError, match="no such file"):
        PairsData(train=str(tmp_path / "none.tsv"), memory_mb=0).load()
    assert not list(data_dir.glob("tokens/*/*/index.json"))


def test_a_text_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt")
    times = count()
    monkeypatch.setattr(stores, "signature", lambda *_, **__: next(times))
    with pytest.raises(UserError, match=r"a\.txt: it has changed while it was read"):
        mapped(TextData(train=path))


def test_a_folder_is_an_absolute_name_and_no_content_of_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = with_absolute_files(TextData(train="texts", validation="hf:owner/name", test="hf:arrow"))
    assert data == TextData(train=str(tmp_path / "texts"), validation="hf:owner/name", test="hf:arrow")
    (tmp_path / "arrow").mkdir()
    assert with_absolute_files(data).test == f"hf:{tmp_path / 'arrow'}"


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_training_on_two_gigabytes_takes_less_than_one(tmp_path):
    script = Path(__file__).parents[2] / "experiments" / "large_text.py"
    options = ["--gigabytes", "2", "--minutes", "0.5", "--record", str(tmp_path / "found.json")]
    subprocess.run([sys.executable, str(script), str(tmp_path / "large"), *options], check=True)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["bytes"] >= 2e9
    for run in ("encoding and training", "training again"):
        assert found[run]["updates"] > 0
        assert found[run]["most_anonymous_megabytes"] < 1024


MEASURED = """
import re, sys
from pathlib import Path
from universal_transformer.data import survey
from universal_transformer.tasks import PairsData, TextData

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

survey.SAMPLE, survey.TAIL, survey.TOGETHER = 200_000, 50_000, 50_000
kind, path, small = sys.argv[1:]
data = {"text": TextData, "pairs": PairsData}[kind]
fields = {"tokenizer": "whitespace", "validation": small, "test": small}
data(train=small, memory_mb=0, **fields).load()  # what every run needs
before = anonymous()
task = data(train=path, memory_mb=0, **fields).load()
sizes = task.train[::1000]
print(anonymous() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is of Linux")
@pytest.mark.parametrize("kind", ["text", "pairs"])
def test_a_large_file_takes_less_memory_than_it_has_bytes(tmp_path, kind):
    long = [" ".join([line, *LINES[:4]]) for line in LINES]
    pairs = [(f"{number} {long[number % 400]}", long[number % 400]) for number in range(20_000)]
    path = write_pairs(tmp_path / "a.tsv", pairs)
    small = write_pairs(tmp_path / "small.tsv", PAIRS)
    megabytes = Path(path).stat().st_size / 1e6
    assert megabytes > 5
    command = [sys.executable, "-c", MEASURED, kind, path, small]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 0.6 * megabytes


def test_a_compressed_file_that_unpacks_to_too_much_is_refused_before_its_lines_are_read(tmp_path, monkeypatch):
    (tmp_path / "bomb.tsv.gz").write_bytes(gzip.compress(b"a\tb\n" * 1_100_000))
    monkeypatch.setattr(text_sources, "read_lines", None)
    with pytest.raises(UserError, match=r"bomb.tsv.gz: 4,\d+,\d+ characters and more, more than 100 times the bytes"):
        PairsData(train=str(tmp_path / "bomb.tsv.gz")).load()


def test_a_long_column_of_a_csv_is_read(tmp_path):
    rows = "".join(f"{'x ' * 90_000}{n},y\n" for n in range(3))
    (tmp_path / "a.csv").write_text("source,target\n" + rows)
    task = PairsData(train=str(tmp_path / "a.csv"), tokenizer="whitespace", max_length=100_000).load()
    assert len(task.train) == 2
