"""N5: a compiled block is as near to float64 as an eager one, and halts at the same steps."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from configs import config_of
from torture.outcome import Outcome
from universal_transformer.models.model import Model
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.trace import Trace
from universal_transformer.registry import build

BATCHES = 25
FACTOR = 2.0
NEAR = 1e-6
"""A sum of halting probabilities so near to the threshold may be above it in one and below it in the other."""
SMALL = {"vocabulary_size": 11, "width": 32, "filter_width": 64, "num_heads": 2, "max_steps": 6, "dropout": 0.0}
MODELS = {
    f"{architecture}{', halting' if halting else ''}": {
        "architecture": architecture,
        "halting": halting,
        **({"num_classes": 3} if architecture == "classifier" else {}),
        **({"halting_bias": -1.0} if halting else {}),
    }
    for architecture in ("classifier", "language_model")
    for halting in (False, True)
}


def near(share: float, folder: Path) -> Outcome:
    """N5: each model with batches of several lengths."""
    del folder
    outcome, largest = Outcome(), 0.0
    for name, fields in MODELS.items():
        torch._dynamo.reset()
        eager, compiled, exact = three(config_of(**SMALL, **fields))
        for number in range(max(2, round(BATCHES * share))):
            source = torch.randint(3, 11, (32, 5 + number % 8))
            source[0, 3:] = 0
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the compiler's own
                one, two, wanted = (model(source) for model in (eager, compiled, exact))
            ratio = float(distance(two, wanted) / distance(one, wanted))
            largest = max(largest, ratio)
            problems = [] if ratio <= FACTOR else [f"{ratio:.2f} times the error"]
            outcome.add(f"{name}, batch {number}", problems + other_steps(trace_of(two), trace_of(wanted)))
    outcome.notes.append(f"the error is at most {largest:.2f} times that of an eager block")
    return outcome


def three(config: ModelConfig) -> list[Model]:
    """Return a model with lively weights: eager and compiled in float32, and eager in float64."""
    torch.manual_seed(0)
    found = [build(config).eval() for _ in range(3)]
    with torch.no_grad():
        for parameter in found[0].parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    for model in found[1:]:
        model.load_state_dict(found[0].state_dict())
    found[1].compile_blocks()
    return [*found[:2], found[2].double()]


def distance(output, wanted) -> torch.Tensor:
    """Return the root mean square of the differences of logits."""
    return (output.logits.double() - wanted.logits).square().mean().sqrt()


def trace_of(output) -> Trace:
    """Return the trace of the only side."""
    return output.encoder or output.decoder


def other_steps(found: Trace, wanted: Trace) -> list[str]:
    """Return how many positions halt at other steps, those near the threshold excepted."""
    if wanted.probability is None:
        return []
    threshold = 1 - 0.01
    margin = (wanted.probability.cumsum(0) - threshold).abs().amin(0)
    other = (found.steps != wanted.steps) & (margin > NEAR)
    return [f"{int(other.sum())} positions halt at other steps"] if bool(other.any()) else []
