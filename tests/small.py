"""Small modules with lively weights, and the padding they are tried with."""

import torch
from torch import nn

from universal_transformer.execution.install import install
from universal_transformer.nn.attention import CrossAttention, SelfAttention
from universal_transformer.nn.block import Block
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.config import (
    HALTING_RULES,
    AttentionConfig,
    CoordinatesConfig,
    HaltingConfig,
    Sizes,
    StepConfig,
    TransitionConfig,
    load_object,
)
from universal_transformer.nn.coordinates import Coordinates, count_positions
from universal_transformer.nn.progress import Depth
from universal_transformer.nn.recurrence import Recurrence

WIDTH, HEADS, FILTER = 8, 2, 12
SIZES = Sizes(width=WIDTH, filter_width=FILTER, num_heads=HEADS)


def sizes(width=WIDTH, num_heads=HEADS):
    return Sizes(width=width, num_heads=num_heads)


def coordinates(
    width=WIDTH,
    *,
    num_heads=HEADS,
    max_steps=6,
    scale=False,
    **choices,
):
    """Coordinates whose choices are all keywords."""
    t2t = {name: choices.pop(name) for name in ("concatenate", "shift_by_step") if name in choices}
    config = CoordinatesConfig(**choices)
    return Coordinates(sizes(width, num_heads), config, max_steps=max_steps, scale_step_table=scale, **t2t)


def self_attention(width=WIDTH, *, num_heads=HEADS, **choices):
    return SelfAttention(sizes(width, num_heads), AttentionConfig(**choices))


def cross_attention(width=WIDTH, *, num_heads=HEADS, rotary=False, sink=False, **choices):
    config = AttentionConfig(rotary_source=rotary, source_sink=sink, **choices)
    return CrossAttention(sizes(width, num_heads), config)


def stir(module, *, scale=0.4):
    """Random values for every parameter, so that none is at a start where a mistake cannot show (0 or 1)."""
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=scale)
    return module


def small_block(*, decoder=False, cross_attention=False, **choices):
    return stir(block(decoder=decoder, cross_attention=cross_attention, **choices)).double().eval()


def block(
    *,
    decoder=False,
    cross_attention=False,
    norm="post",
    transition="feed_forward",
    zero_padding=False,
    dropout=0.0,
    attention_dropout=0.0,
    transition_dropout=0.0,
    attention_bias=False,
    rotary_source=False,
    source_sink=False,
    scale=None,
):
    return Block(
        SIZES,
        step=StepConfig(norm=norm, dropout=dropout),
        attention=AttentionConfig(
            bias=attention_bias,
            dropout=attention_dropout,
            rotary_source=rotary_source,
            source_sink=source_sink,
        ),
        transition=TransitionConfig(kind=transition, dropout=transition_dropout),
        decoder=decoder,
        cross_attention=cross_attention,
        zero_padding=zero_padding,
        scale=scale or (1.7 if norm == "deep" else 1.0),
    )


def unit_of(config, *, max_steps):
    return load_object(HALTING_RULES[config.rule])(WIDTH, config, max_steps=max_steps)


def small_recurrence(
    *,
    decoder=False,
    cross_attention=False,
    norm="post",
    transition="feed_forward",
    tied=True,
    layers_per_step=1,
    residual="timed",
    max_steps=5,
    min_steps=1,
    halting=False,
    bias=None,
    rotary_source=False,
    source_sink=False,
    coordinates=None,
    checkpointed=False,
    threshold=0.99,
    execution="auto",
    **choices,
):
    """A recurrence in float64 over states of width 8; ``choices`` are those of the halting unit."""
    count = layers_per_step * (1 if tied else max_steps)
    module = Recurrence(
        coordinates or Coordinates(SIZES, max_steps=max_steps),
        [
            small_block(
                decoder=decoder,
                cross_attention=cross_attention,
                norm=norm,
                transition=transition,
                rotary_source=rotary_source,
                source_sink=source_sink,
            )
            for _ in range(count)
        ],
        depth=Depth(max_steps, min_steps, threshold),
        step=StepConfig(norm=norm, tied=tied, blocks=layers_per_step, residual=residual, dropout=0.0),
        decoder=decoder,
        closing_norm=stir(nn.LayerNorm(WIDTH, eps=1e-6)) if norm == "pre" else None,
        halting=unit_of(HaltingConfig(bias=bias or 0.0, **choices), max_steps=max_steps) if halting else None,
        checkpointed=checkpointed,
    )
    install(module, execution)
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
    encoding = module.coordinates.encode(torch.arange(5).unsqueeze(0))
    for step in range(2):
        signals = module.coordinates.step_signals(2, like=states)
        timed = module.coordinates(states, encoding, step=step, num_steps=2, signals=signals)
        source = None
        if module.blocks[0].cross_attention is not None:
            source = module.blocks[0].cross_attention.project_source(states, rotary=encoding.rotary)
        states = module.blocks[0](timed, causal=module.decoder, source=source, rotary=encoding.rotary)
    module.halting.bias.fill_(logit - float((timed @ module.halting.weight[0]).mean()))


def right_padding(lengths, longest):
    """``[batch, position]``: True after the first ``lengths[b]`` positions."""
    return torch.arange(longest) >= torch.tensor(lengths).unsqueeze(1)


def left_padding(lengths, longest):
    """``[batch, position]``: True in front of the last ``lengths[b]`` positions."""
    return right_padding(lengths, longest).flip(1)


def go(
    recurrence,
    states,
    *,
    padding=None,
    source=None,
    source_padding=None,
    max_steps=None,
    threshold=None,
    exit=None,
    **call,
):
    """Run a recurrence over states, positions counted over the real ones."""
    where = torch.arange(states.shape[1]).unsqueeze(0) if padding is None else count_positions(padding)
    projected = None
    if source is not None:
        places = recurrence.coordinates.encode(torch.arange(source.shape[1]).unsqueeze(0))
        projected = recurrence.project_source(source, padding=source_padding, rotary=places.rotary)
    encoding = recurrence.coordinates.encode(where, padding=padding)
    depth = recurrence.depth(max_steps=max_steps, threshold=threshold, exit=exit)
    return recurrence(states, encoding=encoding, padding=padding, source=projected, depth=depth, **call)


def cache_for(module, *, batch, capacity, convolution=False, max_steps=None):
    return KeyValueCache(
        module.num_slots(max_steps or module.trained_depth.max_steps),
        batch=batch,
        num_heads=HEADS,
        capacity=capacity,
        width=WIDTH,
        convolution=convolution,
        like=torch.zeros(1, dtype=torch.float64),
    )


@torch.no_grad()
def piecewise(module, states, pieces, *, cache, padding=None, source=None, max_steps=None, threshold=None, exit=None):
    """Outputs and steps of ``states`` fed in ``pieces``."""
    outputs, steps = [], []
    for count in pieces:
        end = cache.length + count
        where = torch.arange(end).unsqueeze(0) if padding is None else count_positions(padding[:, :end])
        blank = None if padding is None else padding[:, cache.length : end]
        output, trace = module(
            states[:, cache.length : end],
            encoding=module.coordinates.encode(where[:, cache.length :]),
            padding=blank,
            cache=cache,
            cached_padding=None if padding is None else padding[:, :end],
            source=source,
            depth=module.depth(max_steps=max_steps, threshold=threshold, exit=exit),
        )
        cache.length = end
        outputs.append(output)
        steps.append(trace.steps)
    return torch.cat(outputs, dim=1), torch.cat(steps, dim=1)
