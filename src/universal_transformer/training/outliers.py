"""Updates that are left out because their loss, or their gradient norm, is far above those of the updates before.

With the mean ``m`` and the standard deviation ``s`` of the last `WINDOW` values, a value x is an outlier if
``x > m + k · s``, where k is `training.skip_outliers`. Of a gradient norm, x is the logarithm, because norms have a
long tail once the loss is small. Outliers do not enter the window, so that one does not hide the next. `LASTING` of
them in a row are no outliers but a rise of the values: the window begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from universal_transformer.typed import NumberOf

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


@dataclass
class OutlierWatch:
    """The last losses and gradient norms of a run whose outliers are left out; empty for another run."""

    recent: dict[str, list[float]] = field(default_factory=dict)
    in_a_row: NumberOf = 0
    """Updates left out since the last one that was made."""

    def inspect(self, values: Mapping[str, float], *, sigmas: float) -> str | None:
        """Return why an update with these values is left out; None if it is not. 0 sigmas: never.

        The values are those of the whole batch, equal in all processes, so that these decide alike.
        """
        found = [text for name in WATCHED if sigmas and (text := self._above(name, values[name], sigmas=sigmas))]
        self.in_a_row = self.in_a_row + 1 if found else 0
        if self.in_a_row == LASTING:
            self.recent, self.in_a_row = {}, 0
        elif sigmas and not found:
            self.recent = {name: [*self.recent.get(name, []), values[name]][-WINDOW:] for name in WATCHED}
        return ", ".join(found) or None

    def _above(self, name: str, value: float, *, sigmas: float) -> str | None:
        before = self.recent.get(name, [])
        if len(before) < LEAST:
            return None
        measure = WATCHED[name]
        distance = _distance(measure(value), [measure(one) for one in before])
        if distance <= sigmas:
            return None
        return f"{name.replace('_', ' ')} {value:.4g} is {distance:.3g} standard deviations above the mean"


def _distance(value: float, before: list[float]) -> float:
    """Return ``(x - m) / s``, where s is at least what rounding of equal values makes it."""
    mean = math.fsum(before) / len(before)
    spread = math.sqrt(math.fsum((one - mean) ** 2 for one in before) / len(before))
    return (value - mean) / max(spread, ROUNDING * max(1.0, abs(mean)))
