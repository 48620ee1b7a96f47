"""What a caller chooses of a call: how deep it goes, and what its trace keeps. Importing this module needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from universal_transformer.errors import UserError
from universal_transformer.models.components import MOST_STEPS
from universal_transformer.rules import Exit
from universal_transformer.rules.choices import Refusals
from universal_transformer.typed import Range, check

if TYPE_CHECKING:
    from universal_transformer.models.config import BaseConfig
    from universal_transformer.nn.context import Depth
    from universal_transformer.nn.recurrence import Recurrence
    from universal_transformer.rules.exits import Head

Steps = Annotated[int, Range(1, MOST_STEPS)]


@dataclass(frozen=True, kw_only=True)
class DepthOptions:
    """How deep a call goes: what is None is as trained. ``exit`` stops positions in place of the trained halting."""

    max_steps: Steps | None = None
    min_steps: Steps | None = None
    halting_threshold: Annotated[float, Range(0, 1, above=True)] | None = None
    exit: Exit | None = None

    @property
    def chosen(self) -> dict[str, object]:
        """What a caller has chosen, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def of(self, recurrence: Recurrence, *, head: Head | None, scope: str = "position") -> Depth:
        """The depth of a side whose states ``head`` reads, which positions of a ``scope`` stop at together.

        An exit that reads the output does not concern states that no head reads.
        """
        rule = None
        if self.exit is not None and (head is not None or not self.exit.rule.reads_output):
            rule = self.exit.rule(self.exit.threshold, head, scope=scope)
        return recurrence.depth(
            max_steps=self.max_steps, min_steps=self.min_steps, threshold=self.halting_threshold, exit=rule
        )

    def check(self, config: BaseConfig) -> None:
        """UserError for what would change nothing, or what a model of this configuration cannot do."""
        if not self.chosen:
            return
        check(self)
        for option, wrong, remedy in self._refusals(config):
            if wrong:
                raise UserError(f"{option}={getattr(self, option)}: {remedy}")
        if self.exit is not None:
            self._check_exit(self.exit, config)

    def _refusals(self, config: BaseConfig) -> Refusals:
        for option in self.chosen:
            none = f"a model of kind {config.kind} has no depth to choose; leave it out"
            yield option, not config.max_steps, none
        if self.halting_threshold is not None:
            never = "this model was trained without halting and has no threshold; leave it out"
            yield "halting_threshold", not config.halts, never
            replaced = f"the exit {self.exit} replaces the halting unit; choose one"
            yield "halting_threshold", self.exit is not None, replaced
        own = min(config.max_steps_of(decoder=decoder) for decoder in (False, True))
        more = not config.tied and self.max_steps is not None and self.max_steps > own
        yield "max_steps", more, f"an untied model has one block a step, and this one has {own}"

    def _check_exit(self, exit: Exit, config: BaseConfig) -> None:
        """UserError for an exit that needs what the model has not, or decides on no side before the last step."""
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
