"""``ut data``: list the data sets, fetch one from its official source, or check its files or the data of a recipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from universal_transformer.cli.output import FAILED, note, say
from universal_transformer.cli.parser import OptionForm, Place, options_of, refuse_rest
from universal_transformer.cli.shared_options import OnData
from universal_transformer.errors import UserError, refuse, suggestion
from universal_transformer.files import show_path

if TYPE_CHECKING:
    from universal_transformer.data.download import FileState


@dataclass(frozen=True, kw_only=True)
class Data(OnData):
    """List the data sets, fetch one from its official source, check them, or look at the data of a recipe."""

    action: Annotated[Literal["list", "fetch", "check"], OptionForm("list|fetch|check", place=Place.WORD)] = "list"
    """What to do."""
    name: Annotated[str, OptionForm("NAME", place=Place.WORD)] = ""
    """The data set, for fetch and check (check without a name: all); or a recipe and its fields, for check: ut data
    check pairs --data.train FILE (ut train pairs --help shows them)."""
    fields: Annotated[tuple[str, ...], OptionForm(place=Place.FIELDS)] = ()

    def __call__(self) -> int:
        """List, fetch or check; return 1 if a checked data set is incomplete or changed."""
        if self.action == "check" and self.name != "" and _is_recipe(self.name, self.fields):
            return _check_recipe(self.name, self.fields)
        self._check_name()
        refuse_rest(self.fields, list(options_of(Data)), prog="ut data")
        if self.action == "list":
            if self.name:
                raise UserError(f"unexpected {self.name!r}: ut data list takes no name")
            return _list()
        if not self.name:
            return _check_all()
        return _fetch(self.name) if self.action == "fetch" else _check(self.name)

    def _check_name(self) -> None:
        """Refuse a name of no data set, and of no recipe where these are checked too."""
        from universal_transformer.data.sources import DATASETS
        from universal_transformer.recipes import RECIPES

        checks, known = self.action == "check", ", ".join(DATASETS)
        near = suggestion(self.name, [*DATASETS, *(RECIPES if checks else [])])
        recipe = " (ut recipes lists the recipes)" * checks
        unknown = f"no data set{' or recipe' * checks} {self.name!r}{near}; data sets: {known}{recipe}"
        refuse(
            (self.action == "fetch" and not self.name, f"name a data set: ut data fetch NAME; known are {known}"),
            (self.action != "list" and self.name not in {*DATASETS, ""}, unknown),
        )


def _list() -> int:
    from universal_transformer.data.download import data_folder, find
    from universal_transformer.data.sources import DATASETS

    width = max(map(len, DATASETS))
    for name, dataset in DATASETS.items():
        try:
            where = str(find(name))
        except UserError:
            where = "-"
        print(f"{name:<{width}}  {dataset.about}")
        print(f"{'':<{width}}  licence: {dataset.licence}; here: {where}")
    print(f"data folder: {data_folder()}; change it with --data-dir or the environment variable UT_DATA")
    return 0


def _fetch(name: str) -> int:
    from universal_transformer.data.download import fetch

    print(f"{name}: {len(fetch(name, report=note))} files in place")
    return 0


def _check_all() -> int:
    """Print one line for each data set; return 1 if one that is here is incomplete, changed or unknown."""
    from universal_transformer.data.download import check, overall
    from universal_transformer.data.sources import DATASETS

    width, failed = max(map(len, DATASETS)), False
    for name in DATASETS:
        states = check(name)
        state = overall(states)
        failed |= state not in ("ok", "missing")
        say(f"{name:<{width}}  {state:<10}  {_counts(states)}")
    return FAILED if failed else 0


def _check(name: str) -> int:
    from universal_transformer.data.download import INTACT, check, overall

    states = check(name)
    for one in states:
        if one.state not in INTACT:
            say(f"{one.state:>7}  {show_path(one.path)}" + (f"  from {one.url}" if one.url else ""))
    say(f"{name}: {_counts(states)}")
    return 0 if overall(states) == "ok" else FAILED


def _is_recipe(name: str, fields: Sequence[str]) -> bool:
    from universal_transformer.data.sources import DATASETS
    from universal_transformer.recipes import RECIPES

    return name in RECIPES and (bool(fields) or name not in DATASETS)


def _check_recipe(name: str, fields: Sequence[str]) -> int:
    """Load the data of a recipe as its training does, and print what they look like; nothing is trained or written."""
    from universal_transformer.cli.fields import override
    from universal_transformer.recipes import RECIPES
    from universal_transformer.runs.opened import load_data
    from universal_transformer.training.data_lines import data_lines

    config = override(RECIPES[name](), fields, prog=f"ut train {name}")
    task = load_data(config)
    say("\n".join([*data_lines(task, config.model), *(f"note        {text}" for text in task.notes)]))
    return 0


def _counts(states: Sequence[FileState]) -> str:
    counts = Counter(one.state for one in states)
    return f"{', '.join(f'{count} {state}' for state, count in counts.items())} of {len(states)} files"
