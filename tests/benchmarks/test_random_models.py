"""Calibration gives the requested mean number of steps, and both forms of the loop agree."""

import pytest
import torch

from benchmarks.halting import infer
from benchmarks.random_models import (
    BenchmarkSizes,
    apply,
    bound,
    calibrate,
    encoder,
    inputs,
    step_statistics,
)

SHAPE = BenchmarkSizes(width=32, heads=2, filter_width=64, batch=4, length=64, max_steps=10)


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_calibration_meets_the_mean_and_spreads_the_steps(share):
    module, states = encoder(SHAPE, halting=True).eval(), inputs(SHAPE)
    trace = calibrate(module, states, share=share)
    assert float(trace.mean_steps()) == pytest.approx(share * 10, abs=0.3)
    counts = step_statistics(trace, max_steps=10)["steps_histogram"]
    assert sum(counts) == SHAPE.positions
    assert sum(count > 0 for count in counts) >= 5


def test_the_bound_is_masked_over_running_position_steps():
    module, states = encoder(SHAPE, halting=True).eval(), inputs(SHAPE)
    trace = calibrate(module, states, share=0.4)
    steps = trace.steps.flatten().tolist()
    assert bound(trace) == pytest.approx(max(steps) * len(steps) / sum(steps))


def test_both_forms_of_the_loop_agree():
    module, states = encoder(SHAPE, halting=True).eval(), inputs(SHAPE)
    calibrate(module, states, share=0.3)
    results = []
    for form in ("auto", "masked"):
        infer(module, states, form=form)
        with torch.no_grad():
            results.append(apply(module, states)[0])
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
