"""Settings of depth below that of training, by the rule that ends it. `ut calibrate` tries them in a fixed order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from universal_transformer.errors import UserError
from universal_transformer.evaluation.inference import InferenceOptions
from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.config import Exit
from universal_transformer.registry import Model
from universal_transformer.typed import Range

DepthRule = Literal[
    "max_steps", "halting_threshold", "state_change", "second_difference", "output_change", "confidence"
]
"""What ends the depth of a position: the number of steps, the threshold of a halting model, or an exit (`nn.exits`)."""
RULES: tuple[DepthRule, ...] = get_args(DepthRule)


def _ratios(first: float, last: float) -> list[float]:
    """Return 20 numbers from `first` to `last` in equal ratios."""
    return [first * (last / first) ** (place / 19) for place in range(20)]


SHARES = tuple(round(0.95 - 0.05 * place, 2) for place in range(19))
"""Thresholds of a halting model that are tried, as shares of its own."""
THRESHOLDS: Mapping[str, tuple[float, ...]] = {
    "state_change": tuple(float(f"{change:.3g}") for change in _ratios(0.01, 1.0)),
    "second_difference": tuple(float(f"{change:.3g}") for change in _ratios(0.01, 1.0)),
    "output_change": tuple(float(f"{change:.3g}") for change in _ratios(1e-4, 1.0)),
    "confidence": tuple(round(odds / (1 + odds), 4) for odds in _ratios(2000.0, 0.25)),
}
"""Thresholds of exits that are tried, the nearest to full depth first: confidence from 0.9995 to 0.2."""


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

    def of(self, options: InferenceOptions) -> InferenceOptions:
        """Return the options of a call with this depth."""
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
    settings = tuple(Setting(rule, value) for value in _values(model, rule))
    for setting in settings[:1]:
        setting.of(InferenceOptions()).check(model)
    return settings


def _values(model: Model, rule: DepthRule) -> tuple[float, ...]:
    config = model.config
    if not isinstance(config, ModelConfig):
        raise UserError(f"rule {rule}: {type(model).__name__} has no depth to choose")
    sides = {config.max_steps_of(decoder=side) for side in (False, True)}
    match rule:
        case "max_steps" if config.by_length(decoder=False):
            raise UserError('rule max_steps: depth.max_steps="length" has no largest number of steps to begin with')
        case "max_steps":
            return tuple(float(steps) for steps in range(min(sides) - (len(sides) == 1), 0, -1))
        case "halting_threshold":
            return tuple(round(share * config.halting.stops_at, 6) for share in SHARES)
        case kind:
            return THRESHOLDS[kind]


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
