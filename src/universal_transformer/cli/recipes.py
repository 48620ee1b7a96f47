"""``ut recipes``: list the recipes, their data and their training time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from universal_transformer.cli.clone import from_clone, in_clone
from universal_transformer.cli.parser import OptionForm, Place
from universal_transformer.files import counted

if TYPE_CHECKING:
    from universal_transformer.recipes import Recipe

PACKAGE = "universal_transformer."
"""How the modules of the package's own recipes begin. Others were entered by the user."""


@dataclass(frozen=True, kw_only=True)
class Recipes:
    """List the recipes; ut train RECIPE --help shows the fields of one."""

    table: Annotated[str, OptionForm("TABLE", place=Place.WORD)] = ""
    """List the rows of a table: table1, …"""

    def __call__(self) -> int:
        """Print one line for each recipe and each table; or one for each row of a table."""
        from universal_transformer.recipes import MAIN, RECIPES

        if self.table:
            table = from_clone("paper.tables", command="recipes TABLE").find_table(self.table)
            _show(table.rows)
            trained = dict.fromkeys(recipe().recipe for recipe in table.rows.values())
            print(f"\ntheir recipes for ut train: {', '.join(name for name in trained if name in RECIPES)}")
            print(f"ut reproduce {table.name} --rows NAME measures one; rows are named {table.naming}")
            return 0
        added = {name: recipe for name, recipe in RECIPES.items() if not recipe.__module__.startswith(PACKAGE)}
        _show({**MAIN, **added})
        print("\nut train RECIPE trains one; ut train RECIPE --help shows its fields, --dry-run its cost")
        if in_clone("paper"):
            print()
            for name, table in from_clone("paper.tables", command="recipes").TABLES.items():
                print(f"{name:<8}{len(table.rows):>3} rows  {table.title}")
            print(
                "\nut recipes TABLE lists the rows of one (recipes too: copy-lstm, …); ut reproduce TABLE measures them"
            )
        return 0


def _show(recipes: Mapping[str, Recipe]) -> None:
    width = max(map(len, recipes))
    for name, recipe in recipes.items():
        config = recipe()
        training = config.training
        limits = [] if training.minutes is None else [f"{training.minutes:g} min"]
        limits += [] if training.max_updates is None else [counted(training.max_updates, "update")]
        # a row of table 1 is a `partial` of a function that is no recipe
        changed = f"as ut train {config.recipe}, with other data or another model"
        text = summary(recipe) if hasattr(recipe, "__qualname__") else changed
        print(f"{name:<{width}}  {' or '.join(limits):>14}  {text}")


def summary(recipe: object) -> str:
    """The first paragraph of its docstring."""
    return " ".join((recipe.__doc__ or "").split("\n\n")[0].split())
