"""N1, N3, N4: numbers that are not finite stop a run, collapsed halting is warned about, and a seed repeats a run."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from torture.outcome import Outcome
from training import tiny
from universal_transformer.data.batch import collate
from universal_transformer.evaluation.tensors import inputs_of
from universal_transformer.registry import load_pretrained
from universal_transformer.runs.trainer import train
from universal_transformer.training import run as training_run
from universal_transformer.training.optimizer import NonFiniteError
from universal_transformer.training.run_config import RunConfig

BAD = {"NaN": math.nan, "Inf": math.inf}
PRECISIONS = ("float32", "bfloat16")
PLACES = ("loss", "gradient", "rank")
SEEDS = 10
SEEDS_OF_HALTING = 10
MOST_SEEDS = 6
"""Runs that are tried for one whose positions differ."""
ALIKE = 0.95
UPDATES = 600
"""Of a run whose halting is watched: the warning needs 500."""


@contextmanager
def poisoned(place: str, value: float, *, seed: int, update: int, seen: dict[str, Any]) -> Iterator[None]:
    """Put a value into the loss of an update, or into the gradient of one parameter; `seen` gets weights and name."""
    compute, made = training_run.objective, 0

    def objective(model, batch, **weights):
        nonlocal made
        loss, made = compute(model, batch, **weights), made + 1
        if made != update:
            return loss
        seen["model"] = model
        seen["before"] = {name: tensor.detach().clone() for name, tensor in model.tensors().items()}
        if place == "loss":
            return dataclasses.replace(loss, total=loss.total * value)
        chosen = random.Random(seed).choice([name for name, one in model.named_parameters() if one.requires_grad])
        seen["name"] = chosen
        dict(model.named_parameters())[chosen].register_hook(lambda found: torch.full_like(found, value))
        return loss

    training_run.objective = objective
    try:
        yield
    finally:
        training_run.objective = compute


def refused(share: float, folder: Path) -> Outcome:
    """N1: 2 values × 2 precisions × (loss, one gradient, one process of two) × 10 seeds."""
    from torture.lost import poisoned_ranks

    outcome, seeds = Outcome(), range(max(1, round(SEEDS * share)))
    for place, (kind, value), precision, seed in itertools.product(PLACES[:2], BAD.items(), PRECISIONS, seeds):
        architecture = tiny.ARCHITECTURES[seed % len(tiny.ARCHITECTURES)]
        config = tiny.run_config(
            tiny.model_config(halting=bool(seed % 2)), precision=precision, seed=seed, validate_every=100
        )
        name = f"{kind} in the {place}, {precision}, seed {seed}"
        outcome.add(name, stopped(config, folder / name, architecture, place, value))
    if share == 1:
        for name, problems in poisoned_ranks(folder).items():
            outcome.add(name, problems)
    return outcome


def stopped(config: RunConfig, folder: Path, architecture: str, place: str, value: float) -> list[str]:
    """Return what is wrong with a run that a value should stop at its fourth update."""
    seen: dict[str, Any] = {}
    try:
        with poisoned(place, value, seed=config.training.seed, update=4, seen=seen):
            train(config, folder, task=tiny.task(architecture), quiet=True)
    except NonFiniteError as error:
        return wrong_stop(str(error), seen, update=4)
    return ["it went on"]


def wrong_stop(said: str, seen: dict[str, Any], *, update: int) -> list[str]:
    """Return what is wrong with a run that stopped: other weights, a missing name, several lines."""
    problems = []
    if not all(torch.equal(one, seen["before"][name]) for name, one in seen["model"].tensors().items()):
        problems.append("the weights have changed")
    first = next(
        name for name, one in seen["model"].named_parameters() if one.grad is not None and not one.grad.isfinite().all()
    )
    for text in (f"update {update}: ", f"first gradient that is not finite: {first}"):
        problems += [] if text in said else [f"{text!r} is not in {said[:200]!r}"]
    if "name" in seen and seen["name"] != first:
        problems.append(f"{first} is named, not {seen['name']}")
    return problems + (["several lines"] if "\n" in said else [])


def repeated(share: float, folder: Path) -> Outcome:
    """N4: architectures, with halting and without, each with several seeds: losses to the last bit, and weights."""
    outcome = Outcome()
    cases = list(itertools.product(range(5), (False, True), tiny.ARCHITECTURES))[: max(4, round(20 * share))][:20]
    for seed, halting, architecture in cases:
        config = tiny.run_config(tiny.model_config(halting=halting), seed=seed, max_updates=20, average_checkpoints=2)
        found = []
        for number in range(2):
            torch.manual_seed(random.randrange(2**31))  # what was drawn before must not matter
            place = folder / f"{architecture} {halting} {seed} {number}"
            train(config, place, task=tiny.task(architecture), quiet=True)
            found.append((tiny.losses(place), (place / "model" / "model.safetensors").read_bytes()))
        outcome.add(f"{architecture}, halting {halting}, seed {seed}", [] if found[0] == found[1] else ["differs"])
        load_pretrained(place / "model")
    return outcome


def collapsed(share: float, folder: Path) -> Outcome:
    """N3: halting that a bias forces to the first step or to the cap, and halting that learns, on both sides.

    A run that learns counts if its positions differ at the end, by a measure that the warning does not use: on no side
    do 95 % of them take the same number of steps.
    """
    outcome, wanted, differing, others = Outcome(), max(1, round(SEEDS_OF_HALTING * share)), 0, 0
    for seed in range(wanted):
        architecture = tiny.ARCHITECTURES[seed % len(tiny.ARCHITECTURES)]
        found = halting_run(architecture, bias=(30.0, -30.0)[seed % 2], seed=seed, folder=folder)
        outcome.add(f"forced {architecture}, seed {seed}", [] if found.warnings else ["no warning"])
    for seed in range(MOST_SEEDS * wanted):
        found = halting_run("encoder_decoder", bias=-0.5, seed=seed, folder=folder)
        if found.alike >= ALIKE:
            others += 1
            continue
        outcome.add(f"healthy, seed {seed}", list(found.warnings[:1]))
        differing += 1
        if differing == wanted:
            break
    outcome.add("runs whose positions differ", [] if differing == wanted else [f"{differing} only"])
    outcome.notes.append(
        f"{wanted} forced, {differing} whose positions differ; {others} others collapsed by themselves"
    )
    return outcome


@dataclasses.dataclass(frozen=True)
class HaltingRun:
    """The warnings of a run, and the largest share of the positions of a side that take the same number of steps."""

    warnings: tuple[str, ...]
    alike: float


def halting_run(architecture: str, *, bias: float, seed: int, folder: Path) -> HaltingRun:
    """Train a model that halts."""
    model = tiny.model_config(halting=True, dropout=0.0, max_steps=6, halting_bias=bias)
    limits = {"max_updates": UPDATES, "validate_every": 1_000, "learning_rate": 3e-3, "ponder_weight": 0.03}
    task = dataclasses.replace(tiny.task(architecture, count=200, seed=seed), validation=[])
    place = folder / f"{architecture} {bias} {seed}"
    result = train(tiny.run_config(model, seed=seed, **limits), place, task=task, quiet=True)
    trained = load_pretrained(place / "model").eval()
    with torch.no_grad():
        output = trained(*inputs_of(collate(task.train, indices=range(len(task.train))), model=trained))
    shares = []
    for trace in (output.encoder, output.decoder):
        if trace is not None:
            steps = trace.steps if trace.padding is None else trace.steps[~trace.padding]
            shares.append(float(steps.flatten().long().bincount().max() / steps.numel()))
    return HaltingRun(tuple(text for text in result.warnings if "collapsed" in text), max(shares))
