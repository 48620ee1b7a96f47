"""The figure of the measurements of ``ut bench sweep``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from universal_transformer.explore.canvas import BLUE, INK, MUTED, canvas, clean, svg


def draw_saving(bench: Mapping[str, Any], folder: Path) -> Path:
    """Write ``halting_saving.svg``: how many times faster a pass is than one in which all positions make all steps.

    The least possible time of mean steps n of a cap N is n / N of that pass, so that N / n is the bound.
    """
    points = [each for each in bench["measurements"] if each["details"].get("by") == "mean steps"]
    points.sort(key=lambda point: point["details"]["mean_steps"])
    shape, steps = points[0]["shape"], [point["details"]["mean_steps"] for point in points]
    whole = points[-1]["seconds"]["masked"]
    machine = f"{bench['threads']} thread of {bench['machine']['processor']}, torch {bench['versions']['torch']}"
    batch = f"batch of {shape['batch']} × {shape['length']} tokens, width {shape['width']}, float32"
    cap = shape["max_steps"]
    figure, (ax,) = canvas(width=6.4, height=3.3, title="Speed-up by halting", subtitle=f"{batch}, {machine}")
    clean(ax, grid="y")
    ax.plot(steps, [cap / mean for mean in steps], color=MUTED, linestyle="--", label="bound")
    ax.plot(steps, [whole / point["seconds"]["compact"] for point in points], color=BLUE, marker="o", label="measured")
    ax.axhline(1.0, color=INK, linewidth=0.8)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("mean steps of a position", color=MUTED)
    ax.set_ylabel(f"times faster than {cap} steps for all", color=MUTED)
    ax.legend(frameon=False)
    path = folder / "halting_saving.svg"
    path.write_bytes(svg(figure))
    return path
