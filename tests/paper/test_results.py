"""The file of results: whole lines only, each run once, nothing of another version."""

import dataclasses
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from paper import results
from paper.results import FORMAT, ResultsFile
from small_results import result
from universal_transformer.errors import UserError

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


def settings(**parts):
    """Settings of which a part is something else, with the digest that fits."""
    found = {**FIRST.settings, **parts}
    return {"settings": found, "config": results.digest(found)}


def line(**fields):
    return json.dumps({**dataclasses.asdict(FIRST), **fields})


def test_results_come_back_as_they_were(two, said):
    assert two.read() == [FIRST, SECOND]
    assert two.path.read_bytes().count(b"\n") == 2
    assert not said
    assert not two.damaged.exists()


def test_no_file_is_no_results_and_reading_makes_none(file, tmp_path):
    assert file.read() == []
    assert not list(tmp_path.iterdir())


def test_wherever_a_last_line_is_cut_the_lines_before_it_stay(two):
    whole = two.path.read_bytes()
    first, second = whole.splitlines(keepends=True)
    for cut in [*range(1, len(second) - 1, 97), len(second) - 2]:
        two.damaged.unlink(missing_ok=True)
        two.path.write_bytes(first + second[:cut])
        assert two.read() == [FIRST]
        assert two.path.read_bytes() == first
        assert two.damaged.read_bytes() == second[:cut] + b"\n"
        assert two.append(SECOND)
        assert two.path.read_bytes() == whole


def test_a_whole_line_without_its_end_is_trusted_and_ended(two):
    whole = two.path.read_bytes()
    two.path.write_bytes(whole[:-1])
    assert two.read() == [FIRST, SECOND]
    assert two.path.read_bytes() == whole


@pytest.mark.parametrize("damage", [b"\0" * 40, b'{"format": 1, "row": "\xff', b"7\n", b"{}}\n", b"\n"])
def test_damage_at_the_end_is_reported_and_moved_aside(two, said, damage):
    whole = two.path.read_bytes()
    two.path.write_bytes(whole + damage)
    assert two.read() == [FIRST, SECOND]
    assert two.path.read_bytes() == whole
    assert two.damaged.read_bytes() == damage.removesuffix(b"\n") + b"\n"
    assert len(said) == 1
    assert f"{two.path}:3: half-written or damaged" in said[0]
    assert str(two.damaged) in said[0]


def test_damage_before_the_end_is_refused_for_no_interruption_makes_it(two):
    first, second = two.path.read_bytes().splitlines(keepends=True)
    two.path.write_bytes(first[:50] + b"\n" + second)
    with pytest.raises(UserError, match=r"table1\.jsonl:1: not a result"):
        two.read()
    assert two.path.read_bytes() == first[:50] + b"\n" + second


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"colour": "red"},
            "unknown: colour; written by another version?; this version does not read such a line",
        ),
        ({"format": FORMAT + 1, "colour": "red"}, f"format: found {FORMAT + 1}; this version reads {FORMAT}"),
        ({"seed": "0"}, "seed: expected a whole number, found '0'"),
        ({"updates": True}, "updates: expected a whole number, found True"),
        ({"figures": {"task 1": {"error": "none"}}}, "figures.task 1.error: expected a number, found 'none'"),
        ({"commit": 7}, "commit: expected text or None, found 7"),
        ({"table": "table2"}, "table: found 'table2'; expected table1"),
        ({"config": "0123456789ab"}, "the line was changed"),
        ({"seed": 3}, "seed: found 3, which is not the one in its settings"),
        ({"validation": {"error": 1.0}}, "validation: cross_entropy missing"),
        ({"figures": {}}, "figures: there are none in it"),
        ({"figures": {"task 1": {"error": 1.0}}}, "figures.task 1: count missing"),
        ({"figures": {"task 1": {"error": 1.0, "count": 0}}}, "count: found 0; expected at least 1"),
        ({"hardware": {"cpu": "one"}}, "hardware: threads missing"),
        ({"versions": {}}, "versions: torch missing"),
        (settings(model=7), "settings: model: expected an object, found 7"),
        (settings(model={**FIRST.settings["model"], "colour": 1}), "settings: model: unknown: colour"),
        (settings(data={"task": [], "fields": {}}), "settings: data.task: [] is no task"),
        (settings(data={"task": "babi"}), "settings: data: missing: fields"),
        (settings(training=None), "settings: training: expected an object, found None"),
    ],
)
def test_what_this_version_does_not_write_is_refused_by_name(two, fields, message):
    two.path.write_text(line(**fields) + "\n")
    with pytest.raises(UserError) as caught:
        two.read()
    assert message in str(caught.value)
    assert f"{two.path}:1: " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert two.path.read_text() == line(**fields) + "\n"


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


def test_two_lines_of_one_run_are_refused(two):
    two.path.write_text(two.path.read_text() + line(updates=9) + "\n")
    with pytest.raises(UserError, match=r"table1\.jsonl:3: the run of line 1 again"):
        two.read()


def test_other_settings_and_other_rows_are_other_runs(file):
    runs = [FIRST, SECOND, result(minutes=3.0), result("10k-single/ut/1"), result("1k-single/ut-halting/1")]
    assert all(file.append(run) for run in runs)
    assert len({run.key for run in file.read()}) == len(runs)
    assert FIRST.setting == SECOND.setting
    assert len({run.setting for run in runs}) == len(runs) - 1


def test_a_line_that_cannot_be_written_whole_leaves_the_file_as_it_was(two, monkeypatch):
    whole, write = two.path.read_bytes(), os.write
    monkeypatch.setattr(results.os, "write", lambda file, data: write(file, data[: len(data) // 2]))
    with pytest.raises(UserError, match="is the disk full"):
        two.append(result(seed=2))
    assert two.path.read_bytes() == whole


def test_writers_at_the_same_time_lose_and_double_nothing(tmp_path):
    def add(seed):
        file = ResultsFile(tmp_path / "table1.jsonl", table="table1", say=print)
        return file.append(result(seed=seed % 8))

    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(add, range(24)))
    assert sum(added) == 8
    found = ResultsFile(tmp_path / "table1.jsonl", table="table1", say=print).read()
    assert sorted(one.seed for one in found) == list(range(8))
