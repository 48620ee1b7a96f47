"""F3: nothing in src/ unpickles, evaluates text, or unpacks an archive by the names in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import universal_transformer
from torture.outcome import Outcome

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
CALLS = {"eval", "exec", "torch.load", "torch.save", "os.system", "os.popen", "yaml.load"}
METHODS = {"extractall"}
KEYWORDS = {"allow_pickle", "weights_only", "shell"}
"""Keywords that may only have the value False ."""


def clean(share: float, folder: Path) -> Outcome:
    """F3: each file of the package, whatever the share is."""
    del share, folder
    outcome, root = Outcome(), Path(universal_transformer.__file__).parent
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        outcome.add(path.relative_to(root), list(found_in(tree)))
    return outcome


def found_in(tree: ast.AST) -> Iterator[str]:
    """Yield what a module may not use, with its line."""
    for node in ast.walk(tree):
        names: set[str] = set()
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").partition(".")[0]} & MODULES
        elif isinstance(node, ast.Call):
            names = {ast.unparse(node.func)} & CALLS
            names |= {node.func.attr} & METHODS if isinstance(node.func, ast.Attribute) else set()
            names |= {
                one.arg
                for one in node.keywords
                if one.arg in KEYWORDS and not (isinstance(one.value, ast.Constant) and one.value.value is False)
            }
        yield from (f"line {node.lineno}: {name}" for name in sorted(names))
