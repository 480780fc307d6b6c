"""How tests reach one engine: the sum as the engines see it, and what must hold of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mpmath as mp

from taut import Bounds
from taut.accounting._adjacency import Half
from taut.accounting._answers.answer import Answer, delta_bounds, epsilon_bounds
from taut.accounting._engines.half_sum import HalfSum
from taut.accounting._pairs.gaussian import GaussianPair
from taut.accounting._pairs.pair import Pair

SMALLEST = 1e-300


class OpaqueGaussian(GaussianPair):
    """A Gaussian loss that does not say so: neither merged nor inverted, but put on a lattice."""

    gaussian_mu = 0.0
    closed_form = False


def answer_epsilon(terms: Sequence[tuple[Pair, int]], delta: float, tolerance: float) -> Answer:
    """Return epsilon of a sum whose Gaussians were not merged."""
    return epsilon_bounds([HalfSum(Half.REMOVE, tuple(terms))], delta, tolerance)


def answer_delta(terms: Sequence[tuple[Pair, int]], epsilon: float, tolerance: float) -> Answer:
    """Return delta of a sum whose Gaussians were not merged."""
    return delta_bounds([HalfSum(Half.REMOVE, tuple(terms))], epsilon, tolerance)


def check_epsilon(
    bounds: Bounds,
    delta: float,
    truth: Callable[[float], mp.mpf],
    tolerance: float = 1e-3,
    oracle_error: float = 0.0,
) -> None:
    """Assert that the true delta is at most ``delta`` at the upper end, at least at the lower."""
    lower, upper = bounds
    assert 0 <= lower <= upper
    assert truth(upper) <= delta * (1 + mp.mpf(oracle_error)), "upper bound is below the truth"
    if lower > 0:
        assert truth(lower) >= delta * (1 - mp.mpf(oracle_error)), "lower bound is above the truth"
    # An epsilon that small is zero for everybody, and rounding to the safe side shows.
    narrow = upper - lower <= tolerance * upper or upper <= 1e-11
    assert narrow, f"gap {bounds.gap / upper:.2e} exceeds the tolerance"


def check_delta(
    bounds: Bounds, truth: mp.mpf, tolerance: float = 1e-3, oracle_error: float = 0.0
) -> None:
    """Assert that the true delta lies between the bounds, and that they are close."""
    lower, upper = bounds
    assert 0 <= lower <= upper <= 1
    if truth < SMALLEST:  # no float is left to bracket it with
        assert upper < 2 * SMALLEST
        return
    assert lower <= truth * (1 + mp.mpf(oracle_error)), "lower bound is above the truth"
    assert upper >= truth * (1 - mp.mpf(oracle_error)), "upper bound is below the truth"
    assert upper - lower <= tolerance * upper, f"gap {bounds.gap / upper:.2e} exceeds the tolerance"
