"""``ut bench encoding``: sequences that leave when they have halted, beside padded batches.

Random sequences of mixed lengths through an encoder with random weights. *stream* gives the slot of a sequence that is
through to the next one, *batches* are of neighbouring lengths and about ``TOKENS`` positions, the halted left out,
*masked* the same with all of them. *Bound* is the position-steps of *masked* over those that were needed.
``alike`` sequences differ only by chance in how long they think; otherwise each is moved along the halting unit's
weights by a draw of its own.
"""

from dataclasses import asdict, dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

from universal_transformer.axes import Float, Tensor
from universal_transformer.bench.result import Measurement, Settings
from universal_transformer.bench.subject import Shape, bisect, encoder
from universal_transformer.bench.timing import Side, alternate, median_ratio, medians
from universal_transformer.nn.block import Norm
from universal_transformer.nn.recurrence import Recurrence, Trace
from universal_transformer.nn.stream_encoder import encode_continuously

TOKENS = 1024
Sequence = Float[Tensor, "_ width"]


@dataclass(frozen=True, kw_only=True)
class Load:
    """``sequences`` of ``shortest`` to ``longest`` positions that think ``mean`` of ``max_steps`` steps."""

    width: int
    heads: int
    alike: bool
    mean: float = 3.0
    norm: Norm = "post"
    sequences: int = 256
    shortest: int = 16
    longest: int = 64
    max_steps: int = 10
    slots: int = 64

    def __str__(self) -> str:
        kind = "alike" if self.alike else "easy and hard"
        return (
            f"width {self.width}, {self.sequences} {kind} of {self.shortest} to {self.longest}, "
            f"mean {self.mean:g} of {self.max_steps} steps, {self.norm}-norm"
        )


LOADS = (
    *(
        Load(width=128, heads=4, alike=alike, mean=mean)
        for mean in (2.0, 3.0, 5.0)
        for alike in (True, False)
    ),
    *(Load(width=128, heads=4, alike=alike, norm="pre") for alike in (True, False)),
    *(Load(width=512, heads=8, alike=alike, sequences=128) for alike in (True, False)),
)
QUICK = Load(width=16, heads=2, alike=False, sequences=8, shortest=2, longest=6, slots=3)


def subject(load: Load) -> tuple[Recurrence, list[Sequence]]:
    """An encoder, and what it encodes, the longest first."""
    shape = Shape(
        width=load.width,
        heads=load.heads,
        filter_width=4 * load.width,
        batch=load.sequences,
        length=load.longest,
        max_steps=load.max_steps,
    )
    module = encoder(shape, halting=True, norm=load.norm).eval()
    assert module.halting is not None
    generator = torch.Generator().manual_seed(1)
    along = module.halting.weight.detach()[0]
    along = along * (load.width**0.5 / along.norm())
    sequences = []
    for length in torch.randint(
        load.shortest, load.longest + 1, (load.sequences,), generator=generator
    ).tolist():
        moved = 0.0 if load.alike else torch.randn(1, generator=generator)
        sequences.append(torch.randn(length, load.width, generator=generator) + moved * along)
    sequences.sort(key=len, reverse=True)

    def mean_steps() -> float:
        traces = in_batches(module, sequences)
        return sum(float(trace.steps.sum()) for trace in traces) / sum(map(len, sequences))

    bisect(module.halting, mean_steps, wanted=load.mean, turns=10)
    return module, sequences


@torch.inference_mode()
def in_batches(module: Recurrence, sequences: list[Sequence], *, masked: bool = False) -> list[Trace]:
    """Batches of about ``TOKENS`` positions, one after the other."""
    module.form, first, traces = "masked" if masked else "auto", 0, []
    while first < len(sequences):
        batch = sequences[first : first + max(1, TOKENS // len(sequences[first]))]
        first += len(batch)
        states = pad_sequence(batch, batch_first=True)
        where = torch.arange(states.shape[1])
        padding = where >= torch.tensor([len(each) for each in batch]).unsqueeze(1)
        placed = module.coordinates.place(where.unsqueeze(0), padding=padding)
        traces.append(module(states, placed=placed, padding=padding if padding.any() else None)[1])
    return traces


def in_one_stream(module: Recurrence, sequences: list[Sequence], load: Load) -> None:
    """All sequences through ``load.slots`` slots."""
    module.form = "auto"
    for _ in encode_continuously(module, sequences, slots=load.slots, capacity=load.longest):
        pass


def compare(load: Load, *, settings: Settings) -> list[Measurement]:
    """The stream over batches, and over masked ones."""
    module, sequences = subject(load)
    traces = in_batches(module, sequences)
    needed = sum(float(trace.steps.sum()) for trace in traces)
    made = sum(float(trace.steps.max()) * trace.steps.numel() for trace in traces)
    sides: dict[str, Side] = {
        "stream": lambda: in_one_stream(module, sequences, load),
        "batches": lambda: in_batches(module, sequences),
        "masked": lambda: in_batches(module, sequences, masked=True),
    }
    times = alternate(sides, seconds=settings.seconds, least=3, warm_up=1)
    sizes = {name: value for name, value in asdict(load).items() if isinstance(value, int)}
    return [
        Measurement(
            case="encoding",
            name=f"encode continuously, over {over}: {load}",
            shape=sizes,
            seconds=medians(times),
            turns=len(times["stream"]),
            ours="stream",
            over=over,
            ratio=median_ratio(times[over], times["stream"]),
            bound=bound,
            details={"mean_steps": needed / sum(map(len, sequences))},
        )
        for over, bound in (("batches", None), ("masked", made / needed))
    ]


def run(settings: Settings) -> list[Measurement]:
    """All comparisons of this case."""
    return [
        each for load in ((QUICK,) if settings.quick else LOADS) for each in compare(load, settings=settings)
    ]
