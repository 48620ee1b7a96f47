"""``ut bench halting``: the compact loop beside the masked one, inference and training."""

from typing import Literal

import torch

from universal_transformer.axes import States
from universal_transformer.bench.memory import peak_bytes
from universal_transformer.bench.result import Measurement, Settings
from universal_transformer.bench.subject import Shape, apply, bound, calibrate, encoder, histogram, inputs
from universal_transformer.bench.timing import Side, alternate, median_ratio, medians
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.execution.install import HaltingExecution, install

STEPS, SHARE = 10, 0.3
NORMS: tuple[Literal["post", "pre"], ...] = ("post", "pre")

INFERENCE = (
    (Shape(width=128, heads=4, filter_width=512, batch=16, length=64, max_steps=STEPS), 0.85),
    (Shape(width=128, heads=4, filter_width=512, batch=1, length=1024, max_steps=STEPS), 0.85),
    (Shape(width=512, heads=8, filter_width=2048, batch=16, length=64, max_steps=STEPS), 0.85),
    (Shape(width=512, heads=8, filter_width=2048, batch=1, length=1024, max_steps=STEPS), 0.85),
    (Shape(width=512, heads=8, filter_width=2048, batch=2, length=1024, max_steps=STEPS), 0.85),
    (Shape(width=128, heads=4, filter_width=512, batch=1, length=64, max_steps=STEPS), 0.6),
    (Shape(width=512, heads=8, filter_width=2048, batch=1, length=64, max_steps=STEPS), 0.6),
)
TRAINING = (
    Shape(width=128, heads=4, filter_width=512, batch=16, length=64, max_steps=STEPS),
    Shape(width=128, heads=4, filter_width=512, batch=1, length=1024, max_steps=STEPS),
    Shape(width=512, heads=8, filter_width=2048, batch=16, length=64, max_steps=STEPS),
)
BARELY = (  # shape, mean steps over the cap
    (Shape(width=128, heads=4, filter_width=512, batch=1, length=8, max_steps=STEPS), 0.3),
    (Shape(width=128, heads=4, filter_width=512, batch=1, length=16, max_steps=STEPS), 0.9),
    (Shape(width=128, heads=4, filter_width=512, batch=4, length=16, max_steps=STEPS), 0.8),
    (Shape(width=128, heads=4, filter_width=512, batch=16, length=64, max_steps=STEPS), 0.95),
    (Shape(width=512, heads=8, filter_width=2048, batch=8, length=64, max_steps=STEPS), 0.9),
)
QUICK = Shape(width=16, heads=2, filter_width=32, batch=2, length=12, max_steps=STEPS)


def _called(norm: Literal["post", "pre"]) -> str:
    return "" if norm == "post" else f" ({norm}-norm)"


def _sizes(shape: Shape) -> dict[str, int]:
    return {
        "width": shape.width,
        "heads": shape.heads,
        "filter": shape.filter_width,
        "batch": shape.batch,
        "length": shape.length,
        "max_steps": shape.max_steps,
    }


def infer(module: Recurrence, states: States, *, form: HaltingExecution) -> None:
    """One pass in evaluation mode."""
    install(module, form)
    with torch.inference_mode():
        apply(module, states)


def train(module: Recurrence, states: States, direction: States, *, form: HaltingExecution) -> None:
    """Forward and backward: a random functional of the output, and the ponder cost."""
    install(module, form)
    leaf = states.detach().requires_grad_()
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()
    output, trace = apply(module, leaf)
    torch.autograd.backward((output * direction).sum() + 0.01 * trace.ponder_cost())


def inference(
    shape: Shape, *, share: float, least: float, settings: Settings, name: str, norm: Literal["post", "pre"] = "post"
) -> Measurement:
    """Compact over masked, no gradient. ``least`` is asked of the share of the bound."""
    module, states = encoder(shape, halting=True, norm=norm).eval(), inputs(shape)
    trace = calibrate(module, states, share=share)
    sides: dict[str, Side] = {
        "compact": lambda: infer(module, states, form="auto"),
        "masked": lambda: infer(module, states, form="masked"),
    }
    times = alternate(sides, seconds=settings.seconds)
    return Measurement(
        case="halting",
        name=f"{name}{_called(norm)}: {shape}",
        shape=_sizes(shape),
        seconds=medians(times),
        turns=len(times["compact"]),
        ours="compact",
        over="masked",
        ratio=median_ratio(times["masked"], times["compact"]),
        bound=bound(trace) if name == "inference" else None,
        least=least,
        details={
            "mean_steps": float(trace.mean_steps()),
            "steps_histogram": histogram(trace, max_steps=shape.max_steps),
        },
    )


def training(shape: Shape, *, settings: Settings, norm: Literal["post", "pre"] = "post") -> list[Measurement]:
    """Compact over masked, forward and backward: time, and peak memory beyond parameters and their gradients."""
    module, states = encoder(shape, halting=True, norm=norm).train(), inputs(shape)
    trace, direction = calibrate(module, states, share=SHARE), inputs(shape, seed=2)
    sides: dict[str, Side] = {
        "compact": lambda: train(module, states, direction, form="auto"),
        "masked": lambda: train(module, states, direction, form="masked"),
    }
    times = alternate(sides, seconds=settings.seconds)
    details = {
        "mean_steps": float(trace.mean_steps()),
        "steps_histogram": histogram(trace, max_steps=shape.max_steps),
    }
    time = Measurement(
        case="halting",
        name=f"training{_called(norm)}: {shape}",
        shape=_sizes(shape),
        seconds=medians(times),
        turns=len(times["compact"]),
        ours="compact",
        over="masked",
        ratio=median_ratio(times["masked"], times["compact"]),
        bound=bound(trace),
        least=0.75,
        details=details,
    )
    peaks = {name: peak_bytes(side, device=states.device) for name, side in sides.items()}
    memory = Measurement(
        case="halting",
        name=f"training memory{_called(norm)}: {shape}",
        shape=_sizes(shape),
        ours="compact",
        over="masked",
        ratio=peaks["masked"] / peaks["compact"],
        bound=bound(trace),
        least=0.8,  # at most 1.25 times its share
        details=details
        | {"peak_bytes": peaks, "over_its_share": bound(trace) * peaks["compact"] / peaks["masked"]},
    )
    return [time, memory]


def run(settings: Settings) -> list[Measurement]:
    """All comparisons of this case."""
    if settings.quick:
        one = inference(QUICK, share=SHARE, least=0.0, settings=settings, name="inference")
        return [one, *training(QUICK, settings=settings)]
    found = list[Measurement]()
    for norm in NORMS:
        found += [
            inference(shape, share=SHARE, least=least, settings=settings, name="inference", norm=norm)
            for shape, least in INFERENCE
        ]
        for shape in TRAINING:
            found += training(shape, settings=settings, norm=norm)
        for shape, share in BARELY:
            name = f"little to save, {share} of the cap"
            found.append(inference(shape, share=share, least=0.95, settings=settings, name=name, norm=norm))
    return found
