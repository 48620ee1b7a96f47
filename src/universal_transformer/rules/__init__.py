"""The halting rules beyond the paper's, each a class with the protocol of `nn.halting.Rule`, and their registry: what a
configuration needs to know of a rule, and what it refuses with it.

Importing this package needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

from universal_transformer.errors import UserError, suggestion
from universal_transformer.nn.step_config import HaltingConfig
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
        return resolve_name(EXITS[self.kind])


Refusals = Iterator[tuple[str, bool, str]]
"""Path of a field, whether its value does not fit the others, and the remedy."""


Unread = Iterator[tuple[str, str]]
"""Path of a field that changes nothing in a configuration, and why."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What differs between rules. ``refusals``: what a whole configuration must not have with the rule."""

    threshold: str = "threshold"
    """The field with the cumulative probability at which a position stops."""
    expects_loss: bool = False
    """Whether the loss is the expectation over the step at which positions stop, so that it needs every output."""
    shows_mean: bool = False
    """Whether others attend to the mean of the states of a position in place of its last one."""
    keeps_weights: bool = False
    """Whether its cost needs the weights of all steps, which an exported loop does not keep."""
    own: tuple[str, ...] = ()
    """Fields that no other rule reads."""
    refusals: Callable[[Any], Refusals] | None = None


def _ponder(config: Any) -> Refusals:
    """PonderNet needs an output after every step, which is the last state."""
    halting, encoder = config.halting, config.architecture == "encoder_decoder" and config.halts_in(decoder=False)
    reason = "ponder needs the output after every step, and an encoder has none: set it to decoder"
    yield "halting.side", encoder, reason
    yield "halting.output", halting.output == "interpolate", "ponder reads the state of the last step: set it to final"
    yield "halting.state", halting.state != "frozen", "ponder freezes a position that stops: set it to frozen"
    yield "halting.remainder_at_cap", not halting.remainder_at_cap, "with ponder the last step takes the rest"
    length = config.halts_in(decoder=False) and config.by_length(decoder=False)
    yield "depth.max_steps", length, "with ponder all sequences have the same last step: set a number"
    other = halting.threshold not in (HaltingConfig().threshold, halting.quantile)
    yield "halting.threshold", other, "ponder stops at halting.quantile: set that"
    unused = halting.prior == "uniform" and halting.prior_steps is not None
    rate = "a uniform prior has no rate: leave it out, or set halting.prior to geometric"
    yield "halting.prior_steps", unused, rate
    frames = config.outputs.kind == "frames"
    yield "halting.rule", frames, "ponder needs probabilities of classes after every step, and frames have none"


def _stick_breaking(config: Any) -> Refusals:
    """With stick-breaking others see the mean of the states, which is the output too."""
    halting = config.halting
    yield "halting.output", halting.output != "mean", "the output of stick_breaking is what others see: set it to mean"
    yield "halting.state", halting.state != "frozen", "stick_breaking freezes what others see: set it to frozen"
    yield "halting.remainder_at_cap", not halting.remainder_at_cap, "with stick_breaking the last step takes the rest"
    several = "with stick_breaking, what others see is defined for one block a step"
    yield "step.blocks", config.step.blocks > 1, several


CHOICES: dict[str, Choices] = {
    "ponder": Choices(
        threshold="quantile", expects_loss=True, own=("prior", "prior_steps", "quantile"), refusals=_ponder
    ),
    "stick_breaking": Choices(shows_mean=True, keeps_weights=True, refusals=_stick_breaking),
}
"""Name of a rule -> what differs; a rule without an entry stops at ``halting.threshold`` and refuses nothing."""


def choices_of(halting: HaltingConfig) -> Choices:
    """Those of the rule of a configuration."""
    return CHOICES.get(halting.rule, Choices())


def stops_at(halting: HaltingConfig) -> float:
    """The cumulative probability at which a position stops."""
    return float(getattr(halting, choices_of(halting).threshold))


def refusals(config: Any) -> Refusals:
    """What does not fit the rule of a whole configuration that halts."""
    chosen, default = choices_of(config.halting), HaltingConfig()
    if chosen.refusals is not None:
        yield from chosen.refusals(config)
    for rule, choices in CHOICES.items():
        for name in set(choices.own) - set(chosen.own):
            given = getattr(config.halting, name) != getattr(default, name)
            remedy = f'applies only to halting.rule="{rule}"; the rule here is "{config.halting.rule}"'
            yield f"halting.{name}", given, remedy
