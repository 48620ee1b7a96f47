"""Figures of the measurements of ``ut bench``, drawn from its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from universal_transformer.errors import UserError
from universal_transformer.explore.canvas import BLUE, INK, MUTED, canvas, clean, png
from universal_transformer.files import read_json, show_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = Mapping[str, Any]


def read_bench(path: Path) -> dict[str, Any]:
    """Read a file that ``ut bench --json`` wrote."""
    found = read_json(path)
    try:
        for each in found["measurements"]:
            each["name"], each["ratio"], each["shape"].get("width"), each["details"].get("by")
            found["machine"]["processor"], found["versions"]["torch"], found["threads"]
    except (TypeError, KeyError, AttributeError):
        raise UserError(f"{show_path(path)}: not a file that ut bench --json wrote") from None
    return found


def _points(bench: Mapping[str, Any], by: str) -> list[Point]:
    found = [each for each in bench["measurements"] if each["details"].get("by") == by]
    if not found:
        raise UserError(f"no measurements against {by} in this file: run ut bench sweep --json FILE")
    return found


def _axes(title: str, shape: str, bench: Mapping[str, Any], points: Sequence[Point]) -> tuple[Figure, Axes]:
    machine = f"{bench['threads']} thread(s) of {bench['machine']['processor']}, torch {bench['versions']['torch']}"
    subtitle = f"{shape}, width {points[0]['shape']['width']}, float32, {machine}"
    figure, (ax,) = canvas(width=6.4, height=3.3, title=title, subtitle=subtitle)
    clean(ax, grid="y")
    return figure, ax


def saving_by_steps(bench: Mapping[str, Any]) -> Figure:
    """Speed-up by halted positions against mean steps, and its upper bound."""
    points = sorted(_points(bench, "mean steps"), key=lambda point: point["details"]["mean_steps"])
    shape = points[0]["shape"]
    size = f"{shape['batch']} × {shape['length']}, cap {shape['max_steps']}"
    figure, ax = _axes("Speed-up by halting", size, bench, points)
    steps = [point["details"]["mean_steps"] for point in points]
    ax.plot(steps, [point["bound"] for point in points], color=MUTED, linestyle="--", label="bound")
    ax.plot(steps, [point["ratio"] for point in points], color=BLUE, marker="o", label="measured")
    ax.axhline(1.0, color=INK, linewidth=0.8)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("mean steps of a position", color=MUTED)
    ax.set_ylabel("times faster than the masked loop", color=MUTED)
    ax.legend(frameon=False)
    return figure


def cost_by(bench: Mapping[str, Any], by: str) -> Figure:
    """Milliseconds of a pass of fixed depth against ``by``: "length" or "depth"."""
    points = _points(bench, by)
    shape = points[0]["shape"]
    if by == "length":
        field, unit, fixed = "length", "positions", f"{shape['max_steps']} steps"
    else:
        field, unit, fixed = "max_steps", "steps", f"{shape['batch']} × {shape['length']}"
    figure, ax = _axes(f"Cost against {by}", fixed, bench, points)
    at = [point["shape"][field] for point in points]
    ax.plot(at, [1000 * point["seconds"]["ours"] for point in points], color=BLUE, marker="o")
    if by == "length":
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
    else:
        ax.set_ylim(bottom=0)
    ax.set_xticks(at, [str(value) for value in at])
    ax.set_xlabel(unit, color=MUTED)
    ax.set_ylabel("milliseconds of a pass", color=MUTED)
    return figure


def draw_benchmarks(bench: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the figures of ``docs/performance.md`` into ``folder``."""
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder for figures")
    figures = {
        folder / "halting_saving.png": saving_by_steps(bench),
        folder / "cost_by_length.png": cost_by(bench, "length"),
        folder / "cost_by_depth.png": cost_by(bench, "depth"),
    }
    for path, figure in figures.items():
        path.write_bytes(png(figure))
    return [*figures]
