"""``ut bench halting``: the compact loop compared with the masked loop, in inference and in training."""

from dataclasses import replace
from functools import partial

import torch

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
from benchmarks.timing import Side, alternate, comparison, peak_bytes
from universal_transformer.axes import States
from universal_transformer.execution.compaction import HaltingExecution, install
from universal_transformer.nn.recurrence import Recurrence

STEPS, SHARE = 10, 0.3
CPU = torch.device("cpu")
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


def compact_over_masked(
    module: Recurrence,
    shape: BenchmarkSizes,
    *,
    share: float,
    name: str,
    settings: Settings,
    dtype: torch.dtype = torch.float32,
    device: torch.device = CPU,
) -> Measurement:
    """Compare both forms in the mode of the module, which makes ``share`` of the cap on steps; in training with the
    backward pass.
    """
    states, direction = inputs(shape).to(device), inputs(shape, seed=2).to(device)
    precision = partial(torch.autocast, device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)

    def work(form: HaltingExecution) -> None:
        with precision():
            train(module, states, direction, form=form) if module.training else infer(module, states, form=form)

    with precision():
        trace = calibrate(module, states, share=share)
    sides: dict[str, Side] = {"compact": lambda: work("auto"), "masked": lambda: work("masked")}
    times = alternate(sides, seconds=settings.seconds, device=device)
    details = step_statistics(trace, max_steps=shape.max_steps)
    if module.training:
        details["peak_bytes"] = {form: peak_bytes(side, device=device) for form, side in sides.items()}
    return Measurement(
        name=f"{name}: {shape}",
        dtype=str(dtype).removeprefix("torch."),
        shape=vars(shape),
        **comparison(times, ours="compact", over="masked"),
        bound=bound(trace),
        details=details,
    )


def inference(
    shape: BenchmarkSizes,
    *,
    share: float,
    least: float | None,
    settings: Settings,
    name: str = "inference",
    norm: Norm = "post",
    position: Position = "sinusoidal",
) -> Measurement:
    """Compare compact with masked, without gradients. ``least`` is the required share of the bound."""
    module = encoder(shape, halting=True, norm=norm, position=position).eval()
    label = f"{name}{LABELS[norm, position]}"
    return replace(compact_over_masked(module, shape, share=share, name=label, settings=settings), least=least)


def training(
    shape: BenchmarkSizes, *, settings: Settings, norm: Norm = "post", position: Position = "sinusoidal"
) -> list[Measurement]:
    """Compare time and peak memory of compact with masked, forward and backward; memory without the parameters."""
    module = encoder(shape, halting=True, norm=norm, position=position).train()
    label = LABELS[norm, position]
    found = compact_over_masked(module, shape, share=SHARE, name=f"training{label}", settings=settings)
    peaks = found.details["peak_bytes"]
    ratio, highest = peaks["masked"] / peaks["compact"], found.bound
    assert highest is not None
    memory = replace(
        found,
        name=f"training memory{label}: {shape}",
        seconds={},
        turns=0,
        ratio=ratio,
        least=0.8,  # at most 1.25 times its share
        details=dict(found.details) | {"over_its_share": highest / ratio},
    )
    return [replace(found, least=0.75), memory]


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
            # what is asked is a ratio: next to no loss
            replace(measure(shape, share=share, least=0.95, name=f"little to save, {share} of the cap"), bound=None)
            for shape, share in LITTLE_TO_SAVE
        ]
    return measurements
