"""Seeds, random states, threads and the order of sums, which determine the bits of a run besides its data."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from universal_transformer.axes import Tensor
from universal_transformer.training.run_config import TrainingConfig


def random_states(device: torch.device) -> dict[str, Tensor]:
    _, words, _ = random.getstate()
    states = {"torch": torch.get_rng_state(), "python": torch.tensor(words, dtype=torch.int64)}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_states(states: Mapping[str, Tensor], *, device: torch.device) -> None:
    """Undo `random_states`; the state of a GPU that is not used is ignored."""
    torch.set_rng_state(states["torch"])
    random.setstate((3, tuple(states["python"].tolist()), None))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


@contextmanager
def repeatable(*, threads: int | None, device: torch.device) -> Iterator[None]:
    """Make sums repeatable (on a CPU) and use `threads` threads (None: no change)."""
    previous_threads = torch.get_num_threads()
    previous_mode = torch.get_deterministic_debug_mode()
    previous_fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    if threads is not None:
        torch.set_num_threads(threads)
    if device.type == "cpu":
        # otherwise two threads add the gradients of a gather in a varying order
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.set_num_threads(previous_threads)
        torch.set_deterministic_debug_mode(previous_mode)
        torch.utils.deterministic.fill_uninitialized_memory = previous_fill  # type: ignore[attr-defined]


def seed_update(seed: int, *, update: int, rank: int) -> None:
    torch.manual_seed(random.Random(f"update {seed} {update} {rank}").getrandbits(63))


def depth_of(training: TrainingConfig, *, update: int, most: int) -> int | None:
    """Return the depth of an update: T ~ uniform(1 … `most`), a function of seed and update; None: as configured."""
    if training.depth == "fixed":
        return None
    return random.Random(f"depth {training.seed} {update}").randint(1, most)
