"""Installs fast execution on a model's recurrences."""

from typing import Literal

from torch import nn

from universal_transformer.execution.executor import compacting_loop
from universal_transformer.execution.kernels import install_kernels
from universal_transformer.nn.recurrence import Recurrence

HaltingExecution = Literal["auto", "masked"]
"""Leave out halted positions where the result is the same and that saves time, or never."""


def install(module: nn.Module, halting_execution: HaltingExecution = "auto") -> None:
    """Let every recurrence inside ``module`` use the CPU kernels and, with ``auto``, leave out halted positions."""
    install_kernels(module)
    for part in module.modules():
        if isinstance(part, Recurrence):
            part.executor = compacting_loop if halting_execution == "auto" else None
