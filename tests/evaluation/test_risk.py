"""The tests of a mean loss: figures by other means, and the guarantee itself by simulation."""

import math
from fractions import Fraction

import numpy as np
import pytest

from universal_transformer.evaluation.risk import (
    binomial_tail,
    hoeffding_bentkus,
    least_count,
    num_accepted,
    p_value,
)


def exact_tail(errors, count, share):
    """``P[Bin(n, a) <= k]`` in whole numbers."""
    a = Fraction(share).limit_denominator(10**6)
    return float(sum(math.comb(count, i) * a**i * (1 - a) ** (count - i) for i in range(errors + 1)))


@pytest.mark.parametrize(("errors", "count"), [(0, 1), (0, 7), (3, 7), (6, 7), (7, 7), (12, 200), (199, 200)])
@pytest.mark.parametrize("share", [0.005, 0.1, 0.5, 0.9])
def test_the_binomial_tail_is_that_of_fractions(errors, count, share):
    assert binomial_tail(errors, count=count, share=share) == pytest.approx(exact_tail(errors, count, share), rel=1e-9)


@pytest.mark.parametrize(
    ("tolerance", "delta", "clean", "half"),
    [
        (0.005, 0.05, 598, 3530), (0.005, 0.1, 460, 2742),
        (0.01, 0.05, 299, 1763), (0.01, 0.1, 230, 1369),
        (0.02, 0.05, 149, 880), (0.02, 0.1, 114, 683),
    ],
)  # fmt: skip
def test_the_least_number_of_examples(tolerance, delta, clean, half):
    """With no error at all, and for losses in [0, 1] with half of the mean that the tolerance allows."""
    assert least_count(tolerance=tolerance, delta=delta) == clean
    assert p_value([0.0] * clean, tolerance=tolerance) <= delta < p_value([0.0] * (clean - 1), tolerance=tolerance)

    def passes(count):
        return hoeffding_bentkus(count * tolerance / 2, count=count, tolerance=tolerance) <= delta

    assert passes(half)
    assert not passes(half - 1)


def test_the_example_of_five_thresholds():
    """2,000 examples, tolerance 1 %, confidence 95 %: 10 errors are accepted and 14 are not; exactly 12 would be."""
    bounds = [hoeffding_bentkus(float(errors), count=2000, tolerance=0.01) for errors in (0, 2, 6, 10, 14)]
    assert bounds == pytest.approx([0, 0, 0.0007, 0.0286, 0.2819], abs=5e-5)
    assert num_accepted(bounds, delta=0.05) == 4
    exact = [p_value([1.0] * errors + [0.0] * (2000 - errors), tolerance=0.01) for errors in (6, 10, 12, 13)]
    assert exact == pytest.approx([exact_tail(errors, 2000, 0.01) for errors in (6, 10, 12, 13)])
    assert num_accepted(exact, delta=0.05) == 3


def test_losses_between_0_and_1_need_more_examples_than_losses_of_0_and_1():
    """Both bounds hold, so that their smaller value does; of no loss at all both are (1 - a)^n."""
    assert hoeffding_bentkus(0.0, count=299, tolerance=0.01) == pytest.approx(0.99**299)
    assert hoeffding_bentkus(3.1, count=299, tolerance=0.01) == 1.0
    for total in (0.5, 4.0, 9.9, 10.0, 19.5):
        mean = total / 2000
        h = mean * math.log(mean / 0.01) + (1 - mean) * math.log((1 - mean) / 0.99)
        bentkus = math.e * exact_tail(math.ceil(total), 2000, 0.01)
        assert hoeffding_bentkus(total, count=2000, tolerance=0.01) == pytest.approx(
            min(1, math.exp(-2000 * h), bentkus)
        )
        assert hoeffding_bentkus(total, count=2000, tolerance=0.01) >= binomial_tail(
            math.floor(total), count=2000, share=0.01
        )


def test_a_sum_of_losses_is_rounded_before_the_next_whole_number():
    """0.1 + 0.2 + 0.7 is 0.9999999999999999 or 1.0000000000000002, depending on the order."""
    ten = [0.1] * 30  # 3.0000000000000013 when added one by one
    few = [*ten, *[0.0] * 970]
    exact = hoeffding_bentkus(3.0, count=1000, tolerance=0.01)
    assert p_value(few, tolerance=0.01) == pytest.approx(exact)
    assert hoeffding_bentkus(sum(ten), count=1000, tolerance=0.01) == pytest.approx(exact)


@pytest.mark.parametrize(("tolerance", "delta"), [(0.95, 1 - 0.95), (0.5, 0.25 / 2), (0.01, 0.05), (0.005, 0.05 / 3)])
def test_the_least_number_of_examples_without_a_loss_is_enough(tolerance, delta):
    count = least_count(tolerance=tolerance, delta=delta)
    assert num_accepted([p_value([0.0] * count, tolerance=tolerance)], delta=delta) == 1
    if count > 1:
        assert num_accepted([p_value([0.0] * (count - 1), tolerance=tolerance)], delta=delta) == 0


def test_settings_after_the_first_that_fails_are_not_accepted():
    assert num_accepted([0.0, 0.2, 0.0], delta=0.05) == 1
    assert num_accepted([0.0, 0.01], delta=0.05) == 2
    assert num_accepted([], delta=0.05) == 0


@pytest.mark.parametrize("whole", [True, False], ids=["0 or 1", "between"])
@pytest.mark.parametrize("risks", [np.linspace(0, 0.1, 20), [0.0, 0.02, 0.051, 0.0, 0.2]], ids=["rising", "other"])
def test_accepted_risks_are_within_the_tolerance(risks, whole):
    """In at most 10 % of the calibrations a setting of a higher risk is accepted; the same examples test all."""
    draw, delta, runs, count, tolerance = np.random.default_rng(0), 0.1, 250, 300, 0.05 if whole else 0.025
    risks, wrong = np.asarray(risks), 0
    for _ in range(runs):
        losses = (draw.random((1, count)) < risks[:, None]).astype(float)
        if not whole:
            losses *= draw.random((1, count))  # halves the risk
        values = [p_value(row.tolist(), tolerance=tolerance) for row in losses]
        wrong += bool((risks[: num_accepted(values, delta=delta)] > 0.05).any())
    assert wrong <= runs * delta
    assert wrong > 0 or not whole  # the exact test is not far too careful
