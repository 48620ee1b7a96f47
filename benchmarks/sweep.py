"""``ut bench sweep``: what halting saves against mean steps, and the figure of it (``ut bench --plots``).

Each point is measured for a short time.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.halting import inference
from benchmarks.random_models import QUICK, BenchmarkSizes
from benchmarks.result import Measurement, Settings
from universal_transformer.explore.canvas import BLUE, INK, MUTED, canvas, clean, svg

STEPS = BenchmarkSizes(width=256, heads=4, filter_width=1024, batch=16, length=64, max_steps=10)
SHARES = (0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98)


def saving(shape: BenchmarkSizes, *, share: float, settings: Settings) -> Measurement:
    """Compare compact with masked where positions make ``share`` of the cap on steps."""
    measured = inference(shape, share=share, least=None, settings=settings)
    name = f"saving at {measured.details['mean_steps']:.1f} mean steps: {shape}"
    details = {**measured.details, "by": "mean steps"}
    return dataclasses.replace(measured, name=name, details=details)


def run(settings: Settings) -> list[Measurement]:
    """All points; each takes a third of the time of a comparison."""
    short = dataclasses.replace(settings, seconds=settings.seconds / 3)
    shape, shares = (QUICK, (0.2, 0.9)) if settings.quick else (STEPS, SHARES)
    return [saving(shape, share=share, settings=short) for share in shares]


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
