"""Ordinary layers before and after the recurrence (tensor2tensor's mixture with a Transformer)."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from universal_transformer.axes import States
from universal_transformer.errors import UserError
from universal_transformer.nn.block import Block
from universal_transformer.nn.context import AttentionContext
from universal_transformer.nn.coordinates import Coordinates
from universal_transformer.nn.progress import Depth
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.trace import Trace


class MixedRecurrence(Recurrence):
    """A recurrence with layers that are applied once, ``before`` and ``after`` it.

    ``plain_coordinates`` adds positions before each group of them, where the recurrence adds its own at every step.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        blocks: Sequence[Block],
        *,
        before: Sequence[Block],
        after: Sequence[Block],
        plain_coordinates: Coordinates | None,
        **choices: Any,
    ) -> None:
        super().__init__(coordinates, blocks, **choices)
        self.plain_coordinates = plain_coordinates
        self.before, self.after = nn.ModuleList(before), nn.ModuleList(after)
        self.first_slot = len(before)
        for name in ("blocks", "after", "closing_norm", "halting"):  # initial weights are drawn in this order
            if name in self._modules:
                self._modules[name] = self._modules.pop(name)

    @property
    def layers(self) -> list[Block]:
        """All blocks, in the order in which they are applied first."""
        return [*self.before, *self.blocks, *self.after]

    def num_slots(self, max_steps: int) -> int:
        """Applications of a block in one pass."""
        return len(self.before) + super().num_slots(max_steps) + len(self.after)

    def loop(self, states: States, context: AttentionContext, *, depth: Depth, **call: Any) -> tuple[States, Trace]:
        """The layers before, the loop over depth, the layers after.

        UserError where layers follow and logits of the states of the recurrence are asked for: nothing reads them.
        """
        exits = depth.exit is not None and depth.exit.exit.reads_output
        if self.after and (exits or context.states is not None):
            asked = f"exit {depth.exit.exit}" if depth.exit is not None and exits else "Kept(states=True)"
            raise UserError(
                f"{asked}: after the recurrence there are {len(self.after)} plain layers "
                "(tensor2tensor.plain_layers_after), so that its states have no logits; leave it out"
            )
        states = self._plain(states, context, count=len(self.before), slot=0, index=0)
        states, trace = super().loop(states, context, depth=depth, **call)
        count = len(self.after)
        slot, index = self.num_slots(depth.max_steps) - count, len(self.layers) - count
        return self._plain(states, context, count=count, slot=slot, index=index), trace

    def _plain(self, states: States, context: AttentionContext, *, count: int, slot: int, index: int) -> States:
        if count and self.plain_coordinates is not None:
            encoding = self.plain_coordinates.encode(context.encoding.positions, padding=context.padding)
            states = self.plain_coordinates.add_to_input(states, encoding)
        for number in range(count):
            states = self.layer(states, context, slot=slot + number, index=index + number)
        return states
