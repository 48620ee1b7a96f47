"""Leaving out halted positions is the masked loop, number by number: outputs, traces and every gradient."""

import copy

import pytest
import torch

from small import WIDTH, coordinates, go, right_padding, small_recurrence
from universal_transformer.execution.compaction import CompactLoop, install
from universal_transformer.nn.recurrence import depth_loop


def lively(**choices):
    module = coordinates(max_steps=9, max_positions=6, **choices)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


COORDINATES = {
    "sinusoids": {},
    "no steps": {"step": "none"},
    "at the input": {"injection": "input"},
    "learned": {"position": "learned", "step": "learned"},
    "nothing": {"position": "none", "step": "none"},
    "rotary": {"position": "rotary"},
    "rotary, no steps": {"position": "rotary", "step": "none"},
    "rotary, learned steps": {"position": "rotary", "step": "learned"},
}
CHOICES = [
    {"output": "mean"},
    {"output": "interpolate", "remainder_at_cap": False},
    {"output": "final", "scope": "sequence"},
]
NEAR = {torch.float64: {"rtol": 1e-10, "atol": 1e-10}, torch.float32: {"rtol": 1e-5, "atol": 1e-5}}


@pytest.fixture
def runs(monkeypatch):
    """What ran compact."""
    ran, run = [], CompactLoop.run
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (ran.append(1), run(self, *a, **k))[1])
    return ran


def both(module, states, source, *, padding, hidden, learn):
    """Outputs, trace and gradients, compact and masked."""
    found = []
    for choice in ("auto", "masked"):
        one = copy.deepcopy(module)
        install(one, choice)
        one.requires_grad_(learn)
        inputs = [None if x is None else x.clone().requires_grad_(learn) for x in (states, source)]
        output, trace = go(one, inputs[0], padding=padding, source=inputs[1], source_padding=hidden)
        if padding is not None:
            output = output.masked_fill(padding.unsqueeze(-1), 0.0)
        parts = [output.detach(), trace.steps, trace.remainder.detach()]
        parts += [trace.probability.detach(), trace.weight.detach()]
        if learn:
            (output.sin().sum() + trace.ponder_cost).backward()
            named = [*one.named_parameters(), *((str(at), x) for at, x in enumerate(inputs) if x is not None)]
            parts += [x.grad for _, x in named if x.grad is not None]
        found.append(parts)
    return found


@pytest.mark.parametrize("learn", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("decoder", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("norm", ["post", "pre", "rms"])
@pytest.mark.parametrize("choices", CHOICES, ids=lambda c: c["output"])
@pytest.mark.parametrize("name", COORDINATES)
def test_compact_is_masked(name, choices, norm, decoder, learn, runs):
    blocks = {"transition": "swiglu", "key_value_heads": 1} if norm == "rms" else {}
    module = small_recurrence(
        decoder=decoder, cross_attention=decoder, norm=norm, halting=True, max_steps=9,
        coordinates=lively(**COORDINATES[name]), **blocks, **choices,
    )  # fmt: skip
    states, padding = torch.randn(4, 6, WIDTH, dtype=torch.float64), right_padding((6, 3, 5, 1), 6)
    source = torch.randn(4, 3, WIDTH, dtype=torch.float64) if decoder else None
    hidden = right_padding((3, 1, 2, 3), 3) if decoder else None
    with torch.set_grad_enabled(learn):
        ours, masked = both(module, states, source, padding=padding, hidden=hidden, learn=learn)
    assert runs
    assert len(ours) == len(masked)
    torch.testing.assert_close(ours, masked, **NEAR[torch.float64])
    assert len(ours[1][~padding].unique()) > 1 or choices.get("scope") == "sequence"


@pytest.mark.parametrize("learn", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("decoder", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("blocks", "choices"), [(2, CHOICES[0]), (3, CHOICES[1]), (2, CHOICES[2])])
def test_steps_of_several_blocks_are_compacted_too(blocks, choices, norm, decoder, learn, runs):
    module = small_recurrence(
        decoder=decoder, cross_attention=decoder, norm=norm, halting=True, max_steps=9, layers_per_step=blocks,
        coordinates=lively(), **choices,
    )  # fmt: skip
    states, padding = torch.randn(4, 6, WIDTH, dtype=torch.float64), right_padding((6, 3, 5, 1), 6)
    source = torch.randn(4, 3, WIDTH, dtype=torch.float64) if decoder else None
    hidden = right_padding((3, 1, 2, 3), 3) if decoder else None
    states *= 5.0  # some positions halt before several blocks make all much the same
    with torch.set_grad_enabled(learn):
        ours, masked = both(module, states, source, padding=padding, hidden=hidden, learn=learn)
    assert runs
    assert len(ours) == len(masked)
    torch.testing.assert_close(ours, masked, **NEAR[torch.float64])
    assert len(ours[1][~padding].unique()) > 1 or choices.get("scope") == "sequence"


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("learn", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("decoder", [False, True], ids=["encoder", "decoder"])
def test_compact_is_masked_with_a_larger_residual(blocks, decoder, learn, runs):
    """DeepNorm: what a halted position shows does not change, and running ones are computed as in the block."""
    module = small_recurrence(
        decoder=decoder, cross_attention=decoder, norm="deep", halting=True, max_steps=9, layers_per_step=blocks
    )
    states, padding = torch.randn(4, 6, WIDTH, dtype=torch.float64), right_padding((6, 3, 5, 1), 6)
    source = torch.randn(4, 3, WIDTH, dtype=torch.float64) if decoder else None
    hidden = right_padding((3, 1, 2, 3), 3) if decoder else None
    states *= 5.0
    with torch.set_grad_enabled(learn):
        ours, masked = both(module, states, source, padding=padding, hidden=hidden, learn=learn)
    assert runs
    torch.testing.assert_close(ours, masked, **NEAR[torch.float64])
    assert len(ours[1][~padding].unique()) > 1


@pytest.mark.parametrize("learn", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("norm", ["post", "pre", "deep"])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize(("padded", "step"), [(True, "sinusoidal"), (False, "sinusoidal"), (True, "none")])
def test_rotary_positions_to_the_source_and_in_several_blocks(padded, step, blocks, norm, learn, runs):
    """Queries and keys are rotated by their positions: those of each sequence, or one row for all without padding."""
    module = small_recurrence(
        decoder=True, cross_attention=True, norm=norm, halting=True, max_steps=9, layers_per_step=blocks,
        rotary_source=True, source_sink=True, coordinates=lively(position="rotary", step=step),
    )  # fmt: skip
    states = 5.0 * torch.randn(4, 6, WIDTH, dtype=torch.float64)
    padding = right_padding((6, 3, 5, 1), 6) if padded else None
    source = torch.randn(4, 3, WIDTH, dtype=torch.float64)
    with torch.set_grad_enabled(learn):
        ours, masked = both(module, states, source, padding=padding, hidden=right_padding((3, 1, 2, 3), 3), learn=learn)
    assert runs
    torch.testing.assert_close(ours, masked, **NEAR[torch.float64])
    assert len(ours[1].unique()) > 2


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("batch", "padded"), [(1, False), (1, True), (4, True), (12, False)])
@pytest.mark.parametrize("causal", [False, True])
def test_any_number_of_sequences_any_padding(norm, batch, padded, causal, runs):
    module = small_recurrence(decoder=causal, norm=norm, halting=True, max_steps=9)
    states = torch.randn(batch, 7, WIDTH, dtype=torch.float64)
    padding = right_padding([7 - row % 5 for row in range(1, batch + 1)], 7) if padded else None
    ours, masked = both(module, states, None, padding=padding, hidden=None, learn=True)
    torch.testing.assert_close(ours, masked, **NEAR[torch.float64])
    assert len(runs) == 1


@pytest.mark.parametrize("position", ["sinusoidal", "rotary"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_single_precision_too(norm, position, runs):
    """Relative to the largest number of each tensor: sums of many terms round as these do."""
    module = small_recurrence(norm=norm, halting=True, max_steps=9, coordinates=lively(position=position)).float()
    states = torch.randn(16, 6, WIDTH)
    for learn in (True, False):
        with torch.set_grad_enabled(learn):
            ours, masked = both(module, states, None, padding=None, hidden=None, learn=learn)
        for one, two in zip(ours, masked, strict=True):
            assert (one - two).abs().max() <= 1e-5 * two.abs().max()
    assert len(runs) == 2


@pytest.mark.parametrize("position", ["sinusoidal", "rotary"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("learn", [True, False], ids=["training", "inference"])
def test_in_bfloat16_it_is_no_further_from_single_precision_than_the_masked_form(norm, learn, position, runs):
    module = small_recurrence(norm=norm, halting=True, max_steps=9, coordinates=lively(position=position)).float()
    states, padding = torch.randn(16, 6, WIDTH), right_padding([6 - row % 4 for row in range(16)], 6)
    exact = copy.deepcopy(module)
    exact.loop = depth_loop
    wanted, _ = go(exact, states, padding=padding)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.set_grad_enabled(learn):
        ours, masked = both(module, states, None, padding=padding, hidden=None, learn=learn)
    far, as_far = (
        (found[0] - wanted).masked_fill(padding.unsqueeze(-1), 0.0).square().mean().sqrt() for found in (ours, masked)
    )
    assert runs
    assert 0 < far < 1.5 * as_far < 0.2


def test_states_that_a_signal_cancels_stay_finite():
    """``h + π + τ`` all alike has no variance: its LayerNorm is 0, and rounding must not make a root of less than 0."""
    module = small_recurrence(norm="pre", halting=True, max_steps=9, coordinates=lively(position="none"))
    module = module.float()
    states = torch.randn(4, 6, WIDTH)
    states[:, :3] = -module.coordinates.signals(1, like=states)
    ours, masked = both(module, states, None, padding=None, hidden=None, learn=True)
    torch.testing.assert_close(ours[0], masked[0], **NEAR[torch.float32])
    assert all(bool(part.isfinite().all()) for part in ours)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("learn", [True, False], ids=["training", "inference"])
def test_a_least_number_of_steps_is_kept(norm, learn, runs):
    module = small_recurrence(norm=norm, halting=True, max_steps=9, min_steps=3)
    states, padding = torch.randn(4, 6, WIDTH, dtype=torch.float64), right_padding((6, 3, 5, 1), 6)
    ours, masked = both(module, states, None, padding=padding, hidden=None, learn=learn)
    assert runs
    torch.testing.assert_close(ours, masked, **NEAR[torch.float64])
    assert ours[1][~padding].min() >= 3
