"""``ut bench continuous``: decoding with halting, rows that never wait beside rows that wait for the slowest.

Random prompts are continued by a language model with random weights, sampled so that rows differ. Three ways:
*lock-step* makes, for every token, the steps of the slowest row with all rows; *generate* leaves a halted row out until
the others have caught up; *continuous* lets it go on to its next token. *Bound* is the position-steps of lock-step over
those that were needed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch

import torch

from universal_transformer.axes import Int, Tensor
from universal_transformer.bench.result import Measurement, Settings
from universal_transformer.bench.subject import SPREAD, bisect
from universal_transformer.bench.timing import Side, alternate, median_ratio, medians
from universal_transformer.decoding import Request, Sampling, generate, generate_continuously
from universal_transformer.decoding.sampling import Row
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.language_model import LanguageModel
from universal_transformer.execution import policy

SAMPLING = Sampling(temperature=1.0)
VOCABULARY, PROMPT = 1000, 4


@dataclass(frozen=True, kw_only=True)
class Load:
    """``requests`` prompts, ``rows`` of them worked on at a time, each continued by ``new_tokens``."""

    width: int
    heads: int
    filter_width: int
    rows: int = 64
    requests: int = 128
    new_tokens: int = 24
    max_steps: int = 10

    def __str__(self) -> str:
        return (
            f"width {self.width}, {self.rows} rows, {self.requests} prompts, {self.new_tokens} tokens, "
            f"{self.max_steps} steps"
        )


LOADS = (  # and the share of the bound that is asked
    (Load(width=128, heads=4, filter_width=512), 0.85),
    (Load(width=512, heads=8, filter_width=2048), 0.85),
    (Load(width=128, heads=4, filter_width=512, rows=8, requests=16), None),
    (Load(width=512, heads=8, filter_width=2048, rows=8, requests=16), None),
)
QUICK = Load(width=16, heads=2, filter_width=32, rows=4, requests=6, new_tokens=4)


def subject(load: Load, *, share: float) -> tuple[LanguageModel, list[list[int]]]:
    """A model that never ends a sequence and makes about ``share`` of its cap a token, and prompts for it."""
    torch.manual_seed(0)
    config = ModelConfig(
        architecture="language_model",
        width=load.width,
        num_heads=load.heads,
        filter_width=load.filter_width,
        max_steps=load.max_steps,
        vocabulary_size=VOCABULARY,
        dropout=0.0,
        halting=True,
        tie_output=False,
    )
    model = LanguageModel(config).eval()
    unit = model.target.recurrence.halting
    assert unit is not None
    assert model.target.bias is not None
    generator = torch.Generator().manual_seed(1)
    shape = (load.requests, PROMPT - 1)
    tokens = torch.randint(3, VOCABULARY, shape, generator=generator).tolist()
    prompts = [[config.start_id, *each] for each in tokens]
    with torch.no_grad():
        unit.weight.normal_(std=SPREAD * load.width**-0.5)
        model.target.bias[config.end_id] = -1e4

    def mean_steps() -> float:
        found = generate(model, prompts[: load.rows], max_new_tokens=8, sampling=SAMPLING)
        return sum(each.steps for each in found) / len(found)

    bisect(unit, mean_steps, wanted=share * load.max_steps, turns=10)
    return model, prompts


def in_batches(model: LanguageModel, prompts: Sequence[list[int]], load: Load) -> None:
    """Batches of ``load.rows`` prompts, one after the other."""
    for first in range(0, len(prompts), load.rows):
        batch = prompts[first : first + load.rows]
        numbers = range(first, first + len(batch))
        generate(model, batch, max_new_tokens=load.new_tokens, sampling=SAMPLING, indices=numbers)


def in_one_stream(model: LanguageModel, prompts: Sequence[list[int]], load: Load) -> None:
    """All prompts through ``load.rows`` slots."""
    for _ in generate_continuously(
        model,
        [Request(number, prompt) for number, prompt in enumerate(prompts)],
        slots=load.rows,
        capacity=PROMPT + load.new_tokens,
        max_new_tokens=load.new_tokens,
        sampling=SAMPLING,
    ):
        pass


@contextmanager
def nobody_leaves() -> Iterator[None]:
    """Halted rows of a call are computed with the others until the last one has halted."""
    with patch.object(policy, "COMPACT_BELOW", 0.0):
        yield


def in_lock_step(model: LanguageModel, prompts: Sequence[list[int]], load: Load) -> None:
    """As :func:`in_batches`, every row making the steps of the slowest."""
    with nobody_leaves():
        in_batches(model, prompts, load)


def steps_taken(
    model: LanguageModel, prompts: Sequence[list[int]], load: Load
) -> Int[Tensor, "request token"]:
    """N of every new token of every prompt."""
    found: dict[int, list[float]] = {}
    result = Row.result

    def watched(row: Row, source_steps: list[float]) -> Any:
        found[len(found)] = list(row.steps)
        return result(row, source_steps)

    with patch.object(Row, "result", watched):
        in_batches(model, prompts, load)
    return torch.tensor(list(found.values())).long()


def bound(steps: Int[Tensor, "request token"], *, rows: int) -> float:
    """Position-steps of lock-step (per token the most of any row of its batch) over those that are needed."""
    made = sum(int(batch.max(0).values.sum()) * len(batch) for batch in torch.split(steps, rows))
    return made / int(steps.sum())


def compare(load: Load, *, share: float, least: float | None, settings: Settings) -> list[Measurement]:
    """Continuous over lock-step, and over ``generate`` as it is."""
    model, prompts = subject(load, share=share)
    steps = steps_taken(model, prompts, load)
    sides: dict[str, Side] = {
        "continuous": lambda: in_one_stream(model, prompts, load),
        "lock-step": lambda: in_lock_step(model, prompts, load),
        "generate": lambda: in_batches(model, prompts, load),
    }
    times = alternate(sides, seconds=3 * settings.seconds, least=3, warm_up=1)
    found = []
    for over, highest, asked in (
        ("lock-step", bound(steps, rows=load.rows), least),
        ("generate", None, 1.0 if least else None),
    ):
        found.append(
            Measurement(
                case="continuous",
                name=f"decode halting, over {over}: {load}",
                shape=asdict(load),
                seconds=medians(times),
                turns=len(times["continuous"]),
                ours="continuous",
                over=over,
                ratio=median_ratio(times[over], times["continuous"]),
                bound=highest,
                least=asked,
                details={
                    "mean_steps": float(steps.float().mean()),
                    "steps_histogram": torch.bincount(steps.flatten(), minlength=load.max_steps + 1)[
                        1:
                    ].tolist(),
                },
            )
        )
    return found


def run(settings: Settings) -> list[Measurement]:
    """All comparisons of this case."""
    if settings.quick:
        return compare(QUICK, share=0.3, least=None, settings=settings)
    return [
        each for load, least in LOADS for each in compare(load, share=0.3, least=least, settings=settings)
    ]
