"""Several backward passes over one call in which halted positions are left out, and gradients of gradients."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from small import WIDTH, go, right_padding, small_recurrence
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
    return output[~padding].sin().sum(), trace.ponder_cost(), [states, *module.parameters()]


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
def test_a_gradient_of_a_gradient_is_refused_in_one_line_or_right(rows, norm, checkpointed, runs):
    """It needs the backward pass of the backward pass, which the plain loop alone has."""
    task, _, inputs = losses(rows, norm=norm, checkpointed=checkpointed)
    assert runs
    with pytest.raises(RuntimeError, match=r'^gradients of gradients .* execution.halting_execution="masked"') as error:
        gradients(task, inputs, create_graph=True)
    assert "\n" not in str(error.value)
    with sdpa_kernel(SDPBackend.MATH):  # the only attention of torch with a second derivative
        task, _, inputs = losses(rows, norm=norm, checkpointed=checkpointed, execution="masked")
        penalty = gradients(task, inputs, create_graph=True)[0].square().sum()
        assert all(bool(each.isfinite().all()) for each in gradients(penalty, inputs))
