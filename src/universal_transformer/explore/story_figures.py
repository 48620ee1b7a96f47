"""Figures of one example: steps by position (the paper's Figure 3), attention (its appendix), pictures and frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from universal_transformer.data.example import Frames
from universal_transformer.errors import UserError
from universal_transformer.explore.canvas import (
    BLUE,
    GHOST,
    GRID,
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
MOST_TOKENS = 12
"""Tokens of a caption that are shown."""


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


def figure_of(story: Story) -> Figure:
    if story.frames is not None:
        return written_frames(story)
    return drawn_picture(story) if story.source_attention is None else read_picture(story)


def drawn_picture(story: Story) -> Figure:
    """Return a picture that was written, and for a model that halts the steps of each of its pixels."""
    assert story.pixels is not None
    figure, axes = canvas(
        width=3.4 * (1 + story.halting),
        height=2.9,
        title=label(" ".join(text for text in story.labels if text != "<end>")),
        subtitle="sampled at temperature 1" + (", and the steps of each pixel" if story.halting else ""),
        columns=1 + story.halting,
    )
    _show(axes[0], story.pixels)
    if story.halting:
        steps = np.array(story.output_steps).reshape(story.pixels.shape)
        most = max(2, story.max_steps)
        mesh = axes[1].imshow(steps, cmap=shades(), vmin=1, vmax=most, interpolation="nearest", aspect="equal")
        bare(axes[1], numbers=False)
        colour_bar(figure, mesh, axes[1], name="steps", most=most)
    return figure


def read_picture(story: Story) -> Figure:
    """Return a picture that was read, with the attention to its patches at the last step of each token written."""
    assert story.pixels is not None
    assert story.source_attention is not None
    shown = story.output_labels[:MOST_TOKENS]
    rows, columns = story.pixels.shape
    width = min(8.8, max(4.2, 1.3 * columns / rows))
    figure, axes = canvas(
        width=width,
        height=(width * 0.86 * rows / columns + 0.22) * (1 + len(shown)),
        title="Attention as each character is written",
        subtitle=story.verdict,
        rows=1 + len(shown),
    )
    _show(axes[0], story.pixels)
    for ax, text, weights in zip(axes[1:], shown, story.source_attention, strict=False):
        _show(ax, 255 - story.pixels // 3)
        ax.imshow(weights, cmap=shades(), alpha=0.72, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5), aspect="equal")
        ax.set_ylabel(label(text), rotation=0, ha="right", va="center", color=INK, fontsize=12, parse_math=False)
    return figure


def _show(ax: Axes, pixels: np.ndarray) -> None:
    ax.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest", aspect="equal")
    bare(ax, numbers=False)


def written_frames(story: Story) -> Figure:
    """Return frames that were written, those of a recording, and below them the steps of a model that halts."""
    assert story.frames is not None
    names = {"written by the model": story.frames}
    if story.true_frames is not None:
        names["a recording"] = story.true_frames
    steps = ", and below it the steps of each position" if story.halting else ""
    figure, axes = canvas(
        width=4.2 * len(names),
        height=2.6,
        title=label(" ".join(text for text in story.labels if text != "<end>")),
        subtitle="energy of each band over time, darker for more" + steps,
        columns=len(names),
    )
    longest = max(len(frames) for frames in names.values())
    for ax, (name, frames) in zip(axes, names.items(), strict=True):
        _show_frames(ax, frames, like=story.frames if story.true_frames is None else story.true_frames)
        ax.set_xlim(-0.5, longest - 0.5)
        ax.set_title(f"{name}, {len(frames)} frames", fontsize=10, color=INK)
        ax.set_xlabel("frame", color=MUTED, fontsize=9.5)
    axes[0].set_ylabel("band", color=MUTED, fontsize=9.5)
    if story.halting:
        _show_steps(axes[0], story.frames, story.output_steps, most=story.max_steps)
    return figure


def _show_frames(ax: Axes, frames: Frames, *, like: Frames) -> None:
    """Draw frames, low bands below; white and black are the least and the largest number of the frames ``like``."""
    least, most = float(like.min()), float(like.max())
    ax.imshow(frames.T, cmap=shades(), vmin=least, vmax=most, origin="lower", aspect="auto", interpolation="nearest")
    ax.set_yticks([])
    bare(ax)


def _show_steps(ax: Axes, frames: Frames, steps: Sequence[float], *, most: int) -> None:
    """Draw the steps of each position below its frames, the height of which is a quarter for ``most`` steps."""
    stride, bands = len(frames) // len(steps), frames.shape[1]
    below = bands / 4
    heights = 0.9 * below * np.array(steps) / most
    places = stride * np.arange(len(heights)) + (stride - 1) / 2
    ax.bar(places, heights, width=0.8 * stride, bottom=-below, color=MUTED)
    ax.axhline(-0.5, color=GRID, linewidth=0.8)
    ax.set_ylim(-below, bands - 0.5)
