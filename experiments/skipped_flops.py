"""Count the operations that halting saves: one and two blocks a step, halted positions left out or computed too.

    python experiments/skipped_flops.py

A random classifier of width 128 reads 16 sequences of 64 tokens. Its halting bias is set so that a position takes two
of at most six steps on average. Operations are counted by torch (products and attention), so that the figures do not
depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from universal_transformer import Classifier, ModelConfig
from universal_transformer.models.components import DepthConfig, VocabularyConfig
from universal_transformer.nn.config import HaltingConfig, StepConfig
from universal_transformer.typed import replaced

CAP, MEAN, ROWS, LENGTH = 6, 2.0, 16, 64
BASE = ModelConfig(
    architecture="classifier",
    vocabulary=VocabularyConfig(size=64, num_classes=8),
    step=StepConfig(dropout=0.0),
    depth=DepthConfig(max_steps=CAP),
    halting=HaltingConfig(side="encoder"),
)
HEAD = ("blocks", "norm", "mean steps", "steps skipped", "inference, GFLOP", "all", "training, GFLOP", "all", "ratios")


def halting_model(blocks: int, norm: str, ids: torch.Tensor) -> Classifier:
    """Return a model whose positions take MEAN steps on average, by bisection of the bias."""
    torch.manual_seed(0)
    model = Classifier(replaced(BASE, {"step.blocks": blocks, "step.norm": norm})).eval()
    unit = model.source.recurrence.halting
    torch.nn.init.normal_(unit.weight, std=1.0 if norm == "post" else 0.3)
    low, high = -30.0, 30.0
    with torch.no_grad():
        for _ in range(25):
            middle = (low + high) / 2
            unit.bias.fill_(middle)
            low, high = (middle, high) if mean_steps(model, ids) > MEAN else (low, middle)
    return model


def mean_steps(model: Classifier, ids: torch.Tensor) -> float:
    """Return the mean number of steps of a position."""
    trace = model(ids).encoder
    assert trace is not None
    return float(trace.mean_steps())


def gigaflops(work: Callable[[], object]) -> float:
    """Return the operations of a call, in units of 1e9."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops() / 1e9


def counts(model: Classifier, ids: torch.Tensor) -> Iterator[float]:
    """Yield the operations of inference, then of training: without halted positions, and with all."""

    def train() -> None:
        output = model(ids)
        torch.autograd.backward(output.logits.square().sum() + output.ponder_cost)

    for work in (torch.no_grad()(lambda: model(ids)), train):
        for form in ("auto", "masked"):
            model.use_halting_execution(form)
            yield gigaflops(work)


def main() -> None:
    """Print a table."""
    ids = torch.randint(3, 64, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for blocks in (1, 2):
        for norm in ("post", "pre"):
            model = halting_model(blocks, norm, ids)
            with torch.no_grad():
                steps = mean_steps(model, ids)
            one, two, three, four = counts(model, ids)
            cells = [f"{steps:.2f} of {CAP}", f"{100 * (1 - steps / CAP):.1f} %"]
            cells += [f"{each:.2f}" for each in (one, two, three, four)]
            print(f"| {blocks} | {norm} | {' | '.join(cells)} | {one / two:.2f}, {three / four:.2f} |")


if __name__ == "__main__":
    main()
