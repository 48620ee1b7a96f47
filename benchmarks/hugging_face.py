"""``ut bench hugging_face``: greedy ``generate`` of transformers with our cache, with its own, and our ``generate``.

A language model with random weights halts after about a quarter of its steps. All sides write the same tokens.

============= ======================================================================================================
side          what it does
============= ======================================================================================================
transformers  its own cache: every position makes all steps
ours          its ``generate`` with our cache: halted positions are left out
generate      ours, without transformers
============= ======================================================================================================
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.continuous import random_language_model
from benchmarks.peers import installed
from benchmarks.random_models import QUICK, BenchmarkSizes
from benchmarks.result import Measurement, Settings
from benchmarks.timing import alternate, comparison, medians
from universal_transformer.decoding import DecodingOptions, generate
from universal_transformer.errors import UserError

SHAPE = BenchmarkSizes(width=512, heads=8, filter_width=2048, batch=16, length=48, max_steps=8)
SHARE = 0.25
LEAST = {"transformers": 2.0, "generate": 0.8}
"""The least ratios that are wanted."""


def compare(shape: BenchmarkSizes, *, settings: Settings) -> list[Measurement]:
    """Compare the three; UserError if they write different tokens."""
    from transformers import DynamicCache

    from universal_transformer.interop.transformers.conversion import to_transformers

    model, prompts = random_language_model(shape, share=SHARE)
    prompts = prompts[: shape.batch]
    theirs, ids = to_transformers(model.eval()), torch.tensor(prompts)
    write = partial(
        theirs.generate, ids, attention_mask=torch.ones_like(ids), max_new_tokens=shape.length, do_sample=False
    )
    sides: dict[str, Callable[[], Any]] = {
        "ours": write,
        "transformers": lambda: write(cache=DynamicCache(config=theirs.config)),
        "generate": lambda: generate(model, prompts, DecodingOptions(max_new_tokens=shape.length)),
    }
    found = generate(model, prompts, DecodingOptions(max_new_tokens=shape.length))
    expected = torch.tensor([[*prompt, *row.tokens] for prompt, row in zip(prompts, found, strict=True)])
    if not all(torch.equal(sides[name](), expected) for name in ("ours", "transformers")):
        raise UserError("hugging_face: the sides write different tokens")
    times = alternate(sides, seconds=settings.seconds * 1.5, least=4)
    rates = {name: shape.batch * shape.length / value for name, value in medians(times).items()}
    steps = sum(row.steps for row in found) / len(found)
    return [
        Measurement(
            name=f"{shape}, halting after {steps:.1f} steps",
            dtype="float32",
            shape=vars(shape),
            **comparison(times, over=over),
            bound=None,
            least=None if settings.quick else least,
            details={"tokens_per_second": rates, "mean_steps": steps},
        )
        for over, least in LEAST.items()
    ]


def run(settings: Settings) -> list[Measurement]:
    """The comparison, where transformers is installed."""
    if not installed("transformers"):
        return []
    return compare(QUICK if settings.quick else SHAPE, settings=settings)
