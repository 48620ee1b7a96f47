"""The tables of the paper: their rows as recipes, their printed figures, recorded runs, and one renderer for all.

To import any module of it also enters the tasks and recipes that only tables need where those of the library are.
"""

import paper.tasks  # noqa: F401
