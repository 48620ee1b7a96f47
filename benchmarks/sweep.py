"""``ut bench sweep``: what halting saves against mean steps, and the cost of a pass against length and depth.

Each point is measured for a short time. The points are drawn in ``docs/performance.md`` (``ut bench --plots``).
"""

import dataclasses

from benchmarks.halting import infer, inference
from benchmarks.random_models import QUICK, BenchmarkSizes, encoder, inputs
from benchmarks.result import Measurement, Settings
from benchmarks.timing import alternate, comparison

CAP = 10
STEPS = BenchmarkSizes(width=256, heads=4, filter_width=1024, batch=16, length=64, max_steps=CAP)
SHARES = (0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98)
LENGTHS = (64, 128, 256, 512, 1024, 2048)
DEPTHS = (2, 4, 6, 8, 10, 12)


def cost(shape: BenchmarkSizes, *, by: str, settings: Settings) -> Measurement:
    """Seconds of one inference pass at a fixed depth."""
    module, states = encoder(shape, halting=False).eval(), inputs(shape)
    times = alternate({"ours": lambda: infer(module, states, form="auto")}, seconds=settings.seconds, least=3)
    return Measurement(
        case="sweep",
        name=f"cost against {by}: {shape}",
        shape=vars(shape),
        **comparison(times),
        details={"by": by},
    )


def saving(shape: BenchmarkSizes, *, share: float, settings: Settings) -> Measurement:
    """Compare compact with masked where positions make ``share`` of the cap on steps."""
    measured = inference(shape, share=share, least=0.0, settings=settings)
    name = f"saving at {measured.details['mean_steps']:.1f} mean steps: {shape}"
    details = {**measured.details, "by": "mean steps"}
    return dataclasses.replace(measured, case="sweep", name=name, least=None, details=details)


def run(settings: Settings) -> list[Measurement]:
    """All points; each takes a third of the time of a comparison."""
    short = dataclasses.replace(settings, seconds=settings.seconds / 3)
    steps = QUICK if settings.quick else STEPS
    shares, lengths, depths = ((0.2, 0.9), (12, 24), (1, 3)) if settings.quick else (SHARES, LENGTHS, DEPTHS)
    savings = [saving(steps, share=share, settings=short) for share in shares]
    one = dataclasses.replace(steps, batch=1, max_steps=6)
    long = [dataclasses.replace(one, length=length) for length in lengths]
    deep = [dataclasses.replace(steps, max_steps=depth) for depth in depths]
    return [
        *savings,
        *(cost(shape, by="length", settings=short) for shape in long),
        *(cost(shape, by="depth", settings=short) for shape in deep),
    ]
