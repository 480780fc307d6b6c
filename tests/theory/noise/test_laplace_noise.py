"""The derivations of docs/theory/laplace-noise.md, step by step and by other means."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from taut.noise import Box, FiniteSet, L2Ball, majorises
from taut.noise._mechanisms.laplace_loss import _spread, worst_ratios

ratio = st.floats(0.01, 4.0)


def one_profile(epsilon, e):
    """Return the profile of one coordinate, from the densities by quadrature."""

    def gap(x):
        return max(math.exp(-abs(x)) - math.exp(epsilon - abs(x - e)), 0.0) / 2

    ends = sorted({-60.0, 0.0, min(max((e - epsilon) / 2, -60.0), 60.0), e, 60.0})
    return sum(quad(gap, a, b, epsabs=1e-13)[0] for a, b in pairwise(ends))


def closed_profile(epsilon, e):
    if epsilon >= e:
        return 0.0
    return 1 - math.exp(epsilon) if epsilon < -e else 1 - math.exp((epsilon - e) / 2)


def product_profile(epsilon, ratios):
    """Average over the outputs of the first coordinate, where its loss is |x - e| - |x|."""
    first, *rest = ratios
    if not rest:
        return closed_profile(epsilon, first)

    def inner(x):
        loss = abs(x - first) - abs(x)
        return math.exp(-abs(x)) / 2 * product_profile(epsilon - loss, rest)

    atoms = 0.5 * product_profile(epsilon - first, rest)
    atoms += 0.5 * math.exp(-first) * product_profile(epsilon + first, rest)
    total = sum(rest)
    bends = {0.0, first} | {
        x for x in ((first - epsilon + s) / 2 for s in (-total, total)) if 0 < x < first
    }
    return atoms + sum(quad(inner, a, b, epsabs=1e-12)[0] for a, b in pairwise(sorted(bends)))


def lemma(epsilon, a, b):
    a, b = min(a, b), max(a, b)
    factor = math.exp((epsilon - a - b) / 2)
    return 1 - factor * (1 + a / 2 - max(epsilon - b + a, 0.0) / 4)


@pytest.mark.parametrize("e", [0.3, 1.7])
@pytest.mark.parametrize("epsilon", [-2.0, -0.2, 0.0, 0.25, 1.0])
def test_profile_of_one_coordinate(e, epsilon):
    assert one_profile(epsilon, e) == pytest.approx(closed_profile(epsilon, e), abs=1e-9)


@given(ratio, ratio, st.floats(0.0, 1.0))
def test_lemma_by_quadrature(a, b, share):
    epsilon = share * (a + b)
    assert lemma(epsilon, a, b) == pytest.approx(product_profile(epsilon, [a, b]), abs=1e-8)


@given(ratio, ratio, st.floats(0.0, 1.0), st.floats(-1.0, 1.0))
def test_moving_two_ratios_apart_does_not_lower_the_profile(a, b, move, share):
    total, smaller = a + b, min(a, b)
    apart = [smaller * move, total - smaller * move]
    epsilon = share * total
    found = [product_profile(epsilon, pair) for pair in ([a, b], apart)]
    assert found[0] <= found[1] + 1e-8


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.5, 0.9])
def test_three_ratios_are_below_what_majorises_them(epsilon):
    chain = [[0.4, 0.4, 0.4], [0.6, 0.35, 0.25], [0.8, 0.3, 0.1], [1.1, 0.1], [1.2]]
    found = [product_profile(epsilon, ratios) for ratios in chain]
    assert (np.diff(found) >= -1e-8).all()
    assert found[0] < found[-1]


@given(st.lists(ratio, min_size=8, max_size=60))
def test_spread_ratios_majorise(values):
    ratios = -np.sort(-np.array(values))
    few, counts = _spread(ratios)
    assert few.size <= 8
    spread = np.repeat(few, counts.astype(int))
    size = max(spread.size, ratios.size)
    padded = [np.pad(v, (0, size - v.size)) for v in (spread, ratios)]
    padded[0] *= ratios.sum() / spread.sum()
    assert spread.sum() == pytest.approx(ratios.sum(), rel=1e-11)
    assert majorises(*padded)


SETS = [
    Box([1.0, 3.0, 0.4], l1=2.0),
    Box([1.0, 3.0, 0.4], l2=1.5),
    L2Ball(3, 1.3),
    FiniteSet([[1.0, 0.2, 0.0], [0.3, 0.3, 2.0], [0.5, 0.5, 0.5]]),
]


@pytest.mark.parametrize("index", range(len(SETS)))
@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3), st.lists(ratio, min_size=3, max_size=3))
def test_no_member_has_larger_partial_sums(index, direction, scales):
    one, scales = SETS[index], np.array(scales)
    member = one.clip(10 * np.array(direction))
    found = np.cumsum(-np.sort(-np.abs(member) / scales))
    bound = np.cumsum(worst_ratios(one, scales))
    assert (found <= bound[: found.size] * (1 + 1e-11)).all()
