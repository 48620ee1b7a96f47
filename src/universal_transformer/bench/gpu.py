"""``ut bench gpu``: training, halting and decoding in bfloat16, beside the matrix rate of the same run."""

import dataclasses
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product

import torch

from universal_transformer.bench.decode import endless
from universal_transformer.bench.halting import infer, train
from universal_transformer.bench.memory import peak_bytes
from universal_transformer.bench.result import Measurement, Settings
from universal_transformer.bench.subject import Shape, bound, calibrate, encoder, histogram, inputs
from universal_transformer.bench.timing import Side, alternate, median_ratio, medians
from universal_transformer.bench.train import Ours, flops, step
from universal_transformer.decoding import generate
from universal_transformer.errors import UserError
from universal_transformer.nn.block import Block
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.execution.install import HaltingExecution

FIXED = Shape(width=1024, heads=16, filter_width=4096, batch=64, length=1024, max_steps=6)
HALTING = dataclasses.replace(FIXED, max_steps=10)
TRAINED = dataclasses.replace(HALTING, batch=32)
DECODED = Shape(width=1024, heads=16, filter_width=4096, batch=256, length=64, max_steps=6)
TINY = Shape(width=16, heads=2, filter_width=32, batch=2, length=12, max_steps=4)
MATRIX, PRODUCTS, VOCABULARY, NEW_TOKENS = 8192, 8, 32_000, 64
FIXED_SHARE, HALTING_SHARE = 0.5, 0.7
CALLED: dict[Form, str] = {"auto": "compact", "masked": "masked", "flex": "compact with FlexAttention"}


def matrix_rate(size: int, *, device: torch.device, settings: Settings) -> Measurement:
    """FLOP/s of one large bfloat16 product of random matrices."""
    one = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    two = torch.randn(size, size, device=device, dtype=torch.bfloat16)

    def side() -> None:
        for _ in range(PRODUCTS):  # so that waiting for the GPU is not counted
            torch.mm(one, two)

    times = alternate({"product": side}, seconds=settings.seconds, least=20, device=device)
    middle = {name: seconds / PRODUCTS for name, seconds in medians(times).items()}
    return Measurement(
        case="gpu",
        name=f"matrix product {size} x {size}",
        dtype="bfloat16",
        seconds=middle,
        turns=len(times["product"]),
        details={"tflops_per_second": 2.0 * size**3 / middle["product"] / 1e12},
    )


def compiled(module: Recurrence) -> Recurrence:
    """The same recurrence, its blocks compiled."""
    for part in module.modules():
        if isinstance(part, Block):
            part.compile(dynamic=True)
    return module


def fixed(
    shape: Shape, *, rate: float, device: torch.device, compile_block: bool, settings: Settings
) -> Measurement:
    """Forward and backward; ``rate`` is the matrix rate in FLOP/s."""
    module = encoder(shape, halting=False).to(device)
    ours = Ours(compiled(module) if compile_block else module).train()
    states, direction = inputs(shape).to(device), inputs(shape, seed=2).to(device)
    sides: dict[str, Side] = {"ours": lambda: step(ours, states, direction, dtype=torch.bfloat16)}
    times = alternate(sides, seconds=settings.seconds, least=10, warm_up=3, device=device)
    middle = medians(times)
    reached = flops(shape) / middle["ours"]
    return Measurement(
        case="gpu",
        name=f"training, {'compiled' if compile_block else 'eager'}: {shape}",
        dtype="bfloat16",
        shape=vars(shape),
        seconds=middle,
        turns=len(times["ours"]),
        ours="ours",
        over="matrix rate",
        ratio=reached / rate,
        bound=1.0,
        least=FIXED_SHARE,
        details={
            "tflops_per_second": reached / 1e12,
            "positions_per_second": shape.positions / middle["ours"],
            "peak_bytes": peak_bytes(sides["ours"], device=device),
        },
    )


def halting(
    shape: Shape,
    *,
    training: bool,
    ours: Form = "auto",
    over: Form = "masked",
    decoder: bool = False,
    device: torch.device,
    settings: Settings,
) -> Measurement:
    """One form of a halting loop over another in bfloat16 autocast."""
    module = encoder(shape, halting=True, decoder=decoder).to(device).train(training)
    states, direction = inputs(shape).to(device), inputs(shape, seed=2).to(device)

    def side(form: Form) -> Side:
        def work() -> None:
            with torch.autocast(device.type, dtype=torch.bfloat16):
                if training:
                    train(module, states, direction, form=form)
                else:
                    infer(module, states, form=form)

        return work

    with torch.autocast(device.type, dtype=torch.bfloat16):
        trace = calibrate(module, states, share=0.3)
    sides = {CALLED[form]: side(form) for form in (ours, over)}
    times = alternate(sides, seconds=settings.seconds, device=device)
    one, other = CALLED[ours], CALLED[over]
    what = f"{'training' if training else 'inference'}{', decoder' if decoder else ''}"
    return Measurement(
        case="gpu",
        name=f"halting {what}, {one} over {other}: {shape}",
        dtype="bfloat16",
        shape=vars(shape),
        seconds=medians(times),
        turns=len(times[one]),
        ours=one,
        over=other,
        ratio=median_ratio(times[other], times[one]),
        bound=bound(trace) if over == "masked" else None,
        least=HALTING_SHARE if over == "masked" else None,
        details={
            "mean_steps": float(trace.mean_steps()),
            "steps_histogram": histogram(trace, max_steps=shape.max_steps),
        },
    )


def decoding(
    shape: Shape, *, vocabulary: int, tokens: int, device: torch.device, settings: Settings
) -> Measurement:
    """Greedy cached decoding, tokens a second."""
    model = endless(shape, vocabulary=vocabulary).to(device=device, dtype=torch.bfloat16)
    source = torch.randint(3, vocabulary, (shape.batch, shape.length), device=device)
    sides: dict[str, Side] = {"ours": lambda: generate(model, source, max_new_tokens=tokens)}
    times = alternate(sides, seconds=settings.seconds, least=3, device=device)
    middle = medians(times)
    return Measurement(
        case="gpu",
        name=f"decoding: {shape}, {tokens} tokens",
        dtype="bfloat16",
        shape=vars(shape) | {"vocabulary": vocabulary, "new_tokens": tokens},
        seconds=middle,
        turns=len(times["ours"]),
        details={"tokens_per_second": shape.batch * tokens / middle["ours"]},
    )


def attempt(name: str, work: Callable[[], Measurement]) -> Measurement:
    """What ``work`` measures. Where it fails (no compiler, too little memory) a line says so, and the rest goes on."""
    try:
        return work()
    except Exception as error:  # whatever a compiler or a driver raises
        return Measurement(
            case="gpu", name=f"{name}: failed", details={"error": f"{type(error).__name__}: {error}"}
        )
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def measure(device: torch.device, settings: Settings) -> list[Measurement]:
    """All of it on ``device``; tiny and not compiled when ``settings.quick``."""
    quick = settings.quick
    matrix = matrix_rate(64 if quick else MATRIX, device=device, settings=settings)
    rate = matrix.details["tflops_per_second"] * 1e12
    full, inferred, trained, decoded = (TINY,) * 4 if quick else (FIXED, HALTING, TRAINED, DECODED)
    vocabulary, tokens = (20, 3) if quick else (VOCABULARY, NEW_TOKENS)
    parts: dict[str, Callable[[], Measurement]] = {
        "training, eager": lambda: fixed(
            full, rate=rate, compile_block=False, device=device, settings=settings
        ),
        "training, compiled": lambda: fixed(
            full, rate=rate, compile_block=True, device=device, settings=settings
        ),
        "halting inference": lambda: halting(inferred, training=False, device=device, settings=settings),
        "halting training": lambda: halting(trained, training=True, device=device, settings=settings),
        "decoding": lambda: decoding(
            decoded, vocabulary=vocabulary, tokens=tokens, device=device, settings=settings
        ),
    }
    for training, decoder in product((False, True), repeat=2):
        what = (
            f"halting {'training' if training else 'inference'}, {'decoder' if decoder else 'encoder'}, flex"
        )
        parts[what] = partial(
            halting,
            trained if training else inferred,
            training=training,
            decoder=decoder,
            ours="flex",
            over="auto",
            device=device,
            settings=settings,
        )
    if quick:
        del parts["training, compiled"]
    return [matrix, *(attempt(name, work) for name, work in parts.items())]


def run(settings: Settings) -> list[Measurement]:
    """All of it. UserError where there is no GPU."""
    if not torch.cuda.is_available():
        raise UserError("ut bench gpu needs a CUDA GPU, and torch sees none here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the compiler's own
        return measure(torch.device("cuda"), settings)
