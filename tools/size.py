"""Print how large the package is and how much its parts know of each other: ``python tools/size.py``.

===================== ================================================================================================
figure                what is counted
===================== ================================================================================================
lines of a package    line ends in its Python files, with comments and docstrings
halting rules         names of halting rules and exits, as strings of a ``case``, of a comparison or of a dictionary's
                      keys, outside their homes: the package `rules`, `nn/halting.py` and `recipes`
long classes          classes of more than 200 lines, with decorators left out
wide signatures       functions of more than 7 parameters, ``self``, ``cls``, ``*args`` and ``**kwargs`` left out
private torch         files that use private interfaces of torch
===================== ================================================================================================

A package that does not exist has 0 lines. `tests/test_budgets.py` holds the most that each figure may be.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "universal_transformer"
PACKAGES = ("nn", "rules", "execution", "models", "decoding", "interop", "baselines")
"""Whose lines have a budget."""
HALTING_RULES = frozenset({"act", "ponder", "stick_breaking", "confidence", "output_change", "state_change"})
HOMES = ("rules/", "recipes/", "nn/halting.py")
"""Where rules may be named: folders, and a file."""
LONGEST_CLASS = 200
MOST_PARAMETERS = 7
PRIVATE_TORCH = re.compile(
    r"torch\._[A-Za-z]"
    r"|torch\.ops\.mkldnn"
    r"|\._forward_hooks"
    r"|\._version\b"
    r"|_higher_order_ops"
    r"|_functorch"
)


def figures(source: Path = SOURCE) -> dict[str, int]:
    """All figures by name."""
    lines = {f"lines of {package}": lines_of(source / package) for package in PACKAGES}
    return {
        **lines,
        "lines of these packages": sum(lines.values()),
        "halting rules outside their homes": len(halting_rules_outside(source)),
        "classes over 200 lines": len(long_classes(source)),
        "signatures over 7 parameters": len(wide_signatures(source)),
        "files with private interfaces of torch": len(private_torch(source)),
    }


def lines_of(folder: Path) -> int:
    """Lines of the Python files in a folder; 0 without the folder."""
    return sum(text.count("\n") for _, text in _files(folder))


def halting_rules_outside(source: Path = SOURCE) -> list[str]:
    """Where a halting rule is named outside of the homes of the rules."""
    return [
        f"{file}:{line} {word}"
        for file, text in _files(source)
        if not file.startswith(HOMES)
        for line, word in _compared_words(ast.parse(text))
        if word in HALTING_RULES
    ]


def long_classes(source: Path = SOURCE) -> list[str]:
    """Classes of more than 200 lines."""
    found = []
    for file, text in _files(source):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.end_lineno is not None:
                size = node.end_lineno - node.lineno + 1
                if size > LONGEST_CLASS:
                    found.append(f"{file}:{node.name} {size}")
    return found


def wide_signatures(source: Path = SOURCE) -> list[str]:
    """Functions of more than 7 parameters."""
    found = []
    for file, text in _files(source):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                parameters = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
                if (count := len(parameters - {"self", "cls"})) > MOST_PARAMETERS:
                    found.append(f"{file}:{node.name} {count}")
    return found


def private_torch(source: Path = SOURCE) -> list[str]:
    """Files that use private interfaces of torch."""
    return [file for file, text in _files(source) if PRIVATE_TORCH.search(text)]


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each Python file, relative to the folder, and its text."""
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")


def _compared_words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string by which code chooses: case, comparison, key of a dictionary."""
    for node in ast.walk(tree):
        match node:
            case ast.MatchValue():
                line, places = node.value.lineno, [node.value]
            case ast.Compare():
                line, places = node.lineno, [node.left, *node.comparators]
            case ast.Dict():
                line, places = node.lineno, [key for key in node.keys if isinstance(key, ast.Constant)]
            case _:
                continue
        for place in places:
            for part in ast.walk(place):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield line, part.value


def main() -> None:
    """Print the figures, then what they count."""
    for name, value in figures().items():
        print(f"{value:>7,}  {name}")
    for title, places in (
        ("halting rules outside their homes", halting_rules_outside()),
        ("classes over 200 lines", long_classes()),
        ("signatures over 7 parameters", wide_signatures()),
        ("files with private interfaces of torch", private_torch()),
    ):
        print(f"\n{title}:", *places, sep="\n  ")


if __name__ == "__main__":
    main()
