"""Tokens to one class for each."""

import pytest
import torch

from configs import config_of
from small import stir
from small_models import SIZES, small, variants
from universal_transformer import Classifier, Tagger, UserError
from universal_transformer.execution.compaction import install
from universal_transformer.models.model import Call
from universal_transformer.registry import build
from universal_transformer.typed import replaced

HALTING = {"halting": True, "halting_threshold": 0.9}
CASES = {
    **{name: fields for place, (name, fields) in enumerate(variants().items()) if place % 3 == 0},
    "whole sequence": {"halting": True, "halting_scope": "sequence"},
    "end": {"end_coordinates": True},
}


def tagger(**fields):
    return small(architecture="tagger", num_classes=5, **fields)


def ragged():
    source = torch.randint(2, 9, (3, 5))
    source[1, 3:] = 0
    return source


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES.keys())
@torch.no_grad()
def test_padding_on_either_side_and_the_neighbours_change_nothing(fields):
    model, source = tagger(**fields), ragged()
    real = source != 0
    whole, order = model(source), torch.tensor([1, 2, 0])
    assert whole.logits.shape == (3, 5, 5)
    for left, right in ((0, 2), (2, 0), (1, 1)):
        padded = model(torch.nn.functional.pad(source, (left, right)))
        inner = padded.logits[:, left : left + 5]
        torch.testing.assert_close(inner[real], whole.logits[real], rtol=0, atol=1e-10)
        torch.testing.assert_close(padded.ponder_cost, whole.ponder_cost)
    torch.testing.assert_close(model(source[order]).logits[real[order]], whole.logits[order][real[order]])
    torch.testing.assert_close(model(source[1:2, :3]).logits[0], whole.logits[1, :3], rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_leaving_out_halted_positions_changes_neither_logits_nor_gradients(norm):
    model, source = tagger(norm=norm, max_steps=6, **HALTING), ragged()
    found = []
    for choice in ("auto", "masked"):
        install(model, choice)
        model.zero_grad()
        output = model(source)
        (output.logits[source != 0].sin().sum() + output.ponder_cost).backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        found.append([output.logits[source != 0].detach(), output.encoder.steps, *gradients])
    assert len(found[0][1][source != 0].unique()) > 1, "positions halt at different steps"
    for compact, masked in zip(*found, strict=True):
        torch.testing.assert_close(compact, masked, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_cells_of_a_board_are_left_out_exactly_too(norm):
    grid = {"coordinates.position": "grid", "coordinates.box_rows": 2, "coordinates.box_columns": 2}
    config = replaced(config_of(**SIZES, architecture="tagger", num_classes=5, norm=norm, **HALTING), grid)
    torch.manual_seed(2)
    model, source = stir(build(config)).double().eval(), torch.randint(1, 6, (4, 16))
    found = []
    for choice in ("auto", "masked"):
        install(model, choice)
        found.append(model(source))
    assert len(found[0].encoder.steps.unique()) > 1, "positions halt at different steps"
    torch.testing.assert_close(found[0].logits, found[1].logits, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_the_head_reads_the_state_of_each_position():
    model, source = tagger(), ragged()
    states = model.source(source, Call()).states
    torch.testing.assert_close(model(source).logits, states @ model.head.weight.T + model.head.bias)


def test_gradients_are_those_of_finite_differences():
    model, source = tagger(max_steps=2), ragged()[:2]
    names, parameters = zip(*model.named_parameters(), strict=True)

    def run(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (source,)).logits[source != 0]

    assert torch.autograd.gradcheck(run, parameters, fast_mode=True, atol=1e-5)


@torch.no_grad()
def test_positions_are_drawn_while_training_and_only_then():
    model, source = tagger(position_offsets="random", dropout=0.0), ragged()
    usual = model(source).logits
    assert torch.equal(model(source).logits, usual)
    model.train()
    assert bool((model(source).logits - usual).abs().max() > 1e-8)


def test_a_tagger_comes_back_from_its_folder_and_is_no_classifier(tmp_path):
    model, source = tagger().float(), ragged()
    model.save_pretrained(tmp_path)
    assert torch.equal(Tagger.from_pretrained(tmp_path).eval()(source).logits, model(source).logits)
    with pytest.raises(UserError, match='architecture="tagger": Classifier needs "classifier"'):
        Classifier.from_pretrained(tmp_path)
