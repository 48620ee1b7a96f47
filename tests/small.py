"""Small modules with lively weights, and the padding they are tried with."""

import torch
from torch import nn

from universal_transformer.nn.block import Block
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.coordinates import Coordinates, count_positions
from universal_transformer.nn.halting import HaltingUnit
from universal_transformer.nn.recurrence import Recurrence

WIDTH, HEADS, FILTER = 8, 2, 12


def stir(module, *, scale=0.4):
    """Random values for every parameter, so that none is at a start where a mistake cannot show (0 or 1)."""
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=scale)
    return module


def small_block(*, decoder=False, cross_attention=False, **choices):
    module = Block(
        WIDTH,
        num_heads=HEADS,
        filter_width=FILTER,
        decoder=decoder,
        cross_attention=cross_attention,
        **choices,
    )
    return stir(module).double().eval()


def small_recurrence(
    *,
    decoder=False,
    cross_attention=False,
    norm="post",
    transition="feed_forward",
    tied=True,
    layers_per_step=1,
    max_steps=5,
    halting=False,
    bias=None,
    scope="position",
    coordinates=None,
    **choices,
):
    """A recurrence in float64 over states of width 8."""
    count = layers_per_step * (1 if tied else max_steps)
    module = Recurrence(
        coordinates or Coordinates(WIDTH, num_heads=HEADS, max_steps=max_steps),
        [
            small_block(decoder=decoder, cross_attention=cross_attention, norm=norm, transition=transition)
            for _ in range(count)
        ],
        layers_per_step=layers_per_step,
        tied=tied,
        max_steps=max_steps,
        decoder=decoder,
        closing_norm=stir(nn.LayerNorm(WIDTH, eps=1e-6)) if norm == "pre" else None,
        halting=HaltingUnit(WIDTH, bias=bias or 0.0, scope=scope) if halting else None,
        **choices,
    )
    module = module.double().eval()
    if module.halting is not None:
        nn.init.normal_(module.halting.weight, std=1.0)
        if bias is None:
            spread(module)
    return module


@torch.no_grad()
def spread(module, *, logit=-0.4):
    """Give the halting unit the bias with which its logits of the second step lie around ``logit``: some positions
    then halt early and some late."""
    states = torch.randn(16, 5, WIDTH, dtype=torch.float64)
    placed = module.coordinates.place(torch.arange(5).unsqueeze(0))
    for step in range(2):
        signals = module.coordinates.step_signals(2, like=states)
        timed = module.coordinates(states, placed=placed, step=step, num_steps=2, signals=signals)
        memory = None
        if module.blocks[0].cross_attention is not None:
            memory = module.blocks[0].cross_attention.remember(states)
        states = module.blocks[0](timed, causal=module.decoder, memory=memory)
    module.halting.bias.fill_(logit - float((timed @ module.halting.weight[0]).mean()))


def right_padding(lengths, longest):
    """``[batch, position]``: True behind the first ``lengths[b]`` positions."""
    return torch.arange(longest) >= torch.tensor(lengths).unsqueeze(1)


def left_padding(lengths, longest):
    """``[batch, position]``: True in front of the last ``lengths[b]`` positions."""
    return right_padding(lengths, longest).flip(1)


def go(recurrence, states, *, padding=None, source=None, source_padding=None, **depth):
    """Run a recurrence over states, positions counted over the real ones."""
    where = torch.arange(states.shape[1]).unsqueeze(0) if padding is None else count_positions(padding)
    memory = None if source is None else recurrence.remember(source, padding=source_padding)
    placed = recurrence.coordinates.place(where, padding=padding)
    return recurrence(states, placed=placed, padding=padding, memory=memory, **depth)


def cache_for(module, *, batch, capacity, convolution=False, max_steps=None):
    return KeyValueCache(
        module.num_slots(max_steps),
        batch=batch,
        num_heads=HEADS,
        capacity=capacity,
        width=WIDTH,
        convolution=convolution,
        dtype=torch.float64,
        device=torch.device("cpu"),
    )


def piecewise(module, states, pieces, *, cache, padding=None, memory=None, **depth):
    """Outputs and steps of ``states`` fed in ``pieces``."""
    outputs, steps = [], []
    for count in pieces:
        end = cache.length + count
        where = torch.arange(end).unsqueeze(0) if padding is None else count_positions(padding[:, :end])
        blank = None if padding is None else padding[:, cache.length : end]
        output, trace = module(
            states[:, cache.length : end],
            placed=module.coordinates.place(where[:, cache.length :]),
            padding=blank,
            cache=cache,
            cached_padding=None if padding is None else padding[:, :end],
            memory=memory,
            **depth,
        )
        cache.length = end
        outputs.append(output)
        steps.append(trace.steps)
    return torch.cat(outputs, dim=1), torch.cat(steps, dim=1)
