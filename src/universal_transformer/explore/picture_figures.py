"""Figures of a picture that a model wrote or read (steps by pixel, attention to patches by token), or of its frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from universal_transformer.data.example import Frames
from universal_transformer.explore.canvas import GRID, INK, MUTED, bare, canvas, colour_bar, label, shades
from universal_transformer.explore.story import Story

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TOKENS = 12
"""Tokens of a caption that are shown."""


def figure_of(story: Story) -> Figure:
    """Return the figure of a story that has frames or pixels."""
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
