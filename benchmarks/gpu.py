"""``ut bench gpu``: training, halting and decoding in bfloat16, compared with the rate of matrix products."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.decode import endless
from benchmarks.halting import compact_over_masked
from benchmarks.random_models import (
    QUICK,
    BenchmarkSizes,
    encoder,
    inputs,
)
from benchmarks.result import Measurement, Settings
from benchmarks.timing import Side, alternate, medians, peak_bytes
from benchmarks.train import StatesEncoder, flops, step
from universal_transformer.decoding import DecodingOptions, generate
from universal_transformer.errors import UserError

FIXED = BenchmarkSizes(width=1024, heads=16, filter_width=4096, batch=64, length=1024, max_steps=6)
HALTING = replace(FIXED, max_steps=10)
TRAINED = replace(HALTING, batch=32)
DECODED = BenchmarkSizes(width=1024, heads=16, filter_width=4096, batch=256, length=64, max_steps=6)
MATRIX, PRODUCTS, VOCABULARY, NEW_TOKENS = 8192, 8, 32_000, 64
FIXED_SHARE, HALTING_SHARE = 0.5, 0.7


def matrix_rate(size: int, *, device: torch.device, settings: Settings) -> Measurement:
    """Operations per second of one large bfloat16 product of random matrices."""
    one = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    two = torch.randn(size, size, device=device, dtype=torch.bfloat16)

    def side() -> None:
        for _ in range(PRODUCTS):  # several, so that the wait for the GPU takes little of the time
            torch.mm(one, two)

    times = alternate({"product": side}, seconds=settings.seconds, least=20, device=device)
    middle = {name: seconds / PRODUCTS for name, seconds in medians(times).items()}
    return Measurement(
        name=f"matrix product {size} x {size}",
        dtype="bfloat16",
        seconds=middle,
        turns=len(times["product"]),
        details={"tflops_per_second": 2.0 * size**3 / middle["product"] / 1e12},
    )


def fixed(
    shape: BenchmarkSizes, *, rate: float, device: torch.device, compile_block: bool, settings: Settings
) -> Measurement:
    """Forward and backward pass at a fixed depth; ``rate`` is the rate of matrix products in FLOP/s."""
    module = encoder(shape, halting=False).to(device)
    if compile_block:
        module.blocks[0].compile(dynamic=True)
    ours = StatesEncoder(module).train()
    states, direction = inputs(shape).to(device), inputs(shape, seed=2).to(device)
    sides: dict[str, Side] = {"ours": lambda: step(ours, states, direction, dtype=torch.bfloat16)}
    times = alternate(sides, seconds=settings.seconds, least=10, warm_up=3, device=device)
    seconds = medians(times)["ours"]
    reached = flops(shape) / seconds
    return Measurement(
        name=f"training, {'compiled' if compile_block else 'eager'}: {shape}",
        dtype="bfloat16",
        shape=vars(shape),
        seconds={"ours": seconds},
        turns=len(times["ours"]),
        ours="ours",
        over="matrix rate",
        ratio=reached / rate,
        bound=1.0,
        least=FIXED_SHARE,
        details={
            "tflops_per_second": reached / 1e12,
            "positions_per_second": shape.positions / seconds,
            "peak_bytes": peak_bytes(sides["ours"], device=device),
        },
    )


def halting(shape: BenchmarkSizes, *, training: bool, device: torch.device, settings: Settings) -> Measurement:
    """The compact loop compared with the masked loop, in bfloat16 autocast."""
    module = encoder(shape, halting=True).to(device).train(training)
    name = f"halting {'training' if training else 'inference'}, compact over masked"
    compare = partial(compact_over_masked, dtype=torch.bfloat16, device=device, settings=settings)
    return replace(compare(module, shape, share=0.3, name=name), least=HALTING_SHARE)


def decoding(
    shape: BenchmarkSizes, *, vocabulary: int, tokens: int, device: torch.device, settings: Settings
) -> Measurement:
    """Greedy cached decoding, in tokens per second."""
    model = endless(shape, vocabulary=vocabulary).to(device=device, dtype=torch.bfloat16)
    source = torch.randint(3, vocabulary, (shape.batch, shape.length), device=device)
    sides: dict[str, Side] = {"ours": lambda: generate(model, source, DecodingOptions(max_new_tokens=tokens))}
    times = alternate(sides, seconds=settings.seconds, least=3, device=device)
    seconds = medians(times)["ours"]
    return Measurement(
        name=f"decoding: {shape}, {tokens} tokens",
        dtype="bfloat16",
        shape=vars(shape) | {"vocabulary": vocabulary, "new_tokens": tokens},
        seconds={"ours": seconds},
        turns=len(times["ours"]),
        details={"tokens_per_second": shape.batch * tokens / seconds},
    )


def attempt(name: str, work: Callable[[], Measurement]) -> Measurement:
    """Return what ``work`` measures; if it fails (no compiler, too little memory), a measurement with the error."""
    try:
        return work()
    except Exception as error:  # a compiler or a driver may raise any exception
        return Measurement(name=f"{name}: failed", details={"error": f"{type(error).__name__}: {error}"})
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def measure(device: torch.device, settings: Settings) -> list[Measurement]:
    """All measurements on ``device``; with ``settings.quick`` they are tiny and nothing is compiled."""
    quick = settings.quick
    matrix = matrix_rate(64 if quick else MATRIX, device=device, settings=settings)
    rate = matrix.details["tflops_per_second"] * 1e12
    full, inferred, trained, decoded = (QUICK,) * 4 if quick else (FIXED, HALTING, TRAINED, DECODED)
    vocabulary, tokens = (20, 3) if quick else (VOCABULARY, NEW_TOKENS)
    where: dict[str, Any] = {"device": device, "settings": settings}
    parts: dict[str, Callable[[], Measurement]] = {
        "training, eager": partial(fixed, full, rate=rate, compile_block=False, **where),
        "training, compiled": partial(fixed, full, rate=rate, compile_block=True, **where),
        "halting inference": partial(halting, inferred, training=False, **where),
        "halting training": partial(halting, trained, training=True, **where),
        "decoding": partial(decoding, decoded, vocabulary=vocabulary, tokens=tokens, **where),
    }
    if quick:
        del parts["training, compiled"]
    return [matrix, *(attempt(name, work) for name, work in parts.items())]


def run(settings: Settings) -> list[Measurement]:
    """All measurements. UserError if there is no GPU."""
    if not torch.cuda.is_available():
        raise UserError("ut bench gpu needs a CUDA GPU, and torch sees none here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from the compiler
        return measure(torch.device("cuda"), settings)
