"""As many steps as a sequence has positions (D15): each sequence as alone, with its length as the depth of the call."""

import copy
import dataclasses

import pytest
import torch

from configs import config_of
from small import WIDTH, count_rows, go, left_padding, right_padding, small_recurrence
from universal_transformer.errors import UserError
from universal_transformer.execution.compaction import CompactLoop, install
from universal_transformer.models.components import MOST_STEPS, DepthConfig
from universal_transformer.models.model_config import config_from_dict
from universal_transformer.registry import build
from universal_transformer.rules.length import AsManyStepsAsPositions

LENGTHS = (6, 3, 1, 5)
MODELS = {
    "fixed": {},
    "fixed, pre": {"norm": "pre"},
    "fixed, two blocks": {"layers_per_step": 2},
    "fixed, convolution": {"transition": "separable_convolution"},
    "halting": {"halting": True, "bias": -1.5},
    "halting, pre, two blocks": {"halting": True, "norm": "pre", "layers_per_step": 2},
    "halting, last state": {"halting": True, "output": "final", "scope": "sequence"},
    "halting, at least two steps": {"halting": True, "min_steps": 2},
}


def twins(name, execution="auto"):
    """A recurrence whose steps are as many as positions, and the same with a number of steps."""
    torch.manual_seed(1)
    numbered = small_recurrence(execution=execution, **MODELS[name])
    ours = copy.deepcopy(numbered)
    ours.by_length, ours.trained_depth = True, ours.trained_depth._replace(max_steps=MOST_STEPS)
    if "halting" not in name:
        ours.halting = AsManyStepsAsPositions()
    install(ours, execution)
    return ours, numbered


@pytest.mark.parametrize("padded", [right_padding, left_padding])
@pytest.mark.parametrize("execution", ["auto", "masked"])
@pytest.mark.parametrize("name", MODELS)
def test_a_sequence_is_as_alone_at_its_length(name, execution, padded):
    ours, numbered = twins(name, execution)
    states, padding = torch.randn(4, 6, WIDTH, dtype=torch.float64), padded(LENGTHS, 6)
    output, trace = go(ours, states, padding=padding)
    assert (trace.steps[padding] == 0).all()
    for row, length in enumerate(LENGTHS):
        real = ~padding[row]
        alone, expected = go(numbered, states[row : row + 1, real], max_steps=length)
        torch.testing.assert_close(output[row, real], alone[0], rtol=1e-10, atol=1e-10)
        assert trace.steps[row, real].tolist() == expected.steps[0].tolist()
        torch.testing.assert_close(trace.remainder[row, real], expected.remainder[0], check_dtype=False)
    if "halting" not in name:
        assert trace.steps.amax(dim=1).tolist() == list(LENGTHS)
        assert trace.ponder_cost == 0
    unpadded, _ = go(ours, states)
    torch.testing.assert_close(unpadded, go(numbered, states, max_steps=6)[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["fixed", "fixed, two blocks", "halting, pre, two blocks"])
def test_gradients_are_those_of_the_sequences_alone(name):
    ours, numbered = twins(name)
    states, padding = torch.randn(4, 6, WIDTH, dtype=torch.float64), right_padding(LENGTHS, 6)
    go(ours, states, padding=padding)[0][~padding].sin().sum().backward()
    for row, length in enumerate(LENGTHS):
        go(numbered, states[row : row + 1, :length], max_steps=length)[0].sin().sum().backward()
    for one, two in zip(ours.parameters(), numbered.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-8, atol=1e-8)


@torch.no_grad()
def test_finished_sequences_of_a_fixed_depth_are_left_out(monkeypatch):
    ran, run = [], CompactLoop.run
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (ran.append(1), run(self, *a, **k))[1])
    ours, _ = twins("fixed")
    rows = count_rows(ours)
    go(ours, torch.randn(4, 6, WIDTH, dtype=torch.float64), padding=right_padding(LENGTHS, 6))
    assert ran
    assert rows == [15, 14, 14, 11, 11, 6]


def test_a_number_given_with_the_call_counts_instead():
    ours, numbered = twins("fixed")
    states, padding = torch.randn(4, 6, WIDTH, dtype=torch.float64), right_padding(LENGTHS, 6)
    one, two = (go(module, states, padding=padding, max_steps=2) for module in (ours, numbered))
    torch.testing.assert_close(one[0][~padding], two[0][~padding])
    assert one[1].steps.max() == 2


def config(**fields):
    given = {"architecture": "classifier", "num_classes": 3, "vocabulary_size": 9, "width": 8, "num_heads": 2}
    return config_of(**{**given, "max_steps": "length", **fields})


def test_models_take_it_and_files_keep_it():
    made = config()
    assert config_from_dict(made.to_dict()) == made
    assert made.to_dict()["depth"]["max_steps"] == "length"
    ids = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
    assert build(made).eval()(ids).encoder.steps.tolist() == [[4, 4, 4, 4], [2, 2, 0, 0]]
    chosen = config_of(vocabulary_size=9, width=8, num_heads=2)
    depth = DepthConfig(max_steps="length", decoder_max_steps=2)
    pair = build(dataclasses.replace(chosen, depth=depth)).eval()
    found = pair(ids, torch.tensor([[3, 2], [4, 2]]))
    assert found.encoder.steps.amax(dim=1).tolist() == [4, 2]
    assert (found.decoder.steps == 2).all()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"architecture": "language_model", "num_classes": None}, "decoder does not know the length"),
        ({"architecture": "encoder_decoder", "num_classes": None}, "set depth.decoder_max_steps to a number"),
        ({"tied": False}, r"step.tied=False: depth.max_steps=\"length\" needs step.tied=True"),
        ({"step_coordinates": "learned"}, "needs another step signal"),
        ({"halting": True, "remainder_at_cap": False}, "needs remainder_at_cap=True"),
        ({"norm": "deep"}, "its residual needs a number of steps"),
        ({"max_steps": 0}, "expected a whole number, at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(fields, words):
    with pytest.raises(UserError, match=words):
        config(**fields)
