"""Every printed number of `paper/printed.py` stands in the text of the paper, as often as here, before its caption."""

import re
from collections import Counter
from pathlib import Path

import pytest

from paper import printed

SOURCES = Path(__file__).parents[2] / "../shared/sources"
FIRST, PUBLISHED = "arxiv_v1.txt", "iclr2019_submission.txt"
NUMBER = re.compile(r"(?<![\d.])[-+]?\d+(?:\.\d+)?(?![\d.]*\d)")


@pytest.fixture(scope="module", params=[FIRST, PUBLISHED])
def version(request):
    """A version of the paper: the name of its file, and its text on one line."""
    if not SOURCES.is_dir():
        pytest.skip("the text of the paper is not there")
    return request.param, " ".join((SOURCES / request.param).read_text(encoding="utf-8").split())


def numbers(cells):
    """How often each number stands in cells."""
    return Counter(float(number) for cell in cells for number in NUMBER.findall(str(cell)))


def cells_of(table, name):
    """The cells of a table in a version; a row of version 1 is in place of the row that it differs from."""
    models = [model for model in table if not model.endswith("-v1")]
    first = {model.removesuffix("-v1"): model for model in table if model.endswith("-v1")}
    if name == FIRST:
        models = [first.get(model, model) for model in {**dict.fromkeys(models), **first}]
    return [cell for model in models for cell in table[model]]


def before(text, caption, *, most=1500):
    """The text that ends with the caption of a table."""
    end = re.search(caption, text).start()
    return text[max(0, end - most) : end]


TABLES = {
    "Table 1: Average": [{m: row for m, row in printed.TABLE1.items() if not m.startswith("seeds")}],
    "Table 3: LAMBADA": [printed.TABLE3_LM, printed.TABLE3_RC],
    "Table 4: Accuracy": [printed.TABLE4],
    "Table 5: Character": [printed.TABLE5],
    "Table 6: Character": [printed.TABLE6],
    "Table 7: Machine": [printed.TABLE7],
}
LATER = {"ut-8", "ut-9"}
"""Rows that only the published version has."""
PUBLISHED_ONLY = {"ut-halting", "difference"}
"""Rows of table 2 that only the published version has."""


@pytest.mark.claim("table 1", "table 3", "table 4", "table 5", "table 6", "table 7")
@pytest.mark.parametrize("caption", TABLES)
def test_every_cell_of_a_table_is_printed(version, caption):
    name, text = version
    tables = [{m: row for m, row in t.items() if name == PUBLISHED or m not in LATER} for t in TABLES[caption]]
    wanted = numbers(cell for table in tables for cell in cells_of(table, name))
    assert sum(wanted.values()) >= 4
    assert wanted <= numbers([before(text, caption)])


@pytest.mark.claim("table 2")
def test_every_cell_of_table_2_is_printed(version):
    name, text = version
    rows = {m: row for m, row in printed.TABLE2.items() if name == PUBLISHED or m not in PUBLISHED_ONLY}
    assert numbers(cells_of(rows, name)) <= numbers([before(text, "Table 2: Accuracy")])


@pytest.mark.claim("appendix C")
def test_every_cell_of_the_single_tasks_is_printed(version):
    name, text = version
    best, seeds = (cells_of(table, name) for table in (printed.TABLE1_TASKS, printed.TABLE1_TASKS_OVER_SEEDS))
    start = text.index("Best seed run for each task")
    whole = [*best, *seeds, *printed.TABLE1["seeds-v1" if name == FIRST else "seeds"]]
    assert len(whole) == 164
    assert numbers(whole) <= numbers([text[start : start + 3000].replace("±", " ")])


def test_steps_are_printed_in_the_published_version(version):
    name, text = version
    text = text.replace(" ", "")
    for cell in (*printed.PONDER, printed.LAMBADA_STEPS):
        assert (cell.replace(" ", "") in text) == (name == PUBLISHED)
