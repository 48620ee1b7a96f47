"""``ut bench halting``: the compact loop compared with the masked loop, in inference and in training."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from benchmarks.peak_memory import peak_bytes
from benchmarks.random_models import (
    QUICK,
    BenchmarkSizes,
    Norm,
    Position,
    apply,
    bound,
    calibrate,
    encoder,
    inputs,
    step_statistics,
)
from benchmarks.result import Measurement, Settings
from benchmarks.timing import Side, alternate, comparison
from universal_transformer.axes import States
from universal_transformer.execution.compaction import HaltingExecution, install
from universal_transformer.nn.recurrence import Recurrence

STEPS, SHARE = 10, 0.3
LABELS: dict[tuple[Norm, Position], str] = {
    ("post", "sinusoidal"): "",
    ("pre", "sinusoidal"): " (pre-norm)",
    ("pre", "rotary"): " (pre-norm, rotary)",
}
"""Norm and positions that are measured -> what its comparisons are called."""

NARROW = BenchmarkSizes(width=128, heads=4, filter_width=512, batch=16, length=64, max_steps=STEPS)
WIDE = BenchmarkSizes(width=512, heads=8, filter_width=2048, batch=16, length=64, max_steps=STEPS)
INFERENCE = (  # with the required share of the bound
    (NARROW, 0.85),
    (replace(NARROW, batch=1, length=1024), 0.85),
    (WIDE, 0.85),
    (replace(WIDE, batch=1, length=1024), 0.85),
    (replace(WIDE, batch=2, length=1024), 0.85),
    (replace(NARROW, batch=1), 0.6),
    (replace(WIDE, batch=1), 0.6),
)
TRAINING = (NARROW, replace(NARROW, batch=1, length=1024), WIDE)
LITTLE_TO_SAVE = (  # with the mean steps over the cap
    (replace(NARROW, batch=1, length=8), 0.3),
    (replace(NARROW, batch=1, length=16), 0.9),
    (replace(NARROW, batch=4, length=16), 0.8),
    (NARROW, 0.95),
    (replace(WIDE, batch=8), 0.9),
)


def in_both_forms(work: Callable[[HaltingExecution], None]) -> dict[str, Side]:
    """Return the sides of a comparison: ``work`` with halted positions left out, and with all positions."""
    return {"compact": lambda: work("auto"), "masked": lambda: work("masked")}


def infer(module: Recurrence, states: States, *, form: HaltingExecution) -> None:
    """One pass in evaluation mode."""
    install(module, form)
    with torch.inference_mode():
        apply(module, states)


def train(module: Recurrence, states: States, direction: States, *, form: HaltingExecution) -> None:
    """Forward and backward pass of a random functional of the output plus the ponder cost."""
    install(module, form)
    leaf = states.detach().requires_grad_()
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()
    output, trace = apply(module, leaf)
    torch.autograd.backward((output * direction).sum() + 0.01 * trace.ponder_cost)


def inference(
    shape: BenchmarkSizes,
    *,
    share: float,
    least: float,
    settings: Settings,
    name: str = "inference",
    norm: Norm = "post",
    position: Position = "sinusoidal",
) -> Measurement:
    """Compare compact with masked, without gradients. ``least`` is the required share of the bound."""
    module, states = encoder(shape, halting=True, norm=norm, position=position).eval(), inputs(shape)
    trace = calibrate(module, states, share=share)
    sides = in_both_forms(lambda form: infer(module, states, form=form))
    times = alternate(sides, seconds=settings.seconds)
    return Measurement(
        case="halting",
        name=f"{name}{LABELS[norm, position]}: {shape}",
        shape=vars(shape),
        **comparison(times, ours="compact", over="masked"),
        bound=bound(trace) if name == "inference" else None,
        least=least,
        details=step_statistics(trace, max_steps=shape.max_steps),
    )


def training(
    shape: BenchmarkSizes, *, settings: Settings, norm: Norm = "post", position: Position = "sinusoidal"
) -> list[Measurement]:
    """Compare time and peak memory of compact with masked, forward and backward; memory without the parameters."""
    module, states = encoder(shape, halting=True, norm=norm, position=position).train(), inputs(shape)
    trace, direction = calibrate(module, states, share=SHARE), inputs(shape, seed=2)
    sides = in_both_forms(lambda form: train(module, states, direction, form=form))
    times = alternate(sides, seconds=settings.seconds)
    details = step_statistics(trace, max_steps=shape.max_steps)
    time = Measurement(
        case="halting",
        name=f"training{LABELS[norm, position]}: {shape}",
        shape=vars(shape),
        **comparison(times, ours="compact", over="masked"),
        bound=bound(trace),
        least=0.75,
        details=details,
    )
    peaks = {name: peak_bytes(side, device=states.device) for name, side in sides.items()}
    memory = replace(
        time,
        name=f"training memory{LABELS[norm, position]}: {shape}",
        seconds={},
        turns=0,
        ratio=peaks["masked"] / peaks["compact"],
        least=0.8,  # at most 1.25 times its share
        details=details | {"peak_bytes": peaks, "over_its_share": bound(trace) * peaks["compact"] / peaks["masked"]},
    )
    return [time, memory]


def run(settings: Settings) -> list[Measurement]:
    """All comparisons of this case."""
    if settings.quick:
        one = inference(QUICK, share=SHARE, least=0.0, settings=settings)
        return [one, *training(QUICK, settings=settings)]
    measurements = list[Measurement]()
    for norm, position in LABELS:
        measure = partial(inference, settings=settings, norm=norm, position=position)
        measurements += [measure(shape, share=SHARE, least=least) for shape, least in INFERENCE]
        for shape in TRAINING:
            measurements += training(shape, settings=settings, norm=norm, position=position)
        measurements += [
            measure(shape, share=share, least=0.95, name=f"little to save, {share} of the cap")
            for shape, share in LITTLE_TO_SAVE
        ]
    return measurements
