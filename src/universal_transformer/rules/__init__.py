"""The halting rules beyond the paper's, each a class with the protocol of `nn.halting.Rule`, and their registry.

Importing this package needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from universal_transformer.errors import UserError, suggestion
from universal_transformer.nn.config import load_object
from universal_transformer.typed import Range, check, listed

if TYPE_CHECKING:
    from universal_transformer.rules.exits import ExitRule

HALTING_RULES: dict[str, str] = {
    "act": "universal_transformer.nn.halting:ACT",
    "ponder": "universal_transformer.rules.ponder:PonderNet",
    "stick_breaking": "universal_transformer.rules.stick_breaking:StickBreaking",
}
"""Name of a trained rule -> ``module:class``. See docs/extending.md for how to add one."""

EXITS: dict[str, str] = {
    "state_change": "universal_transformer.rules.exits:StateChange",
    "output_change": "universal_transformer.rules.exits:OutputChange",
    "confidence": "universal_transformer.rules.exits:Confidence",
}
"""Name of a rule without weights -> ``module:class``, a subclass of `rules.exits.ExitRule`."""


@dataclass(frozen=True)
class Exit:
    """A criterion to stop at that needs no trained unit: ``Exit("confidence", 0.9)``. It serves any trained model.

    A position makes its last step when the criterion holds; `rules/exits.py` has the equations.
    """

    kind: str
    """What is compared with the threshold, an entry of ``EXITS``."""
    threshold: Annotated[float, Range(0, above=True)]
    """The change below which a position stops, or the probability above which it stops (at most 1)."""

    def __post_init__(self) -> None:
        check(self, where="exit")
        if self.kind not in EXITS:
            known = f"expected one of {listed(EXITS)}, found {self.kind!r}{suggestion(self.kind, EXITS)}"
            raise UserError(f"exit: kind: {known}")
        if not self.threshold <= self.rule.most:
            raise UserError(f"exit {self}: the threshold of {self.kind} is at most {self.rule.most:g}")

    @classmethod
    def parse(cls, text: str) -> Exit:
        """The inverse of ``str``: ``confidence:0.9``."""
        kind, _, threshold = text.partition(":")
        try:
            number = float(threshold)
        except ValueError:
            raise UserError(f"exit {text!r}: expected KIND:THRESHOLD, for instance confidence:0.9") from None
        return cls(kind, number)

    def __str__(self) -> str:
        return f"{self.kind}:{self.threshold:g}"

    @property
    def rule(self) -> type[ExitRule]:
        """The class of its kind. Needs torch."""
        return load_object(EXITS[self.kind])
