import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.errors import UserError
from universal_transformer.evaluation.collapse import collapse, fake
from universal_transformer.evaluation.report import (
    CONFUSION,
    BySupports,
    Confusion,
    Report,
    ScoreRow,
    StepCounts,
)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_step_counts_have_the_mean_and_deviation_of_what_was_counted(counts):
    steps = [n for n, count in enumerate(counts, start=1) for _ in range(count)]
    found = StepCounts("encoder", tuple(counts))
    assert found.num_positions == len(steps)
    assert found.mean == pytest.approx(np.mean(steps) if steps else 0.0)
    assert found.spread == pytest.approx(np.std(steps) if steps else 0.0)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ((96, 4, 0), "(shallow): nearly all decoder positions stop after the first step"),
        ((0, 2, 98), "(deep): nearly all decoder positions go on to the cap"),
        ((0, 1000, 2), "(constant): nearly all decoder positions stop at the same step"),
        ((1, 97, 2), "(constant): nearly all decoder positions stop at the same step"),
        ((90, 10, 0), None),
        ((0, 10, 90), None),
        ((3, 94, 3), None),
        ((94, 6, 0), None),
        ((3, 0, 97), None),
    ],
)
def test_collapse(counts, reason):
    steps = StepCounts("decoder", counts)
    found = collapse(steps.mean, steps.spread, side=steps.side, max_steps=3)
    assert found is None if reason is None else reason in "({}): {}".format(*found)


@pytest.mark.parametrize(("mean", "direction"), [(1.0, "smaller"), (2.0, "smaller"), (4.0, "larger")])
def test_a_collapse_is_answered_with_what_works_and_the_direction_of_the_bias(mean, direction):
    _, text = collapse(mean, 0.0, side="decoder", max_steps=4)
    assert f"try a {direction} halting.bias" in text
    assert "--step-loss mean" in text
    assert "ut train RUN --stage halting" in text


def test_a_loss_above_its_expectation_is_collapse():
    assert fake(0.54, expected=0.5) is None
    assert fake(0.0013, expected=0.0003) is None  # 4 times as large, but no error can be seen in it
    assert fake(0.005, expected=0.0007) is not None
    assert "(fake): the validation loss where positions stop is 0.6000, far above" in fake(0.6, expected=0.5)


def test_one_step_is_no_collapse():
    assert collapse(1.0, 0.0, side="encoder", max_steps=1) is None


def report(**changes):
    steps = (StepCounts("encoder", (1, 2)), StepCounts("decoder", (0, 4)))
    rows = tuple(ScoreRow("test", f"length {n}", 5, {"character_accuracy": n / 7}, steps) for n in range(2))
    fields = {
        "task": "copy",
        "metric": "sequence",
        "split": "test",
        "halting": True,
        "max_steps": 2,
        "rows": rows,
        "totals": (dataclasses.replace(rows[0], group="", count=10),),
        "steps_by_supports": (BySupports(1, steps[0]),),
        "signatures": {"bleu": "nrefs:1"},
        "warnings": ("careful",),
        "notes": ("changed split",),
    }
    return Report(**{**fields, **changes})


def test_a_saved_report_is_read_back(tmp_path):
    report().save(tmp_path / "report.json")
    assert Report.load(tmp_path / "report.json") == report()


def broken(change):
    fields = json.loads(json.dumps(report().to_dict()))
    change(fields)
    return fields


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.pop("rows"), "report: missing: rows"),
        (lambda f: f.update(speed=1), "report: unknown: speed"),
        (
            lambda f: f.update(metric="luck"),
            "report: metric: expected one of error, sequence, bleu, perplexity",
        ),
        (lambda f: f.update(halting=1), "report: halting: expected true or false, found 1"),
        (
            lambda f: f["rows"][1].update(count="5"),
            r"report: rows\[1\].count: expected a whole number, at least 0, found '5'",
        ),
        (lambda f: f["rows"][0].update(count=-1), "count: expected a whole number, at least 0, found -1"),
        (lambda f: f["rows"][0]["metrics"].update(luck=1.0), "scores .*luck"),
        (lambda f: f["rows"][0]["steps"][0].update(side="middle"), "side: expected one of encoder, decoder"),
        (lambda f: f.update(totals=[]), "a report of no rows"),
        (lambda f: f.update(notes={}), "report: notes: expected"),
    ],
)
def test_a_damaged_report_gets_one_line(change, message):
    with pytest.raises(UserError, match=message) as found:
        Report.from_dict(broken(change))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(("classes", "shown"), [(2, True), (12, True), (13, False)])
def test_a_small_confusion_matrix_is_printed(classes, shown):
    names = [f"{'long ' * 5}class\n{n}" if n == 0 else f"class {n}" for n in range(classes)]
    cells = [Confusion("test", names[n], names[(n + 1) % classes], 1000 + n) for n in range(classes)]
    made = report(confusion=(*cells, Confusion("other", "a", "b", 1)))
    lines = made.lines()
    assert Report.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    title = f"test: {CONFUSION}"
    assert (title in lines) == shown
    if shown:
        table = lines[lines.index(title) + 1 :][: classes + 1]
        head, rows = table[0], {line[:16].strip(): line[16:].split() for line in table[1:]}
        assert head.split("  ")[-1].strip() == "long long long l"
        assert rows["class 1"].count("0") == classes - 1
        assert rows["class 1"][3 if classes == 12 else -1] == "1,001"
        assert all("\n" not in line for line in lines)


def test_lines_are_a_table_with_aligned_columns():
    lines = report().lines()
    table = lines[1:5]
    assert len({line.rindex(" ± ") for line in table[1:]}) == 1
    assert table[0].split()[:2] == ["test", "set"]
    assert [line.split()[3 if number else 2] for number, line in enumerate(table[1:3], start=1)]
    for text in ("warning: careful", "note: changed split", "bleu: nrefs:1"):
        assert text in lines
