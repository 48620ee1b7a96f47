"""Settings of depth below that of training, by the rule that ends it. `ut calibrate` tries them in a fixed order."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Annotated, Literal, get_args

from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.models.model import Model
from universal_transformer.rules import EXITS, Exit, stops_at
from universal_transformer.typed import Range

DepthRule = Literal["max_steps", "halting_threshold", "state_change", "output_change", "confidence"]
"""What ends the depth of a position: the number of steps, the threshold of a halting model, or an exit."""
RULES: tuple[DepthRule, ...] = get_args(DepthRule)


SHARES = tuple(round(0.95 - 0.05 * place, 2) for place in range(19))
"""Thresholds of a halting model that are tried, as shares of its own."""


@dataclass(frozen=True)
class Setting:
    """A rule and its value: a number of steps, or a threshold."""

    rule: DepthRule
    value: Annotated[float, Range(0, above=True)]

    def __post_init__(self) -> None:
        if self.rule == "max_steps" and self.value != int(self.value):
            raise UserError(f"max_steps {self.value:g}: expected a whole number of steps")

    def __str__(self) -> str:
        return f"{self.rule} {self.value:g}"

    def of(self, options: DecodingOptions) -> DecodingOptions:
        match self.rule:
            case "max_steps":
                return dataclasses.replace(options, max_steps=int(self.value))
            case "halting_threshold":
                return dataclasses.replace(options, halting_threshold=self.value)
            case kind:
                return dataclasses.replace(options, exit=Exit(kind, self.value))


def settings_of(model: Model, rule: DepthRule) -> tuple[Setting, ...]:
    """Return the settings of a rule in the order of testing, the nearest to the depth of training first.

    The order and the values follow from the configuration of the model, never from calibration data. UserError if
    the model does not serve the rule; none if it makes one step, and the rule is a smaller number of steps.
    """
    config = model.config
    if config.depth is None:
        raise UserError(f"rule {rule}: a model of kind {config.kind} has no depth to choose")
    if rule == "max_steps":
        if config.by_length(decoder=False):
            raise UserError('rule max_steps: depth.max_steps="length" has no largest number of steps to begin with')
        sides = {config.max_steps_of(decoder=side) for side in (False, True)}
        values: Iterable[float] = range(min(sides) - (len(sides) == 1), 0, -1)
    elif rule == "halting_threshold":
        values = (round(share * stops_at(config.halting), 6) for share in SHARES)
    else:
        values = resolve_name(EXITS[rule]).tried
    settings = tuple(Setting(rule, float(value)) for value in values)
    for setting in settings[:1]:
        setting.of(DecodingOptions()).check(model)
    return settings


def served(model: Model, *, wanted: DepthRule | None = None) -> Mapping[DepthRule, tuple[Setting, ...]]:
    """Return the settings of each rule that the model serves, or those of the `wanted` rule alone.

    UserError if the model serves no rule, or not the wanted one.
    """
    found: dict[DepthRule, tuple[Setting, ...]] = {}
    reasons: list[str] = []
    for rule in RULES if wanted is None else (wanted,):
        try:
            if settings := settings_of(model, rule):
                found[rule] = settings
            else:
                reasons.append(f"{rule}: the model makes too few steps, {model.config.max_steps}")
        except UserError as error:
            reasons.append(str(error))
    if not found:
        raise UserError(f"nothing to calibrate: {reasons[0]}")
    return found
