"""The detection of collapsed halting during training."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from universal_transformer.evaluation.collapse import describe, kind_of_collapse
from universal_transformer.evaluation.report import Side
from universal_transformer.nn.trace import Trace
from universal_transformer.training.processes import ALONE, Processes
from universal_transformer.typed import NumberOf

COLLAPSE_UPDATES = 500
COLLAPSE_LOOKS = 3


@dataclass
class CollapseWatch:
    """Detects halting of one side that has been collapsed for long, by the definition of `evaluation.collapse`."""

    updates: NumberOf = 0
    """Updates since halting was last not collapsed."""
    looks: NumberOf = 0
    """Inspected updates since then."""
    warned: bool = False

    def inspect(
        self, trace: Trace | None, *, side: Side, max_steps: int, updates: int, processes: Processes = ALONE
    ) -> str | None:
        """Inspect the last of `updates` updates (None: halting is not trained); return a warning, once a run.

        `trace` is that of this process.
        """
        kind, found = None, ""
        if trace is not None and trace.probability is not None:
            steps = trace.steps if trace.padding is None else trace.steps[~trace.padding]
            steps = steps.double()
            sums = torch.stack([torch.ones_like(steps).sum(), steps.sum(), steps.square().sum()])
            count, total, squares = processes.sum(sums).tolist()
            mean = total / count
            spread = math.sqrt(max(0.0, squares / count - mean**2))
            kind = kind_of_collapse(mean, spread, max_steps=max_steps)
            if kind is not None:
                found = describe(kind, mean, spread, side=side, max_steps=max_steps)
        self.updates = self.updates + updates if kind else 0
        self.looks = self.looks + 1 if kind else 0
        if self.warned or self.updates < COLLAPSE_UPDATES or self.looks < COLLAPSE_LOOKS:
            return None
        self.warned = True
        return (
            f"halting has collapsed ({kind}): in each of the last {self.looks} updates looked at, of {self.updates}, "
            f"{found}"
        )
