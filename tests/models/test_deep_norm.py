"""DeepNorm: the residual is larger by the depth of training, and the initial weights are smaller."""

import pytest
import torch

from universal_transformer.models.model_config import ModelConfig
from universal_transformer.registry import build
from universal_transformer.typed import replaced

SMALL = replaced(
    ModelConfig(),
    {"sizes.width": 8, "sizes.filter_width": 16, "sizes.num_heads": 2, "vocabulary.size": 9, "depth.max_steps": 5},
)


def made(**fields):
    torch.manual_seed(0)
    return build(replaced(SMALL, {name.replace("__", "."): value for name, value in fields.items()}))


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_residual_grows_with_all_sublayers_of_the_trained_depth(blocks):
    model = made(step__norm="deep", step__blocks=blocks, depth__decoder_max_steps=3)
    assert model.source.recurrence.blocks[0].after_transition.scale == pytest.approx((2 * 5 * blocks) ** 0.25)
    decoder = model.target.recurrence.blocks[0]
    for part in (decoder.after_attention, decoder.after_cross_attention, decoder.after_transition):
        assert part.scale == pytest.approx((3 * 3 * blocks) ** 0.25)


def test_values_outputs_and_transitions_begin_smaller_and_nothing_else_does():
    before, after = made().state_dict(), made(step__norm="deep").state_dict()
    for name, plain in before.items():
        sublayers = 15 if name.startswith("target") else 10
        expected = torch.ones_like(plain)
        if name.endswith(("output.weight", "inner.weight", "outer.weight")):
            expected *= (4 * sublayers) ** -0.25
        if name.endswith(("query_key_value.weight", "key_value.weight")):  # the values are the last rows
            expected[-8:] *= (4 * sublayers) ** -0.25
        torch.testing.assert_close(after[name], expected * plain)


def test_a_call_of_another_depth_keeps_the_residual_of_training():
    model = made(step__norm="deep").eval()
    source, target = torch.tensor([[3, 4, 5]]), torch.tensor([[6, 7]])
    with torch.no_grad():
        one, two = (model(source, target, max_steps=steps).logits for steps in (2, 9))
    assert model.source.recurrence.blocks[0].after_transition.scale == pytest.approx(10**0.25)
    assert torch.isfinite(one).all()
    assert not torch.equal(one, two)
