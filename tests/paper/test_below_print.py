"""What stands next to the figures of a table: learning curves, stages of longer runs, and what was tried."""

import json
from pathlib import Path

import pytest

from paper.below_print import BELOW_PRINT
from paper.campaign import all_results
from paper.learning_curves import learning_curves
from paper.rendering import below_print, render
from paper.results import ResultsFile
from paper.tables import TABLES
from small_results import result
from universal_transformer.explore.canvas import svg

RESULTS = Path(__file__).parents[2] / "results" / "paper"
FIGURES = {"length 55": {"character_accuracy": 0.5, "sequence_accuracy": 0.25, "count": 10, "mean_steps": 6.0}}
tables = pytest.mark.parametrize("name", TABLES)


def recorded(name):
    return all_results(TABLES[name], ResultsFile(RESULTS / f"{name}.jsonl", table=name, say=print))


@tables
def test_each_row_below_print_says_what_was_tried(name):
    said = BELOW_PRINT.get(name, {})
    below = below_print(TABLES[name], recorded(name))
    assert not [row for row in below if not any(f"{row}/".startswith(f"{key}/") for key in said)]
    page = (RESULTS / f"{name}.md").read_text()
    assert not [key for key, text in said.items() if f"- {key}: {text}" not in page]


def test_what_was_tried_stands_on_the_page():
    figures = {"length 55": {"character_accuracy": 0.97, "sequence_accuracy": 0.9, "count": 10}}
    run = result("reverse/ut", table="table5", figures=figures)
    line = f"- reverse/ut: {BELOW_PRINT['table5']['reverse/ut']}"
    assert line in render(TABLES["table5"], [run])
    figures["length 55"]["character_accuracy"] = 1.0  # as in the paper, and sequences are below
    assert line in render(TABLES["table5"], [run])
    figures["length 55"]["sequence_accuracy"] = 1.0
    assert line not in render(TABLES["table5"], [run])


def test_a_record_is_a_row_of_its_own():
    (two_blocks, halting, few) = [one for one in recorded("table1") if one.row in TABLES["table1"].records]
    record = json.loads((RESULTS.parent / "runs" / "babi_10k_joint_act.json").read_text())
    assert halting.figures["task 17 positional-reasoning"]["error"] == 8.0
    assert halting.mean_steps == pytest.approx((22600 + 2 * 103363 + 3 * 41544 + 4 * 43720) / 211227)
    assert halting.steps_by_supports["2"] == record["report"]["steps_by_supports"][1]["steps"]["counts"]
    assert halting.settings["model"]["step"]["blocks"] == two_blocks.settings["model"]["step"]["blocks"] == 2
    assert "runs/stories-stop" in halting.notes[-1]
    assert "trained last" not in few.notes[-1]


def test_a_record_of_an_encoder_and_a_decoder_has_the_steps_of_both(tmp_path):
    record = json.loads((RESULTS.parent / "runs" / "execute_control.json").read_text())
    sides = [{"side": "encoder", "counts": [10, 0]}, {"side": "decoder", "counts": [0, 30]}]
    for scored in record["report"]["rows"] + record["report"]["totals"]:
        scored["steps"] = sides
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "execute_control.json").write_text(json.dumps(record))
    file = ResultsFile(tmp_path / "paper" / "table6.jsonl", table="table6", say=print)
    (control,) = all_results(TABLES["table6"], file)
    assert control.row == "control/ut-convolution-continued"
    assert control.mean_steps == pytest.approx((10 * 1 + 30 * 2) / 40)
    assert control.figures["loop, then loop"]["sequence_accuracy"] == pytest.approx(163 / 245)
    assert {scores["mean_steps"] for scores in control.figures.values()} == {control.mean_steps}


def test_a_record_that_is_missing_is_no_row(tmp_path):
    file = ResultsFile(tmp_path / "paper" / "table1.jsonl", table="table1", say=print)
    assert all_results(TABLES["table1"], file) == []


def test_a_panel_for_each_column_has_a_curve_for_each_row():
    pytest.importorskip("matplotlib")
    points = [[100, 2.0, 90.0], [200, 1.0, 50.0]]
    runs = [
        result(row, table="table5", curve=points, figures=FIGURES)
        for row in ("copy/ut", "copy/lstm", "copy/transformer", "copy/ut-halting", "copy/ut-printed", "double/ut")
    ]
    worse = result("copy/ut", table="table5", loss=9.0, seed=1, curve=[[100, 7.0, 90.0]], figures=FIGURES)
    figure = learning_curves(TABLES["table5"], [*runs, worse, result("reverse/ut", table="table5", figures=FIGURES)])
    copy, double = figure.axes
    assert [line.get_label() for line in copy.lines] == ["ut", "lstm", "transformer", "ut-halting", "ut-printed"]
    assert [line.get_linestyle() for line in copy.lines] == ["-"] * 4 + ["--"]
    assert [*double.lines[0].get_xydata().ravel()] == [100, 2.0, 200, 1.0]
    assert svg(figure).startswith(b"<?xml")
    assert learning_curves(TABLES["table5"], [result("reverse/ut", table="table5", figures=FIGURES)]) is None
    assert "![Curves of the runs](table5.svg)" in render(TABLES["table5"], runs)
    assert "## Curves" not in render(TABLES["table5"], [])


@tables
def test_a_page_that_shows_curves_has_them(name):
    shows = f"]({name}.svg)" in (RESULTS / f"{name}.md").read_text()
    assert shows == (RESULTS / f"{name}.svg").is_file()
