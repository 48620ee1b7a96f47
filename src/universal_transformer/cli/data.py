"""``ut data``: list the data sets, fetch one from its official source, or check its files or the data of a recipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from universal_transformer.cli.arguments import DATA_DIR, FAILED, Parser, data_dir, note, say, take
from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import show_path

if TYPE_CHECKING:
    from universal_transformer.data.download import FileState

ACTIONS = ("list", "fetch", "check")


def run(arguments: list[str]) -> int:
    """List, fetch or check; return 1 if a checked data set is incomplete or changed."""
    if arguments[:1] == ["check"] and len(arguments) > 1 and _is_recipe(arguments[1]):
        return _check_recipe(arguments[1], arguments[2:])
    parser = Parser("data", description="Data sets: list them, fetch one from its official source, check them.")
    parser.add_argument("action", metavar="list|fetch|check", choices=ACTIONS)
    parser.add_argument(
        "name",
        nargs="?",
        help="the data set, for fetch and check (check without a name: all); or a recipe and its fields, for check: "
        "ut data check pairs --data.train FILE",
    )
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
        raise UserError(f"no data set {options.name!r}{suggestion(options.name, DATASETS)}; known are {known}")
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


def _is_recipe(name: str) -> bool:
    from universal_transformer.data.sources import DATASETS
    from universal_transformer.recipes import RECIPES

    return name in RECIPES and name not in DATASETS


def _check_recipe(name: str, fields: list[str]) -> int:
    """Load the data of a recipe as its training does, and print what they look like; nothing is trained or written."""
    from universal_transformer.cli.data_lines import data_lines
    from universal_transformer.cli.fields import override, print_help
    from universal_transformer.recipes import RECIPES
    from universal_transformer.runs.opened import load_data

    if any(token in ("-h", "--help") for token in fields):
        print_help(RECIPES[name](), prog=f"ut data check {name}", description=_check_recipe.__doc__ or "")
        return 0
    taken = take(fields, values=("--data-dir",), flags=())
    with data_dir(taken.get("--data-dir")):
        task = load_data(override(RECIPES[name](), fields, prog=f"ut data check {name}"))
    counts = {"train": len(task.train), "validation": len(task.validation)}
    counts |= {part: len(examples) for part, examples in task.test.items()}
    lines = [f"examples    {', '.join(f'{part} {count:,}' for part, count in counts.items())}", *data_lines(task)]
    say("\n".join([*lines, *(f"note        {text}" for text in task.notes)]))
    return 0


def _counts(states: Sequence[FileState]) -> str:
    counts = Counter(one.state for one in states)
    return f"{', '.join(f'{count} {state}' for state, count in counts.items())} of {len(states)} files"
