"""``ut recipes``: rows of tables are recipes, by the names that ``ut train`` takes."""

from universal_transformer.cli import main
from universal_transformer.recipes import RECIPES


def test_a_table_says_by_which_names_its_rows_are_trained(capsys):
    assert main(["recipes", "table4"]) == 0
    start = "their recipes for ut train: "
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(start))
    names = line.removeprefix(start).split(", ")
    assert "copy-lstm" in names
    assert set(names) <= set(RECIPES)
