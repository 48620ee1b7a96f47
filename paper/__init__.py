"""The tables of the paper: their rows as recipes, their printed figures, recorded runs, and one renderer for all."""
