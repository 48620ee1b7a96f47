"""Which official variable is which of our parameters.

:func:`model_variables` and :func:`recurrence_variables` list them all: for each its official name (without the scope of
the model around it), the parameter of ours that holds it, and how the axes lie. Reading a checkpoint, writing one and
comparing gradients go by these lists.

================  ====================  =====================================================
layout            official              ours
================  ====================  =====================================================
``same``          any                   the same
``matrix``        ``[in, out]``         ``[out, in]`` (``torch.nn.Linear``)
``steps``         ``[step, 1, 1, out]`` ``[step, out]``
``depthwise``     ``[tap, 1, in, 1]``   ``[in, 1, tap]`` (``torch.nn.Conv1d``)
``pointwise``     ``[1, 1, in, out]``   ``[out, in]``
================  ====================  =====================================================
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import nn

from universal_transformer.axes import Float, Tensor
from universal_transformer.models.encoder_decoder import EncoderDecoder
from universal_transformer.models.inputs import TokenInput
from universal_transformer.models.language_model import LanguageModel
from universal_transformer.models.target import TargetSide
from universal_transformer.nn.attention import CrossAttention, SelfAttention
from universal_transformer.nn.block import Block, Sublayer
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.transition import FeedForward, SeparableConvolution, SeparableConvolution1d

Layout = Literal["same", "matrix", "steps", "depthwise", "pointwise"]


@dataclass(frozen=True, eq=False)
class Variable:
    """One official variable: ``rows`` of ``parameter``, with its axes laid out in the official order."""

    name: str
    parameter: Tensor
    layout: Layout = "same"
    rows: slice | None = None

    def official(self, tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The part of ``tensor`` (the parameter's value or gradient) that is this variable, in the official layout.

        It is a view: what is written into it is written into ``tensor``.
        """
        part = tensor if self.rows is None else tensor[self.rows]
        match self.layout:
            case "same":
                return part
            case "matrix":
                return part.t()
            case "steps":
                return part[:, None, None, :]
            case "depthwise":
                return part.permute(2, 1, 0).unsqueeze(-1)
            case "pointwise":
                return part.t()[None, None]


def shards(vocabulary_size: int, *, num_shards: int) -> list[slice]:
    """The rows of each of ``num_shards`` parts of an embedding: as even as can be, the larger ones first."""
    least, larger = divmod(vocabulary_size, num_shards)
    ends = [(part + 1) * least + min(part + 1, larger) for part in range(num_shards)]
    return [slice(first, last) for first, last in zip([0, *ends[:-1]], ends, strict=True)]


def _norm(norm: nn.LayerNorm, *, scope: str, post: bool) -> Iterator[Variable]:
    scope = f"{scope}/{'layer_postprocess' if post else 'layer_prepostprocess'}/layer_norm"
    yield Variable(f"{scope}/layer_norm_scale", norm.weight)
    yield Variable(f"{scope}/layer_norm_bias", norm.bias)


def _residual(sublayer: Sublayer, *, scope: str) -> Iterator[Variable]:
    yield from _norm(sublayer.norm, scope=scope, post=sublayer.post)


def _self_attention(attention: SelfAttention, *, scope: str) -> Iterator[Variable]:
    fused, width = attention.query_key_value.weight, attention.output.weight.shape[0]
    for part, name in enumerate("qkv"):
        rows = slice(part * width, (part + 1) * width)
        yield Variable(f"{scope}/multihead_attention/{name}/kernel", fused, "matrix", rows)
    yield Variable(f"{scope}/multihead_attention/output_transform/kernel", attention.output.weight, "matrix")


def _cross_attention(attention: CrossAttention, *, scope: str) -> Iterator[Variable]:
    fused, width = attention.key_value.weight, attention.output.weight.shape[0]
    yield Variable(f"{scope}/multihead_attention/q/kernel", attention.query.weight, "matrix")
    for part, name in enumerate("kv"):
        rows = slice(part * width, (part + 1) * width)
        yield Variable(f"{scope}/multihead_attention/{name}/kernel", fused, "matrix", rows)
    yield Variable(f"{scope}/multihead_attention/output_transform/kernel", attention.output.weight, "matrix")


def _convolution(convolution: SeparableConvolution1d, *, scope: str) -> Iterator[Variable]:
    yield Variable(f"{scope}/depthwise_kernel", convolution.depthwise.weight, "depthwise")
    yield Variable(f"{scope}/pointwise_kernel", convolution.pointwise.weight, "pointwise")
    yield Variable(f"{scope}/bias", convolution.pointwise.bias)


def _transition(transition: nn.Module, *, scope: str) -> Iterator[Variable]:
    if isinstance(transition, SeparableConvolution):
        scope = f"{scope}/sepconv_relu_sepconv"
        yield from _convolution(transition.first, scope=f"{scope}/conv1_single")
        yield from _convolution(transition.second, scope=f"{scope}/conv2_single")
        return
    assert isinstance(transition, FeedForward)
    for name, layer in (("conv1", transition.inner), ("conv2", transition.outer)):
        yield Variable(f"{scope}/{name}/kernel", layer.weight, "matrix")
        yield Variable(f"{scope}/{name}/bias", layer.bias)


def _block(block: Block, *, scope: str) -> Iterator[Variable]:
    yield from _residual(block.after_attention, scope=f"{scope}/self_attention")
    yield from _self_attention(block.attention, scope=f"{scope}/self_attention")
    if block.cross_attention is not None and block.after_cross_attention is not None:
        yield from _residual(block.after_cross_attention, scope=f"{scope}/encdec_attention")
        yield from _cross_attention(block.cross_attention, scope=f"{scope}/encdec_attention")
    yield from _residual(block.after_transition, scope=f"{scope}/ffn")
    assert isinstance(block.transition, FeedForward | SeparableConvolution)
    yield from _transition(block.transition, scope=f"{scope}/ffn")


def recurrence_variables(recurrence: Recurrence) -> Iterator[Variable]:
    """The variables of one side."""
    side = "decoder" if recurrence.decoder else "encoder"
    scope = f"{side}/universal_transformer_{'basic' if recurrence.halting is None else 'act'}"
    coordinates = recurrence.coordinates
    if coordinates.step_table is not None:
        yield Variable(f"{scope}/layer_embedding", coordinates.step_table, "steps")
    if coordinates.join is not None:
        yield Variable(f"{scope}/dense/kernel", coordinates.join.weight, "matrix")
    for prefix, blocks in (
        ("before_ut_layer", getattr(recurrence, "before", ())),
        ("rec_layer", recurrence.blocks),
        ("after_ut_layer", getattr(recurrence, "after", ())),
    ):
        for index, block in enumerate(blocks):
            assert isinstance(block, Block)
            yield from _block(block, scope=f"{scope}/{prefix}_{index}")
    if recurrence.halting is not None:
        unit = f"{scope}/sigmoid_activation_for_pondering/dense"
        yield Variable(f"{unit}/kernel", recurrence.halting.weight, "matrix")
        yield Variable(f"{unit}/bias", recurrence.halting.bias)
    if recurrence.closing_norm is not None:
        yield from _norm(recurrence.closing_norm, scope=side, post=False)


def _table(weight: Tensor, *, name: str, num_shards: int) -> Iterator[Variable]:
    size, width = weight.shape
    for part, rows in enumerate(shards(size, num_shards=num_shards)):
        yield Variable(f"symbol_modality_{size}_{width}/{name}/weights_{part}", weight, "same", rows)


def _target_tables(
    target: TargetSide, *, source: TokenInput | None, num_shards: int, shared: bool
) -> Iterator[Variable]:
    if target.embedding is not source:
        name = "shared" if shared else "target_emb"
        yield from _table(target.embedding.weight, name=name, num_shards=num_shards)
    if target.output is not None:
        yield from _table(target.output.weight, name="softmax", num_shards=num_shards)


def space_variable(table: Tensor) -> Variable:
    """The embedding of the problem."""
    return Variable("target_space_embedding/kernel", table)


def model_variables(
    model: EncoderDecoder | LanguageModel, *, num_shards: int = 1, shared: bool = True
) -> Iterator[Variable]:
    """The variables of a whole model; ``shared``: one embedding scope for source and target."""
    source: TokenInput | None = None
    if isinstance(model, EncoderDecoder):
        assert isinstance(model.source.input, TokenInput)
        source = model.source.input
        yield from _table(source.weight, name="shared" if shared else "input_emb", num_shards=num_shards)
        if model.source.space is not None:
            yield space_variable(model.source.space)
        yield from recurrence_variables(model.source.recurrence)
    yield from _target_tables(model.target, source=source, num_shards=num_shards, shared=shared)
    yield from recurrence_variables(model.target.recurrence)
