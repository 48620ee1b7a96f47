"""``ut recipes``: rows of tables are recipes, by the names that ``ut train`` takes."""

from universal_transformer.cli import main
from universal_transformer.recipes import RECIPES


def made_up():
    """Return the configuration of a recipe from outside the package."""
    return RECIPES["stories"]()


def test_a_recipe_that_was_entered_from_outside_is_listed(capsys, monkeypatch):
    monkeypatch.setitem(RECIPES, "made-up", made_up)
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("made-up ")]
    assert line.endswith("Return the configuration of a recipe from outside the package.")
    assert not any(line.startswith("copy-lstm ") for line in lines)


def test_a_table_says_by_which_names_its_rows_are_trained(capsys):
    assert main(["recipes", "table4"]) == 0
    start = "their recipes for ut train: "
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(start))
    names = line.removeprefix(start).split(", ")
    assert "copy-lstm" in names
    assert set(names) <= set(RECIPES)
