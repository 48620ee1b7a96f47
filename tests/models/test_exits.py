"""Exits of whole models: who stops together, which side stops, and generation."""

import pytest
import torch

from small_models import small
from universal_transformer.errors import UserError
from universal_transformer.models.call import DepthOptions
from universal_transformer.models.components import ENCODERS
from universal_transformer.rules import Exit

KINDS = {"state_change": 0.6, "output_change": 0.02, "confidence": 0.3}
NEVER = {"state_change": 1e-12, "output_change": 1e-12, "confidence": 1.0}
SOURCE = torch.tensor([[3, 4, 5, 6, 7], [5, 3, 8, 0, 0], [4, 4, 6, 7, 0]])
LABELS = torch.tensor([[4, 6, 7, 2], [8, 2, 0, 0], [5, 5, 3, 2]])
TASKS = {
    "encoder_decoder": lambda model, **call: model(SOURCE, LABELS, **call),
    "language_model": lambda model, **call: model(LABELS, **call),
    "classifier": lambda model, **call: model(SOURCE, **call),
    "tagger": lambda model, **call: model(SOURCE, **call),
}


def model_of(architecture, **fields):
    classes = {"num_classes": 5} if architecture in ENCODERS else {}
    return small(architecture=architecture, max_steps=6, **classes, **fields)


@pytest.mark.parametrize("halting", [False, True])
@pytest.mark.parametrize("architecture", TASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_exit_that_never_holds_is_the_full_depth(kind, architecture, halting):
    model = model_of(architecture, halting=halting, halting_output="final", halting_bias=-100.0)
    for name, parameter in model.named_parameters():
        if name.endswith("halting.bias"):
            torch.nn.init.constant_(parameter, -1000.0)
    whole, ours = TASKS[architecture](model).logits, TASKS[architecture](model, exit=Exit(kind, NEVER[kind])).logits
    real = {"classifier": slice(None), "tagger": SOURCE > 0}.get(architecture, LABELS > 0)
    torch.testing.assert_close(ours[real], whole[real])


@pytest.mark.parametrize("pooling", ["mean", "last", "pointer"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_positions_of_a_classified_sequence_stop_together(kind, pooling):
    classes = {"num_classes": 9} if pooling == "pointer" else {"num_classes": 5}
    model = small(architecture="classifier", max_steps=6, pooling=pooling, **classes)
    output = model(SOURCE, exit=Exit(kind, KINDS[kind]))
    for row, steps in enumerate(output.encoder.steps.amax(1).int().tolist()):
        real = SOURCE[row] > 0
        assert (output.encoder.steps[row, real] == steps).all()
        torch.testing.assert_close(output.logits[row], model(SOURCE, max_steps=steps).logits[row])


def test_only_the_decoder_stops_by_what_it_predicts():
    model = model_of("encoder_decoder")
    for kind, most in (("confidence", 1e-6), ("state_change", 1e6), ("output_change", 1e6)):
        output = model(SOURCE, LABELS, exit=Exit(kind, most))
        first = 1 if kind == "confidence" else 2
        assert output.decoder.steps.max() == first
        assert output.encoder.steps.max() == (first if kind == "state_change" else 6)


@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model"])
@pytest.mark.parametrize("kind", KINDS)
def test_token_by_token_is_all_at_once(kind, architecture):
    model, exit = model_of(architecture), Exit(kind, KINDS[kind])
    start = {"batch": 3} if architecture == "language_model" else {"source": SOURCE}
    labels = torch.tensor([[4, 6, 7, 5], [8, 3, 3, 4], [5, 5, 3, 3]])
    whole = model(*([] if "batch" in start else [SOURCE]), labels, exit=exit)
    state = model.start(**start, capacity=4, depth=DepthOptions(exit=exit))
    tokens = torch.cat((torch.ones(3, 1, dtype=torch.long), labels[:, :-1]), dim=1)
    steps, logits = [], []
    with torch.no_grad():
        for place in range(4):
            logits.append(model.target.advance(tokens[:, place : place + 1], state))
            steps.append(state.trace.steps)
    torch.testing.assert_close(torch.cat(logits, dim=1), whole.logits)
    assert torch.equal(torch.cat(steps, dim=1), whole.decoder.steps)


@pytest.mark.parametrize("architecture", TASKS)
def test_an_exit_that_is_none_is_refused_with_an_example(architecture):
    with pytest.raises(UserError, match=r"exit: expected Exit or None, found 'confidence:0\.9'"):
        TASKS[architecture](model_of(architecture), exit="confidence:0.9")
