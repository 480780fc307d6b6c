"""docs/theory/coordinates.md: the vertex, the limit from above, and even orders."""

import math

import mpmath as mp
import numpy as np
import pytest

from taut.accounting._adjacency import Half
from taut.accounting._mechanisms.coordinates import Coordinatewise, TwiceSampled


def phi(order, rate, x):
    """Return log of the moment of one coordinate, x = shift^2 / (2 sigma^2)."""
    q = mp.mpf(rate)
    return mp.log(
        mp.fsum(
            mp.binomial(order, v) * (1 - q) ** (order - v) * q**v * mp.exp(v * (v - 1) * x)
            for v in range(order + 1)
        )
    )


@pytest.mark.parametrize("p", [0.3, 1.0, 1.7, 2.0])
@pytest.mark.parametrize(("order", "rate"), [(2, 0.01), (3, 0.5), (7, 0.1), (20, 0.9)])
def test_moment_is_convex_in_the_power_of_the_shift(order, rate, p):
    with mp.workdps(40):
        y = [mp.mpf(i) / 20 for i in range(101)]
        values = [phi(order, rate, power ** (2 / mp.mpf(p))) for power in y]
        for left, middle, right in zip(values, values[1:], values[2:], strict=False):
            assert left + right - 2 * middle >= -(mp.mpf(10) ** -35)


def test_moment_is_not_convex_beyond_two():
    with mp.workdps(40):
        y = [mp.mpf(i) / 20 for i in range(101)]
        values = [phi(4, 0.3, mp.sqrt(power)) for power in y]
        assert any(a + c < 2 * b for a, b, c in zip(values, values[1:], values[2:], strict=False))


@pytest.mark.parametrize(("order", "rate"), [(2, 0.01), (5, 0.3), (12, 0.7)])
def test_slope_at_zero_is_the_unmasked_one(order, rate):
    with mp.workdps(50):
        slope = mp.diff(lambda x: phi(order, rate, x), 0)
        assert slope == pytest.approx(order * (order - 1) * rate**2, rel=1e-12)


@pytest.mark.parametrize("order", [2, 3, 6, 15])
def test_more_coordinates_approach_the_plain_plan_from_above(order):
    plain = TwiceSampled(0.05, 1.0, 0.6 / 0.5, 1.0, 1.0, 1, 2.0)
    limit = plain.renyi(Half.REMOVE, np.array([float(order)]))[0]
    values = []
    for count in (1, 4, 25, 400, 10**6):
        clip_inf = 1 / math.sqrt(count)
        release = TwiceSampled(0.05, 0.5, 0.6, 1.0, clip_inf, 10**9, 2.0)
        values.append(release.renyi(Half.REMOVE, np.array([float(order)]))[0])
    assert values == sorted(values, reverse=True)
    assert limit <= values[-1] * (1 + 1e-10)
    assert values[-1] == pytest.approx(limit, rel=1e-3)


@pytest.mark.parametrize("order", range(2, 13))
@pytest.mark.parametrize("rate", [0.05, 0.5, 0.95])
def test_central_moments_of_the_ratio_are_not_negative(order, rate):
    """E (mu_1 / mu_0 - 1)^j for a masked record with three coordinates."""
    with mp.workdps(80):
        for x in (mp.mpf(10) ** -6, mp.mpf("0.1"), mp.mpf(2)):
            moment = [mp.exp(3 * phi(v, rate, x)) for v in range(order + 1)]
            total = mp.fsum(
                mp.binomial(order, v) * (-1) ** (order - v) * moment[v] for v in range(order + 1)
            )
            assert total >= 0


def test_odd_orders_lie_below_the_mean_of_their_neighbours():
    release = TwiceSampled(0.1, 0.4, 0.7, 1.0, 0.25, 1000, 2.0)
    orders = np.arange(3.0, 40.0, 2.0)
    below, at, above = (
        release.renyi(Half.ADD, orders + shift) * (orders + shift - 1) for shift in (-1, 0, 1)
    )
    assert (at < (below + above) / 2).all()


def test_the_vertex_is_no_dominating_pair():
    """Spread over two coordinates, the same record has the larger total variation."""
    x = np.arange(-12.0, 20.0, 0.02)

    def density(shift):
        mixed = 0.9 * np.exp(-(x**2) / 2) + 0.1 * np.exp(-((x - shift) ** 2) / 2)
        return mixed / math.sqrt(2 * math.pi)

    threshold = math.exp(0.1)
    base = density(0.0)
    one = np.maximum(density(6.0) - threshold * base, 0).sum() * 0.02
    flat = density(6 / math.sqrt(2))
    spread = np.maximum(np.outer(flat, flat) - threshold * np.outer(base, base), 0).sum() * 0.02**2
    assert one == pytest.approx(0.0996, abs=1e-3)
    assert spread == pytest.approx(0.1793, abs=1e-3)
    vertex = Coordinatewise(0.1, 1.0, 6.0, 6.0, 2, 2.0)
    assert vertex.renyi(Half.REMOVE, np.array([2.0]))[0] > 0
