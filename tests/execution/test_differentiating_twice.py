"""Several backward passes over one call in which halted positions are left out, and gradients of gradients."""

import pytest
import torch

from small import WIDTH, go, right_padding, small_recurrence
from small_models import small
from universal_transformer.execution import policy
from universal_transformer.execution.compaction import CompactLoop


@pytest.fixture(autouse=True)
def runs(monkeypatch):
    """What ran compact."""
    ran, run = [], CompactLoop.run
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (ran.append(1), run(self, *a, **k))[1])
    return ran


def losses(rows, *, dropout=0.0, **choices):
    """The loss of a task and the ponder cost of one call, and what both depend on."""
    module = small_recurrence(halting=True, max_steps=8, **choices).train()
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = dropout
        if hasattr(part, "num_heads"):
            part.dropout = dropout
    states = torch.randn(rows, 6, WIDTH, dtype=torch.float64, requires_grad=True)
    padding = right_padding([6 - row % 3 for row in range(rows)], 6)
    output, trace = go(module, states, padding=padding)
    return output[~padding].sin().sum(), trace.ponder_cost, [states, *module.parameters()]


def gradients(loss, inputs, **options):
    return torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True, **options)


@pytest.mark.parametrize("choices", [{}, {"norm": "pre"}, {"decoder": True, "layers_per_step": 2}], ids=str)
@pytest.mark.parametrize("checkpointed", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("rows", [1, 4, 16])
def test_a_graph_may_be_kept(rows, dropout, checkpointed, choices, runs):
    task, cost, inputs = losses(rows, dropout=dropout, checkpointed=checkpointed, **choices)
    assert runs
    both = gradients(task + cost, inputs, retain_graph=True)
    one = gradients(task, inputs, retain_graph=True)
    two = gradients(cost, inputs, retain_graph=True)
    again = gradients(task, inputs, retain_graph=True)
    for total, first, second, repeated in zip(both, one, two, again, strict=True):
        torch.testing.assert_close(first + second, total, rtol=1e-10, atol=1e-10)
        assert torch.equal(first, repeated)
    assert any(bool(each.abs().sum() > 0) for each in two)


@pytest.mark.parametrize("checkpointed", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("rows", [1, 4])
def test_a_gradient_of_a_gradient_is_refused_in_one_line(rows, norm, checkpointed, runs):
    """It needs the backward pass of the backward pass, which the plain loop alone has."""
    task, _, inputs = losses(rows, norm=norm, checkpointed=checkpointed)
    assert runs
    with pytest.raises(RuntimeError, match=r"^gradients of gradients .* are left out") as error:
        gradients(task, inputs, create_graph=True)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("checkpointed", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_who_does_what_the_refusal_says_gets_the_gradient_of_the_gradient(norm, checkpointed, runs, monkeypatch):
    """The second derivative along a direction is the slope of the first one."""
    monkeypatch.setattr(policy, "COMPACT_BELOW", 1.0)
    model = small(
        architecture="classifier", num_classes=3, halting=True, max_steps=5, dropout=0.0, norm=norm,
        activation_checkpointing=checkpointed,
    ).train()  # fmt: skip
    torch.nn.init.normal_(model.source.recurrence.halting.weight, std=1.0)
    torch.nn.init.constant_(model.source.recurrence.halting.bias, 3.0)
    ids, weights = torch.randint(3, 9, (4, 6)), [each for each in model.parameters() if each.requires_grad]

    def slopes(**options):
        return gradients(model(ids).logits.sin().sum(), weights, **options)

    with pytest.raises(RuntimeError) as error:
        slopes(create_graph=True)
    assert runs
    remedy = "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)"
    assert f'call model.use_halting_execution("masked"), and the model inside {remedy}' in str(error.value)
    along = [torch.randn_like(weight) for weight in weights]
    model.use_halting_execution("masked")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        slope = sum((one * other).sum() for one, other in zip(slopes(create_graph=True), along, strict=True))
        found = gradients(slope, weights)
        small_step, both = 1e-5, []
        for sign in (1, -1):
            with torch.no_grad():
                for weight, direction in zip(weights, along, strict=True):
                    weight.add_(direction, alpha=sign * small_step)
            both.append(slopes())
            with torch.no_grad():
                for weight, direction in zip(weights, along, strict=True):
                    weight.sub_(direction, alpha=sign * small_step)
    expected = [(after - before) / (2 * small_step) for after, before in zip(*both, strict=True)]
    torch.testing.assert_close(list(found), expected, rtol=1e-4, atol=1e-4)
    assert any(bool(each.abs().max() > 1e-3) for each in found)
