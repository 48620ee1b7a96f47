"""The states after each step, and the logits of each."""

import pytest
import torch

from small_models import small
from universal_transformer.models.call import DepthOptions
from universal_transformer.models.components import ENCODERS
from universal_transformer.models.model import Call
from universal_transformer.nn.context import Kept

STEPS = 3
CHOICES = {
    "post": {},
    "pre": {"norm": "pre"},
    "untied": {"tied": False},
    "several blocks": {"layers_per_step": 2},
    "checkpointed": {"activation_checkpointing": True},
    "halting": {"halting": True, "halting_output": "final"},
    "halting, pre": {"halting": True, "halting_output": "final", "norm": "pre"},
}


def calls(architecture, **fields):
    """The output with states, the logits of calls of 1, 2 … steps (of the decoder, where there are two sides), and
    where they are read: the logits of padding mean nothing."""
    model = small(
        architecture=architecture, max_steps=STEPS, num_classes=4 if architecture in ENCODERS else None, **fields
    )
    source, labels = torch.randint(3, 9, (3, 5)), torch.randint(3, 9, (3, 4))
    source[1, 3:], labels[2, 2:] = 0, 0
    if architecture in ENCODERS:
        output = model(source, keep=Kept(states=True))
        single = [model(source, max_steps=steps).logits for steps in range(1, STEPS + 1)]
    elif architecture == "language_model":
        output = model(labels, keep=Kept(states=True))
        single = [model(labels, max_steps=steps).logits for steps in range(1, STEPS + 1)]
    else:
        output = model(source, labels, keep=Kept(states=True))
        encoded = model.source(source, Call())
        depths = [Call(DepthOptions(max_steps=steps)) for steps in range(1, STEPS + 1)]
        single = [model.target(labels, encoded, call).logits for call in depths]
    real = {"classifier": ..., "tagger": source != 0}.get(architecture, labels != 0)
    return output, torch.stack(single), real


@pytest.mark.parametrize("fields", CHOICES.values(), ids=CHOICES.keys())
@pytest.mark.parametrize("architecture", ["classifier", "tagger", "language_model", "encoder_decoder"])
def test_the_logits_after_each_step_are_those_of_a_call_of_so_many_steps(architecture, fields):
    output, single, real = calls(architecture, **fields)
    made = len(output.step_logits)
    assert made == STEPS or "halting" in fields
    for step in range(made):
        torch.testing.assert_close(output.step_logits[step][real], single[step][real], rtol=0, atol=1e-10)
    torch.testing.assert_close(output.step_logits[-1][real], output.logits[real], rtol=0, atol=1e-10)


def test_a_pointer_reads_the_states_after_each_step():
    model = small(architecture="classifier", pooling="pointer", num_classes=9, max_steps=STEPS)
    source = torch.tensor([[5, 6, 1, 7], [4, 1, 8, 0]])
    kept = model(source, keep=Kept(states=True)).step_logits
    for steps in range(1, STEPS + 1):
        torch.testing.assert_close(kept[steps - 1], model(source, max_steps=steps).logits, rtol=0, atol=1e-10)


def test_the_output_of_halting_is_the_weighted_mean_of_the_states():
    model = small(architecture="language_model", halting=True, max_steps=5)
    output = model(torch.randint(3, 9, (3, 6)), keep=Kept(states=True))
    trace = output.decoder
    assert len(trace.steps.unique()) > 1, "no position halts before another: nothing is tested"
    mixed = (trace.weight.unsqueeze(-1) * trace.states).sum(0)
    torch.testing.assert_close(model.target.logits(mixed), output.logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize("halting", [False, True])
def test_nothing_is_kept_unless_asked_for_and_keeping_changes_no_logit(halting):
    model, labels = small(architecture="language_model", halting=halting, max_steps=5), torch.randint(3, 9, (8, 16))
    plain, kept = model(labels), model(labels, keep=Kept(states=True))
    assert plain.step_logits is None
    assert plain.decoder.states is None
    torch.testing.assert_close(kept.logits, plain.logits, rtol=0, atol=1e-10)


def test_gradients_of_a_loss_after_each_step_are_those_of_separate_calls():
    model, labels = small(architecture="language_model", max_steps=STEPS), torch.randint(3, 9, (3, 6))
    model(labels, keep=Kept(states=True)).step_logits.logsumexp(-1).sum().backward()
    kept = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    sum(model(labels, max_steps=steps).logits.logsumexp(-1).sum() for steps in range(1, STEPS + 1)).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(kept[name], parameter.grad, rtol=1e-8, atol=1e-8, msg=name)
