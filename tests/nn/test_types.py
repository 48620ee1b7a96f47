"""Modules survive what torch does to them: other float types, copies, saving and loading, mixed precision."""

import copy

import pytest
import torch
from torch import nn

from configs import config_of, with_fields
from universal_transformer.registry import build

SMALL = config_of(vocabulary_size=11, num_classes=3, width=16, filter_width=32, num_heads=2, max_steps=3, dropout=0.0)
CHOICES = [
    {},
    {"halting": True, "position_coordinates": "rotary"},
    {"halting": True, "norm": "pre", "halting_state": "evolving", "halting_output": "interpolate"},
    {
        "position_coordinates": "rotary",
        "rotary_source": True,
        "end_coordinates": True,
        "source_sink": True,
    },
    {"separator_id": 4, "source_sink": True},
    {"end_coordinates": True, "position_coordinates": "learned", "step_coordinates": "learned"},
    {"transition": "separable_convolution", "architecture": "classifier"},
    {"tied": False, "halting": True, "architecture": "language_model"},
]
SOURCE = torch.tensor([[3, 4, 5, 2, 0], [5, 6, 7, 8, 2]])
TARGET = torch.tensor([[4, 2, 0], [5, 6, 2]])


def small(choices):
    return build(with_fields(SMALL, **choices)).eval()


def call(model):
    if model.architecture == "encoder_decoder":
        return model(SOURCE, TARGET)
    return model(TARGET if model.architecture == "language_model" else SOURCE)


@pytest.fixture(params=CHOICES, ids=lambda c: "-".join(map(str, c.values())) or "paper")
def model(request):
    return small(request.param)


def test_double_is_the_same_more_exactly(model):
    single = call(model).logits
    for double in (copy.deepcopy(model).double(), copy.deepcopy(model).to(torch.float64)):
        output = call(double)
        assert output.logits.dtype == torch.float64
        torch.testing.assert_close(output.logits.float(), single, atol=1e-4, rtol=0)
        for trace in (output.encoder, output.decoder):
            assert trace is None or trace.probability is None or trace.probability.dtype == torch.float64


def test_bfloat16_weights_give_finite_logits_of_their_type(model):
    output = call(model.bfloat16())
    assert output.logits.dtype == torch.bfloat16
    assert output.logits.isfinite().all()


def test_mixed_precision_keeps_probabilities_and_weights_in_float32(model):
    exact = call(model).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = call(model)
    assert output.logits.dtype == torch.bfloat16
    torch.testing.assert_close(output.logits.float(), exact, atol=0.3, rtol=0.1)
    for trace in (output.encoder, output.decoder):
        if trace is not None and trace.probability is not None:
            assert trace.probability.dtype == trace.weight.dtype == trace.remainder.dtype == torch.float32
    (output.logits.float().sin().sum() + output.ponder_cost).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_copies_and_saved_states_are_the_same_model(model):
    wanted = call(model).logits
    assert torch.equal(call(copy.deepcopy(model)).logits, wanted)
    other = build(model.config).eval()
    assert not torch.equal(call(other).logits, wanted)
    other.load_state_dict(model.state_dict())
    assert torch.equal(call(other).logits, wanted)


def test_every_parameter_is_trained(model):
    """None is forgotten on the way from inputs to loss, and none is registered twice."""
    output = call(model.train())
    (output.logits.sin().sum() + output.ponder_cost).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    assert len({id(p) for p in model.parameters()}) == len(list(model.parameters()))


def test_nothing_is_saved_but_parameters(model):
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert set(model.state_dict()) == parameters
    assert not any(isinstance(module, nn.BatchNorm1d) for module in model.modules())
