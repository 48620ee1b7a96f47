"""The processes of a run that torchrun started.

Each computes the gradient of a part of every batch (data parallel), or they share the positions of every sequence
(`execution.context_parallel`). Data parallel processes exchange numbers before a forward pass (the counts that the loss
is divided by), in the backward pass (the gradients: `training.replica`) and after it (the figures of the update). None
of these exchanges depends on how many steps the positions of a process take, so that processes may halt at different
steps.
"""

import atexit
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed

from universal_transformer.axes import Tensor
from universal_transformer.errors import UserError

TIMEOUT = 20.0
"""Seconds after which a process that does not answer counts as lost."""
REPORT_SECONDS = 2.0
"""Seconds to wait for the reports of live processes."""


class LostProcessError(UserError):
    """Another process of the run has ended, or does not answer."""


@dataclass(frozen=True)
class Processes:
    """Of `size` processes the one of number `rank`; rank 0 alone writes files and messages."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes, the same bits in each; `values` themselves in a process of its own."""
        if self.size > 1:
            values = values.clone()
            distributed.all_reduce(values)
        return values

    @contextmanager
    def one_after_the_other(self) -> Iterator[None]:
        """Run the body in the first process, then in the others."""
        if not self.first:
            self.sum(torch.zeros(()))
        yield
        if self.first:
            self.sum(torch.zeros(()))

    def lost(self) -> list[int]:
        """Return the ranks of the processes that do not answer; those that call this do."""
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = distributed.TCPStore(host, port, is_master=False)  # type: ignore[attr-defined]
        store.set(f"here {self.rank}", "")
        time.sleep(REPORT_SECONDS)
        return [rank for rank in range(self.size) if not store.check([f"here {rank}"])]


ALONE = Processes()
"""A run of one process."""


class Clock:
    """Seconds of training, over all resumes. Several processes go by that of the first one."""

    def __init__(self, processes: Processes, seconds: float = 0.0) -> None:
        self.processes, self._began, self._agreed = processes, time.monotonic() - seconds, seconds

    @property
    def seconds(self) -> float:
        """The seconds of training; among several processes, those at the last call of `stopped`."""
        return time.monotonic() - self._began if self.processes.size == 1 else self._agreed

    def stopped(self, stop: Callable[[], bool]) -> bool:
        """Return whether any process was asked to stop; all processes make this call together."""
        if self.processes.size == 1:
            return stop()
        own = time.monotonic() - self._began if self.processes.first else 0.0
        requests, self._agreed = self.processes.sum(torch.tensor([float(stop()), own]).double()).tolist()
        return requests > 0

    def interrupting(self, stop: Callable[[], bool]) -> Callable[[], bool]:
        """Return what ends a validation before its end: nothing among several processes, which make the same calls."""
        return stop if self.processes.size == 1 else lambda: False


def started() -> Processes:
    """Return the processes that torchrun started, by its environment variables; `ALONE` without them."""
    rank, size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    return ALONE if rank is None or size is None or size == "1" else Processes(rank=int(rank), size=int(size))


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """Connect the processes that torchrun started, by gloo on a CPU, and by NCCL and gloo on GPUs, until they end.

    With GPUs, gradients are exchanged by NCCL. Counts that are on the CPU, such as that of the targets, go by gloo.

    They stay connected from one run to the next: a second connection would find the addresses of the first one.
    Raises LostProcessError where another process ends or does not answer for `TIMEOUT` seconds.
    """
    processes = started()
    if processes.size == 1:
        yield processes
        return
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if not distributed.is_initialized():
        distributed.init_process_group(backend, timeout=timedelta(seconds=TIMEOUT))
        atexit.register(distributed.destroy_process_group)
    try:
        yield processes
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and "gloo" not in str(error):
            raise
        ranks = ", ".join(map(str, processes.lost())) or "(its number is unknown)"
        raise LostProcessError(
            f"no answer from process {ranks} of {processes.size}: stopped; the last checkpoint is unchanged, and "
            "ut train --resume continues from it, with any number of processes"
        ) from error


def own_device(device: torch.device) -> torch.device:
    """Return the GPU of this process where a run uses several, else `device`."""
    if device.type != "cuda" or started().size == 1:
        return device
    own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(own)
    return own
