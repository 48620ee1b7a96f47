"""What is computed again on the way back gives the same gradients, is not kept, and notices changed parameters."""

import weakref

import pytest
import torch
from torch import nn

from universal_transformer import LanguageModel, ModelConfig
from universal_transformer.execution.recompute import Recompute, compute, normalise


def chain(recompute, norm, outer, states):
    """A sum, a choice of rows and a LayerNorm, the results of which products and products by elements look at."""
    index = torch.tensor([3, 1, 1])
    normed = normalise(norm, states, recompute)
    shifted = compute(recompute, torch.add, normed, torch.full((5,), 0.3, dtype=torch.float64))
    chosen = compute(recompute, torch.index_select, shifted, 0, index)
    return outer(chosen).sin() * chosen, [weakref.ref(x) for x in (normed, shifted, chosen)]


def both():
    torch.manual_seed(0)
    norm, outer = nn.LayerNorm(5).double(), nn.Linear(5, 5).double()
    nn.init.normal_(norm.weight)
    return norm, outer, torch.randn(4, 5, dtype=torch.float64, requires_grad=True)


def test_gradients_are_the_same_and_nothing_promised_is_kept():
    norm, outer, states = both()
    inputs = [*norm.parameters(), *outer.parameters(), states]
    kept = torch.autograd.grad(chain(None, norm, outer, states)[0].sum(), inputs)
    recompute = Recompute(device=states.device)
    with recompute.hooks():
        result, made = chain(recompute, norm, outer, states)
    recompute.forget()
    assert not any(one() is not None for one in made)
    for one, two in zip(torch.autograd.grad(result.sum(), inputs), kept, strict=True):
        assert torch.equal(one, two)


def test_a_tensor_at_the_place_of_one_that_is_gone_is_not_taken_for_it():
    recompute = Recompute(device=torch.device("cpu"))
    first = torch.ones(4, 5)
    recompute.register(first, torch.zeros, 4, 5)
    assert not isinstance(recompute._pack(first), torch.Tensor)
    alias = first.detach()
    del first
    assert recompute._pack(alias) is alias


def test_changed_parameters_are_noticed():
    norm, outer, states = both()
    recompute = Recompute(device=states.device)
    with recompute.hooks():
        result, _ = chain(recompute, norm, outer, states)
    with torch.no_grad():
        norm.weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="changed in place"):
        result.sum().backward()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_parameters_of_a_functional_call_are_those_of_its_way_back(norm):
    found = []
    for form in ("auto", "masked"):
        torch.manual_seed(0)
        config = ModelConfig(
            architecture="language_model", vocabulary_size=9, width=256, filter_width=256, num_heads=4,
            max_steps=3, halting=True, halting_bias=0.0, dropout=0.0, norm=norm, recurrence=form,
        )  # fmt: skip
        model = LanguageModel(config).double()
        changed = {
            name: (part.detach() + (0.5 if "norm" in name else 0.0)).requires_grad_()
            for name, part in model.named_parameters()
        }
        ids = torch.arange(3, 9).repeat(2, 2)
        output = torch.func.functional_call(model, changed, (ids,))
        found.append(torch.autograd.grad(output.logits.square().mean(), list(changed.values())))
    for compact, masked in zip(*found, strict=True):
        torch.testing.assert_close(compact, masked, rtol=1e-9, atol=1e-12)
