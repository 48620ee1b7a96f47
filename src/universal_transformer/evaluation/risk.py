"""Distribution-free tests of a mean loss: is the risk of a setting at most `tolerance`, with a stated confidence?

The losses ``L_1 … L_n`` of n independent examples of one distribution lie in [0, 1]; their expectation is the risk. The
null hypothesis is ``risk > tolerance``. A setting is accepted if the p-value of its losses is at most ``delta``, which
is 1 - confidence. Settings that were put in order before any loss was seen are tested one after the other until the
first that is not accepted: then all accepted risks are within the tolerance with a probability of at least
``1 - delta``, whatever the distribution (Learn then Test, Angelopoulos et al. 2021, arXiv 2110.01052, section 3; used
for early exits by Confident Adaptive Language Modeling, Schuster et al. 2022, arXiv 2207.07061).
"""

import math
from collections.abc import Sequence

DIGITS = 9
"""Digits to which a sum of losses is rounded before the next whole number is taken: 0.1 + 0.2 is not above 0.3."""
ROUNDING = 1e-9
"""Relative difference up to which a p-value and its level are equal."""


def p_value(losses: Sequence[float], *, tolerance: float) -> float:
    """Return a p-value of the null hypothesis that the risk is above `tolerance`.

    The binomial test is exact where each loss is 0 or 1; other losses need the bound of Hoeffding and Bentkus.
    """
    assert losses
    assert all(0.0 <= loss <= 1.0 for loss in losses)
    if all(loss in (0.0, 1.0) for loss in losses):
        return binomial_tail(round(sum(losses)), count=len(losses), share=tolerance)
    return hoeffding_bentkus(math.fsum(losses), count=len(losses), tolerance=tolerance)


def binomial_tail(errors: int, *, count: int, share: float) -> float:
    """``P[Bin(n, a) <= k] = Σ_{i=0..k} C(n, i) a^i (1-a)^(n-i)`` with `count` n, `share` a in (0, 1), `errors` k."""
    if errors >= count:
        return 1.0
    whole, hit, miss = math.lgamma(count + 1), math.log(share), math.log1p(-share)
    terms = (
        math.exp(whole - math.lgamma(i + 1) - math.lgamma(count - i + 1) + i * hit + (count - i) * miss)
        for i in range(errors + 1)
    )
    return min(1.0, math.fsum(terms))


def hoeffding_bentkus(total: float, *, count: int, tolerance: float) -> float:
    """``min(exp(-n h(R, a)), e P[Bin(n, a) <= ceil(n R)])`` for a mean loss ``R <= a``, and 1 above it.

    ``h(x, a) = x ln(x/a) + (1-x) ln((1-x)/(1-a))``, where ``0 ln 0`` is 0. `total` is ``n R``, the sum of the losses;
    `count` is n, and `tolerance` is a (Bates et al. 2021, arXiv 2101.02703, section 3.1).
    """
    mean = total / count
    if mean > tolerance:
        return 1.0
    divergence = _relative(mean, tolerance) + _relative(1.0 - mean, 1.0 - tolerance)
    hoeffding = math.exp(-count * max(0.0, divergence))
    bentkus = math.e * binomial_tail(math.ceil(round(total, DIGITS)), count=count, share=tolerance)
    return min(hoeffding, bentkus, 1.0)


def _relative(x: float, y: float) -> float:
    """``x ln(x/y)``, 0 for x = 0."""
    return x * math.log(x / y) if x > 0.0 else 0.0


def num_accepted(p_values: Sequence[float], *, delta: float) -> int:
    """Return how many settings are accepted: those before the first whose p-value is above `delta`.

    The order must not depend on the losses. The level `delta` is not divided by the number of settings.
    """
    return next((place for place, value in enumerate(p_values) if value > delta * (1 + ROUNDING)), len(p_values))


def least_count(*, tolerance: float, delta: float) -> int:
    """Return the least n for which n losses of 0 are enough: ``(1 - a)^n <= delta``."""
    return math.ceil(round(math.log(delta) / math.log1p(-tolerance), DIGITS))
