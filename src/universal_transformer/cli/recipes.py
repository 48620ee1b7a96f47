"""``ut recipes``: what can be trained, on what, for how long."""

from __future__ import annotations

from universal_transformer.cli.arguments import Parser


def run(arguments: list[str]) -> int:
    """Print one line a recipe."""
    Parser("recipes", description="List the recipes; ut train RECIPE --help shows all fields of one.").parse(
        arguments
    )
    from universal_transformer.recipes import RECIPES

    width = max(map(len, RECIPES))
    for name, recipe in RECIPES.items():
        training = recipe().training
        limits = [f"{training.minutes:g} min"] * bool(training.minutes)
        limits += [f"{training.max_updates:,} updates"] * bool(training.max_updates)
        print(f"{name:<{width}}  {' or '.join(limits):>14}  {summary(recipe)}")
    print()
    print("ut train RECIPE trains one; ut train RECIPE --help shows its fields, --dry-run what it costs")
    return 0


def summary(recipe: object) -> str:
    """Return the first line of a recipe's docstring."""
    return (recipe.__doc__ or "").strip().split("\n")[0]


__all__ = ["run", "summary"]
