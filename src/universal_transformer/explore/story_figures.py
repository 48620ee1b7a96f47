"""Figures of one example: steps by position (the paper's Figure 3) and attention (its appendix)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from universal_transformer.errors import UserError
from universal_transformer.explore.canvas import (
    BLUE,
    GHOST,
    INK,
    MUTED,
    ORANGE,
    bare,
    canvas,
    colour_bar,
    label,
    shades,
)
from universal_transformer.explore.story import Story

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 40


def ponder_map(story: Story) -> Figure:
    """One story: one row of cells for each fact, one filled cell for each step (paper, Figure 3)."""
    rows = shown_rows(story)
    height = 0.34 * len(rows)
    figure, axes = canvas(
        width=9.2,
        height=height + 0.5,
        title="Steps for each fact" if story.facts else "Steps by position",
        subtitle=_subtitle(story, rows),
    )
    ax = axes[0]
    places = _places(story, rows)
    for place, row in zip(places, rows, strict=True):
        taken, colour = int(story.steps[row]), _row_colour(story, row)
        for step in range(story.max_steps):
            shade = colour if step < taken else GHOST
            ax.barh(place, 0.9, left=step + 0.55, height=0.74, color=shade, linewidth=0)
        ax.text(story.max_steps + 0.75, place, f"{taken}", va="center_baseline", color=colour, weight="bold")
    _fact_labels(ax, story, rows, places)
    ax.set_xlim(0.45, story.max_steps + 1.1)
    ax.set_xticks(range(1, story.max_steps + 1))
    key = "   ·   ● supporting fact" if story.supports else ""
    ax.set_xlabel(f"steps taken (N, at most {story.max_steps}){key}", color=MUTED, fontsize=10)
    bare(ax)
    return figure


def attention_maps(story: Story) -> Figure:
    """Attention of the last position (the question): facts by head, one panel for each step (paper, Figures 5 to 8)."""
    if story.attention is None:
        raise UserError("this story has no attention weights; run explore.story.examine on it")
    weights = story.attention[:, :, -1, :]
    rows = shown_rows(story)
    panels, heads = weights.shape[:2]
    figure, axes = canvas(
        width=max(7.5, 3.9 + 0.27 * panels * heads + 0.12 * panels),
        height=0.34 * len(rows) + 0.75,
        title="Attention of the question at each step" if story.facts else "Attention of the last position",
        subtitle=_subtitle(story, rows),
        columns=panels,
    )
    places = _places(story, rows)
    largest = max(1e-6, float(weights[:, :, rows].max()))
    halted_after = story.steps[-1] if story.halting and story.layers_per_step else np.inf
    mesh: Any = None
    for panel, ax in enumerate(axes):
        step = panel // story.layers_per_step + 1 if story.layers_per_step else panel + 1
        mesh = _cells(ax, weights[panel][:, rows], places, largest=largest)
        name = "step" if story.layers_per_step else "layer"
        over = step > halted_after
        ax.set_title(f"{name} {step}" + (" (halted)" if over else ""), fontsize=9.5, color=MUTED if over else INK)
        if over:
            ax.axvspan(0.5, heads + 0.5, color="white", alpha=0.62, linewidth=0)
        ax.set_xticks(range(1, heads + 1))
        ax.set_xlim(0.5, heads + 0.5)
        if panel == 0:
            _fact_labels(ax, story, rows, places)
        else:
            ax.set_yticks([])
            ax.set_ylim(places[-1] + 0.6, -0.6)
        bare(ax)
    axes[len(axes) // 2].set_xlabel("attention head", color=MUTED, fontsize=10)
    colour_bar(figure, mesh, axes, name="attention weight")
    return figure


def shown_rows(story: Story) -> list[int]:
    """Return the positions that fit a figure: all, or the supporting facts and the last ones."""
    total = len(story.labels)
    if total <= MOST_ROWS:
        return list(range(total))
    supports = set(story.supports)
    others = [row for row in reversed(range(total)) if row not in supports]
    return sorted([*supports, *others[: max(0, MOST_ROWS - len(supports))]])


def _subtitle(story: Story, rows: Sequence[int]) -> str:
    """Return the model's answer, the right one, and how many positions are shown."""
    text, total = story.verdict + " · facts in reading order" * story.facts, len(story.labels)
    return text if len(rows) == total else f"{text} · {len(rows)} of {total} positions shown"


def _row_colour(story: Story, row: int) -> str:
    if row in story.supports:
        return ORANGE
    return INK if story.facts and row == len(story.labels) - 1 else BLUE


def _places(story: Story, rows: Sequence[int]) -> list[float]:
    """Return the places of rows from the top; the question has some distance."""
    places = [float(place) for place in range(len(rows))]
    if story.facts and len(rows) > 1:
        places[-1] += 0.35
    return places


def _fact_labels(ax: Axes, story: Story, rows: Sequence[int], places: Sequence[float]) -> None:
    """Write facts as labels: supporting ones marked ● and bold, the question in italics."""
    marks = ["● " if row in story.supports else "" for row in rows]
    names = [mark + label(story.labels[row]) for mark, row in zip(marks, rows, strict=True)]
    if story.facts:
        names[-1] += "?"
    ax.set_yticks(places, labels=names, parse_math=False)
    ax.set_ylim(places[-1] + 0.6, -0.6)
    for text, row in zip(ax.get_yticklabels(), rows, strict=True):
        text.set_color(_row_colour(story, row) if row in story.supports else INK)
        text.set_fontweight("bold" if row in story.supports else "normal")
        if story.facts and row == len(story.labels) - 1:
            text.set_fontstyle("italic")
    ax.tick_params(axis="y", labelsize=10)


def _cells(ax: Axes, weights: np.ndarray, places: Sequence[float], *, largest: float) -> Any:
    """Draw weights [head, row] as cells, darker for more."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    heads = weights.shape[0]
    cells = [Rectangle((head + 1 - 0.46, place - 0.46), 0.92, 0.92) for head in range(heads) for place in places]
    drawn = PatchCollection(cells, cmap=shades(), linewidth=0)
    drawn.set_array(weights.ravel())
    drawn.set_clim(0, largest)
    return ax.add_collection(drawn)
