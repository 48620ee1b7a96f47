"""What a caller chooses of a call: how deep it goes, and what its trace keeps. Importing this module needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.models.components import MOST_STEPS
from universal_transformer.rules import Exit

if TYPE_CHECKING:
    from universal_transformer.models.config import BaseConfig


@dataclass(frozen=True, kw_only=True)
class DepthOptions:
    """How deep a call goes: what is None is as trained. ``exit`` stops positions in place of the trained halting."""

    max_steps: int | None = None
    min_steps: int | None = None
    halting_threshold: float | None = None
    exit: Exit | None = None

    @property
    def chosen(self) -> dict[str, object]:
        """What a caller has chosen, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def check(self, config: BaseConfig) -> None:
        """UserError for what would change nothing, or what a model of this configuration cannot do."""
        if not config.max_steps:
            for option, value in self.chosen.items():
                raise UserError(f"{option}={value}: a model of kind {config.kind} has no depth to choose; leave it out")
        if self.halting_threshold is not None:
            if not isinstance(self.halting_threshold, int | float) or not 0.0 < self.halting_threshold <= 1.0:
                shown = f"halting_threshold={self.halting_threshold!r}"
                raise UserError(f"{shown}: a cumulative probability to stop at is a number in (0, 1], usually 0.99")
            if not config.halts:
                raise UserError(
                    f"halting_threshold={self.halting_threshold}: this model was trained without halting and has no "
                    "threshold; leave it out"
                )
        for option, steps in (("max_steps", self.max_steps), ("min_steps", self.min_steps)):
            if steps is not None and (type(steps) is not int or not 1 <= steps <= MOST_STEPS):
                raise UserError(f"{option}={steps!r}: a whole number of steps is needed, from 1 to {MOST_STEPS:,}")
        own = min(config.max_steps_of(decoder=decoder) for decoder in (False, True))
        if self.max_steps is not None and not config.tied and self.max_steps > own:
            raise UserError(f"max_steps={self.max_steps}: an untied model has one block a step, and this one has {own}")
        if self.exit is not None:
            if self.halting_threshold is not None:
                raise UserError(
                    f"halting_threshold={self.halting_threshold}: the exit {self.exit} replaces the halting unit; "
                    "choose one"
                )
            self._check_exit(self.exit, config)

    def _check_exit(self, exit: Exit, config: BaseConfig) -> None:
        """UserError for an exit that needs what the model has not, or decides on no side before the last step."""
        if not isinstance(exit, Exit):
            raise UserError(f'exit={show(exit)}: expected an Exit, such as Exit("confidence", 0.9)')
        rule = exit.rule
        if rule.reads_output and (reason := config.unread_states):
            raise UserError(f"exit {exit}: {reason}; use state_change")
        sides = (True,) if rule.reads_output else (False, True)  # an encoder has no output to read
        depths = [
            (
                self.max_steps or config.max_steps_of(decoder=decoder),
                max(rule.first_step, self.min_steps or config.min_steps_of(decoder=decoder)),
            )
            for decoder in sides
        ]
        if any(first < steps for steps, first in depths):
            return
        steps, first = max(depths)
        cause = " (min_steps)" if first > rule.first_step else ""
        side = "decoder" if rule.reads_output and config.architecture == "encoder_decoder" else "model"
        has = f"max_steps={steps}" if self.max_steps else f"the {side} has {steps}"
        raise UserError(
            f"exit {exit}: it decides first after step {first}{cause}, so that it needs at least {first + 1} steps to "
            f"stop a position early; {has}"
        )


AS_TRAINED = DepthOptions()
