"""Data sets of the hub: local Arrow folders, where the package datasets is installed."""

import sys

import pytest

from universal_transformer.data import hub
from universal_transformer.data.columns import Columns, TextRow
from universal_transformer.errors import UserError
from universal_transformer.tasks import PairsData, TextData
from universal_transformer.tasks.lazy import MappedExamples

COLUMNS = Columns("source", "target")
ROWS = {"source": [f"a {number}" for number in range(60)], "target": ["x\ny", *map(str, range(59))]}
TRANSLATED = {"translation": [{"en": "a", "de": "b"}, {"en": "c", "de": "d"}]}
TEXTS = {"text": ["first", "second\nthird\r\nfourth", ""]}


@pytest.fixture
def library(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("UT_DATA", str(tmp_path / "data"))
    return pytest.importorskip("datasets")


@pytest.fixture
def arrow(library, tmp_path):
    """Save columns as an Arrow folder, with splits if there are several."""

    def save(*columns, name="arrow", splits=("train", "validation")):
        tables = {split: library.Dataset.from_dict(one) for split, one in zip(splits, columns, strict=False)}
        found = tables["train"] if len(tables) == 1 else library.DatasetDict(tables)
        found.save_to_disk(tmp_path / name)
        return f"hf:{tmp_path / name}"

    return save


def test_a_package_that_is_missing_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    for data in (TextData(train="hf:owner/name"), PairsData(train="hf:owner/name")):
        with pytest.raises(UserError, match=r"pip install 'universal-transformer\[hub\]'") as caught:
            data.load()
        assert str(caught.value).startswith("hf:owner/name: ")


def test_lines_are_those_of_the_column_text(arrow):
    source = arrow(TEXTS)
    assert list(hub.lines(source, part="train")) == [(1, "first"), (2, "second"), (2, "third"), (2, "fourth"), (3, "")]


def test_rows_are_those_of_two_columns_or_two_languages(arrow, monkeypatch):
    monkeypatch.setattr(hub, "ROWS_AT_ONCE", 7)
    rows = list(hub.rows(arrow(ROWS), part="train", columns=COLUMNS))
    assert rows[0] == TextRow(1, "a 0", "x y")
    assert [(row.line, row.first) for row in rows] == [(n + 1, f"a {n}") for n in range(60)]
    found = hub.rows(arrow(TRANSLATED, name="languages"), part="train", columns=COLUMNS)
    assert list(found) == [TextRow(1, "a", "b"), TextRow(2, "c", "d")]


def test_a_fingerprint_is_that_of_the_content(arrow):
    first, again, other = (arrow(one, name=name) for one, name in ((TEXTS, "a"), (TEXTS, "b"), (ROWS, "c")))
    prints = [hub.fingerprint(source, part="train") for source in (first, first, again, other)]
    assert prints[0] == prints[1] == prints[2] != prints[3]


def test_a_run_takes_its_parts_from_the_splits(arrow):
    pairs = arrow(ROWS, {"source": ["q"], "target": ["r"]})
    task = PairsData(train=pairs, validation=pairs, tokenizer="character").load()
    assert isinstance(task.train, MappedExamples)
    assert (len(task.train), len(task.validation)) == (60, 1)
    text = arrow({"text": [f"line {number}" for number in range(60)]}, name="text")
    task = TextData(train=text, block_length=8).load()
    shown = "".join(task.codec.render(example.target) + "\n" * (example.target[-1] == 2) for example in task.train)
    assert shown.startswith("line 0\nline 1\n")
    assert task.held_out["test"] == [{"text": f"line {number}"} for number in (57, 58, 59)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sentence": ["a"]}, "no column 'text'; found .'sentence'.: rename a column of a local copy"),
        ({"text": [3]}, "row 1: text is 3; expected a text"),
        ({"text": ["a\0"]}, "row 1: a line of more than 1,000,000 characters, or with a NUL character"),
    ],
)
def test_what_is_no_text_is_refused(arrow, columns, message):
    with pytest.raises(UserError, match=message) as caught:
        list(hub.lines(arrow(columns), part="train"))
    assert str(caught.value).isprintable()


def test_a_split_or_a_folder_that_is_not_there_is_refused(arrow, library, tmp_path):
    del library
    with pytest.raises(UserError, match="no split 'test'; expected one of train, validation"):
        list(hub.lines(arrow(TEXTS, TEXTS), part="test"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty: cannot be loaded \(") as caught:
        list(hub.lines(f"hf:{tmp_path / 'empty'}", part="train"))
    assert str(caught.value).isprintable()


def test_a_data_set_has_both_sides():
    with pytest.raises(UserError, match=r"--data\.train-target: hf:name has both sides; leave it out"):
        PairsData(train="hf:name", train_target="b.txt")
