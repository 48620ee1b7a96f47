"""The file of results: whole lines only, each run once, nothing of another version."""

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paper.results import ResultsFile
from small_results import result
from universal_transformer.errors import UserError
from universal_transformer.training.run_config import RunConfig, digest

RECORDED = Path(__file__).parents[2] / "results" / "paper"
FIRST, SECOND = result(), result(seed=1, error=3.5, commit=None, clean=None)


@pytest.fixture
def said():
    return []


@pytest.fixture
def file(tmp_path, said):
    return ResultsFile(tmp_path / "table1.jsonl", table="table1", say=said.append)


@pytest.fixture
def two(file):
    assert file.append(FIRST)
    assert file.append(SECOND)
    return file


def line(**fields):
    return json.dumps({**dataclasses.asdict(FIRST), **fields})


def test_results_come_back_as_they_were(two, said):
    assert two.read() == [FIRST, SECOND]
    assert two.path.read_bytes().count(b"\n") == 2
    assert not said


def test_no_file_is_no_results_and_reading_makes_none(file, tmp_path):
    assert file.read() == []
    assert not list(tmp_path.iterdir())


def test_wherever_a_last_line_is_cut_the_lines_before_it_stay(two, said):
    whole = two.path.read_bytes()
    first, second = whole.splitlines(keepends=True)
    for cut in [*range(1, len(second) - 1, 97), len(second) - 1]:
        two.path.write_bytes(first + second[:cut])
        assert two.read() == [FIRST]
        assert two.append(SECOND)
        assert two.path.read_bytes() == whole
        assert said.pop() == f"{two.path}: its last line is half-written: that run counts as not done"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"colour": "red"}, "unknown: colour"),
        ({"seed": "0"}, "seed: expected a whole number, found '0'"),
        ({"updates": True}, "updates: expected a whole number, found True"),
        ({"figures": {"task 1": {"error": "none"}}}, "figures.task 1.error: expected a number, found 'none'"),
        ({"commit": 7}, "commit: expected text or None, found 7"),
        ({"table": "table2"}, "a result of table2; expected table1"),
    ],
)
def test_what_is_no_result_of_the_table_is_refused_by_name(two, fields, message):
    two.path.write_text(line(**fields) + "\n")
    with pytest.raises(UserError) as caught:
        two.read()
    assert message in str(caught.value)
    assert f"{two.path}:1: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_recorded_lines_are_those_of_their_settings(path):
    runs = ResultsFile(path, table=path.stem, say=print).read()
    assert len({run.key for run in runs}) == len(runs) > 0
    for run in runs:
        assert digest(run.settings) == run.config
        assert RunConfig.from_dict(run.settings).training.seed == run.seed
        assert {"error", "cross_entropy"} <= run.validation.keys()
        assert all(scores["count"] >= 1 for scores in run.figures.values())


def test_a_missing_field_is_named(two):
    fields = dataclasses.asdict(FIRST)
    del fields["commit"], fields["format"]
    two.path.write_text(json.dumps(fields) + "\n")
    with pytest.raises(UserError, match="missing: commit, format"):
        two.read()


def test_a_run_is_recorded_once(two):
    again = dataclasses.replace(FIRST, updates=9)
    assert not two.append(again)
    assert two.read() == [FIRST, SECOND]


def test_other_settings_and_other_rows_are_other_runs(file):
    runs = [FIRST, SECOND, result(minutes=3.0), result("10k-single/ut/1"), result("1k-single/ut-halting/1")]
    assert all(file.append(run) for run in runs)
    assert len({run.key for run in file.read()}) == len(runs)
    assert FIRST.setting == SECOND.setting
    assert len({run.setting for run in runs}) == len(runs) - 1


def test_writers_at_the_same_time_lose_and_double_nothing(tmp_path):
    def add(seed):
        file = ResultsFile(tmp_path / "table1.jsonl", table="table1", say=print)
        return file.append(result(seed=seed % 8))

    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(add, range(24)))
    assert sum(added) == 8
    found = ResultsFile(tmp_path / "table1.jsonl", table="table1", say=print).read()
    assert sorted(one.seed for one in found) == list(range(8))
