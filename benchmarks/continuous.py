"""``ut bench continuous``: decoding with halting, depth-continuous generation compared with ordinary batches.

A language model with random weights continues random prompts; tokens are sampled, so that rows differ.

========== =========================================================================================================
side       what it does
========== =========================================================================================================
lock-step  for every token, all rows make the steps of the row that needs most
generate   a row that has halted is left out of the computation until all rows have halted
continuous a row that has halted continues with its next token
========== =========================================================================================================

The bound is the number of position-steps of lock-step over the number of those that were needed.
"""

from collections.abc import Sequence
from unittest.mock import patch

import torch

from benchmarks.random_models import QUICK, SPREAD, BenchmarkSizes, bisect, without_end
from benchmarks.result import Measurement, Settings
from benchmarks.timing import Side, alternate, comparison
from universal_transformer.axes import Int, Tensor
from universal_transformer.decoding import DecodingOptions, Generated, Sampling, generate, generate_stream
from universal_transformer.execution import policy
from universal_transformer.models.components import DepthConfig, OutputsConfig, VocabularyConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.universal import LanguageModel
from universal_transformer.nn.step_config import HaltingConfig, StepConfig

SAMPLING = Sampling(temperature=1.0)
VOCABULARY, PROMPT = 1000, 4


# `batch` prompts at a time, twice as many in all, each continued by `length` tokens; with the share of the bound
WORKLOADS = (
    (BenchmarkSizes(width=128, heads=4, filter_width=512, batch=64, length=24, max_steps=10), 0.85),
    (BenchmarkSizes(width=512, heads=8, filter_width=2048, batch=64, length=24, max_steps=10), 0.85),
    (BenchmarkSizes(width=128, heads=4, filter_width=512, batch=8, length=24, max_steps=10), None),
    (BenchmarkSizes(width=512, heads=8, filter_width=2048, batch=8, length=24, max_steps=10), None),
)


def random_language_model(workload: BenchmarkSizes, *, share: float) -> tuple[LanguageModel, list[list[int]]]:
    """A model that never ends a sequence and makes about ``share`` of its cap on steps for a token, and its prompts."""
    torch.manual_seed(0)
    config = ModelConfig(
        architecture="language_model",
        vocabulary=VocabularyConfig(size=VOCABULARY),
        outputs=OutputsConfig(tie_output=False),
        sizes=workload.sizes,
        depth=DepthConfig(max_steps=workload.max_steps),
        step=StepConfig(dropout=0.0),
        halting=HaltingConfig(side="both"),
    )
    model = without_end(LanguageModel(config))
    unit = model.target.recurrence.halting
    generator = torch.Generator().manual_seed(1)
    shape = (2 * workload.batch, PROMPT - 1)
    tokens = torch.randint(3, VOCABULARY, shape, generator=generator).tolist()
    prompts = [[config.start_id, *each] for each in tokens]
    with torch.no_grad():
        unit.weight.normal_(std=SPREAD * workload.width**-0.5)

    def mean_steps() -> float:
        found = generate(model, prompts[: workload.batch], DecodingOptions(max_new_tokens=8, sampling=SAMPLING))
        return sum(each.steps for each in found) / len(found)

    bisect(unit, mean_steps, wanted=share * workload.max_steps, turns=10)
    return model, prompts


def in_batches(model: LanguageModel, prompts: Sequence[list[int]], workload: BenchmarkSizes) -> list[Generated]:
    """Continue batches of ``workload.batch`` prompts, one batch after the other."""
    results = []
    for first in range(0, len(prompts), workload.batch):
        batch = prompts[first : first + workload.batch]
        numbers = range(first, first + len(batch))
        options = DecodingOptions(max_new_tokens=workload.length, sampling=SAMPLING)
        results += generate(model, batch, options, indices=numbers)
    return results


def in_slots(model: LanguageModel, prompts: Sequence[list[int]], workload: BenchmarkSizes) -> None:
    """Continue all prompts in ``workload.batch`` slots."""
    for _ in generate_stream(
        model,
        enumerate(prompts),
        slots=workload.batch,
        capacity=PROMPT + workload.length,
        options=DecodingOptions(max_new_tokens=workload.length, sampling=SAMPLING),
    ):
        pass


def in_lock_step(model: LanguageModel, prompts: Sequence[list[int]], workload: BenchmarkSizes) -> None:
    """As :func:`in_batches`, where every row makes the steps of the row that needs most."""
    with patch.object(policy, "COMPACT_BELOW", 0.0):
        in_batches(model, prompts, workload)


def steps_taken(
    model: LanguageModel, prompts: Sequence[list[int]], workload: BenchmarkSizes
) -> Int[Tensor, "request token"]:
    """Number of steps of every new token of every prompt."""
    found = in_batches(model, prompts, workload)
    return torch.tensor([result.token_steps for result in found]).long()


def bound(steps: Int[Tensor, "request token"], *, rows: int) -> float:
    """Position-steps of lock-step (for each token the maximum over its batch) over those that are needed."""
    made = sum(int(batch.max(0).values.sum()) * len(batch) for batch in torch.split(steps, rows))
    return made / int(steps.sum())


def compare(workload: BenchmarkSizes, *, share: float, least: float | None, settings: Settings) -> list[Measurement]:
    """Compare continuous generation with lock-step and with ``generate``."""
    model, prompts = random_language_model(workload, share=share)
    steps = steps_taken(model, prompts, workload)
    sides: dict[str, Side] = {
        "continuous": lambda: in_slots(model, prompts, workload),
        "lock-step": lambda: in_lock_step(model, prompts, workload),
        "generate": lambda: in_batches(model, prompts, workload),
    }
    times = alternate(sides, seconds=3 * settings.seconds, least=3, warm_up=1)
    counts = torch.bincount(steps.flatten(), minlength=workload.max_steps + 1)
    rows = f"width {workload.width}, {workload.batch} rows, {len(prompts)} prompts"
    name = f"{rows}, {workload.length} tokens, {workload.max_steps} steps"
    found = []
    for over, highest, asked in (
        ("lock-step", bound(steps, rows=workload.batch), least),
        ("generate", None, 1.0 if least else None),
    ):
        found.append(
            Measurement(
                name=f"decode halting, over {over}: {name}",
                shape=vars(workload),
                **comparison(times, ours="continuous", over=over),
                bound=highest,
                least=asked,
                details={"mean_steps": float(steps.float().mean()), "steps_histogram": counts[1:].tolist()},
            )
        )
    return found


def run(settings: Settings) -> list[Measurement]:
    """All comparisons of this case."""
    if settings.quick:
        return compare(QUICK, share=0.3, least=None, settings=settings)
    return [
        each for workload, least in WORKLOADS for each in compare(workload, share=0.3, least=least, settings=settings)
    ]
