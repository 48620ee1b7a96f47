"""A compiled block is the eager block. Run without the shape checks, which the compiler cannot trace."""

import pytest
import torch
from torch._dynamo.utils import counters

from configs import config_of, with_fields
from universal_transformer.execution import policy
from universal_transformer.execution.compaction import CompactLoop
from universal_transformer.models.convolution import SeparableConvolution1d
from universal_transformer.registry import build

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute"),  # the compiler's own
]
SMALL = config_of(
    architecture="classifier",
    vocabulary_size=11,
    num_classes=3,
    width=32,
    filter_width=64,
    num_heads=2,
    max_steps=3,
    dropout=0.0,
)


def padded(length):
    source = torch.randint(3, 11, (4, length))
    source[0, length // 2 :] = 0
    return source


@pytest.mark.parametrize("halting", [pytest.param(False, marks=pytest.mark.slow), True])
def test_compiled_is_eager_in_outputs_and_gradients(halting):
    torch._dynamo.reset()
    counters.clear()  # exports count too
    eager = build(with_fields(SMALL, halting=halting))
    compiled = build(eager.config)
    compiled.load_state_dict(eager.state_dict())
    compiled.compile_blocks()
    for length in (7, 12):
        source, outputs = padded(length), []
        for model in (eager, compiled):
            model.zero_grad()
            output = model(source)
            (output.logits.logsumexp(-1).mean() + 0.1 * output.ponder_cost).backward()
            outputs.append(output)
        one, two = outputs
        torch.testing.assert_close(one.logits, two.logits, atol=1e-4, rtol=1e-4)
        assert torch.equal(one.encoder.steps, two.encoder.steps)
        for (name, a), (_, b) in zip(eager.named_parameters(), compiled.named_parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, atol=1e-4, rtol=1e-3, msg=name)
    # one program for all steps and lengths, halting or not
    assert counters["stats"]["unique_graphs"] == 1
    assert list(eager.state_dict()) == list(compiled.state_dict())


@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_convolution_is_compiled_once_for_all_lengths(causal):
    torch._dynamo.reset()
    counters.clear()
    eager = SeparableConvolution1d(4, 6, kernel=5, causal=causal)
    compiled = torch.compile(eager, dynamic=True)
    for length in (7, 12, 3):
        states, results = torch.randn(2, length, 4, requires_grad=True), []
        for module in (eager, compiled):
            output = module(states)
            weights = [states, *eager.parameters()]
            results.append((output, *torch.autograd.grad(output.logsumexp(-1).sum(), weights)))
        for one, two in zip(*results, strict=True):
            torch.testing.assert_close(one, two)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.slow
def test_blocks_are_compiled_for_more_layers_than_torch_has_programs():
    torch._dynamo.reset()
    fields = {"architecture": "encoder_decoder", "num_classes": None, "tied": False, "max_steps": 9}
    model = build(with_fields(SMALL, **fields)).eval()
    source, target = padded(7), padded(5)
    with torch.no_grad(), torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        expected = model(source, target).logits
        model.compile_blocks()
        torch.testing.assert_close(model(source, target).logits, expected)


@pytest.mark.slow
def test_a_whole_model_is_compiled_for_eight_shapes():
    """Within the limit of torch, beyond which a function is no longer compiled."""
    torch._dynamo.reset()
    model = build(with_fields(SMALL, halting=True)).eval()
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad(), torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for count in range(8):
            source = padded(7 + count)[: 2 + count % 3]
            torch.testing.assert_close(compiled(source).logits, model(source).logits)


@pytest.mark.parametrize(
    ("position", "gradients"),
    [("rotary", True), pytest.param("sinusoidal", False, marks=pytest.mark.slow)],
)
def test_a_whole_model_that_leaves_out_halted_positions_can_be_compiled(position, gradients, monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(policy, "LEAST_SAVED", 0)
    ran, run = [], CompactLoop.run
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (ran.append(1), run(self, *a, **k))[1])
    fields = {"position_coordinates": position, "halting": True, "halting_bias": -0.5, "max_steps": 4, "norm": "pre"}
    model = build(with_fields(SMALL, **fields)).eval()
    with torch.no_grad():
        model.source.recurrence.halting.weight.normal_(std=1.0)
    source = padded(12)
    with torch.set_grad_enabled(gradients):
        eager, compiled = model(source), torch.compile(model, backend="eager")(source)
    assert ran
    torch.testing.assert_close(compiled.logits, eager.logits)
    assert torch.equal(compiled.encoder.steps, eager.encoder.steps)
    assert len(eager.encoder.steps.unique()) > 2
