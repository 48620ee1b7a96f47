"""Positions over processes: each process computes the states of a shard of every sequence (US 10,740,433).

Keys and values of all positions are exchanged at every application of a block, and nothing else is until the last step.
After it every process has all states, so that what surrounds the recurrence is computed by every process in the same
way. A halting loop ends when no position of any process runs, which the processes agree on after every step: a process
whose positions have all halted serves their keys and values until then.

Let every process compute the same loss. The backward pass adds what the processes return for a tensor that they
exchanged, so that the mean over processes of the gradients of a parameter is its gradient in one process.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import distributed, nn
from torch.autograd import Function
from torch.nn.functional import pad

from universal_transformer.axes import Bool, Heads, PerPosition, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.nn.context import AllHeads, Context, PositionEncoding, causal_mask
from universal_transformer.nn.halting import Made, Progress
from universal_transformer.nn.recurrence import Loop, Recurrence, depth_loop


def make_context_parallel(module: nn.Module) -> None:
    """Let every recurrence inside `module` compute its positions together with the other connected processes.

    The processes must make the same calls, with equal weights, arguments and random states. Raises UserError for a
    module without a recurrence, and for one in which positions interact other than by attention.
    """
    found = [part for part in module.modules() if isinstance(part, Recurrence)]
    if not found:
        raise UserError(f"{type(module).__name__} has no recurrence over depth whose positions processes could share")
    for part in found:
        alone = (getattr(block.transition, "pointwise", False) for block in part.blocks)
        if not (part.coordinates.pointwise and all(alone)):
            raise UserError(
                "positions cannot be spread over processes: they interact other than by attention, in a transition of "
                "neighbours or by a shift of a part of the length"
            )
        part.loop = partial(parallel_loop, otherwise=part.loop)


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

    ``num_keys``: how many positions they may attend to.
    """

    def __init__(self, length: int, context: Context) -> None:
        rank, self.processes = distributed.get_rank(), distributed.get_world_size()
        self.length, self.all, causal = length, context, context.causal
        self.share = -(-length // self.processes)
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

    def append(self, key: Heads, value: Heads, *, slot: int) -> tuple[AllHeads, AllHeads]:
        """Keys and values of the positions that those of this process may attend to."""
        del slot
        both = self.whole(torch.stack((key, value)), dim=3).narrow(3, 0, self.num_keys).contiguous()
        keys, values = both.unbind(0)
        return keys, values

    def mean(self, values: PerPosition) -> PerPosition:
        """The mean over the real positions of each sequence, for the own positions."""
        return self.own(self.all.mean_over_sequence(self.whole(values, dim=1)), dim=1)

    def apply(self, function: Callable[[States], Tensor], states: States) -> Tensor:
        """``function`` of the states of each sequence, for the own positions."""
        return self.own(self.all.over_sequence(function, self.whole(states, dim=1)), dim=1)

    def whole_progress(self, own: Progress) -> Progress:
        """All positions after the last step. Nothing reads the last states and h after it: they are not exchanged."""
        names = ("output", "steps", "remainder")
        parts: dict[str, Any] = {name: self.whole(getattr(own, name), dim=1) for name in names}
        parts |= {"states": parts["output"], "halted": torch.ones_like(parts["steps"])}
        memory = tuple(self.whole(part, dim=1) for part in own.memory)
        history = tuple(
            Made(*(None if part is None else self.whole(part, dim=1) for part in made)) for made in own.history
        )
        return own._replace(**parts, running=None, memory=memory, history=history)

    def context(self, like: States) -> Context:
        """What the own positions may attend to, and how they are encoded."""
        whole, padding = self.all, self.all.padding
        if padding is None and self.length < self.share * self.processes:  # the last process has some
            padding = torch.zeros(like.shape[:2], dtype=torch.bool, device=like.device)
        mask = whole.mask
        if whole.causal:
            index = torch.arange(self.begin, self.begin + self.share, device=like.device).unsqueeze(0)
            mask = causal_mask(index, num_keys=self.num_keys)
        elif mask is not None and mask.shape[2] != 1:
            mask = self.own(mask, dim=2, fill=True)
        positions, signal, rotary = whole.encoding
        encoding = PositionEncoding(
            self.own(positions, dim=1),
            None if signal is None else self.own(signal, dim=1),
            None if rotary is None else self.own(rotary, dim=3),
        )
        return replace(
            whole,
            encoding=encoding,
            padding=None if padding is None else self.own(padding, dim=1, fill=True),
            mask=mask,
            causal=False,
            others=self,
            sequences=self,
        )


def parallel_loop(recurrence: Recurrence, states: States, context: Context, *, otherwise: Loop) -> Progress:
    """The loop over depth, in which each process computes its positions.

    Calls with a cache, or that keep attention weights, are made by every process as a whole: by ``otherwise``.
    """
    if context.cache is not None or context.record is not None:
        return otherwise(recurrence, states, context)
    shard = Shard(states.shape[1], context)
    with own_random_numbers(states.device) if recurrence.training else nullcontext():
        own = shard.own(states, dim=1)
        last = depth_loop(recurrence, own, shard.context(states), runs=runs_anywhere)
    return shard.whole_progress(last)


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
