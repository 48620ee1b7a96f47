"""The warnings of collapsed halting, against the recorded runs: the page is the one that its script computes."""

import re
import runpy
from functools import cache
from pathlib import Path

import pytest

from small_results import result

ROOT = Path(__file__).parents[2]
DEEP_DECODER = "nearly all decoder positions take all steps (steps 3.99 ± 0.15 of at most 4): an advice"


@pytest.fixture(scope="module")
def script():
    """The functions of the script, which reads the recorded runs once."""
    functions = runpy.run_path(str(ROOT / "experiments" / "collapse_warnings.py"))["page"].__globals__
    for name in ("read_tables", "read_defaults"):
        functions[name] = cache(lambda read=functions[name]: [*read()])
    return functions


def test_the_page_about_collapse_is_computed_from_the_recorded_runs(script):
    assert script["page"]() == (ROOT / "results" / "studies" / "collapse_warnings.md").read_text(encoding="utf-8")


def test_the_documents_say_of_how_many_warned_sides_the_model_is_worse(script):
    in_use = next(line for line in script["page"]().splitlines() if line.startswith("| 1.05 | 0.99 | 0.2 |"))
    twins, worse = (cell.strip() for cell in in_use.split("|")[-3:-1])
    for name, told in (
        ("docs/depth.md", f"of {twins} sides with a warning {{}} at a fixed depth, {worse} belong"),
        ("notebook/depth_rules.md", f"of {twins} sides with a warning {{}} at a fixed depth, {worse} belong"),
        ("notebook/paper_tables.md", f"Of {twins} warned sides {{}} at a fixed depth, {worse} belong"),
    ):
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        assert told.format("whose recipe was run as long") in text


def test_the_notebook_has_the_counts_of_the_page(script):
    page = script["page"]()
    text = " ".join((ROOT / "notebook" / "depth_rules.md").read_text(encoding="utf-8").split())
    sides, warned = (
        re.search(found, page)[1] for found in (r"\n(\d+) sides of", r"\n\| 1\.05 \|.*?\| 0\.2 \| (\d+) \|")
    )
    assert f"compared with {sides} sides" in text
    assert f": {warned} warnings. None of them is false" in text
    rightly, late = map(int, re.search(r"\| warned in training \| (\d+) \| (\d+) \|", page).groups())
    unseen = int(re.search(r"not warned in training \| (\d+) \|", page)[1])
    assert f"of {rightly + unseen} runs that are warned about at the end, {unseen} were not warned about" in text
    assert f"and {late} warnings in training do not hold at the end" in text


def test_each_side_that_halts_is_listed_with_its_recorded_steps(script):
    of_result = script["of_result"]
    counts = {"encoder": [0, 100, 0, 0], "decoder": [10, 20, 30, 40]}
    found = list(of_result(result("reverse/ut-halting", table="table4", steps=counts), 0.25))
    assert [(one.side, one.max_steps, one.mean, one.excess) for one in found] == [
        ("encoder", 4, 2.0, 0.25),
        ("decoder", 4, 3.0, 0.25),
    ]
    assert [(one.share, one.warned()) for one in found] == [(1.0, True), (0.4, False)]
    earlier = result("reverse/ut-halting", table="table4", steps_by_supports={}, warnings=[DEEP_DECODER])
    (decoder,) = of_result(earlier, None)
    assert (decoder.side, decoder.mean, decoder.spread) == ("decoder", 3.99, 0.15)


def test_no_recorded_side_is_warned_about_wrongly_or_missed(script):
    """A label that the warnings do not use: at least 95 % of the positions take the same number of steps."""
    sides = [side for one, excess in script["read_tables"]() for side in script["of_result"](one, excess)]
    sides += script["read_defaults"]()
    assert len(sides) > 40
    assert [one for one in sides if one.warned() != one.alike] == []
