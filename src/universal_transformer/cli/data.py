"""``ut data``: list the data sets, fetch one from its official source, or check its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from universal_transformer.cli.arguments import DATA_DIR, FAILED, Parser, note, say
from universal_transformer.errors import UserError, near
from universal_transformer.files import show_path

if TYPE_CHECKING:
    from universal_transformer.data.download import FileState

ACTIONS = ("list", "fetch", "check")


def run(arguments: list[str]) -> int:
    """List, fetch or check; return 1 if a checked data set is incomplete or changed."""
    parser = Parser("data", description="Data sets: list them, fetch one from its official source, check them.")
    parser.add_argument("action", metavar="list|fetch|check", choices=ACTIONS)
    parser.add_argument("name", nargs="?", help="the data set, for fetch and check (check without a name: all)")
    parser.add_argument("--data-dir", metavar="FOLDER", default="", help=DATA_DIR)
    options = parser.parse(arguments)
    if options.action == "list":
        if options.name:
            raise UserError(f"unexpected {options.name!r}: ut data list takes no name")
        return _list(options.data_dir)
    from universal_transformer.data.sources import DATASETS

    if options.action == "check" and not options.name:
        return _check_all(options.data_dir)
    known = ", ".join(DATASETS)
    if not options.name:
        raise UserError(f"name a data set: ut data {options.action} NAME; known are {known}")
    if options.name not in DATASETS:
        raise UserError(f"no data set {options.name!r}{near(options.name, DATASETS)}; known are {known}")
    act = _fetch if options.action == "fetch" else _check
    return act(options.name, options.data_dir)


def _list(folder: str) -> int:
    from universal_transformer.data.download import data_folder, find
    from universal_transformer.data.sources import DATASETS

    width = max(map(len, DATASETS))
    for name, dataset in DATASETS.items():
        try:
            where = str(find(name, folder))
        except UserError:
            where = "-"
        print(f"{name:<{width}}  {dataset.about}")
        print(f"{'':<{width}}  licence: {dataset.licence}; here: {where}")
    print(f"data folder: {data_folder(folder)}; change it with --data-dir or the environment variable UT_DATA")
    return 0


def _fetch(name: str, folder: str) -> int:
    from universal_transformer.data.download import fetch

    states = fetch(name, folder, report=note)
    print(f"{name}: {len(states)} files in place")
    return 0


def _check_all(folder: str) -> int:
    """Print one line for each data set; return 1 if one that is here is incomplete, changed or unknown."""
    from universal_transformer.data.download import check, overall
    from universal_transformer.data.sources import DATASETS

    width, failed = max(map(len, DATASETS)), False
    for name in DATASETS:
        states = check(name, folder)
        state = overall(states)
        failed |= state not in ("ok", "missing")
        say(f"{name:<{width}}  {state:<10}  {_counts(states)}")
    return FAILED if failed else 0


def _check(name: str, folder: str) -> int:
    from universal_transformer.data.download import INTACT, check, overall

    states = check(name, folder)
    for one in states:
        if one.state not in INTACT:
            say(f"{one.state:>7}  {show_path(one.path)}" + (f"  from {one.url}" if one.url else ""))
    say(f"{name}: {_counts(states)}")
    return 0 if overall(states) == "ok" else FAILED


def _counts(states: Sequence[FileState]) -> str:
    counts = Counter(one.state for one in states)
    return f"{', '.join(f'{count} {state}' for state, count in counts.items())} of {len(states)} files"
