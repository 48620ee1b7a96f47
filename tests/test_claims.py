"""docs/paper.md and notebook/patents.md: each claim has a row with its symbols and tests, as they are marked."""

import ast
import functools
import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
CLAIMS = [
    *(f"US {number}" for number in range(1, 28)),
    *(f"US FIG. {number}" for number in range(1, 6)),
    "US actions",
    *(f"JP {number}" for number in range(1, 14)),
    "JP treatments",
    *(f"tutorial {part}" for part in ("coordinates", "attention", "step", "decoder", "output", "halting")),
    "version 1 equation 4",
    *(f"equation {number}" for number in range(1, 9)),
    *("section 2.2", "section 4", "listing 1", "listing 2"),
    *(f"table {number}" for number in range(1, 8)),
    *(f"figure {number}" for number in range(1, 9)),
    *(f"appendix {letter}" for letter in "ABCD"),
]
LONGEST = 240  # characters: two lines of a page
NOT_ALWAYS_RUN = {"slow", "compiled", "skip", "skipif", "xfail"}


class Row(NamedTuple):
    """A row of the page."""

    words: str
    symbols: tuple[str, ...]
    tests: tuple[str, ...]


class Marked(NamedTuple):
    """A test with the marker ``claim``."""

    claims: tuple[str, ...]
    always_run: bool


@functools.cache
def rows():
    found = []
    pages = ROOT / "notebook" / "patents.md", ROOT / "docs" / "paper.md"
    for line in "".join(page.read_text(encoding="utf-8") for page in pages).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and len(cells) == 4 and cells[1] != "in our words" and "---" not in line:
            found.append((cells[0], Row(cells[1], *(tuple(re.findall(r"`([^`]+)`", cell)) for cell in cells[2:]))))
    return found


def marks_of(function):
    """Markers of a test: name -> arguments."""
    found = {}
    for decorator in function.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        name = ast.unparse(call.func if call else decorator)
        if name.startswith("pytest.mark."):
            found[name.removeprefix("pytest.mark.")] = [] if call is None else call.args
    return found


@functools.cache
def marked():
    """All tests with the marker: place -> claims, and whether `make test` always runs them."""
    found = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.claim(" not in text:
            continue
        whole = re.search(r"^pytestmark.*(skip|slow|compiled)|^pytest.importorskip", text, re.MULTILINE)
        for node in ast.parse(text).body:
            marks = marks_of(node) if isinstance(node, ast.FunctionDef) else {}
            if "claim" in marks:
                claims = tuple(ast.literal_eval(argument) for argument in marks["claim"])
                needs_data = "shared_data" in [argument.arg for argument in node.args.args]
                always = not (whole or needs_data or NOT_ALWAYS_RUN & set(marks))
                found[f"{path.relative_to(TESTS).as_posix()}::{node.name}"] = Marked(claims, always)
    return found


def test_every_claim_has_one_row_of_at_most_two_lines():
    assert [name for name, _ in rows()] == CLAIMS
    assert all(0 < len(row.words) <= LONGEST for _, row in rows())


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_has_a_symbol_and_a_test_that_always_runs(name):
    row = dict(rows())[name]
    assert row.symbols
    assert any(marked()[test].always_run for test in row.tests)


@pytest.mark.parametrize("symbol", sorted({symbol for _, row in rows() for symbol in row.symbols}))
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


def test_the_pages_and_the_markers_agree():
    named = {(name, test) for name, row in rows() for test in row.tests}
    assert {(claim, test) for test, mark in marked().items() for claim in mark.claims} == named
