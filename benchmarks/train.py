"""``ut bench train``: forward and backward pass at a fixed depth, compared with tied encoders of other libraries."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.peers import encoders
from benchmarks.random_models import QUICK, BenchmarkSizes, apply, encoder, inputs
from benchmarks.result import Measurement, Settings
from benchmarks.timing import Side, alternate, comparison, median_ratio, medians
from universal_transformer.axes import States
from universal_transformer.nn.recurrence import Recurrence

CASES = (
    (BenchmarkSizes(width=512, heads=8, filter_width=2048, batch=16, length=64, max_steps=6), 1.0),
    (BenchmarkSizes(width=128, heads=4, filter_width=512, batch=64, length=20, max_steps=6), 1.2),
)
BFLOAT16 = 1.8


class StatesEncoder(nn.Module):
    """A recurrence as a module from states to states."""

    def __init__(self, recurrence: Recurrence) -> None:
        super().__init__()
        self.recurrence = recurrence

    def forward(self, states: Tensor) -> Tensor:
        return apply(self.recurrence, states)[0]


def flops(shape: BenchmarkSizes) -> int:
    """Operations of a forward and backward pass, which torch counts on tensors without memory."""
    with torch.device("meta"):
        module = StatesEncoder(encoder(shape, halting=False))
        states = torch.empty(shape.batch, shape.length, shape.width, requires_grad=True)
    # torch counts the attention that forms its scores, which is the kernel MATH
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        torch.autograd.backward(module(states).sum())
    return counter.get_total_flops()


def step(module: nn.Module, states: States, direction: States, *, dtype: torch.dtype) -> None:
    """Forward and backward of a random functional of the output."""
    leaf = states.detach().requires_grad_()
    module.zero_grad(set_to_none=True)
    with torch.autocast(states.device.type, dtype=dtype, enabled=dtype != torch.float32):
        output = module(leaf)
    torch.autograd.backward((output.float() * direction).sum())


def sides_of(
    modules: dict[str, nn.Module], shape: BenchmarkSizes, *, dtype: torch.dtype, suffix: str = ""
) -> dict[str, Side]:
    """Return one side for each module."""
    states, direction = inputs(shape), inputs(shape, seed=2)

    def side(module: nn.Module) -> Callable[[], object]:
        return lambda: step(module, states, direction, dtype=dtype)

    return {name + suffix: side(module.train()) for name, module in modules.items()}


def against_peers(shape: BenchmarkSizes, *, dtype: torch.dtype, least: float, settings: Settings) -> Measurement:
    """Compare this project's encoder with the fastest of the others. Every turn runs every side."""
    modules = {"ours": StatesEncoder(encoder(shape, halting=False)), **encoders(shape)}
    times = alternate(sides_of(modules, shape, dtype=dtype), seconds=settings.seconds * len(modules) / 2)
    ratios = {name: median_ratio(times[name], times["ours"]) for name in times if name != "ours"}
    best = min(ratios, key=ratios.__getitem__)
    return Measurement(
        name=str(shape),
        dtype=str(dtype).removeprefix("torch."),
        shape=vars(shape),
        **comparison(times, over=best),
        least=least,
        details={
            "gflops_per_second": {name: flops(shape) / seconds / 1e9 for name, seconds in medians(times).items()},
            "ratios": ratios,
        },
    )


def bfloat16(shape: BenchmarkSizes, *, settings: Settings) -> Measurement:
    """Compare bfloat16 autocast with float32."""
    modules: dict[str, nn.Module] = {"ours": StatesEncoder(encoder(shape, halting=False))}
    sides = sides_of(modules, shape, dtype=torch.float32, suffix=" float32") | sides_of(
        modules, shape, dtype=torch.bfloat16, suffix=" bfloat16"
    )
    times = alternate(sides, seconds=settings.seconds)
    return Measurement(
        name=f"autocast over float32: {shape}",
        dtype="bfloat16",
        shape=vars(shape),
        **comparison(times, ours="ours bfloat16", over="ours float32"),
        least=BFLOAT16,
    )


def run(settings: Settings) -> list[Measurement]:
    """All comparisons of this case."""
    if settings.quick:
        return [
            against_peers(QUICK, dtype=torch.float32, least=0.0, settings=settings),
            bfloat16(QUICK, settings=settings),
        ]
    measurements = [
        against_peers(shape, dtype=dtype, least=least, settings=settings)
        for shape, least in CASES
        for dtype in (torch.float32, torch.bfloat16)
    ]
    return [*measurements, bfloat16(CASES[0][0], settings=settings)]
