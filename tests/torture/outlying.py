"""N2: updates whose loss is an outlier are left out, and few others; generated losses, and training."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from torture.outcome import Outcome
from training import tiny
from universal_transformer.runs.journal import read_metrics
from universal_transformer.runs.trainer import train
from universal_transformer.training import run as training_run
from universal_transformer.training.watches import LEAST, WINDOW, OutlierWatch

SIGMAS, SPIKE = 6.0, 10.0
UPDATES = 10_000
EVERY = 100
"""Updates from one spike to the next."""
FALSE = 1
"""Updates of `UPDATES` that may be left out without a spike."""
SERIES: dict[str, Callable[[random.Random, int], float]] = {
    "normal": lambda draw, _: draw.gauss(2, 0.1),
    "uniform": lambda draw, _: draw.uniform(1, 2),
    "falling": lambda draw, at: 0.1 + 1 / (1 + at / 2000) + draw.gauss(0, 0.05),
}
RUNS = ("encoder_decoder", "language_model", "classifier", "tagger", "encoder_decoder")


def skipped(share: float, folder: Path) -> Outcome:
    """N2: 10,000 losses of each series, and 10,000 updates of training, with a spike every 100."""
    outcome, updates = Outcome(), round(UPDATES * share)
    for name, made in SERIES.items():
        draw, watch, seen = random.Random(0), OutlierWatch(), Seen()
        for at in range(updates):
            loss = seen.next(made(draw, at))
            if watch.inspect({"loss": loss, "gradient_norm": 1.0}, sigmas=SIGMAS):
                seen.left_out.add(at + 1)
        seen.count(name, outcome, updates=updates)
    every, false = updates // len(RUNS), 0
    for seed, architecture in enumerate(RUNS):
        config = tiny.run_config(max_updates=every, validate_every=10**6, seed=seed, skip_outliers=SIGMAS)
        task = dataclasses.replace(tiny.task(architecture, count=200, seed=seed), validation=[])
        with spiked() as seen:
            train(config, folder / f"{architecture}-{seed}", task=task, quiet=True)
        lines = read_metrics(folder / f"{architecture}-{seed}" / "metrics.jsonl")
        seen.left_out = {line["update"] for line in lines if line["event"] == "outlier"}
        false += len(seen.left_out - seen.spikes)
        for spike in seen.spikes:
            outcome.add(
                f"training {architecture}, seed {seed}, update {spike}", [] if spike in seen.left_out else ["made"]
            )
    outcome.add("training without spikes", [] if false <= FALSE else [f"{false} of {updates:,} updates were left out"])
    outcome.notes.append(f"in {updates:,} updates of training, {false} were left out without a spike")
    return outcome


class Seen:
    """Losses, of which every `EVERY`-th is a spike: ten standard deviations above the mean of the last ones."""

    def __init__(self) -> None:
        self.made, self.recent = 0, []
        self.spikes: set[int] = set()
        self.left_out: set[int] = set()

    def next(self, loss: float) -> float:
        """Return the next loss, or a spike in its place."""
        self.made += 1
        if self.made % EVERY or self.made <= LEAST:
            self.recent = [*self.recent, loss][-WINDOW:]
            return loss
        self.spikes.add(self.made)
        mean = math.fsum(self.recent) / len(self.recent)
        spread = math.sqrt(math.fsum((one - mean) ** 2 for one in self.recent) / len(self.recent))
        return mean + SPIKE * spread

    def count(self, name: str, outcome: Outcome, *, updates: int) -> None:
        """Add each spike to the outcome, and the number of the others that were left out."""
        for spike in sorted(self.spikes):
            outcome.add(f"{name}, update {spike}", [] if spike in self.left_out else ["made"])
        false = len(self.left_out - self.spikes)
        outcome.add(f"{name} without spikes", [] if false <= FALSE else [f"{false} of {updates:,} were left out"])


@contextmanager
def spiked() -> Iterator[Seen]:
    """Put spikes into the losses of a training run."""
    compute, seen = training_run.objective, Seen()

    def objective(model: object, batch: object, **weights: object) -> object:
        loss = compute(model, batch, **weights)  # type: ignore[arg-type]
        own = float(loss.total.detach())
        return dataclasses.replace(loss, total=loss.total + torch.tensor(seen.next(own) - own))

    training_run.objective = objective  # type: ignore[assignment]
    try:
        yield seen
    finally:
        training_run.objective = compute
