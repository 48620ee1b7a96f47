"""Small modules with lively weights, and the padding they are tried with."""

from pkgutil import resolve_name

import torch
from torch import nn

from universal_transformer.execution.cache import KeyValueCache
from universal_transformer.execution.compaction import install
from universal_transformer.models.components import NORMS, TRANSITIONS, CoordinatesConfig, DepthConfig
from universal_transformer.models.depth import RecurrenceBuilder
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.positions.numbering import count_positions
from universal_transformer.models.positions.rotary import RotaryCrossAttention, RotarySelfAttention
from universal_transformer.models.target import decoder_mask
from universal_transformer.nn.attention import CrossAttention, SelfAttention
from universal_transformer.nn.block import Block, PostNorm
from universal_transformer.nn.context import (
    NOTHING,
    Context,
    Depth,
    PositionEncoding,
    key_mask,
)
from universal_transformer.nn.halting import FixedDepth
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.step_config import (
    AttentionConfig,
    HaltingConfig,
    Sizes,
    StepConfig,
    TransitionConfig,
)
from universal_transformer.rules import HALTING_RULES
from universal_transformer.rules.length import AsManyStepsAsPositions, of_lengths

WIDTH, HEADS, FILTER = 8, 2, 12
SIZES = Sizes(width=WIDTH, filter_width=FILTER, num_heads=HEADS)


def sizes(width=WIDTH, num_heads=HEADS):
    return Sizes(width=width, num_heads=num_heads)


def coordinates(width=WIDTH, *, num_heads=HEADS, max_steps=6, architecture="classifier", **choices):
    """Coordinates whose choices are all keywords."""
    config = ModelConfig(
        architecture=architecture,
        sizes=sizes(width, num_heads),
        coordinates=CoordinatesConfig(**choices),
        depth=DepthConfig(max_steps=max_steps),
    )
    return RecurrenceBuilder(config, decoder=architecture == "language_model").coordinates()


def self_attention(width=WIDTH, *, num_heads=HEADS, rotary=False, **choices):
    kind = RotarySelfAttention if rotary else SelfAttention
    return kind(sizes(width, num_heads), AttentionConfig(**choices))


def cross_attention(width=WIDTH, *, num_heads=HEADS, rotary=False, sink=False, **choices):
    config = AttentionConfig(rotary_source=rotary, source_sink=sink, **choices)
    kind = RotaryCrossAttention if rotary or sink else CrossAttention
    return kind(sizes(width, num_heads), config)


def context(*, max_steps=1, rule=None, positions=None, rotary=None, signal=None, **given):
    """The context of a call of one block or one attention."""
    encoding = given.pop("encoding", PositionEncoding(positions, signal, rotary))
    return Context(depth=given.pop("depth", Depth(rule or FixedDepth(), max_steps)), encoding=encoding, **given)


def stir(module, *, scale=0.4):
    """Random values for every parameter, so that none is at a start where a mistake cannot show (0 or 1)."""
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=scale)
    return module


class Residual(PostNorm):
    """The residual sum, without a norm."""

    def forward(self, states, change):
        return states + change


def small_block(*, decoder=False, cross_attention=False, **choices):
    return stir(block(decoder=decoder, cross_attention=cross_attention, **choices)).double().eval()


def block(
    *,
    decoder=False,
    cross_attention=False,
    norm="post",
    transition="feed_forward",
    dropout=0.0,
    attention_dropout=0.0,
    transition_dropout=0.0,
    attention_bias=False,
    key_value_heads=None,
    rotary=False,
    rotary_source=False,
    source_sink=False,
    sublayers=8,
):
    config = AttentionConfig(
        bias=attention_bias,
        key_value_heads=key_value_heads,
        dropout=attention_dropout,
        rotary_source=rotary_source,
        source_sink=source_sink,
    )
    cross = None
    if cross_attention:
        cross = (RotaryCrossAttention if rotary_source or source_sink else CrossAttention)(SIZES, config)
    chosen = TransitionConfig(kind=transition, dropout=transition_dropout)
    return Block(
        (RotarySelfAttention if rotary else SelfAttention)(SIZES, config),
        resolve_name(TRANSITIONS[transition])(SIZES, chosen, causal=decoder),
        norm=lambda: resolve_name(NORMS[norm])(WIDTH, StepConfig(norm=norm, dropout=dropout), sublayers=sublayers),
        cross_attention=cross,
    )


def rule_of(config, *, max_steps):
    return resolve_name(HALTING_RULES[config.rule])(WIDTH, config, max_steps=max_steps)


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
    key_value_heads=None,
    coordinates=None,
    checkpointed=False,
    threshold=0.99,
    execution="auto",
    by_length=False,
    **choices,
):
    """A recurrence in float64 over states of width 8; ``choices`` are those of the halting rule."""
    count = layers_per_step * (1 if tied else max_steps)
    where = coordinates or COORDINATES(max_steps=max_steps)
    rule = AsManyStepsAsPositions() if by_length else FixedDepth()
    if halting:
        rule = rule_of(HaltingConfig(bias=bias or 0.0, **choices), max_steps=max_steps)
    module = Recurrence(
        where,
        [
            small_block(
                decoder=decoder,
                cross_attention=cross_attention,
                norm=norm,
                transition=transition,
                rotary=where.position.self_attention is RotarySelfAttention,
                rotary_source=rotary_source,
                source_sink=source_sink,
                key_value_heads=key_value_heads,
            )
            for _ in range(count)
        ],
        depth=Depth(rule, max_steps, min_steps, threshold),
        blocks_per_step=layers_per_step,
        residual=residual,
        closing_norm=stir(kind.normalise(WIDTH, eps=1e-6)) if (kind := resolve_name(NORMS[norm])).closes else None,
    )
    module.checkpointed, module.decoder, module.by_length = checkpointed, decoder, by_length
    install(module, execution)
    module = module.double().eval()
    if halting:
        nn.init.normal_(module.halting.weight, std=1.0)
        if bias is None:
            spread(module)
    return module


COORDINATES = coordinates


@torch.no_grad()
def spread(module, *, logit=-0.4):
    """Give the halting unit the bias with which its logits of the second step lie around ``logit``: some positions
    then halt early and some late."""
    states = torch.randn(16, 5, WIDTH, dtype=torch.float64)
    encoding = module.coordinates.position(torch.arange(5).unsqueeze(0))
    signals = module.coordinates.signals(2, like=states)
    for step in range(2):
        timed = module.coordinates(states, encoding, step=step, signals=signals)
        source = None
        if module.blocks[0].cross_attention is not None:
            source = [module.blocks[0].cross_attention.project_source(states, rotary=encoding.rotary)]
        states = module.blocks[0](timed, context(encoding=encoding, causal=module.decoder, source=source))
    module.halting.bias.fill_(logit - float((timed @ module.halting.weight[0]).mean()))


def count_rows(module):
    """A list that receives the number of rows of each step. A hook would count rows of the plain loop alone."""
    rows, advance = [], module.advance

    def counted(was, context, *, step):
        rows.append(was.steps.numel())
        return advance(was, context, step=step)

    module.advance = counted
    return rows


def right_padding(lengths, longest):
    """``[batch, position]``: True after the first ``lengths[b]`` positions."""
    return torch.arange(longest) >= torch.tensor(lengths).unsqueeze(1)


def left_padding(lengths, longest):
    """``[batch, position]``: True in front of the last ``lengths[b]`` positions."""
    return right_padding(lengths, longest).flip(1)


def context_of(
    recurrence,
    length,
    *,
    padding=None,
    encoding=None,
    source=None,
    cache=None,
    stored_padding=None,
    keep=NOTHING,
    depth=None,
    max_steps=None,
    threshold=None,
    exit=None,
):
    """The context of a call over ``length`` positions, counted over the real ones."""
    if encoding is None:
        where = torch.arange(length).unsqueeze(0) if padding is None else count_positions(padding)
        encoding = recurrence.coordinates.position(where, padding=padding)
    mask, causal = (None if padding is None else key_mask(padding)), False
    if recurrence.decoder:
        stored = None if cache is None else cache.length
        device = encoding.positions.device
        mask, causal = decoder_mask(
            length, stored=stored, padding=padding, stored_padding=stored_padding, device=device
        )
    made = Context(
        depth=depth or recurrence.depth(max_steps=max_steps, threshold=threshold, exit=exit),
        encoding=encoding,
        padding=padding,
        mask=mask,
        causal=causal,
        source=source,
        cache=cache,
        stored_padding=stored_padding,
        record=keep.record(),
        keep_states=keep.states,
    )
    return of_lengths(made, positions=length) if getattr(recurrence, "by_length", False) and max_steps is None else made


def go(recurrence, states, *, source=None, source_padding=None, **call):
    """Run a recurrence over states, positions counted over the real ones."""
    projected = None
    if source is not None:
        places = recurrence.coordinates.position(torch.arange(source.shape[1]).unsqueeze(0))
        projected = recurrence.project_source(source, padding=source_padding, rotary=places.rotary)
    return recurrence(states, context_of(recurrence, states.shape[1], source=projected, **call))


def cache_for(module, *, batch, capacity, convolution=False, max_steps=None):
    return KeyValueCache(
        module.num_slots(max_steps or module.trained_depth.max_steps),
        batch=batch,
        num_heads=module.blocks[0].attention.key_heads,
        capacity=capacity,
        width=module.blocks[0].attention.key_width,
        convolution=WIDTH if convolution else 0,
        like=torch.zeros(1, dtype=torch.float64),
    )


@torch.no_grad()
def piecewise(module, states, pieces, *, cache, padding=None, source=None, max_steps=None, threshold=None, exit=None):
    """Outputs and steps of ``states`` fed in ``pieces``."""
    outputs, steps = [], []
    for count in pieces:
        end = cache.length + count
        where = torch.arange(end).unsqueeze(0) if padding is None else count_positions(padding[:, :end])
        output, trace = module(
            states[:, cache.length : end],
            context_of(
                module,
                count,
                encoding=module.coordinates.position(where[:, cache.length :]),
                padding=None if padding is None else padding[:, cache.length : end],
                cache=cache,
                stored_padding=None if padding is None else padding[:, :end],
                source=source,
                max_steps=max_steps,
                threshold=threshold,
                exit=exit,
            ),
        )
        cache.length = end
        outputs.append(output)
        steps.append(trace.steps)
    return torch.cat(outputs, dim=1), torch.cat(steps, dim=1)
