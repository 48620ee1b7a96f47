"""Write the tests of each claim into docs/paper.md and notebook/patents.md, from the markers of the tests.

Run ``python tools/make_claims.py`` after a change of a marker; a test checks that the pages are up to date.

A claim has all tests with its marker, ordered by file and by their place in it. The other columns are written by hand.
"""

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PAGES = (ROOT / "notebook" / "patents.md", ROOT / "docs" / "paper.md")
PATENTS = [*(f"US {number}" for number in range(1, 28)), *(f"JP {number}" for number in range(1, 14))]
NOT_ALWAYS_RUN = {"slow", "compiled", "skip", "skipif", "xfail"}


class Marked(NamedTuple):
    """A test with the marker ``claim``."""

    claims: tuple[str, ...]
    always_run: bool


def markers(function):
    """Markers of a test: name -> arguments."""
    found = {}
    for decorator in function.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        name = ast.unparse(call.func if call else decorator)
        if name.startswith("pytest.mark."):
            found[name.removeprefix("pytest.mark.")] = [] if call is None else call.args
    return found


def skipping(tree):
    """The functions of a file that skip, or that use one that does, or the data sets, as a helper or as a fixture."""
    found = {"skip", "shared_data"}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    used = {function.name: {*map(identifier, ast.walk(function))} for function in functions}
    while more := {name for name, uses in used.items() if uses & found} - found:
        found |= more
    return found


def identifier(node):
    """The name in a node of a variable, an attribute or an argument; None in others."""
    return getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)


@functools.cache
def marked():
    """All tests with the marker: place -> claims, and whether `make test` always runs them."""
    found = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.claim(" not in text:
            continue
        tree = ast.parse(text)
        may_skip = skipping(tree)
        whole = re.search(r"^pytestmark.*(skip|slow|compiled)|^pytest.importorskip", text, re.MULTILINE)
        for node in tree.body:
            marks = markers(node) if isinstance(node, ast.FunctionDef) else {}
            if "claim" in marks:
                claims = tuple(ast.literal_eval(argument) for argument in marks["claim"])
                always = not (whole or node.name in may_skip or NOT_ALWAYS_RUN & set(marks))
                found[f"{path.relative_to(TESTS).as_posix()}::{node.name}"] = Marked(claims, always)
    return found


def cells(line):
    """The claim, its words, symbols and tests in a line of a page; nothing of another line."""
    found = [cell.strip() for cell in line.strip("|").split(" | ")]
    return found if line.startswith("|") and len(found) == 4 and found[1] != "in our words" else []


def page(path):
    """The whole page with fresh tests."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for place, line in enumerate(lines):
        if row := cells(line):
            tests = ", ".join(f"`{test}`" for test, mark in marked().items() if row[0] in mark.claims)
            lines[place] = f"| {' | '.join([*row[:3], tests])} |"
    return "".join(f"{line}\n" for line in lines)


def shown():
    """How many claims of the patents have a test that always runs."""
    found = {claim for mark in marked().values() if mark.always_run for claim in mark.claims}
    return f"{len(found.intersection(PATENTS))} of {len(PATENTS)}"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path), encoding="utf-8")
    print(f"claims of the patents with a test that always runs: {shown()}")
