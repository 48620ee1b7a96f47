"""The warnings of collapsed halting, against the recorded runs: the page is the one that its script computes."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_about_collapse_is_computed_from_the_recorded_runs():
    page = runpy.run_path(str(ROOT / "experiments" / "collapse.py"))["page"]()
    assert page == (ROOT / "results" / "collapse.md").read_text(encoding="utf-8")


def test_no_recorded_side_is_warned_about_wrongly_or_missed():
    """A label that the warnings do not use: at least 95 % of the positions take the same number of steps."""
    script = runpy.run_path(str(ROOT / "experiments" / "collapse.py"))
    sides = [side for one, excess in script["read_tables"]() for side in script["of_result"](one, excess)]
    sides += script["read_defaults"]()
    assert len(sides) > 40
    assert [one for one in sides if one.warned() != one.alike] == []
