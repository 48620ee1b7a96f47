"""What is measured: a recurrence with random weights, and a halting bias that gives the mean number of steps wanted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from universal_transformer.axes import States
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.depth import recurrence
from universal_transformer.models.initialise import initialise
from universal_transformer.nn.halting import HaltingUnit
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.trace import Trace

SPREAD = 2.0
"""Standard deviation of the halting logits over positions: enough that steps differ from position to position."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of one comparison."""

    width: int
    heads: int
    filter_width: int
    batch: int
    length: int
    max_steps: int

    @property
    def positions(self) -> int:
        """Positions of the batch."""
        return self.batch * self.length

    def __str__(self) -> str:
        return f"width {self.width}, {self.batch} x {self.length}, {self.max_steps} steps"


def encoder(shape: Shape, *, halting: bool, decoder: bool = False, norm: Literal["post", "pre"] = "post") -> Recurrence:
    """The recurrence of the paper with random weights (ReLU, sinusoids at every step), no dropout."""
    config = ModelConfig(
        architecture="language_model" if decoder else "classifier",
        width=shape.width,
        num_heads=shape.heads,
        filter_width=shape.filter_width,
        max_steps=shape.max_steps,
        halting=halting,
        dropout=0.0,
        norm=norm,
    )
    torch.manual_seed(0)
    module = recurrence(config, decoder=decoder)
    initialise(module)
    if module.halting is not None:
        with torch.no_grad():
            module.halting.weight.normal_(std=SPREAD * shape.width**-0.5)
    return module


def inputs(shape: Shape, *, seed: int = 1) -> States:
    """Random states."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape.batch, shape.length, shape.width, generator=generator)


def apply(module: Recurrence, states: States) -> tuple[States, Trace]:
    """One pass over ``states``."""
    where = torch.arange(states.shape[1], device=states.device).unsqueeze(0)
    return module(states, encoding=module.coordinates.encode(where))


@torch.no_grad()
def bisect(unit: HaltingUnit, mean_steps: Callable[[], float], *, wanted: float, turns: int) -> None:
    """Halve the range of halting biases ``turns`` times; with the last one, ``mean_steps()`` is about ``wanted``."""
    low, high = -12.0, 8.0
    for _ in range(turns):
        middle = (low + high) / 2
        unit.bias.fill_(middle)
        low, high = (middle, high) if mean_steps() > wanted else (low, middle)
    unit.bias.fill_(high)


@torch.no_grad()
def calibrate(module: Recurrence, states: States, *, share: float) -> Trace:
    """Give the mean of N about ``share`` of the cap; return the trace."""
    assert module.halting is not None

    def mean_steps() -> float:
        return float(apply(module, states)[1].mean_steps())

    bisect(module.halting, mean_steps, wanted=share * module.trained_depth.max_steps, turns=14)
    return apply(module, states)[1]


def histogram(trace: Trace, *, max_steps: int) -> list[int]:
    """How many positions made 1, 2, … ``max_steps`` steps."""
    return torch.bincount(trace.steps.flatten().long(), minlength=max_steps + 1)[1:].tolist()


def bound(trace: Trace) -> float:
    """What halting can save at most: position-steps of the masked loop over those of running positions."""
    made = float(trace.steps.max()) * trace.steps.numel()
    return made / max(1.0, float(trace.steps.sum()))
