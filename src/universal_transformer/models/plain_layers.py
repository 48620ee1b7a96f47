"""Ordinary layers before and after the recurrence (tensor2tensor's mixture with a Transformer)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from universal_transformer.axes import Padding, States
from universal_transformer.errors import UserError
from universal_transformer.nn.block import Block
from universal_transformer.nn.config import StepConfig
from universal_transformer.nn.context import AttentionContext
from universal_transformer.nn.coordinates import Coordinates
from universal_transformer.nn.halting import HaltingUnit
from universal_transformer.nn.progress import Depth
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.trace import Trace


@dataclass(frozen=True)
class PlainLayers:
    """Layers that are applied once, ``before`` and ``after`` a recurrence.

    ``coordinates`` adds positions before each group of them, where the recurrence adds its own at every step.
    """

    before: Sequence[Block]
    after: Sequence[Block]
    coordinates: Coordinates | None


class MixedRecurrence(Recurrence):
    """A recurrence with layers that are applied once, before and after it."""

    def __init__(
        self,
        coordinates: Coordinates,
        blocks: Sequence[Block],
        *,
        plain: PlainLayers,
        depth: Depth,
        step: StepConfig | None = None,
        decoder: bool = False,
        halting: HaltingUnit | None = None,
        closing_norm: nn.LayerNorm | None = None,
        checkpointed: bool = False,
    ) -> None:
        super().__init__(
            coordinates,
            blocks,
            depth=depth,
            step=step,
            decoder=decoder,
            halting=halting,
            closing_norm=closing_norm,
            checkpointed=checkpointed,
        )
        del self.blocks, self.closing_norm, self.halting  # set again below: initial weights are drawn in this order
        self.plain_coordinates, self.before = plain.coordinates, nn.ModuleList(plain.before)
        self.blocks, self.after = nn.ModuleList(blocks), nn.ModuleList(plain.after)
        self.closing_norm, self.halting = closing_norm, halting
        self.first_slot = len(plain.before)

    @property
    def layers(self) -> list[Block]:
        """All blocks, in the order in which they are applied first."""
        return [*self.before, *self.blocks, *self.after]

    def num_slots(self, max_steps: int) -> int:
        """Applications of a block in one pass."""
        return len(self.before) + super().num_slots(max_steps) + len(self.after)

    def loop(
        self, states: States, context: AttentionContext, *, depth: Depth, padding: Padding | None
    ) -> tuple[States, Trace]:
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
        states, trace = super().loop(states, context, depth=depth, padding=padding)
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
