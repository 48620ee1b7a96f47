"""Section 4 of the paper: with one step a Universal Transformer is a Transformer, and with a fixed number of steps a
Transformer whose layers have the same parameters. The other side is PyTorch's own layers.

And with the attention to the source alone, its steps are the hops of an end-to-end memory network.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from small import Residual, context, small_recurrence
from small_models import SIZES, small
from universal_transformer.models.norms import PreNorm
from universal_transformer.nn.coordinates import Coordinates, PositionEncoder, sinusoid
from universal_transformer.nn.step_config import StepConfig

SOURCE = torch.tensor([[3, 4, 5, 6, 3], [7, 8, 2, 0, 0], [4, 0, 0, 0, 0]])
LABELS = torch.tensor([[3, 4, 2, 0], [5, 2, 0, 0], [6, 7, 8, 2]])
START = 1


def weights(prefix, *modules):
    """Names of PyTorch and the values of ours; rows of several modules stand below each other."""
    names = ("in_proj_weight", "in_proj_bias") if prefix.endswith("attn.") else ("weight", "bias")
    return {prefix + name: torch.cat([getattr(one, name.split("_")[-1]) for one in modules]) for name in names}


def torch_layer(block):
    """The layer of PyTorch that has the weights of a block."""
    norms, own, cross = [block.after_attention, block.after_transition], block.attention, block.cross_attention
    state = weights("self_attn.", own.query_key_value) | weights("self_attn.out_proj.", own.output)
    state |= weights("linear1.", block.transition.inner) | weights("linear2.", block.transition.outer)
    if cross is not None:
        norms.insert(1, block.after_cross_attention)
        state |= weights("multihead_attn.", cross.query, cross.key_value)
        state |= weights("multihead_attn.out_proj.", cross.output)
    for number, one in enumerate(norms, start=1):
        state |= weights(f"norm{number}.", one.norm)
    kind = nn.TransformerEncoderLayer if cross is None else nn.TransformerDecoderLayer
    layer = kind(
        SIZES["width"],
        SIZES["num_heads"],
        SIZES["filter_width"],
        dropout=0.0,
        layer_norm_eps=StepConfig.norm_epsilon,
        batch_first=True,
        norm_first=isinstance(norms[0], PreNorm),
        dtype=torch.float64,
    )
    layer.load_state_dict(state)
    return layer.eval()


def refined(recurrence, states, *others, steps, **masks):
    """The layers of PyTorch one after the other, and the last norm where there is one."""
    layers = [torch_layer(block) for block in recurrence.blocks]
    for layer in layers * (steps if recurrence.tied else 1):
        states = layer(states, *others, **masks)
    return states if recurrence.closing_norm is None else recurrence.closing_norm(states)


def embedded(side, ids):
    return side(ids) + sinusoid(torch.arange(ids.shape[1]), width=SIZES["width"])


@pytest.mark.claim("section 4")
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("steps", "tied"), [(1, True), (3, True), (3, False)])
@torch.no_grad()
def test_one_step_is_a_transformer_and_a_fixed_number_a_tied_one_of_pytorch(steps, tied, norm):
    model = small(
        max_steps=steps,
        tied=tied,
        norm=norm,
        attention_bias=True,
        position_injection="input",
        step_coordinates="none",
        start_id=START,
    )
    blank, causal = SOURCE == 0, nn.Transformer.generate_square_subsequent_mask(LABELS.shape[1], dtype=torch.double)
    fed = torch.cat((torch.full((3, 1), START), LABELS[:, :-1]), dim=1)
    source = embedded(model.source.input, SOURCE)
    source = refined(model.source.recurrence, source, steps=steps, src_key_padding_mask=blank)
    target = embedded(model.target.embedding, fed)
    masks = {"tgt_mask": causal, "memory_key_padding_mask": blank}
    target = refined(model.target.recurrence, target, source, steps=steps, **masks)
    real = LABELS != 0
    ours = model(SOURCE, LABELS).logits[real]
    torch.testing.assert_close(ours, model.target.logits(target)[real], rtol=0, atol=1e-10)


def hop(question, memory):
    """``u + Σ_i softmax_i(u · m_i) c_i`` (Sukhbaatar et al. 2015, equations 1 to 3), with cells ``(m_i, c_i)``."""
    shares = torch.stack([question @ address for address, _ in memory]).softmax(dim=0)
    return question + sum(share * content for share, (_, content) in zip(shares, memory, strict=True))


@pytest.mark.claim("section 4")
@given(cells=st.integers(1, 6), hops=st.integers(1, 4))
@torch.no_grad()
def test_hops_of_a_memory_network_are_steps_that_read_the_source_alone(cells, hops):
    """The memory is what the encoder wrote. It stays the same from hop to hop, and the same maps read it (their
    layer-wise tying, without H)."""
    nothing = Coordinates(PositionEncoder(), None)
    steps = small_recurrence(decoder=True, cross_attention=True, max_steps=hops, coordinates=nothing)
    (block,), width = steps.blocks, SIZES["width"]
    block.after_attention = block.after_cross_attention = block.after_transition = Residual(width, StepConfig())
    block.attention.output.weight.zero_()
    block.transition.outer.weight.zero_()
    block.transition.outer.bias.zero_()
    read = block.cross_attention
    read.num_heads = read.key_heads = 1
    read.query.weight.copy_(width**0.5 * torch.eye(width))
    read.output.weight.copy_(torch.eye(width))
    written, question = (torch.randn(1, length, width, dtype=torch.float64) for length in (cells, 1))
    address, content = read.key_value.weight.chunk(2)
    memory = [(address @ state, content @ state) for state in written[0]]
    expected = question[0, 0]
    for _ in range(hops):
        expected = hop(expected, memory)
    call = context(depth=steps.depth(), causal=True, source=steps.project_source(written))
    torch.testing.assert_close(steps(question, call)[0][0, 0], expected)
