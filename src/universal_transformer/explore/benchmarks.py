"""Figures of the measurements of ``ut bench``, drawn from its JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from universal_transformer.errors import UserError
from universal_transformer.explore.canvas import BLUE, INK, MUTED, canvas, clean, png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Point = Mapping[str, Any]


def read_bench(path: Path) -> dict[str, Any]:
    """Read a file that ``ut bench --json`` wrote."""
    try:
        found = json.loads(path.read_text())
        if not isinstance(found["measurements"], list):
            raise TypeError
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{path}: not a file that ut bench --json wrote") from None
    return found


def _points(bench: Mapping[str, Any], by: str) -> list[Point]:
    found = [each for each in bench["measurements"] if each["details"].get("by") == by]
    if not found:
        raise UserError(f"no measurements against {by} in this file: run ut bench sweep --json FILE")
    return found


def _where(bench: Mapping[str, Any], points: Sequence[Point]) -> str:
    shape = points[0]["shape"]
    return (
        f"width {shape['width']}, float32, {bench['threads']} thread(s) of {bench['machine']['processor']}, "
        f"torch {bench['versions']['torch']}"
    )


def saving_by_steps(bench: Mapping[str, Any]) -> Figure:
    """Speed-up by halted positions against mean steps, and its upper bound."""
    points = sorted(_points(bench, "mean steps"), key=lambda point: point["details"]["mean_steps"])
    shape = points[0]["shape"]
    figure, axes = canvas(
        width=6.4,
        height=3.3,
        title="Speed-up by halting",
        subtitle=f"{shape['batch']} × {shape['length']}, cap {shape['max_steps']}, {_where(bench, points)}",
    )
    steps = [point["details"]["mean_steps"] for point in points]
    ax = axes[0]
    ax.plot(steps, [point["bound"] for point in points], color=MUTED, linestyle="--", label="bound")
    ax.plot(steps, [point["ratio"] for point in points], color=BLUE, marker="o", label="measured")
    ax.axhline(1.0, color=INK, linewidth=0.8)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("mean steps of a position", color=MUTED)
    ax.set_ylabel("times faster than the masked loop", color=MUTED)
    ax.legend(frameon=False)
    clean(ax, grid="y")
    return figure


def cost_by(bench: Mapping[str, Any], by: str) -> Figure:
    """Milliseconds of a pass of fixed depth against ``by``: "length" or "depth"."""
    points, field = _points(bench, by), {"length": "length", "depth": "max_steps"}[by]
    shape = points[0]["shape"]
    fixed = f"{shape['max_steps']} steps" if by == "length" else f"{shape['batch']} × {shape['length']}"
    figure, axes = canvas(
        width=6.4, height=3.3, title=f"Cost against {by}", subtitle=f"{fixed}, {_where(bench, points)}"
    )
    ax, at = axes[0], [point["shape"][field] for point in points]
    ax.plot(at, [1000 * point["seconds"]["ours"] for point in points], color=BLUE, marker="o")
    if by == "length":
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
    else:
        ax.set_ylim(bottom=0)
    ax.set_xticks(at, [str(value) for value in at])
    ax.set_xlabel({"length": "positions", "depth": "steps"}[by], color=MUTED)
    ax.set_ylabel("milliseconds of a pass", color=MUTED)
    clean(ax, grid="y")
    return figure


def draw_benchmarks(bench: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the figures of ``docs/performance.md`` into ``folder``."""
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder for figures")
    figures = {
        "halting_saving.png": saving_by_steps(bench),
        "cost_by_length.png": cost_by(bench, "length"),
        "cost_by_depth.png": cost_by(bench, "depth"),
    }
    for name, figure in figures.items():
        (folder / name).write_bytes(png(figure))
    return [folder / name for name in figures]
