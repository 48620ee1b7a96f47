"""What a run watches: updates that are outliers, which are left out, and halting that has collapsed.

With the mean ``m`` and the standard deviation ``s`` of the last `WINDOW` values, a value x is an outlier if
``x > m + k · s``, where k is `training.skip_outliers`. Of a gradient norm, x is the logarithm, because norms have a
long tail once the loss is small. Outliers do not enter the window, so that one does not hide the next. `LASTING` of
them in a row are no outliers but a rise of the values: the window begins anew.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from universal_transformer.evaluation.collapse import collapse
from universal_transformer.evaluation.report import Side
from universal_transformer.nn.trace import Trace
from universal_transformer.training.processes import ALONE, Processes

WINDOW = 128
LEAST = WINDOW // 2
"""Values without which there is no limit yet."""
LASTING = 16
LEAST_NORM = 1e-300
"""A gradient norm of which there is a logarithm: a smaller one counts as this one."""
WATCHED: dict[str, Callable[[float], float]] = {
    "loss": float,
    "gradient_norm": lambda norm: math.log(max(norm, LEAST_NORM)),
}
"""The x of each value that is watched."""
ROUNDING = 1e-6
"""A smaller standard deviation of x, or a smaller share of a mean above 1, may be rounding of equal values."""

COLLAPSE_UPDATES = 500
COLLAPSE_LOOKS = 3


@dataclass
class OutlierWatch:
    """The last losses and gradient norms of a run whose outliers are left out; empty for another run."""

    recent: dict[str, list[float]] = field(default_factory=dict)
    in_a_row: int = 0
    """Updates left out since the last one that was made."""

    def inspect(self, values: Mapping[str, float], *, sigmas: float) -> str | None:
        """Return why an update with these values is left out; None if it is not.

        The values are those of the whole batch, equal in all processes, so that these decide alike.
        """
        reasons = [text for name in WATCHED if (text := self._above(name, values[name], sigmas=sigmas))]
        self.in_a_row = self.in_a_row + 1 if reasons else 0
        if self.in_a_row == LASTING:
            self.recent, self.in_a_row = {}, 0
        elif not reasons:
            self.recent = {name: [*self.recent.get(name, []), values[name]][-WINDOW:] for name in WATCHED}
        return ", ".join(reasons) or None

    def _above(self, name: str, value: float, *, sigmas: float) -> str | None:
        before = self.recent.get(name, [])
        if len(before) < LEAST:
            return None
        measure = WATCHED[name]
        distance = _distance(measure(value), [measure(earlier) for earlier in before])
        if distance <= sigmas:
            return None
        return f"{name.replace('_', ' ')} {value:.4g} is {distance:.3g} standard deviations above the mean"


def _distance(value: float, before: list[float]) -> float:
    """Return ``(x - m) / s``, where s is at least what rounding of equal values makes it."""
    mean = math.fsum(before) / len(before)
    spread = math.sqrt(math.fsum((earlier - mean) ** 2 for earlier in before) / len(before))
    return (value - mean) / max(spread, ROUNDING * max(1.0, abs(mean)))


@dataclass
class CollapseWatch:
    """Detects halting of one side that has been collapsed for long, by the definition of `evaluation.collapse`."""

    updates: int = 0
    """Updates since halting was last not collapsed."""
    looks: int = 0
    """Inspected updates since then."""
    warned: bool = False

    def inspect(
        self, trace: Trace | None, *, side: Side, max_steps: int, updates: int, processes: Processes = ALONE
    ) -> str | None:
        """Inspect the last of `updates` updates (None: halting is not trained); return a warning, once a run.

        `trace` is that of this process.
        """
        found = None
        if trace is not None and trace.probability is not None:
            steps = trace.steps if trace.padding is None else trace.steps[~trace.padding]
            steps = steps.double()
            sums = torch.stack([torch.ones_like(steps).sum(), steps.sum(), steps.square().sum()])
            count, total, squares = processes.sum(sums).tolist()
            mean = total / count
            spread = math.sqrt(max(0.0, squares / count - mean**2))
            found = collapse(mean, spread, side=side, max_steps=max_steps)
        self.updates = self.updates + updates if found else 0
        self.looks = self.looks + 1 if found else 0
        if found is None or self.warned or self.updates < COLLAPSE_UPDATES or self.looks < COLLAPSE_LOOKS:
            return None
        kind, meaning = found
        self.warned = True
        return (
            f"halting has collapsed ({kind}): in each of the last {self.looks} updates looked at, of {self.updates}, "
            f"{meaning}"
        )
