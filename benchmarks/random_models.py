"""Recurrences with random weights, and a halting bias that is calibrated to a given mean number of steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch

from universal_transformer.axes import States
from universal_transformer.models.components import CoordinatesConfig, DepthConfig
from universal_transformer.models.depth import recurrence
from universal_transformer.models.initialise import initialise
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.universal import EncoderDecoder, LanguageModel
from universal_transformer.nn.context import Context
from universal_transformer.nn.halting import ACT
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.step_config import HaltingConfig, Sizes, StepConfig
from universal_transformer.nn.trace import Trace

RandomGenerator = TypeVar("RandomGenerator", EncoderDecoder, LanguageModel)
Norm = Literal["post", "pre"]
Position = Literal["sinusoidal", "rotary"]
SPREAD = 2.0
"""Standard deviation of the halting logits over positions; it makes the steps differ between positions."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkSizes:
    """Sizes of the model and of the batch in one comparison."""

    width: int
    heads: int
    filter_width: int
    batch: int
    length: int
    max_steps: int

    @property
    def sizes(self) -> Sizes:
        """Those of the model."""
        return Sizes(width=self.width, filter_width=self.filter_width, num_heads=self.heads)

    @property
    def positions(self) -> int:
        """Positions of the batch."""
        return self.batch * self.length

    def __str__(self) -> str:
        return f"width {self.width}, {self.batch} x {self.length}, {self.max_steps} steps"


QUICK = BenchmarkSizes(width=16, heads=2, filter_width=32, batch=2, length=12, max_steps=10)
"""Sizes that only show that a case runs."""


def encoder(
    shape: BenchmarkSizes,
    *,
    halting: bool,
    decoder: bool = False,
    norm: Norm = "post",
    position: Position = "sinusoidal",
) -> Recurrence:
    """Build a recurrence with random weights (ReLU, signals at every step), without dropout: by default the paper's."""
    config = ModelConfig(
        architecture="language_model" if decoder else "classifier",
        sizes=shape.sizes,
        depth=DepthConfig(max_steps=shape.max_steps),
        step=StepConfig(norm=norm, dropout=0.0),
        coordinates=CoordinatesConfig(position=position),
        halting=HaltingConfig(side="both" if halting else "none"),
    )
    torch.manual_seed(0)
    module = recurrence(config, decoder=decoder)
    initialise(module)
    if isinstance(module.halting, ACT):
        with torch.no_grad():
            module.halting.weight.normal_(std=SPREAD * shape.width**-0.5)
    return module


def inputs(shape: BenchmarkSizes, *, seed: int = 1) -> States:
    """Random states."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape.batch, shape.length, shape.width, generator=generator)


def apply(module: Recurrence, states: States) -> tuple[States, Trace]:
    """One pass over ``states``."""
    where = torch.arange(states.shape[1], device=states.device).unsqueeze(0)
    return module(states, Context(depth=module.depth(), encoding=module.coordinates.position(where)))


@torch.no_grad()
def without_end(model: RandomGenerator) -> RandomGenerator:
    """Let ``model`` never generate the end token, so that every row gets all its tokens."""
    assert model.target.bias is not None
    model.target.bias[model.config.vocabulary.end_id] = -1e4
    return model.eval()


@torch.no_grad()
def bisect(unit: ACT, mean_steps: Callable[[], float], *, wanted: float, turns: int) -> None:
    """Find the halting bias for which ``mean_steps()`` is about ``wanted`` by ``turns`` bisections."""
    low, high = -12.0, 8.0
    for _ in range(turns):
        middle = (low + high) / 2
        unit.bias.fill_(middle)
        low, high = (middle, high) if mean_steps() > wanted else (low, middle)
    unit.bias.fill_(high)


@torch.no_grad()
def calibrate(module: Recurrence, states: States, *, share: float) -> Trace:
    """Set the halting bias so that the mean number of steps is about ``share`` of the cap; return the trace."""
    assert isinstance(module.halting, ACT)

    def mean_steps() -> float:
        return float(apply(module, states)[1].mean_steps())

    bisect(module.halting, mean_steps, wanted=share * module.trained_depth.max_steps, turns=14)
    return apply(module, states)[1]


def step_statistics(trace: Trace, *, max_steps: int) -> dict[str, Any]:
    """Return the mean number of steps, and the numbers of positions that made 1, 2, … ``max_steps`` steps."""
    counts = torch.bincount(trace.steps.flatten().long(), minlength=max_steps + 1)[1:]
    return {"mean_steps": float(trace.mean_steps()), "steps_histogram": counts.tolist()}


def bound(trace: Trace) -> float:
    """The largest possible ratio: position-steps of the masked loop over those of the positions that still run."""
    made = float(trace.steps.max()) * trace.steps.numel()
    return made / max(1.0, float(trace.steps.sum()))
