"""Picture files of one example: steps of facts (the paper's Figure 3), attention (its appendix), pictures and frames.

They draw the trace that a page draws (`input_trace`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from universal_transformer.data.example import Frames
from universal_transformer.data.picture_files import Pixels
from universal_transformer.data.tokenizer import END, SPECIAL
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
from universal_transformer.explore.input_trace import InputTrace, SideTrace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 40
MOST_TOKENS = 12
"""Tokens of a caption that are shown."""


def ponder_map(trace: InputTrace) -> Figure:
    """One story: one row of cells for each fact, one filled cell for each step (paper, Figure 3)."""
    side, most = trace.sides[0], trace.max_steps
    rows = shown_rows(side)
    height = 0.34 * len(rows)
    figure, axes = canvas(width=9.2, height=height + 0.5, title="Steps for each fact", subtitle=_subtitle(trace, rows))
    ax = axes[0]
    places = _places(rows)
    for place, row in zip(places, rows, strict=True):
        taken, colour = int(side.steps[row]), _row_colour(side, row)
        for step in range(most):
            shade = colour if step < taken else GHOST
            ax.barh(place, 0.9, left=step + 0.55, height=0.74, color=shade, linewidth=0)
        ax.text(most + 0.75, place, f"{taken}", va="center_baseline", color=colour, weight="bold")
    _fact_labels(ax, side, rows, places)
    ax.set_xlim(0.45, most + 1.1)
    ax.set_xticks(range(1, most + 1))
    key = "   ·   ● supporting fact" if side.supports else ""
    ax.set_xlabel(f"steps taken (N, at most {most}){key}", color=MUTED, fontsize=10)
    bare(ax)
    return figure


def attention_maps(trace: InputTrace) -> Figure:
    """Attention of the last position (the question): facts by head, one panel for each step (paper, Figures 5 to 8)."""
    side = trace.sides[0]
    weights, blocks = side.self_attention.weights[:, :, -1, :], side.self_attention.blocks
    rows = shown_rows(side)
    panels, heads = weights.shape[:2]
    figure, axes = canvas(
        width=max(7.5, 3.9 + 0.27 * panels * heads + 0.12 * panels),
        height=0.34 * len(rows) + 0.75,
        title="Attention of the question at each step",
        subtitle=_subtitle(trace, rows),
        columns=panels,
    )
    places = _places(rows)
    largest = max(1e-6, float(weights[:, :, rows].max()))
    halted_after = side.steps[-1] if trace.halting and blocks else np.inf
    mesh: Any = None
    for panel, ax in enumerate(axes):
        step = panel // blocks + 1 if blocks else panel + 1
        mesh = _cells(ax, weights[panel][:, rows], places, largest=largest)
        over = step > halted_after
        name = f"{'step' if blocks else 'layer'} {step}" + (" (halted)" if over else "")
        ax.set_title(name, fontsize=9.5, color=MUTED if over else INK)
        if over:
            ax.axvspan(0.5, heads + 0.5, color="white", alpha=0.62, linewidth=0)
        ax.set_xticks(range(1, heads + 1))
        ax.set_xlim(0.5, heads + 0.5)
        if panel == 0:
            _fact_labels(ax, side, rows, places)
        else:
            ax.set_yticks([])
            ax.set_ylim(places[-1] + 0.6, -0.6)
        bare(ax)
    axes[len(axes) // 2].set_xlabel("attention head", color=MUTED, fontsize=10)
    colour_bar(figure, mesh, axes, name="attention weight")
    return figure


def shown_rows(side: SideTrace) -> list[int]:
    """Return the positions that fit a figure: all, or the supporting facts and the last ones."""
    total, supports = len(side.tokens), set(side.supports)
    others = [row for row in reversed(range(total)) if row not in supports]
    return sorted([*supports, *others[: max(0, MOST_ROWS - len(supports))]])


def _subtitle(trace: InputTrace, rows: Sequence[int]) -> str:
    """Return the model's answer, the right one, and how many positions are shown."""
    text, total = f"{_verdict(trace)} · facts in reading order", len(trace.sides[0].tokens)
    return text if len(rows) == total else f"{text} · {len(rows)} of {total} positions shown"


def _verdict(trace: InputTrace) -> str:
    right = "" if trace.right is None else f" · right answer: {label(trace.right)} {'✗✓'[trace.right == trace.answer]}"
    return f"model: {label(trace.answer)} ({100 * trace.probability:.0f} %){right}"


def _row_colour(side: SideTrace, row: int) -> str:
    return ORANGE if row in side.supports else INK if row == len(side.tokens) - 1 else BLUE


def _places(rows: Sequence[int]) -> list[float]:
    """Return the heights of the rows, with a space before the question."""
    return [*map(float, range(len(rows) - 1)), len(rows) - 1 + 0.35 * (len(rows) > 1)]


def _fact_labels(ax: Axes, side: SideTrace, rows: Sequence[int], places: Sequence[float]) -> None:
    """Write facts as labels: supporting ones marked ● and bold, the question in italics."""
    names = [("● " if row in side.supports else "") + label(side.tokens[row]) for row in rows]
    ax.set_yticks(places, labels=[*names[:-1], names[-1] + "?"], parse_math=False)
    ax.set_ylim(places[-1] + 0.6, -0.6)
    for text, row in zip(ax.get_yticklabels(), rows, strict=True):
        text.set_color(ORANGE if row in side.supports else INK)
        text.set_fontweight("bold" if row in side.supports else "normal")
    ax.get_yticklabels()[-1].set_fontstyle("italic")
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


def drawn_picture(trace: InputTrace, pixels: Pixels) -> Figure:
    """Return a picture that was written, and for a model that halts the steps of each of its pixels."""
    figure, axes = canvas(
        width=3.4 * (1 + trace.halting),
        height=2.9,
        title=_input(trace),
        subtitle="sampled at temperature 1" + (", and the steps of each pixel" if trace.halting else ""),
        columns=1 + trace.halting,
    )
    _show(axes[0], pixels)
    if trace.halting:
        steps = np.array(_output_steps(trace)).reshape(pixels.shape)
        most = max(2, trace.max_steps)
        mesh = axes[1].imshow(steps, cmap=shades(), vmin=1, vmax=most, interpolation="nearest", aspect="equal")
        bare(axes[1], numbers=False)
        colour_bar(figure, mesh, axes[1], name="steps", most=most)
    return figure


def read_picture(trace: InputTrace, pixels: Pixels, *, line: int) -> Figure:
    """Return a picture that was read, with the attention to its patches at the last step of each token written, the
    mean over heads. ``line``: patches of a column, which follow each other from top to bottom.
    """
    shown = [text.strip() or "␣" for text, _ in trace.output[:MOST_TOKENS]]
    attention = trace.sides[-1].cross_attention
    assert attention is not None
    maps = attention.weights[-1].mean(0).reshape(attention.shape[2], -1, line).transpose(0, 2, 1)
    rows, columns = pixels.shape
    width = min(8.8, max(4.2, 1.3 * columns / rows))
    figure, axes = canvas(
        width=width,
        height=(width * 0.86 * rows / columns + 0.22) * (1 + len(shown)),
        title="Attention as each character is written",
        subtitle=_verdict(trace),
        rows=1 + len(shown),
    )
    _show(axes[0], pixels)
    for ax, text, weights in zip(axes[1:], shown, maps, strict=False):
        _show(ax, 255 - pixels // 3)
        ax.imshow(weights, cmap=shades(), alpha=0.72, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5), aspect="equal")
        ax.set_ylabel(label(text), rotation=0, ha="right", va="center", color=INK, fontsize=12, parse_math=False)
    return figure


def _input(trace: InputTrace) -> str:
    return label(" ".join(text for text in trace.sides[0].tokens if text != SPECIAL[END]))


def _output_steps(trace: InputTrace) -> list[float]:
    return [trace.sides[-1].steps[place] for place in trace.places]


def _show(ax: Axes, pixels: Pixels) -> None:
    ax.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest", aspect="equal")
    bare(ax, numbers=False)


def written_frames(trace: InputTrace, written: Frames, *, true_frames: Frames) -> Figure:
    """Return frames that were written, those of a recording, and below them the steps of a model that halts."""
    names = {"written by the model": written, "a recording": true_frames}
    steps = ", and below it the steps of each position" if trace.halting else ""
    figure, axes = canvas(
        width=4.2 * len(names),
        height=2.6,
        title=_input(trace),
        subtitle="energy of each band over time, darker for more" + steps,
        columns=len(names),
    )
    longest = max(len(frames) for frames in names.values())
    for ax, (name, frames) in zip(axes, names.items(), strict=True):
        _show_frames(ax, frames, like=true_frames)
        ax.set_xlim(-0.5, longest - 0.5)
        ax.set_title(f"{name}, {len(frames)} frames", fontsize=10, color=INK)
        ax.set_xlabel("frame", color=MUTED, fontsize=9.5)
    axes[0].set_ylabel("band", color=MUTED, fontsize=9.5)
    if trace.halting:
        _show_steps(axes[0], written, _output_steps(trace), most=trace.max_steps)
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
