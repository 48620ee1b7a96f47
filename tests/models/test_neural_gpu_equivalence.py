"""Section 4 of the paper: with self-attention the identity, a convolution as the transition and as many steps as the
input is long, a Universal Transformer is a Neural GPU: one convolution applied again and again to the whole input.

With the paper's transition the naive side is loops over positions, taps and channels, and knows nothing of blocks,
residuals or batches. With the gated unit for a transition the other side is `baselines/neural_gpu.py`, bit for bit.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from configs import config_of
from small import Residual, context_of, right_padding, stir
from small_baselines import VOCABULARY, small_neural_gpu
from universal_transformer import EncoderDecoder, Tagger
from universal_transformer.baselines.baseline_config import NeuralGpuConfig
from universal_transformer.baselines.neural_gpu import GatedUnit
from universal_transformer.models.call import DepthOptions
from universal_transformer.models.components import TRANSITIONS
from universal_transformer.models.convolution import SeparableConvolution
from universal_transformer.models.model import Call
from universal_transformer.models.norms import PreNorm
from universal_transformer.nn.attention import SelfAttention
from universal_transformer.nn.block import Block, PostNorm
from universal_transformer.nn.context import Depth
from universal_transformer.nn.coordinates import Coordinates, PositionEncoder
from universal_transformer.nn.halting import FixedDepth
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.step_config import AttentionConfig, Sizes, StepConfig, TransitionConfig

WIDTH, FILTER, HEADS = 6, 10, 2
CONVOLUTION = TransitionConfig(kind="separable_convolution")


@torch.no_grad()
def silence_attention(block):
    """The attention adds 0, so that its sub-layer is the residual alone: the identity map."""
    block.attention.output.weight.zero_()


def lists(tensor):
    return tensor.tolist()


def convolve(row, module, *, taps):
    """A depthwise convolution of ``taps`` taps, centred, then a pointwise one: channel by channel."""
    depthwise, pointwise, bias = map(
        lists, (module.depthwise.weight[:, 0], module.pointwise.weight, module.pointwise.bias)
    )
    result = []
    for i in range(len(row)):
        filtered = []
        for channel in range(len(row[0])):
            total = 0.0
            for tap in range(taps):
                j = i + tap - taps // 2
                if 0 <= j < len(row):
                    total += depthwise[channel][tap] * row[j][channel]
            filtered.append(total)
        result.append(
            [
                sum(weight * value for weight, value in zip(weights, filtered, strict=True)) + shift
                for weights, shift in zip(pointwise, bias, strict=True)
            ]
        )
    return result


def cell(row, transition):
    """``conv5(ReLU(conv3(x)))``: one step of the Neural GPU."""
    hidden = [[max(0.0, value) for value in state] for state in convolve(row, transition.first, taps=3)]
    return convolve(hidden, transition.second, taps=5)


def normalised(state, norm):
    mean = sum(state) / len(state)
    variance = sum((value - mean) ** 2 for value in state) / len(state)
    scaled = [(value - mean) / math.sqrt(variance + norm.eps) for value in state]
    return [w * value + b for w, value, b in zip(lists(norm.weight), scaled, lists(norm.bias), strict=True)]


def neural_gpu(row, block, *, steps):
    """The convolution with its residual, and the norms where the block has them, ``steps`` times."""
    for _ in range(steps):
        if not block.after_attention.closes:
            row = [normalised(state, block.after_attention.norm) for state in row]
            change = cell(row, block.transition)
        else:
            change = cell([normalised(state, block.after_transition.norm) for state in row], block.transition)
        row = [
            [old + new for old, new in zip(state, more, strict=True)] for state, more in zip(row, change, strict=True)
        ]
        if not block.after_attention.closes:
            row = [normalised(state, block.after_transition.norm) for state in row]
    return row


def recurrence(norm):
    """A tied recurrence without coordinates, in float64."""
    block = block_of(Sizes(width=WIDTH, num_heads=HEADS, filter_width=FILTER), norm)
    silence_attention(stir(block))
    return repeated(block).double().eval()


def block_of(sizes, norm="post"):
    chosen = {"post": PostNorm, "pre": PreNorm}[norm]
    return Block(
        SelfAttention(sizes, AttentionConfig()),
        SeparableConvolution(sizes, CONVOLUTION),
        norm=lambda: chosen(sizes.width, StepConfig(norm=norm)),
    )


def repeated(block):
    return Recurrence(Coordinates(PositionEncoder(), None), [block], depth=Depth(FixedDepth(), 1))


def run(module, states, **arguments):
    module.decoder = False
    return module(states, context_of(module, states.shape[1], max_steps=states.shape[1], **arguments))[0]


@pytest.mark.claim("section 4")
@pytest.mark.parametrize("norm", ["post", "pre"])
@given(length=st.integers(1, 9))
def test_as_many_steps_as_positions_are_a_recurrent_convolution_as_in_a_neural_gpu(norm, length):
    module = recurrence(norm)
    states = torch.randn(2, length, WIDTH, dtype=torch.float64)
    naive = [neural_gpu(lists(row), module.blocks[0], steps=length) for row in states]
    torch.testing.assert_close(run(module, states), torch.tensor(naive, dtype=torch.float64))


class GatedConvolution(nn.Module):
    """The gated unit as a transition: the sequence is an image of one column, blank at padding."""

    pointwise = False

    def __init__(self, sizes, config, *, causal=False):
        super().__init__()
        self.unit = GatedUnit(NeuralGpuConfig(width=sizes.width, image_width=1, dropout=config.dropout))

    def forward(self, states, context, *, slot=0):
        if context.padding is not None:
            states = states.masked_fill(context.padding.unsqueeze(-1), 0.0)
        return self.unit(states.transpose(1, 2).unsqueeze(2)).squeeze(2).transpose(1, 2)


class ValueAlone(PostNorm):
    """The value of the sub-layer: the gated unit has a residual of its own, u ⊙ s."""

    def forward(self, states, change):
        return change


@torch.no_grad()
def as_universal_transformer(gpu):
    """An encoder, configured with the gated unit for a transition, that has the weights of a Neural GPU."""
    model = Tagger(
        config_of(
            architecture="tagger",
            width=gpu.config.width,
            num_heads=1,
            vocabulary_size=gpu.config.vocabulary.size,
            num_classes=gpu.config.vocabulary.written,
            transition="gated_convolution",
            position_coordinates="none",
            step_coordinates="none",
            max_steps="length",
            layers_per_step=gpu.config.num_layers,
            dropout=0.0,
        )
    )
    model.to(gpu.source.output.weight.dtype).eval()
    for block, unit in zip(model.source.recurrence.blocks, gpu.source.units, strict=True):
        silence_attention(block)
        block.after_attention, block.after_transition = Residual(1, StepConfig()), ValueAlone(1, StepConfig())
        block.transition.unit.load_state_dict(unit.state_dict())
    model.source.input.load_state_dict(gpu.source.input.state_dict())
    model.source.input.weight[gpu.config.vocabulary.start_id] = 0.0  # the place after the source is blank
    model.head.load_state_dict(gpu.source.output.state_dict())
    return model


@torch.no_grad()
@pytest.mark.claim("section 4")
@settings(max_examples=15)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    layers=st.integers(1, 2),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_with_the_gated_unit_it_is_the_neural_gpu_of_this_project_bit_for_bit(lengths, layers, dtype):
    gpu = small_neural_gpu(image_width=1, num_layers=layers).to(dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TRANSITIONS, "gated_convolution", f"{__name__}:GatedConvolution")
        model = as_universal_transformer(gpu)
    source, start = torch.zeros(len(lengths), max(lengths) + 1, dtype=torch.long), gpu.config.vocabulary.start_id
    for row, length in enumerate(lengths):
        source[row, :length], source[row, length] = torch.randint(3, VOCABULARY, (length,)), start
    real = source != 0
    output = model(source)
    assert output.encoder.steps[real].tolist() == [length + 1 for length in lengths for _ in range(length + 1)]
    expected = gpu.source(source.masked_fill(source == start, 0), Call()).logits
    assert torch.equal(output.logits[real], expected[real])


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_each_sequence_is_its_own_neural_gpu_whatever_the_padding(norm):
    module, lengths = recurrence(norm), (6, 4, 1)
    states = torch.randn(3, 6, WIDTH, dtype=torch.float64)
    ours = run(module, states, padding=right_padding(lengths, 6))
    for row, length, result in zip(states, lengths, ours, strict=True):
        naive = neural_gpu(lists(row[:length]), module.blocks[0], steps=6)
        torch.testing.assert_close(result[:length], torch.tensor(naive, dtype=torch.float64))


@torch.no_grad()
def automaton(rule):
    """A recurrence whose weights are one of the 256 cellular automata of two states and three neighbours.

    A cell is ``(1, -1)`` when alive and ``(-1, 1)`` when dead: mean 0 and variance 1, which LayerNorm keeps. The first
    convolution writes a neighbourhood as a number ``v = 9 left + 3 own + right`` of 27, where outside is 0, and its
    ReLUs are ``h_j = max(0, v - j)``; ``h_(k-1) - 2 h_k + h_(k+1)`` is 1 at ``v = k`` and 0 at all other whole numbers.
    Two more ReLUs carry the old cell, to take the residual away.
    """
    hinges = torch.arange(-14, 15)
    sizes = Sizes(width=2, num_heads=1, filter_width=len(hinges) + 2)
    block = block_of(sizes).double()
    silence_attention(block)
    for sublayer in (block.after_attention, block.after_transition):
        sublayer.norm.weight.fill_((1.0 + sublayer.norm.eps) ** 0.5)
    first, second = block.transition.first, block.transition.second
    first.depthwise.weight[:, 0] = torch.tensor([[9.0, 3.0, 1.0], [0.0, 1.0, 0.0]])
    first.pointwise.weight[:] = torch.tensor([*[[1.0, 0.0]] * len(hinges), [0.0, 1.0], [0.0, -1.0]])
    first.pointwise.bias[:] = torch.cat([-hinges, torch.zeros(2)])
    second.depthwise.weight.zero_()[:, 0, 2] = 1.0
    second.pointwise.bias.zero_()
    weights = second.pointwise.weight.zero_()
    for number in range(-13, 14):
        left, own, right = ((number + 13) // 9 - 1, (number + 13) // 3 % 3 - 1, (number + 13) % 3 - 1)
        neighbours = 4 * (left > 0) + 2 * (own > 0) + (right > 0)
        for hinge, factor in ((number - 1, 1), (number, -2), (number + 1, 1)):
            weights[0, hinge + 14] += factor * (1.0 if rule >> neighbours & 1 else -1.0)
    weights[0, -2:] = torch.tensor([1.0, -1.0])  # the second channel is minus the cell
    weights[1] = -weights[0]
    return repeated(block).eval()


@given(rule=st.one_of(st.just(110), st.integers(0, 255)), cells=st.lists(st.booleans(), min_size=1, max_size=24))
def test_cellular_automata_run_exactly_and_rule_110_is_one(rule, cells):
    """Norms and residuals stay in place, and every cell is right: rule 110 alone computes whatever can be computed."""
    signs = torch.tensor(cells).double() * 2 - 1
    states = run(automaton(rule), torch.stack([signs, -signs], dim=-1)[None])
    for _ in range(len(cells)):
        padded = [False, *cells, False]
        cells = [
            bool(rule >> (4 * left + 2 * own + right) & 1)
            for left, own, right in zip(padded, padded[1:], padded[2:], strict=False)
        ]
    expected = torch.tensor(cells).double() * 2 - 1
    torch.testing.assert_close(states[0], torch.stack([expected, -expected], dim=-1))


def test_the_encoder_of_a_configured_model_is_one_too():
    """The same through the public model: embeddings in, ``T`` given with the call."""
    config = config_of(
        width=WIDTH,
        filter_width=FILTER,
        num_heads=HEADS,
        vocabulary_size=9,
        transition="separable_convolution",
        position_coordinates="none",
        step_coordinates="none",
        dropout=0.0,
    )
    model = stir(EncoderDecoder(config)).double().eval()
    silence_attention(model.source.recurrence.blocks[0])
    source = torch.tensor([[4, 8, 5, 5, 7]])
    states = model.source(source, Call(DepthOptions(max_steps=5))).states
    embedded = model.source.input(source)[0]
    naive = neural_gpu(lists(embedded), model.source.recurrence.blocks[0], steps=5)
    torch.testing.assert_close(states[0], torch.tensor(naive, dtype=torch.float64))


def test_attention_is_what_was_taken_away():
    """The law is no accident: with attention it fails."""
    module = recurrence("post")
    states = torch.randn(1, 5, WIDTH, dtype=torch.float64)
    before = run(module, states)
    stir(module.blocks[0].attention)
    assert (run(module, states) - before).abs().max() > 1e-3
