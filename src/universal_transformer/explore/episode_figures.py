"""An episode in which a model acts: what it sees, what it does, and how many steps it takes for each observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from universal_transformer.data.example import Frames
from universal_transformer.evaluation.prediction import predict
from universal_transformer.explore.canvas import BLUE, INK, MUTED, ORANGE, bare, canvas, clean, colour_bar, shades
from universal_transformer.models.model import Model
from universal_transformer.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 200
"""Most steps of an episode that are shown."""


@dataclass(frozen=True, kw_only=True)
class WatchedEpisode:
    """An episode in which a model acted."""

    environment: str
    features: Mapping[str, NDArray[np.float32]]
    """What the model saw over time, by name."""
    names: Sequence[str]
    """Of the actions."""
    actions: NDArray[np.int64]
    expert: NDArray[np.int64]
    """What the expert would have done."""
    total: float
    """Sum of the rewards."""
    steps: NDArray[np.float64] | None
    """Depth steps [time, frame], the present frame last, NaN before an episode; None for a fixed depth."""
    most_steps: int


def watch(model: Model, task: Task) -> WatchedEpisode:
    source, episodes = task.codec.source, task.episodes["test"]
    world, taken = episodes.environment, list[list[float]]()

    def act(frames: Sequence[Frames]) -> list[list[int]]:
        (answer,) = predict(model, task.codec, [source.observed(one) for one in frames])
        actions = task.codec.target.actions(answer.written)
        taken.extend([answer.steps] * len(actions))
        return [actions]

    (played,) = replace(episodes, seeds=episodes.seeds[:1]).play(act)
    del taken[len(played.actions) :]  # of actions that an episode had no time for
    longest = max(map(len, taken))
    return WatchedEpisode(
        environment=world.name,
        features={name: played.observations[:, world.features.index(name)] for name in source.features},
        names=world.actions,
        actions=played.actions,
        expert=np.array(world.expert_actions(played.observations)),
        total=played.total,
        steps=np.array([[np.nan] * (longest - len(row)) + row for row in taken]) if model.config.halts else None,
        most_steps=model.config.max_steps,
    )


def watched_episode(watched: WatchedEpisode) -> Figure:
    """Draw the observations that the model sees, its actions and the expert's, and the steps of each position."""
    length = min(SHOWN, len(watched.actions))
    alike = float(np.mean(watched.actions == watched.expert))
    part = "" if length == len(watched.actions) else f", the first {length} steps shown"
    rows = len(watched.features) + 1 + (watched.steps is not None)
    figure, axes = canvas(
        width=8.2,
        height=1.15 * rows + 0.4,
        title=f"One episode of {watched.environment}",
        subtitle=f"return {watched.total:g} in {len(watched.actions)} steps{part}; the expert would do the same in "
        f"{100 * alike:.0f} %",
        rows=rows,
    )
    for ax, (name, values) in zip(axes, watched.features.items(), strict=False):
        ax.plot(values[:length], color=BLUE, linewidth=1.4)
        _name(ax, name.replace("_", " "), length=length)
        clean(ax, grid="y")
    _actions(axes[len(watched.features)], watched, length=length)
    if watched.steps is not None:
        _steps(figure, axes[-1], watched.steps[:length], most=watched.most_steps)
    axes[-1].set_xlabel("steps of the environment", color=MUTED, fontsize=10)
    figure.align_ylabels(axes)
    return figure


def _actions(ax: Axes, watched: WatchedEpisode, *, length: int) -> None:
    """Draw each action as a dot; one that the expert would not take is hollow, with a cross where the expert's is."""
    given, wanted = watched.actions[:length], watched.expert[:length]
    time, other = np.arange(length), given != wanted
    ax.scatter(time[~other], given[~other], s=9, color=BLUE)
    ax.scatter(time[other], given[other], s=11, facecolor="white", edgecolor=ORANGE, linewidth=1)
    ax.scatter(time[other], wanted[other], s=9, color=ORANGE, marker="x", linewidth=0.8)
    ax.set_yticks(range(len(watched.names)), labels=list(watched.names))
    ax.set_ylim(-0.6, len(watched.names) - 0.4)
    _name(ax, "action\n(✗ expert)", length=length)
    clean(ax, grid="y")


def _steps(figure: Figure, ax: Axes, steps: NDArray[np.float64], *, most: int) -> None:
    """Draw the steps of each frame of the history, the present one at the top."""
    length, frames = steps.shape
    shown: Any = ax.imshow(
        steps.T[::-1], cmap=shades(), vmin=1, vmax=max(2, most), aspect="auto", interpolation="nearest",
        extent=(-0.5, length - 0.5, frames - 0.5, -0.5),
    )  # fmt: skip
    ax.set_yticks(range(frames), labels=[str(-place) for place in range(frames)])
    _name(ax, "observation", length=length)
    bare(ax)
    colour_bar(figure, shown, ax, name="steps of depth", most=max(2, most))


def _name(ax: Axes, name: str, *, length: int) -> None:
    ax.set_ylabel(name, color=INK, fontsize=9.5)
    ax.set_xlim(-0.5, length - 0.5)
