"""docs/paper.md and notebook/patents.md: each claim has a row with its symbols and tests, as they are marked."""

import functools
import importlib
import re
from pathlib import Path

import pytest

import make_claims

ROOT = Path(__file__).parents[1]
CLAIMS = [
    *(f"US {number}" for number in range(1, 28)),
    *(f"US FIG. {number}" for number in range(1, 6)),
    "US tables",
    "US actions",
    *(f"JP {number}" for number in range(1, 14)),
    "JP treatments",
    *(f"tutorial {part}" for part in ("coordinates", "attention", "step", "decoder", "output", "halting")),
    "version 1 equation 4",
    *(f"equation {number}" for number in range(1, 9)),
    *("section 2.2", "section 3.1", "section 4", "listing 1", "listing 2"),
    *(f"table {number}" for number in range(1, 8)),
    *(f"figure {number}" for number in range(1, 9)),
    *(f"appendix {letter}" for letter in "ABCD"),
]
LONGEST = 240  # characters: two lines of a page


@functools.cache
def rows():
    """Claim, words and symbols of each row of the pages."""
    lines = [line for page in make_claims.PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    found = filter(None, map(make_claims.cells, lines))
    return [(name, words, re.findall(r"`([^`]+)`", symbols)) for name, words, symbols, _ in found]


def test_every_claim_has_one_row_of_at_most_two_lines_with_a_symbol():
    assert [name for name, _, _ in rows()] == CLAIMS
    assert all(0 < len(words) <= LONGEST and symbols for _, words, symbols in rows())


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_has_a_test_that_always_runs(name):
    assert any(mark.always_run for mark in make_claims.marked().values() if name in mark.claims)


@pytest.mark.parametrize("symbol", sorted({symbol for _, _, symbols in rows() for symbol in symbols}))
def test_a_named_symbol_exists(symbol):
    if symbol.endswith(".py"):
        assert (ROOT / symbol).is_file()
        return
    parts = symbol.split(".")
    package = ROOT if parts[0] == "paper" else ROOT / "src/universal_transformer"
    place = next(n for n in range(len(parts), 0, -1) if (package / Path(*parts[:n])).with_suffix(".py").is_file())
    module = ".".join(parts[:place])
    found = importlib.import_module(module if package == ROOT else f"universal_transformer.{module}")
    for part in parts[place:]:
        found = getattr(found, part)


@pytest.mark.parametrize("path", make_claims.PAGES, ids=lambda path: path.stem)
def test_the_tests_on_a_page_are_those_with_the_markers(path):
    assert make_claims.page(path) == path.read_text(encoding="utf-8"), "run python tools/make_claims.py"


def test_every_marker_names_a_claim_with_a_row():
    assert {claim for mark in make_claims.marked().values() for claim in mark.claims} <= set(CLAIMS)


def test_all_claims_of_the_patents_are_shown():
    assert make_claims.shown() == "40 of 40"
