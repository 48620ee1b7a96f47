"""Positions over processes: each process computes the states of a shard of every sequence (US 10,740,433).

Keys and values of all positions are exchanged at every application of a block, and nothing else is until the last step.
After it every process has all states, so that what surrounds the recurrence is computed by every process in the same
way. A halting loop ends when no position of any process runs, which the processes agree on after every step: a process
whose positions have all halted serves their keys and values until then.

Let every process compute the same loss. The backward pass adds what the processes return for a tensor that they
exchanged, so that the mean over processes of the gradients of a parameter is its gradient in one process.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import distributed, nn
from torch.autograd import Function
from torch.nn.functional import pad

from universal_transformer.axes import Bool, Float, Heads, Padding, PerPosition, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.execution.recompute import Recompute, compute
from universal_transformer.nn.attention import causal_mask
from universal_transformer.nn.cache import AllHeads
from universal_transformer.nn.context import AttentionContext
from universal_transformer.nn.coordinates import PositionEncoding
from universal_transformer.nn.halting import PaddedSequences
from universal_transformer.nn.progress import Depth, HaltingProgress
from universal_transformer.nn.recurrence import Executor, Recurrence
from universal_transformer.nn.trace import Trace


def make_context_parallel(module: nn.Module) -> None:
    """Let every recurrence inside `module` compute its positions together with the other connected processes.

    The processes must make the same calls, with equal weights, arguments and random states. Raises UserError for a
    module without a recurrence, and for one in which positions interact other than by attention.
    """
    found = [part for part in module.modules() if isinstance(part, Recurrence)]
    if not found:
        raise UserError(f"{type(module).__name__} has no recurrence over depth whose positions processes could share")
    for part in found:
        if (reason := context_parallel_obstacle(part)) is not None:
            raise UserError(f"positions cannot be spread over processes: {reason}")
    for part in found:
        part.executor = ContextParallelLoop(otherwise=part.executor)


def context_parallel_obstacle(recurrence: Recurrence) -> str | None:
    """Why processes cannot share the positions of a recurrence; None if they can."""
    if not all(getattr(block.transition, "pointwise", False) for block in recurrence.layers):
        return "the transition computes a position from its neighbours, which another process may have"
    if recurrence.coordinates.shift_by_step:
        return "positions are shifted at every step by a part of the length"
    return None


class Gather(Function):
    """The tensors of all processes, that of process r at index r."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:  # noqa: ARG004
        whole = own.new_empty(distributed.get_world_size(), *own.shape)
        distributed.all_gather(list(whole), own.contiguous())
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        (gradient,) = gradients
        own = torch.empty_like(gradient[0])
        distributed.reduce_scatter(own, list(gradient.contiguous()))
        return own


class Shard:
    """The positions of one call that this process computes: ⌈n / P⌉ of n, the last of which may be padding.

    ``num_keys``: how many positions they may attend to. ``recompute``: exchanged keys and values are exchanged again in
    the backward pass instead of being kept.
    """

    def __init__(self, length: int, *, causal: bool, padding: Padding | None, recompute: Recompute | None) -> None:
        rank, size = distributed.get_rank(), distributed.get_world_size()
        self.length, self.padding, self.recompute = length, padding, recompute
        self.share = -(-length // size)
        self.begin = min(length, rank * self.share)
        self.end = min(length, self.begin + self.share)
        self.num_keys = max(1, self.end) if causal else length

    def own(self, tensor: Tensor, *, dim: int, fill: float = 0.0) -> Tensor:
        """The own positions of a tensor that has all along `dim`, and `fill` where there are fewer than the share."""
        part = tensor.narrow(dim, self.begin, self.end - self.begin)
        missing = self.share - (self.end - self.begin)
        if not missing:
            return part
        return pad(part, (0, 0) * (tensor.dim() - 1 - dim % tensor.dim()) + (0, missing), value=fill)

    def whole(self, own: Tensor, *, dim: int) -> Tensor:
        """All positions of a tensor of which each process has its own along `dim`."""
        parts: Tensor = Gather.apply(own)  # type: ignore[no-untyped-call]
        return parts.movedim(0, dim).flatten(dim, dim + 1).narrow(dim, 0, self.length)

    def append(self, key: Heads, value: Heads) -> tuple[AllHeads, AllHeads]:
        """Keys and values of the positions that those of this process may attend to."""
        both = compute(self.recompute, self._all_keys, torch.stack((key, value)))
        values = compute(self.recompute, torch.select, both, 0, 1)  # first: the keys have the address of both
        return compute(self.recompute, torch.select, both, 0, 0), values

    def _all_keys(
        self, own: Float[Tensor, "2 batch heads position head"]
    ) -> Float[Tensor, "2 batch heads stored head"]:
        return self.whole(own, dim=3).narrow(3, 0, self.num_keys).contiguous()

    def mean(self, values: PerPosition) -> PerPosition:
        """The mean over the real positions of each sequence, for the own positions."""
        return self.own(PaddedSequences(self.padding).mean(self.whole(values, dim=1)), dim=1)

    def apply(self, function: Callable[[States], Tensor], states: States) -> Tensor:
        """``function`` of the states of each sequence, for the own positions."""
        return self.own(PaddedSequences(self.padding).apply(function, self.whole(states, dim=1)), dim=1)

    def cut_padding(self, padding: Padding | None, *, like: Tensor) -> Padding | None:
        """The padding of the own positions: None only where no process has any."""
        if padding is None:
            if self.length % self.share == 0 and self.length == self.share * distributed.get_world_size():
                return None
            padding = torch.zeros(like.shape[:2], dtype=torch.bool, device=like.device)
        return self.own(padding, dim=1, fill=True)

    def mask(self, context: AttentionContext) -> Bool[Tensor, "..."] | None:
        """The mask of the own positions as queries."""
        if context.causal:
            device = context.encoding.positions.device
            index = torch.arange(self.begin, self.begin + self.share, device=device).unsqueeze(0)
            return causal_mask(index, num_keys=self.num_keys)
        if context.mask is None or context.mask.shape[2] == 1:
            return context.mask
        return self.own(context.mask, dim=2, fill=True)

    def encoding(self, whole: PositionEncoding) -> PositionEncoding:
        """The positions of this process, encoded."""
        return whole._replace(
            positions=self.own(whole.positions, dim=1),
            signal=None if whole.signal is None else self.own(whole.signal, dim=1),
            rotary=None if whole.rotary is None else self.own(whole.rotary, dim=3),
        )

    def context(self, whole: AttentionContext, *, like: States) -> AttentionContext:
        """What the own positions may attend to."""
        return replace(
            whole,
            encoding=self.encoding(whole.encoding),
            padding=self.cut_padding(whole.padding, like=like),
            mask=self.mask(whole),
            causal=False,
            states=None if whole.states is None else [],
            exchange=self,
        )


class ContextParallelLoop:
    """The loop over depth, in which each process computes its positions. An executor, see `nn.recurrence`.

    Calls with a cache, or that keep attention weights, are made by every process as a whole: by ``otherwise``.
    """

    def __init__(self, *, otherwise: Executor | None) -> None:
        self.otherwise = otherwise

    def __call__(
        self,
        recurrence: Recurrence,
        states: States,
        context: AttentionContext,
        *,
        depth: Depth,
        padding: Padding | None,
    ) -> tuple[States, Trace] | None:
        if context.cache is not None or context.record is not None:
            if self.otherwise is None:
                return None
            return self.otherwise(recurrence, states, context, depth=depth, padding=padding)
        again = torch.is_grad_enabled() and not recurrence.recomputes(context)
        recompute = Recompute(device=states.device) if again else None
        shard = Shard(states.shape[1], causal=context.causal, padding=padding, recompute=recompute)
        with ExitStack() as stack:
            if recurrence.training:
                stack.enter_context(own_random_numbers(states.device))
            if recompute is not None:
                stack.enter_context(recompute.hooks())
                stack.callback(recompute.forget)
            return _loop(recurrence, states, context, shard=shard, depth=depth, padding=padding)


def _loop(
    recurrence: Recurrence,
    states: States,
    context: AttentionContext,
    *,
    shard: Shard,
    depth: Depth,
    padding: Padding | None,
) -> tuple[States, Trace]:
    unit, own, part = recurrence.stop_unit(depth), shard.own(states, dim=1), shard.context(context, like=states)
    if unit is None:
        refined, trace = recurrence.fixed_loop(own, part, depth=depth)
        steps, remainder = (shard.whole(each, dim=1) for each in (trace.steps, trace.remainder))
        result = shard.whole(refined, dim=1), Trace(steps, remainder, context.padding)
    else:
        blank = shard.cut_padding(padding, like=states)
        progress = HaltingProgress.start(own, unit=unit, blocks=recurrence.blocks_per_step, padding=blank)
        signals = recurrence.coordinates.step_signals(depth.max_steps, like=own)
        for step in range(depth.max_steps):
            if step and not runs_anywhere(progress.halting.running):
                break
            recurrence.halting_step(progress, part, step=step, depth=depth, signals=signals, padding=blank)
        halting, made = progress.halting, len(progress.weights)
        kept = torch.stack([halting.steps, halting.remainder, *progress.probabilities, *progress.weights])
        steps, remainder, *each = shard.whole(kept, dim=2)
        probabilities, weights = torch.stack(each[:made]), torch.stack(each[made:])
        unit_state = tuple(shard.whole(values, dim=1) for values in progress.unit_state)
        cost = unit.cost(weights, unit_state, min_steps=depth.min_steps)
        output = shard.whole(progress.output.to(states.dtype), dim=1)
        result = output, Trace(steps, remainder, padding, probabilities, weights, cost=cost)
    if context.states is not None and part.states is not None:
        context.states.extend(shard.whole(each, dim=1) for each in part.states)
    return result


def runs_anywhere(running: Bool[Tensor, "batch position"]) -> bool:
    """Whether a position of any process runs."""
    flag = running.any().int()
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
    return bool(flag)


@contextmanager
def own_random_numbers(device: torch.device) -> Iterator[None]:
    """Inside, each process draws other random numbers; outside they all go on drawing the same."""
    seed = int(torch.randint(2**62, ())) + distributed.get_rank()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
