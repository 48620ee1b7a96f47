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
from universal_transformer.interop.tensor2tensor_models import OfficialEncoderDecoder, OfficialLanguageModel
from universal_transformer.interop.tensor2tensor_parts import OfficialCoordinates, OfficialRecurrence
from universal_transformer.models.convolution import SeparableConvolution, SeparableConvolution1d
from universal_transformer.models.inputs import TokenInput
from universal_transformer.models.norms import PreNorm
from universal_transformer.models.positions.tables import LearnedSteps
from universal_transformer.nn.attention import CrossAttention, SelfAttention
from universal_transformer.nn.block import Block, PostNorm
from universal_transformer.nn.halting import ACT
from universal_transformer.nn.transition import FeedForward

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


def _attention(attention: SelfAttention | CrossAttention, *, scope: str) -> Iterator[Variable]:
    scope = f"{scope}/multihead_attention"
    if isinstance(attention, SelfAttention):
        fused, names = attention.query_key_value.weight, "qkv"
    else:
        fused, names = attention.key_value.weight, "kv"
        yield Variable(f"{scope}/q/kernel", attention.query.weight, "matrix")
    width = fused.shape[1]
    for part, name in enumerate(names):
        yield Variable(f"{scope}/{name}/kernel", fused, "matrix", slice(part * width, (part + 1) * width))
    yield Variable(f"{scope}/output_transform/kernel", attention.output.weight, "matrix")


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
    parts: list[tuple[str, PostNorm | None, nn.Module | None]] = [
        ("self_attention", block.after_attention, block.attention),
        ("encdec_attention", block.after_cross_attention, block.cross_attention),
        ("ffn", block.after_transition, block.transition),
    ]
    for name, norm, module in parts:
        inside = f"{scope}/{name}"
        if norm is not None:
            yield from _norm(norm.norm, scope=inside, post=not isinstance(norm, PreNorm))
        if isinstance(module, SelfAttention | CrossAttention):
            yield from _attention(module, scope=inside)
        elif module is not None:
            yield from _transition(module, scope=inside)


def recurrence_variables(recurrence: OfficialRecurrence) -> Iterator[Variable]:
    """The variables of one side."""
    side, halting = "decoder" if recurrence.decoder else "encoder", recurrence.halting
    scope = f"{side}/universal_transformer_{'act' if isinstance(halting, ACT) else 'basic'}"
    coordinates = recurrence.coordinates
    if isinstance(coordinates.step, LearnedSteps):
        yield Variable(f"{scope}/layer_embedding", coordinates.step.weight, "steps")
    if isinstance(coordinates, OfficialCoordinates) and coordinates.join is not None:
        yield Variable(f"{scope}/dense/kernel", coordinates.join.weight, "matrix")
    for prefix, blocks in (
        ("before_ut_layer", recurrence.before),
        ("rec_layer", recurrence.blocks),
        ("after_ut_layer", recurrence.after),
    ):
        for index, block in enumerate(blocks):
            assert isinstance(block, Block)
            yield from _block(block, scope=f"{scope}/{prefix}_{index}")
    if isinstance(halting, ACT):
        unit = f"{scope}/sigmoid_activation_for_pondering/dense"
        yield Variable(f"{unit}/kernel", halting.weight, "matrix")
        yield Variable(f"{unit}/bias", halting.bias)
    if recurrence.closing_norm is not None:
        yield from _norm(recurrence.closing_norm, scope=side, post=False)


def _table(weight: Tensor, *, name: str, num_shards: int) -> Iterator[Variable]:
    size, width = weight.shape
    for part, rows in enumerate(shards(size, num_shards=num_shards)):
        yield Variable(f"symbol_modality_{size}_{width}/{name}/weights_{part}", weight, "same", rows)


def space_variable(table: Tensor) -> Variable:
    """The embedding of the problem."""
    return Variable("target_space_embedding/kernel", table)


def model_variables(
    model: OfficialEncoderDecoder | OfficialLanguageModel, *, num_shards: int = 1, shared: bool = True
) -> Iterator[Variable]:
    """The variables of a whole model; ``shared``: one embedding scope for source and target."""
    source: Tensor | None = None
    if isinstance(model, OfficialEncoderDecoder):
        assert isinstance(model.source.input, TokenInput)
        source = model.source.input.weight
        yield from _table(source, name="shared" if shared else "input_emb", num_shards=num_shards)
        if model.source.space is not None:
            yield space_variable(model.source.space)
        assert isinstance(model.source.recurrence, OfficialRecurrence)
        yield from recurrence_variables(model.source.recurrence)
    target = model.target
    if target.embedding.weight is not source:
        name = "shared" if shared else "target_emb"
        yield from _table(target.embedding.weight, name=name, num_shards=num_shards)
    if target.output is not None:
        yield from _table(target.output.weight, name="softmax", num_shards=num_shards)
    assert isinstance(target.recurrence, OfficialRecurrence)
    yield from recurrence_variables(target.recurrence)
