"""``ut bench sweep``: what halting saves against mean steps.

Each point is measured for a short time. The points are drawn in ``docs/performance.md`` (``ut bench --plots``).
"""

import dataclasses

from benchmarks.halting import inference
from benchmarks.random_models import QUICK, BenchmarkSizes
from benchmarks.result import Measurement, Settings

STEPS = BenchmarkSizes(width=256, heads=4, filter_width=1024, batch=16, length=64, max_steps=10)
SHARES = (0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98)


def saving(shape: BenchmarkSizes, *, share: float, settings: Settings) -> Measurement:
    """Compare compact with masked where positions make ``share`` of the cap on steps."""
    measured = inference(shape, share=share, least=0.0, settings=settings)
    name = f"saving at {measured.details['mean_steps']:.1f} mean steps: {shape}"
    details = {**measured.details, "by": "mean steps"}
    return dataclasses.replace(measured, case="sweep", name=name, least=None, details=details)


def run(settings: Settings) -> list[Measurement]:
    """All points; each takes a third of the time of a comparison."""
    short = dataclasses.replace(settings, seconds=settings.seconds / 3)
    shape, shares = (QUICK, (0.2, 0.9)) if settings.quick else (STEPS, SHARES)
    return [saving(shape, share=share, settings=short) for share in shares]
