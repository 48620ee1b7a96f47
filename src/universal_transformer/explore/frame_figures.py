"""Figures of frames that a model wrote: the energy of each band over time, and the steps of each position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from universal_transformer.data.example import Frames
from universal_transformer.explore.canvas import GRID, INK, MUTED, bare, canvas, label, shades
from universal_transformer.explore.story import Story

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
        show_frames(ax, frames, like=story.frames if story.true_frames is None else story.true_frames)
        ax.set_xlim(-0.5, longest - 0.5)
        ax.set_title(f"{name}, {len(frames)} frames", fontsize=10, color=INK)
        ax.set_xlabel("frame", color=MUTED, fontsize=9.5)
    axes[0].set_ylabel("band", color=MUTED, fontsize=9.5)
    if story.halting:
        show_steps(axes[0], story.frames, story.output_steps, most=story.max_steps)
    return figure


def show_frames(ax: Axes, frames: Frames, *, like: Frames) -> None:
    """Draw frames, low bands below; white and black are the least and the largest number of the frames ``like``."""
    least, most = float(like.min()), float(like.max())
    ax.imshow(frames.T, cmap=shades(), vmin=least, vmax=most, origin="lower", aspect="auto", interpolation="nearest")
    ax.set_yticks([])
    bare(ax)


def show_steps(ax: Axes, frames: Frames, steps: Sequence[float], *, most: int) -> None:
    """Draw the steps of each position below its frames, the height of which is a quarter for ``most`` steps."""
    stride, bands = len(frames) // len(steps), frames.shape[1]
    below = bands / 4
    heights = 0.9 * below * np.array(steps) / most
    places = stride * np.arange(len(heights)) + (stride - 1) / 2
    ax.bar(places, heights, width=0.8 * stride, bottom=-below, color=MUTED)
    ax.axhline(-0.5, color=GRID, linewidth=0.8)
    ax.set_ylim(-below, bands - 0.5)
