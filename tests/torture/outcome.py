"""The result of a figure: how many cases were tried, and which of them did not hold."""

from __future__ import annotations

from dataclasses import dataclass, field

SHOWN = 5
"""Failures that a line of a report names."""


@dataclass
class Outcome:
    """Cases of a figure; it holds if there are some and none failed."""

    tried: int = 0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was measured besides, one phrase each."""

    def add(self, case: object, problems: list[str]) -> None:
        """Count a case; `problems` are what did not hold in it."""
        self.tried += 1
        if problems:
            self.failures.append(f"{case}: {'; '.join(problems)}")

    @property
    def holds(self) -> bool:
        """Whether every case held."""
        return self.tried > 0 and not self.failures

    def __str__(self) -> str:
        parts = [f"{self.tried - len(self.failures):,} of {self.tried:,}", *self.notes]
        parts += [f"FAILED {failure}" for failure in self.failures[:SHOWN]]
        if len(self.failures) > SHOWN:
            parts.append(f"and {len(self.failures) - SHOWN} more failures")
        return "; ".join(parts)
