"""What official checkpoints (tensor2tensor) compute differently, each a subclass of a part of ours.

`tensor2tensor_config.py` has the choices. :class:`OfficialBuilder` puts a recurrence together.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import nn

from universal_transformer.axes import Float, Int, Padding, Positions, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.interop.recurrences import CARRIES, Carry, SimpleRecurrentUnit
from universal_transformer.interop.tensor2tensor_config import OfficialConfig
from universal_transformer.models.depth import RecurrenceBuilder
from universal_transformer.models.positions.numbering import default_positions
from universal_transformer.models.source import Source, SourceSide
from universal_transformer.models.target import TargetSide
from universal_transformer.models.universal import PARTS as UNIVERSAL
from universal_transformer.nn.block import Block, PostNorm
from universal_transformer.nn.context import Context, Number, PositionEncoding
from universal_transformer.nn.coordinates import Coordinates, PositionEncoder, SinusoidalPositions, StepEncoder
from universal_transformer.nn.halting import Progress
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.trace import Trace
from universal_transformer.nn.transition import FeedForward


class OfficialCoordinates(Coordinates):
    """``X = W [H; π; τ]`` where there is a ``join``; positions that are ``shifted``, by ``trunc(n t / T)`` at step t.

    The result goes through ``sru``, where there is one.

    Step signals have no channels where there are none, so that their rows still count the steps T.
    """

    def __init__(
        self,
        position: PositionEncoder,
        step: StepEncoder | None,
        *,
        every_step: bool,
        join: nn.Linear | None,
        shifted: bool,
        sru: SimpleRecurrentUnit | None = None,
    ) -> None:
        super().__init__(position, step, every_step=every_step)
        self.join, self.shifted, self.sru = join, shifted, sru
        self.pointwise = not shifted and sru is None

    def signals(self, steps: int, *, like: Tensor) -> Float[Tensor, "step channels"]:
        found = super().signals(steps, like=like)
        return like.new_zeros(steps, 0) if found is None else found

    def forward(
        self,
        states: States,
        encoding: PositionEncoding,
        *,
        step: Number,
        signals: Float[Tensor, "step channels"] | None,
    ) -> States:
        assert signals is not None
        assert isinstance(step, int), "steps of official models are not exported"
        if self.shifted:
            shift = int(states.shape[1] * step / len(signals))
            encoding = self.position(encoding.positions + shift)
        if self.join is None:
            timed = super().forward(states, encoding, step=step, signals=signals if signals.shape[1] else None)
            return timed if self.sru is None else self.sru(timed)
        parts = [states, signals[step].expand(*states.shape[:2], -1)]
        if self.every_step and encoding.signal is not None:
            parts.insert(1, encoding.signal.expand_as(states))
        joined: States = self.join(torch.cat([part.to(states.dtype) for part in parts], dim=-1))
        return joined if self.sru is None else self.sru(joined)


class PadRemover(FeedForward):
    """A feed-forward transition that is 0 at padding."""

    pointwise = False  # a position depends on what is padding

    def forward(self, states: States, context: Context, *, slot: Number = 0) -> States:
        result: States = super().forward(states, context, slot=slot)
        return result if context.padding is None else result.masked_fill(context.padding.unsqueeze(-1), 0.0)


class NoTransition(nn.Module):
    """In place of a transition: nothing."""

    pointwise = True

    def forward(self, states: States, context: Context, *, slot: Number = 0) -> States:
        del context, slot
        return torch.zeros_like(states)


class NoNorm(PostNorm):
    """In place of the norm of a transition: the sum."""

    def __init__(self) -> None:
        nn.Module.__init__(self)

    def forward(self, states: States, change: States) -> States:
        return states + change


@dataclass(frozen=True, kw_only=True)
class PonderedPadding(Context):
    """A context in which padding takes steps like any other position, where the rule decides who does."""

    @property
    def idle(self) -> Padding | None:
        """Positions that take no step."""
        return None if self.depth.rule.decides else self.padding


class OfficialRecurrence(Recurrence):
    """A recurrence with layers that are applied once, ``before`` and ``after`` it, and padding that may ponder.

    ``carry`` decides what a step starts from and what becomes of its result; None: the paper's recurrence.
    ``plain_positions`` are added before each group of layers, where the recurrence adds its own at every step. The
    layers have the numbers and the slots after those of the recurrence.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        blocks: Sequence[Block],
        *,
        before: Sequence[Block] = (),
        after: Sequence[Block] = (),
        plain_positions: Coordinates | None = None,
        ponders_padding: bool = False,
        decoder: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(coordinates, blocks, **options)
        self.plain_positions, self.ponders_padding, self.decoder = plain_positions, ponders_padding, decoder
        self.before, self.after = nn.ModuleList(before), nn.ModuleList(after)
        self.carry: Carry | None = None

    @property
    def layers(self) -> list[Block]:
        return [*self.blocks, *self.before, *self.after]

    def num_slots(self, max_steps: int) -> int:
        return super().num_slots(max_steps) + len(self.before) + len(self.after)

    def forward(self, states: States, context: Context) -> tuple[States, Trace]:
        """UserError where layers follow and states of the recurrence are asked for: no head reads them."""
        if self.after and context.keep_states:
            raise UserError(
                f"Kept(states=True): after the recurrence there are {len(self.after)} plain layers "
                "(tensor2tensor.plain_layers_after), so that its states have no logits; leave it out"
            )
        if self.ponders_padding:
            context = PonderedPadding(**vars(context))
        return super().forward(states, context)

    def advance(self, was: Progress, context: Context, *, step: Number) -> Progress:
        if (carry := self.carry) is None:
            return super().advance(was, context, step=step)
        if context.depth.rule.stops:
            raise UserError(f"recurrence {carry.chosen.recurrence}: positions do not stop early; leave the exit out")
        memory = was.memory or carry.start(was.states)
        now = super().advance(was._replace(states=carry.enter(was.states, memory)), context, step=step)
        removes = carry.chosen.zero_padding and not self.decoder
        padding = context.padding if removes else None
        states, memory = carry(was.states, now.states, memory, padding=padding)
        last = carry.chosen.ends_with_memory and context.is_last(step)
        return now._replace(states=states, output=memory[0] if last else states, memory=memory)

    def enter(self, states: States, context: Context) -> States:
        return self.plain(super().enter(states, context), context, self.before, first=0)

    def leave(self, states: States, context: Context) -> States:
        return super().leave(self.plain(states, context, self.after, first=len(self.before)), context)

    def plain(self, states: States, context: Context, layers: nn.ModuleList, *, first: int) -> States:
        """The states after ``layers``, the first of which is the plain layer of number ``first``."""
        if layers and self.plain_positions is not None:
            encoding = self.plain_positions.position(context.encoding.positions)
            states = self.plain_positions.start(states, encoding)
        slot = super().num_slots(context.depth.max_steps) + first
        for number, layer in enumerate(layers):
            states = layer(states, context, slot=slot + number, layer=len(self.blocks) + first + number)
        return states


class OfficialBuilder(RecurrenceBuilder):
    """The recurrences of an :class:`OfficialConfig`."""

    config: OfficialConfig

    def recurrence(self, coordinates: Coordinates, blocks: list[Block], **options: Any) -> OfficialRecurrence:
        chosen, attention = self.config.tensor2tensor, coordinates.position.self_attention
        carry = CARRIES.get(chosen.recurrence)
        if carry is not None and carry.attention_alone and not chosen.ffn_in_transition:
            for block in blocks:
                block.transition, block.after_transition = NoTransition(), NoNorm()
        made = OfficialRecurrence(
            coordinates,
            blocks,
            before=[self.block(attention) for _ in range(chosen.plain_layers_before)],
            after=[self.block(attention) for _ in range(chosen.plain_layers_after)],
            plain_positions=self.plain_positions(),
            ponders_padding=chosen.ponder_padding,
            decoder=self.decoder,
            **options,
        )
        made.carry = None if carry is None else carry(self.config)
        return made

    def plain_positions(self) -> Coordinates | None:
        """The positions of layers around the recurrence."""
        chosen = self.config.coordinates
        if chosen.injection != "every_step" or chosen.position != "sinusoidal":
            return None
        return Coordinates(SinusoidalPositions(self.config.sizes.width, layout=chosen.layout), None, every_step=False)

    def transition(self) -> nn.Module:
        if not self.config.tensor2tensor.zero_padding or self.decoder or self.config.transition.kind != "feed_forward":
            return super().transition()
        return PadRemover(self.config.sizes, self.config.transition)

    def coordinates(self) -> Coordinates:
        chosen, group, width = self.config.coordinates, self.config.tensor2tensor, self.config.sizes.width
        every_step = chosen.injection == "every_step"
        joins = group.concatenate_coordinates
        channels = 2 * width if joins and every_step and chosen.adds else width
        step = self.step(channels, scale=sqrt(channels))
        joined = channels * (1 if step is None else 2)
        joins = joins and joined > width
        if not joins and not group.shift_positions_by_step and not group.sru:
            return Coordinates(self.position(), step, every_step=every_step)
        return OfficialCoordinates(
            self.position(),
            step,
            every_step=every_step,
            join=nn.Linear(joined, width, bias=False) if joins else None,
            shifted=group.shift_positions_by_step,
            sru=SimpleRecurrentUnit(width) if group.sru else None,
        )


class OfficialSource(SourceSide):
    """A source to each position of which the vector of a problem is added: ``target_space`` is its number."""

    config: OfficialConfig
    recurrence: OfficialRecurrence

    def __init__(self, config: OfficialConfig) -> None:
        super().__init__(config)
        spaces, width = config.tensor2tensor.num_target_spaces, config.sizes.width
        self.space = nn.Parameter(torch.zeros(spaces, width)) if spaces else None
        self.target_space = 0

    @contextmanager
    def problem(self, target_space: int) -> Iterator[None]:
        """Sources inside are of this problem: ``with model.source.problem(5): model.generate(source)``.

        UserError unless there is a problem of this number, or it is 0 where there are none.
        """
        spaces = 0 if self.space is None else len(self.space)
        if type(target_space) is not int or not 0 <= target_space < max(1, spaces):
            allowed = f"0 to {spaces - 1}" if spaces else "none but 0, because this model has no embedding of problems"
            asked = f"target_space={target_space}: allowed are {allowed}"
            raise UserError(f"{asked} (tensor2tensor.num_target_spaces={spaces})")
        before, self.target_space = self.target_space, target_space
        try:
            yield
        finally:
            self.target_space = before

    def embed(self, source: Source) -> States:
        states: States = super().embed(source)
        return states if self.space is None else states + self.space[self.target_space]

    def positions(self, source: Source, *, drawn: Positions | None = None) -> Positions:
        """Positions of the tokens; where padding ponders, it is counted like them."""
        if drawn is None and self.config.ponders_padding:
            drawn = default_positions(self.length(source), padding=None, device=source.device)
        return super().positions(source, drawn=drawn)


class OfficialTarget(TargetSide):
    """A target in which no token is padding, where padding ponders."""

    recurrence: OfficialRecurrence

    def padding(self, labels: Int[Tensor, "batch target"]) -> Padding | None:
        return None if self.config.ponders_padding else super().padding(labels)


PARTS = UNIVERSAL._replace(source=OfficialSource, target=OfficialTarget)
