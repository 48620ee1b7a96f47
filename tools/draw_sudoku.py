"""Draw docs/images/sudoku_steps.svg and .gif: how the pretrained model `sudoku` solves a board, step by step.

python tools/draw_sudoku.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.animation import FuncAnimation, PillowWriter

import universal_transformer as ut

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BOARD = "..21..5.6342...614.6....2........2.5"
SOLUTION = "432156516342325614164523253461641235"
SHOWN = (1, 2, 3, 4, 6)
EXIT = ut.Exit("confidence", 0.999)
INK, WRONG, OWN, GIVEN = "#1f2933", "#d55e00", "#0072b2", "#eef1f4"


def main() -> None:
    solve = ut.load("sudoku")
    boards = {steps: solve(BOARD, options=ut.DecodingOptions(max_steps=steps)).text for steps in range(1, 7)}
    answer = solve(BOARD, options=ut.DecodingOptions(exit=EXIT))
    assert answer.text == boards[6] == SOLUTION
    steps = [int(word.steps) for word in answer.words]
    print(f"steps of the cells: {steps}, {sum(steps) / len(steps):.2f} on average")

    plt.rcParams["svg.hashsalt"] = "sudoku"
    figure, panels = plt.subplots(1, len(SHOWN) + 1, figsize=(14.5, 2.9), gridspec_kw={"wspace": 0.16})
    for panel, shown in zip(panels, SHOWN, strict=False):
        draw_board(panel, boards[shown], title=f"after step {shown}")
    draw_steps(panels[-1], steps)
    figure.savefig(IMAGES / "sudoku_steps.svg", bbox_inches="tight", metadata={"Date": None})

    figure, panel = plt.subplots(figsize=(3.2, 3.4))
    frames = [BOARD, *boards.values(), *[boards[6]] * 2]

    def frame(number: int) -> list[object]:
        panel.clear()
        title = f"after step {min(number, 6)}" if number else "the board"
        draw_board(panel, frames[number], title=title)
        return []

    FuncAnimation(figure, frame, frames=len(frames)).save(IMAGES / "sudoku_steps.gif", PillowWriter(fps=1), dpi=90)


def draw_board(panel: plt.Axes, board: str, *, title: str) -> None:
    """One board: given cells are grey, wrong ones are marked."""
    wrong = sum(digit not in (right, ".") for digit, right in zip(board, SOLUTION, strict=True))
    state = "" if "." in board else f": {wrong} wrong" if wrong else ": solved"
    grid(panel, title=title + state)
    for place, digit in enumerate(board):
        row, column = divmod(place, 6)
        given, correct = BOARD[place] != ".", digit in (SOLUTION[place], ".")
        fill = GIVEN if given else "white" if correct else "#f7c9b0"
        panel.add_patch(plt.Rectangle((column, 5 - row), 1, 1, facecolor=fill, edgecolor="#c8ced5", linewidth=0.6))
        colour = INK if given else OWN if correct else WRONG
        panel.text(column + 0.5, 5.47 - row, digit.strip("."), ha="center", va="center", fontsize=11, color=colour)


def draw_steps(panel: plt.Axes, steps: list[int]) -> None:
    """The steps of each cell where it stops by itself."""
    grid(panel, title=f"steps with {EXIT}: {sum(steps) / len(steps):.1f} of 16")
    for place, count in enumerate(steps):
        row, column = divmod(place, 6)
        shade = plt.get_cmap("Blues")(0.12 + 0.13 * count)
        panel.add_patch(plt.Rectangle((column, 5 - row), 1, 1, facecolor=shade, edgecolor="white", linewidth=0.8))
        colour = "white" if count > 4 else INK
        panel.text(column + 0.5, 5.47 - row, str(count), ha="center", va="center", fontsize=10, color=colour)


def grid(panel: plt.Axes, *, title: str) -> None:
    """The lines between boxes of 2 × 3 cells, above all else."""
    panel.set(xlim=(-0.05, 6.05), ylim=(-0.05, 6.05), aspect="equal")
    panel.axis("off")
    panel.set_title(title, fontsize=9.5)
    for height in (0, 2, 4, 6):
        panel.plot([0, 6], [height, height], color=INK, linewidth=1.3)
    for place in (0, 3, 6):
        panel.plot([place, place], [0, 6], color=INK, linewidth=1.3)


if __name__ == "__main__":
    main()
