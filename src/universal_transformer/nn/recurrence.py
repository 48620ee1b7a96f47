"""The recurrence over depth: the same step again and again, a fixed number of times or until every position halts.

``H^t = Step(H^{t-1} + P^t)`` for ``t = 1 … T`` (paper, section 2). One class serves encoder and decoder, tied (the
Universal Transformer) and untied (T blocks of their own: the Transformer), fixed and halting.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from universal_transformer.axes import Bool, Float, Padding, PerPosition, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.nn import worth
from universal_transformer.nn.attention import Memory, self_mask
from universal_transformer.nn.block import AttentionRecord, Block
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.compact import CompactLoop, looked_at
from universal_transformer.nn.coordinates import Coordinates, Placed
from universal_transformer.nn.depth_cache import DepthCache
from universal_transformer.nn.halting import (
    Halting,
    HaltingUnit,
    Output,
    advance,
    check_threshold,
    combine,
    contribution,
)
from universal_transformer.nn.ragged import Layout
from universal_transformer.nn.recall import Recall
from universal_transformer.nn.refresh import Refresh
from universal_transformer.nn.straight import is_straight
from universal_transformer.nn.trace import Trace
from universal_transformer.nn.transition import FeedForward
from universal_transformer.nn.view import View

MOST_STEPS = 2**16
"""Each has a signal that is made before the first step: beyond, a slip of the pen would fill the memory."""


def again(function: Callable[..., Any], *arguments: object) -> Any:
    """``function(*arguments)``, of which the way back keeps the arguments alone and computes the rest once more."""
    return checkpoint(function, *arguments, use_reentrant=False)


class Recurrence(nn.Module):
    """Coordinates, then a step of ``layers_per_step`` blocks, ``max_steps`` times.

    ``blocks`` holds one step's blocks when tied and ``max_steps`` times as many when not. ``before`` and ``after`` are
    plain layers applied once (t2t's ``mix_with_transformer``). ``closing_norm`` ends a pre-norm model. With
    ``checkpointed`` what a step computed inside is not kept for the way back but computed again. ``form``: see
    ``nn/worth.py``.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        blocks: Sequence[Block],
        *,
        layers_per_step: int = 1,
        tied: bool = True,
        max_steps: int,
        decoder: bool = False,
        before: Sequence[Block] = (),
        after: Sequence[Block] = (),
        plain_coordinates: Coordinates | None = None,
        closing_norm: nn.LayerNorm | None = None,
        halting: HaltingUnit | None = None,
        threshold: float = 0.99,
        remainder_at_cap: bool = True,
        output: Output = "mean",
        state: Literal["frozen", "evolving"] = "frozen",
        form: worth.Form = "auto",
        checkpointed: bool = False,
    ) -> None:
        super().__init__()
        self.coordinates, self.plain_coordinates = coordinates, plain_coordinates
        self.before, self.blocks, self.after = (nn.ModuleList(part) for part in (before, blocks, after))
        self.layers_per_step, self.max_steps, self.decoder = layers_per_step, max_steps, decoder
        self.tied = tied
        self.closing_norm, self.halting = closing_norm, halting
        self.threshold, self.remainder_at_cap = threshold, remainder_at_cap
        self.output, self.state, self.form, self.checkpointed = output, state, form, checkpointed

    def depth(self, max_steps: int | None) -> int:
        """The number of steps to run; UserError when it is not positive or an untied model has fewer blocks."""
        depth = self.max_steps if max_steps is None else max_steps
        most = len(self.blocks) // self.layers_per_step
        if type(depth) is not int or not 1 <= depth <= MOST_STEPS:
            raise UserError(f"max_steps={depth}: a whole number of steps is needed, from 1 to {MOST_STEPS:,}")
        if not self.tied and depth > most:
            raise UserError(
                f"max_steps={depth}: an untied model has one block a step, and this one has {most}"
            )
        return depth

    def num_slots(self, max_steps: int | None = None) -> int:
        """Layer applications of one pass: how many sets of keys and values a cache holds."""
        return len(self.before) + self.depth(max_steps) * self.layers_per_step + len(self.after)

    def remember(
        self,
        source: States,
        *,
        padding: Padding | None = None,
        rotary: Float[Tensor, "2 rows #heads position half"] | None = None,
    ) -> list[Memory]:
        """Source keys and values for every block that looks at the source, in the order of the blocks."""
        blocks = [*self.before, *self.blocks, *self.after]
        return [block.cross_attention.remember(source, padding=padding, rotary=rotary) for block in blocks]

    def forward(
        self,
        states: States,
        *,
        placed: Placed,
        padding: Padding | None = None,
        ponder_padding: bool = False,
        memory: Sequence[Memory] | None = None,
        cache: KeyValueCache | None = None,
        cached_padding: Bool[Tensor, "batch stored"] | None = None,
        max_steps: int | None = None,
        threshold: float | None = None,
        keep_attention: bool = False,
    ) -> tuple[States, Trace]:
        """The states after the last step, and the trace.

        ``placed``: from ``coordinates.place``. ``padding`` is True where there is no token; ``ponder_padding`` lets
        padding ponder like any other position (t2t). With ``cache`` the positions are new ones behind those stored,
        and ``cached_padding`` covers both.
        """
        record = AttentionRecord() if keep_attention else None
        mask, causal = self_mask(
            states.shape[1],
            decoder=self.decoder,
            stored=None if cache is None else cache.length,
            padding=padding,
            cached_padding=cached_padding,
            device=states.device,
        )
        view = View(
            placed=placed,
            padding=padding,
            mask=mask,
            causal=causal,
            memory=memory,
            cache=cache,
            cached_padding=cached_padding,
            record=record,
        )
        limit = check_threshold(self.threshold if threshold is None else threshold)
        depth = self.depth(max_steps)
        states = self.coordinates.enter(states, placed)
        states = self._plain(states, view, first=0, layers=self.before)
        if self.halting is None:
            states, trace = self._fixed(states, view, depth=depth)
        else:
            pondering = None if ponder_padding else padding
            states, trace = self._halting(states, view, depth=depth, threshold=limit, padding=pondering)
        states = self._plain(states, view, first=self.num_slots(depth) - len(self.after), layers=self.after)
        if self.closing_norm is not None:
            states = self.closing_norm(states)
        if record is not None:
            cross = torch.stack(record.cross_attention) if record.cross_attention else None
            own = torch.stack(record.self_attention)
            trace = replace(trace, self_attention=own, cross_attention=cross)
        return states, trace

    def _forgets(self, view: View) -> bool:
        """Whether a step's inner results are computed again on the way back."""
        return self.checkpointed and torch.is_grad_enabled() and view.cache is None and view.record is None

    def _layer(self, block: nn.Module, states: States, view: View, *, slot: int, memory: int) -> States:
        padding = view.padding
        if view.cache is not None:
            padding = view.cached_padding
        return block(
            states,
            mask=view.mask,
            causal=view.causal,
            rotary=view.placed.rotary,
            padding=padding,
            memory=None if view.memory is None else view.memory[memory],
            cache=None if view.cache is None else view.cache.layer(slot),
            record=view.record,
            recall=view.recall,
        )

    def _recall(self, view: View) -> Recall | None:
        """What need not be kept of the steps that all positions make before halted ones are left out."""
        block = self.block
        wide = worth.recalls(block.after_attention.norm.weight.numel())
        learns = wide and torch.is_grad_enabled() and view.cache is None and not self._forgets(view)
        if not learns or torch.compiler.is_compiling() or block._compiled_call_impl is not None:
            return None
        return Recall(device=block.after_attention.norm.weight.device)

    def _step(self, states: States, view: View, *, step: int) -> States:
        """One depth step (from 0): ``layers_per_step`` blocks."""
        first = 0 if self.tied else step * self.layers_per_step
        for layer in range(self.layers_per_step):
            slot = len(self.before) + step * self.layers_per_step + layer
            states = self._layer(
                self.blocks[first + layer],
                states,
                view,
                slot=slot,
                memory=len(self.before) + first + layer,
            )
        return states

    def _plain(self, states: States, view: View, *, first: int, layers: nn.ModuleList) -> States:
        """Plain layers before or after the recurrence; the position is added once in front of them."""
        if len(layers) and self.plain_coordinates is not None:
            states = self.plain_coordinates.enter(
                states, self.plain_coordinates.place(view.placed.where, padding=view.padding)
            )
        offset = 0 if layers is self.before else len(self.before) + len(self.blocks)
        for layer, block in enumerate(layers):
            states = self._layer(block, states, view, slot=first + layer, memory=offset + layer)
        return states

    def _fixed(self, states: States, view: View, *, depth: int) -> tuple[States, Trace]:
        signals = self.coordinates.step_signals(depth, like=states)

        def whole(states: States, step: int) -> States:
            timed = self.coordinates(states, placed=view.placed, step=step, num_steps=depth, signals=signals)
            return self._step(timed, view, step=step)

        for step in range(depth):
            states = again(whole, states, step) if self._forgets(view) else whole(states, step)
        steps = torch.full(states.shape[:2], float(depth), device=states.device)
        if view.padding is not None:
            steps = steps.masked_fill(view.padding, 0.0)
        return states, Trace(steps, torch.zeros_like(steps), view.padding)

    @property
    def block(self) -> Block:
        """The block of all steps, where they have one in common."""
        block = self.blocks[0]
        assert isinstance(block, Block)
        return block

    @property
    def steps_alike(self) -> bool:
        """Whether depth steps differ in ``τ`` alone, so that rows at different ones can share a call of the block."""
        transition, coordinates = self.block.transition, self.coordinates
        return (
            self.tied
            and self.layers_per_step == 1
            and isinstance(transition, FeedForward)
            and not transition.zero_padding
            and not coordinates.shift_by_step
            and coordinates.join is None
            and coordinates.position != "rotary"
        )

    @property
    def compactible(self) -> bool:
        """Whether what others see of halted positions follows from their last states (``nn/refresh.py``)."""
        return self.form != "masked" and self.state == "frozen" and self.steps_alike

    def _compacts(self, view: View) -> bool:
        """Whether leaving out halted positions gives the same numbers in this call."""
        return (
            self.compactible
            and view.record is None
            # padding on a decoder's left is a mask a query; a cache knows its padding by place
            and (view.cache is not None or view.mask is None or view.mask.shape[2] == 1)
        )

    def depth_cache(self, cache: KeyValueCache, *, depth: int) -> DepthCache:
        """``cache`` by depth step, for a recurrence that compacts."""
        if cache.refresh is None:
            signals = self.coordinates.step_signals(depth, like=cache.keys)
            cache.refresh = Refresh(self.block, signals=signals)
        return DepthCache(cache, self.block.attention, cache.refresh, first=len(self.before), depth=depth)

    def _pays(self, running: int, view: View, *, positions: int, width: int) -> bool:
        """Whether leaving out what has halted saves more than it costs."""
        learns = torch.is_grad_enabled()
        return worth.pays(
            running,
            positions=positions,
            width=width,
            learns=learns,
            plain=not learns and not self.training and view.cache is None and self._unit.scope == "position",
            renews=not self.block.after_attention.post and self.coordinates.step != "none",
        )

    def _compact_loop(
        self, states: States, view: View, *, cache: DepthCache | None, signals: Tensor | None
    ) -> CompactLoop:
        return CompactLoop(
            self.block,
            self._unit,
            looked_at(self.block, view, states=states, cache=cache, signals=signals),
            states=states,
            signal=view.placed.signal if self.coordinates.every_step else None,
            memory=None if view.memory is None else view.memory[len(self.before)],
            again=again if self._forgets(view) else None,
        )

    @property
    def _unit(self) -> HaltingUnit:
        assert self.halting is not None
        return self.halting

    def _think(
        self,
        states: States,
        halting: Halting,
        step: int,
        *,
        view: View,
        depth: int,
        signals: Tensor | None,
        threshold: float,
        padding: Padding | None,
    ) -> tuple[States, Halting, PerPosition, PerPosition, States, Padding]:
        """One step of all positions: states, halting, probability, weight, what it adds to the output, who ran."""
        active = halting.running
        timed = self.coordinates(states, placed=view.placed, step=step, num_steps=depth, signals=signals)
        probability = self._unit(timed, padding=padding)
        stop = self.remainder_at_cap and step == depth - 1
        halting, weight = advance(halting, probability, threshold=threshold, stop=stop)
        new = self._step(timed, view, step=step)
        made = contribution(new, weight, rule=self.output)
        states = torch.where(active.unsqueeze(-1), new, states) if self.state == "frozen" else new
        return states, halting, probability, weight, made, active

    def _halting(
        self, states: States, view: View, *, depth: int, threshold: float, padding: Padding | None
    ) -> tuple[States, Trace]:
        """Adaptive computation time: every position computed and the halted ones masked, until leaving them out pays.

        It ends as soon as nothing runs. Later positions behind a cache may think longer and then need the keys and
        values of these at every step: where they cannot be had otherwise (``nn/depth_cache.py``) all steps are made.
        """
        compacts = self._compacts(view) and not is_straight()
        cache = self.depth_cache(view.cache, depth=depth) if compacts and view.cache is not None else None
        halting = Halting.start(states, padding=padding)
        output = torch.zeros_like(states)
        probabilities, weights = [], []
        signals = self.coordinates.step_signals(depth, like=states)
        endless = is_straight() or (view.cache is not None and cache is None)
        positions, width = halting.running.numel(), states.shape[2]
        recall = self._recall(view) if compacts else None
        think = partial(
            self._think,
            view=replace(view, recall=recall),
            depth=depth,
            signals=signals,
            threshold=threshold,
            padding=padding,
        )
        stored, flexes = cache.cache.length if cache else 0, self.form == "flex"
        for step in range(depth):
            counts = None if endless else halting.running.sum(dim=1).tolist()
            running = positions if counts is None else sum(counts)
            if step and not running:
                if cache is not None:
                    self._compact_loop(states, view, cache=cache, signals=signals).settle(halting, step=step)
                break
            if compacts and counts and self._pays(running, view, positions=positions, width=width):
                loop = self._compact_loop(states, view, cache=cache, signals=signals)
                output, halting, *more = loop.run(
                    output,
                    halting,
                    Layout.of(halting.running, counts=counts, stored=stored, flexes=flexes),
                    steps=range(step, depth),
                    signals=signals,
                    threshold=threshold,
                    remainder_at_cap=self.remainder_at_cap,
                    rule=self.output,
                )
                probabilities += more[0]
                weights += more[1]
                break
            part = (states, halting, step)
            with nullcontext() if recall is None else recall.around():
                states, halting, probability, weight, made, active = (
                    again(think, *part) if self._forgets(view) else think(*part)
                )
            output = combine(output, made, weight, active=active, rule=self.output)
            probabilities.append(torch.where(active, probability, 0.0))
            weights.append(weight)
        trace = Trace(
            halting.steps, halting.remainder, padding, torch.stack(probabilities), torch.stack(weights)
        )
        return output.to(states.dtype), trace


__all__ = ["Recurrence", "Trace"]
