"""Linear maps that a user replaces or hooks are called, and transforms of torch.func serve models as they are."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad

from configs import config_of
from small_models import SIZES
from universal_transformer.decoding import generate
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.models.universal import Classifier, LanguageModel
from universal_transformer.torch_private import is_unchanged


class Adapted(nn.Linear):
    """``x W^T + b + 1``: a linear map with something added, as low-rank adapters add it."""

    def forward(self, input):  # noqa: A002
        return super().forward(input) + 1.0


def adapt(module, name):
    """Replace a linear map by an `Adapted` one with the same parameters."""
    old = getattr(module, name)
    new = Adapted(old.in_features, old.out_features, bias=old.bias is not None)
    new.load_state_dict(old.state_dict())
    setattr(module, name, new)


def models(kind, **choices):
    """A model whose halted positions are left out, and one with the same weights that masks them."""
    made = []
    for execution in ("auto", "masked"):
        torch.manual_seed(0)
        made.append(kind(config_of(**SIZES, architecture=kind.architecture, recurrence=execution, **choices)))
    return [model.eval() for model in made]


def test_a_module_with_a_hook_is_not_unchanged():
    hooked = nn.Linear(2, 2)
    assert is_unchanged(hooked)
    hooked.register_forward_hook(lambda *_: None)
    assert not is_unchanged(hooked)


@pytest.mark.parametrize("name", ["query_key_value", "output"])
def test_a_replaced_projection_gives_what_the_masked_loop_gives(name):
    compact, masked = models(Classifier, halting=True, num_classes=3, halting_bias=-0.5)
    for model in (compact, masked):
        adapt(model.source.recurrence.blocks[0].attention, name)
    source = torch.randint(3, 9, (3, 7))
    torch.testing.assert_close(compact(source).logits, masked(source).logits)


@pytest.mark.parametrize("place", ["transition.outer", "attention.output"])
def test_a_replaced_map_counts_in_generation_as_in_the_forward_pass(place):
    model, _ = models(LanguageModel, halting=True)
    part, name = place.split(".")
    adapt(getattr(model.target.recurrence.blocks[0], part), name)
    found = generate(model, [[4, 5]], DecodingOptions(max_new_tokens=3))[0]
    with torch.no_grad():
        logits = model(torch.tensor([[4, 5, *found.tokens]])).logits.log_softmax(-1)
    expected = [float(logits[0, 2 + place, token]) for place, token in enumerate(found.tokens)]
    assert found.token_scores == pytest.approx(expected, abs=1e-5)


def loss(parameters, model, source):
    return functional_call(model, parameters, (source,)).logits.square().sum()


@pytest.mark.parametrize("choices", [{}, {"halting": True, "halting_bias": -0.5}], ids=["fixed depth", "halting"])
def test_functional_gradients_are_those_of_the_backward_pass(choices):
    model, _ = models(Classifier, num_classes=3, **choices)
    source, parameters = torch.randint(3, 9, (3, 7)), dict(model.named_parameters())
    found = grad(loss)(parameters, model, source)
    model(source).logits.square().sum().backward()
    for name, parameter in parameters.items():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(found[name], expected)
