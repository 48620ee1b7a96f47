"""The recurrence over depth: the same step, a fixed number of times or until every position has halted.

``H^t = Step(H^{t-1} + P^t)`` for ``t = 1 … T`` (paper, section 2). One class serves encoder and decoder, tied (the
Universal Transformer) and untied (each step has its own blocks: the Transformer), fixed depth and halting.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from universal_transformer.axes import Bool, Float, Padding, PerPosition, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.nn.attention import ProjectedSource, self_mask
from universal_transformer.nn.block import NO_SUBSTITUTES, Block, Substitutes
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.config import MOST_STEPS, StepConfig
from universal_transformer.nn.context import AttentionContext, AttentionRecord
from universal_transformer.nn.coordinates import Coordinates, PositionEncoding
from universal_transformer.nn.exits import ExitUnit
from universal_transformer.nn.halting import (
    Halting,
    HaltingUnit,
    LengthUnit,
    PaddedSequences,
    StopUnit,
    UnitState,
    check_threshold,
    combine,
    output_term,
)
from universal_transformer.nn.progress import Depth, HaltingProgress, decide
from universal_transformer.nn.stick_breaking import expected_state
from universal_transformer.nn.trace import NOTHING, Kept, Trace

call_checkpointed = partial(checkpoint, use_reentrant=False)
"""Activation checkpointing: keeps the arguments of a function for the backward pass, and not what it computes."""


Executor = Callable[..., tuple[States, Trace] | None]
"""Another way to compute the loop over depth: ``executor(recurrence, states, context, depth=…, padding=…)`` returns the
result of :meth:`Recurrence.fixed_loop` or :meth:`Recurrence.halting_loop`; None for a call that it does not serve."""


class Recurrence(nn.Module):
    """Coordinates, then a step of ``step.blocks`` blocks, ``depth.max_steps`` times.

    ``blocks`` holds the blocks of one step when tied, and ``max_steps`` times as many when not. ``closing_norm`` ends a
    pre-norm model. ``checkpointed``: what a step computes inside is not kept for the backward pass but computed again.
    """

    first_slot = 0
    """Slot of the cache, and number among :attr:`layers`, of the first block of the first step."""

    def __init__(
        self,
        coordinates: Coordinates,
        blocks: Sequence[Block],
        *,
        depth: Depth,
        step: StepConfig | None = None,
        decoder: bool = False,
        halting: HaltingUnit | None = None,
        closing_norm: nn.LayerNorm | None = None,
        checkpointed: bool = False,
    ) -> None:
        super().__init__()
        step = StepConfig() if step is None else step
        self.coordinates, self.blocks = coordinates, nn.ModuleList(blocks)
        self.trained_depth, self.blocks_per_step, self.tied = depth, step.blocks, step.tied
        self.decoder, self.checkpointed, self.residual = decoder, checkpointed, step.residual
        self.closing_norm, self.halting = closing_norm, halting
        self.executor: Executor | None = None

    def depth(
        self, *, max_steps: int | None = None, threshold: float | None = None, exit: ExitUnit | None = None
    ) -> Depth:
        """The depth of a call, by default as trained.

        UserError when it is not positive, when an untied model has fewer blocks, for a threshold outside (0, 1], and
        for a threshold together with an exit, which replaces the halting unit.
        """
        trained = self.trained_depth
        steps = trained.max_steps if max_steps is None else max_steps
        by_length = trained.by_length and max_steps is None
        most = len(self.blocks) // self.blocks_per_step
        if type(steps) is not int or not 1 <= steps <= MOST_STEPS:
            raise UserError(f"max_steps={steps!r}: a whole number of steps is needed, from 1 to {MOST_STEPS:,}")
        if not self.tied and steps > most:
            raise UserError(f"max_steps={steps}: an untied model has one block a step, and this one has {most}")
        limit = check_threshold(trained.threshold if threshold is None else threshold)
        if exit is None:
            return Depth(steps, min(trained.min_steps, steps), limit, by_length=by_length)
        if threshold is not None:
            raise UserError(
                f"halting_threshold={threshold}: the exit {exit.exit} replaces the halting unit; choose one"
            )
        return Depth(steps, min(max(trained.min_steps, exit.first_step), steps), exit.threshold, exit, by_length)

    def stop_unit(self, depth: Depth | None = None) -> StopUnit | None:
        """What decides who stops at this depth: the exit, else the halting unit; None where all make all steps."""
        depth = self.trained_depth if depth is None else depth
        return depth.exit or self.halting or (LengthUnit() if depth.by_length else None)

    def num_slots(self, max_steps: int) -> int:
        """Applications of a block in one pass: how many sets of keys and values a cache holds."""
        return max_steps * self.blocks_per_step

    def project_source(
        self,
        source: States,
        *,
        padding: Padding | None = None,
        rotary: Float[Tensor, "2 rows #heads position half"] | None = None,
    ) -> list[ProjectedSource]:
        """Source keys and values for every block, in the order of :attr:`layers`."""
        attentions = [block.cross_attention for block in self.layers]
        return [each.project_source(source, padding=padding, rotary=rotary) for each in attentions if each]

    def forward(
        self,
        states: States,
        *,
        encoding: PositionEncoding,
        padding: Padding | None = None,
        ponder_padding: bool = False,
        source: Sequence[ProjectedSource] | None = None,
        cache: KeyValueCache | None = None,
        cached_padding: Bool[Tensor, "batch stored"] | None = None,
        depth: Depth | None = None,
        keep: Kept = NOTHING,
    ) -> tuple[States, Trace]:
        """The states after the last step, and the trace.

        ``encoding``: from ``coordinates.encode``. ``padding`` is True where there is no token; with ``ponder_padding``
        padding takes steps like any other position (tensor2tensor). With ``cache`` the positions are new ones after
        those stored, and ``cached_padding`` covers both. ``depth``: from :meth:`depth`, by default as trained.
        """
        depth = self.depth() if depth is None else depth
        lengths = None
        if depth.by_length:
            depth, lengths = depth.of_lengths(positions=states.shape[1], padding=padding)
        record = AttentionRecord() if keep.attention else None
        mask, causal = self_mask(
            states.shape[1],
            decoder=self.decoder,
            stored=None if cache is None else cache.length,
            padding=padding,
            cached_padding=cached_padding,
            device=states.device,
        )
        context = AttentionContext(
            encoding=encoding,
            padding=padding,
            mask=mask,
            causal=causal,
            source=source,
            cache=cache,
            cached_padding=cached_padding,
            record=record,
            states=[] if keep.states else None,
            lengths=lengths,
        )
        states = self.coordinates.add_to_input(states, encoding)
        states, trace = self.loop(states, context, depth=depth, padding=None if ponder_padding else padding)
        states = self.close(states)
        if record is not None:
            cross = torch.stack(record.cross_attention) if record.cross_attention else None
            trace = replace(trace, self_attention=torch.stack(record.self_attention), cross_attention=cross)
        if context.states is not None:
            kept = torch.stack(context.states)
            trace = replace(trace, states=kept if self.closing_norm is None else self.closing_norm(kept))
        return states, trace

    def loop(
        self, states: States, context: AttentionContext, *, depth: Depth, padding: Padding | None
    ) -> tuple[States, Trace]:
        """The loop over depth: fixed, or halting, where ``padding`` takes no step."""
        unit, served = self.stop_unit(depth), None
        if self.executor is not None:
            served = self.executor(self, states, context, depth=depth, padding=padding)
        if served is None and unit is None:
            served = self.fixed_loop(states, context, depth=depth)
        if served is None:
            served = self.halting_loop(states, context, depth=depth, padding=padding)
        states, trace = served
        if isinstance(unit, LengthUnit):  # as of a fixed depth: nothing was decided
            trace = replace(trace, remainder=torch.zeros_like(trace.steps), probability=None, weight=None)
        return states, trace

    def fixed_loop(self, states: States, context: AttentionContext, *, depth: Depth) -> tuple[States, Trace]:
        """``max_steps`` steps of all positions."""
        signals = self.coordinates.step_signals(depth.max_steps, like=states)
        run = partial(self._fixed_step, context=context, depth=depth, signals=signals)
        if self.recomputes(context):
            run = partial(call_checkpointed, run)
        for step in range(depth.max_steps):
            states = run(states, step=step)
            if context.states is not None:
                context.states.append(states)
        steps = torch.full(states.shape[:2], float(depth.max_steps), device=states.device)
        if context.padding is not None:
            steps = steps.masked_fill(context.padding, 0.0)
        return states, Trace(steps, torch.zeros_like(steps), context.padding)

    def halting_loop(
        self, states: States, context: AttentionContext, *, depth: Depth, padding: Padding | None
    ) -> tuple[States, Trace]:
        """Adaptive computation time (paper, section 2.2): every step computes all positions, and the halted ones keep
        what they have. ``padding`` takes no step.

        The loop ends when no position runs. With a cache it makes all steps, because later positions may run longer
        and then attend to these positions at every step.
        """
        unit = self.stop_unit(depth)
        assert unit is not None
        progress = HaltingProgress.start(states, unit=unit, blocks=self.blocks_per_step, padding=padding)
        signals = self.coordinates.step_signals(depth.max_steps, like=states)
        for step in range(depth.max_steps):
            if step and context.cache is None and not bool(progress.halting.running.any()):
                break
            self.halting_step(progress, context, step=step, depth=depth, signals=signals, padding=padding)
        return progress.output.to(states.dtype), progress.trace(padding, unit=unit, depth=depth)

    def halting_step(
        self,
        progress: HaltingProgress,
        context: AttentionContext,
        *,
        step: int,
        depth: Depth,
        signals: Float[Tensor, "step channels"] | None,
        padding: Padding | None,
    ) -> None:
        """One step of all positions, of which the halted ones keep their states and outputs.

        With frozen states, other positions attend to a position that halted after step N as follows: in the first block
        to its last state, ``H^N + P^t``, and in each later block to what entered it at step N (decisions D9 and D14).
        """
        unit, active = self.stop_unit(depth), progress.halting.running
        assert unit is not None
        rule = unit.config.output
        run = partial(self._step_of_running, context=context, step=step, depth=depth, signals=signals, padding=padding)
        if self.recomputes(context):
            run = partial(call_checkpointed, run)
        made = run(progress.states, progress.shown, progress.halting, progress.unit_state, *progress.entered)
        before = progress.halting.cumulative
        progress.states, progress.halting, progress.unit_state, progress.entered, probability, weight, term = made
        if progress.shown is not None:
            mean = expected_state(progress.output, progress.states, before)
            progress.shown = torch.where(active.unsqueeze(-1), mean, progress.shown)
        if context.states is not None:
            context.states.append(progress.states if progress.shown is None else progress.shown)
        output = combine(progress.output, term, weight, rule=rule)
        if rule == "final":  # of the other rules a weight of 0 changes nothing
            output = torch.where(active.unsqueeze(-1), output, progress.output)
        progress.output = output
        progress.probabilities.append(torch.where(active, probability, 0.0))
        progress.weights.append(weight)

    def _fixed_step(
        self, states: States, *, context: AttentionContext, step: int, depth: Depth, signals: Tensor | None
    ) -> States:
        """What a step of a fixed depth computes."""
        timed = self._timed(states, context, step, depth, signals)
        return self.step(timed, context, step=step, instead=self.substitutes(states))[0]

    def _step_of_running(
        self,
        states: States,
        shown: States | None,
        halting: Halting,
        unit_state: UnitState,
        *entered: States,
        context: AttentionContext,
        step: int,
        depth: Depth,
        signals: Tensor | None,
        padding: Padding | None,
    ) -> tuple[States, Halting, UnitState, tuple[States, ...], PerPosition, PerPosition, States]:
        """What a step of a halting model computes: states, what is known of halting, the inputs of later blocks,
        probabilities, weights, and the weighed states.
        """
        unit, active = self.stop_unit(depth), halting.running
        assert unit is not None
        sequences = context.exchange or PaddedSequences(padding)
        timed = self._timed(states, context, step, depth, signals)
        if unit.reads == "timed":
            probability, unit_state = unit.halting_probability(timed, unit_state, sequences=sequences)
        if shown is not None:
            shown = self._timed(shown, context, step, depth, signals)
        instead = self.substitutes(states, shown=shown)
        new, entered = self.step(timed, context, step=step, running=active, entered=entered, instead=instead)
        if unit.reads == "new":
            probability, unit_state = unit.halting_probability(self.close(new), unit_state, sequences=sequences)
        last = context.is_last(step, depth.max_steps)
        probability, decision = decide(unit, halting.cumulative, probability, depth=depth, step=step, is_last=last)
        halting, weight = halting.advance(decision)
        term = output_term(new, weight, rule=unit.config.output)
        if unit.config.state == "frozen":
            new = torch.where(active.unsqueeze(-1), new, states)
        return new, halting, unit_state, entered, probability, weight, term

    def substitutes(self, states: States, *, shown: States | None = None) -> Substitutes:
        """What the first block of a step uses instead of ``H + P^t``, where ``states`` are ``H`` (decision D5)."""
        return Substitutes(shown, states if self.residual == "state" else None)

    def close(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """The closing norm, where there is one: states as the output reads them."""
        return states if self.closing_norm is None else self.closing_norm(states)

    def step(
        self,
        states: States,
        context: AttentionContext,
        *,
        step: int,
        running: Padding | None = None,
        entered: tuple[States, ...] = (),
        instead: Substitutes = NO_SUBSTITUTES,
    ) -> tuple[States, tuple[States, ...]]:
        """One depth step (counted from 0): the blocks of a step, one after another.

        Where ``entered`` is given, positions that are not ``running`` enter the later blocks with it. ``instead`` is
        for the first block. Returns the states, and what entered these blocks at this step.
        """
        first = 0 if self.tied else step * self.blocks_per_step
        entering: list[States] = []
        for index in range(self.blocks_per_step):
            if index and entered:
                assert running is not None
                states = torch.where(running.unsqueeze(-1), states, entered[index - 1])
                entering.append(states)
            slot = self.first_slot + step * self.blocks_per_step + index
            states = self.layer(states, context, slot=slot, index=self.first_slot + first + index, instead=instead)
            instead = NO_SUBSTITUTES
        return states, tuple(entering)

    def layer(
        self,
        states: States,
        context: AttentionContext,
        *,
        slot: int,
        index: int,
        instead: Substitutes = NO_SUBSTITUTES,
    ) -> States:
        """Block ``index`` of :attr:`layers`, with its ``slot`` of the cache."""
        cache = context.cache
        return self.layers[index](
            states,
            mask=context.mask,
            causal=context.causal,
            rotary=context.encoding.rotary,
            padding=context.padding if cache is None else context.cached_padding,
            source=None if context.source is None else context.source[index],
            cache=context.exchange if cache is None else cache.layer(slot),
            record=context.record,
            instead=instead,
        )

    def recomputes(self, context: AttentionContext) -> bool:
        """Whether the backward pass of a call computes again what a step computes inside."""
        return self.checkpointed and torch.is_grad_enabled() and context.cache is None and context.record is None

    @property
    def layers(self) -> list[Block]:
        """All blocks, in the order in which they are applied first."""
        return list(self.blocks)  # type: ignore[arg-type]

    @property
    def tied_blocks(self) -> list[Block]:
        """The blocks of every step, where steps are tied."""
        assert self.tied
        return list(self.blocks)  # type: ignore[arg-type]

    @property
    def block(self) -> Block:
        """The first block: the only one, where steps are tied and have one block."""
        block = self.blocks[0]
        assert isinstance(block, Block)
        return block

    @property
    def unit(self) -> HaltingUnit:
        """The halting unit, of a recurrence that has one."""
        assert self.halting is not None
        return self.halting

    def _timed(
        self, states: States, context: AttentionContext, step: int, depth: Depth, signals: Tensor | None
    ) -> States:
        """``X = H^{t-1} + P^t``."""
        return self.coordinates(states, context.encoding, step=step, num_steps=depth.max_steps, signals=signals)
