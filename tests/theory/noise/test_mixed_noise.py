"""docs/theory/mixed-noise.md: where moments are convex, and the errors of the quadratures."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from oracles.mixed_noise import log_density
from scipy.special import wofz

from taut.accounting._mechanisms.uniform_moments import (
    gaussian_uniform_cumulants,
    laplace_uniform_cumulants,
)


def second_differences(values):
    return [a + c - 2 * b for a, b, c in zip(values, values[1:], values[2:], strict=False)]


def mp_cumulant(order, shift, width):
    """Return log int f(x - v)^k f(x)^(1-k) dx for N(0, 1) plus a uniform, in high precision.

    The trapezoid rule with a step so small that its proven error is below 1e-40.
    """
    half, step = mp.mpf(width) / 2, mp.mpf(1) / 16
    root = mp.sqrt(2)

    def density(x):
        x = -abs(x)
        return (mp.erfc(-(x + half) / root) - mp.erfc(-(x - half) / root)) / (4 * half)

    v = mp.mpf(shift)
    nodes = range(-int((half + 15) / step), int((half + order * v + 15) / step) + 1)
    total = mp.fsum(
        density(i * step - v) ** order * density(i * step) ** (1 - order) for i in nodes
    )
    return mp.log(total * step)


class TestConvexityInTheSquaredShift:
    """Not proven: the assumption behind the vertex under an l2-bound."""

    @pytest.mark.parametrize(
        "width",
        [*(pytest.param(w, marks=pytest.mark.slow) for w in (0.05, 8.0, 40.0, 1000.0)), 0.5, 2.0],
    )
    def test_on_a_grid(self, width):
        for reach in (0.5, 3.0, 10.0, 30.0):
            squares = np.linspace(0, reach**2, 25)
            tables = [gaussian_uniform_cumulants(math.sqrt(s), width, 40) for s in squares]
            for order in (2, 3, 5, 16, 40):
                values = [table[order] for table in tables]
                # Rounding is added on one side; it must not hide a bend of the wrong sign.
                bends = np.array(second_differences(values))
                assert (bends >= -1e-11 * (1 + np.abs(values[2:]))).all()

    @pytest.mark.slow
    @pytest.mark.parametrize("width", ["0.02", "0.3", "1", "4", "12"])
    @pytest.mark.parametrize("order", [2, 3, 8])
    def test_in_high_precision(self, width, order):
        with mp.workdps(40):
            for reach in ("0.1", "1", "6"):
                squares = [mp.mpf(reach) ** 2 * i / 8 for i in range(9)]
                values = [mp_cumulant(order, mp.sqrt(s), mp.mpf(width)) for s in squares]
                assert all(bend > 0 for bend in second_differences(values))

    def test_one_case_in_high_precision(self):
        with mp.workdps(40):
            values = [mp_cumulant(3, mp.sqrt(mp.mpf(i) / 4), mp.mpf(3)) for i in range(6)]
            assert all(bend > 0 for bend in second_differences(values))

    def test_it_fails_for_laplace_noise(self):
        # So the l2-vertex is special to noise whose tails are Gaussian.
        values = [laplace_uniform_cumulants(math.sqrt(s), 1.0, 8)[4] for s in range(1, 40)]
        assert max(second_differences(values)) < 0


class TestConvexityInTheShift:
    @pytest.mark.parametrize("width", [0.5, 5.0, 60.0])
    @pytest.mark.parametrize("order", [2, 3, 17])
    def test_laplace_plus_uniform(self, width, order):
        values = [laplace_uniform_cumulants(0.2 * i, width, 17)[order] for i in range(40)]
        assert min(second_differences(values)) >= -1e-11

    def test_any_log_concave_density(self):
        rng = np.random.default_rng(3)
        x = np.linspace(-60, 60, 24_001)
        for _ in range(20):
            knots = np.sort(rng.uniform(0, 8, size=4))
            slopes = np.cumsum(rng.exponential(size=5))
            log_f = -np.abs(x) * slopes[0]
            for knot, more in zip(knots, np.diff(slopes), strict=True):
                log_f = log_f - more * np.maximum(np.abs(x) - knot, 0)
            order = float(rng.choice([1.3, 2.0, 4.5]))
            values = [
                np.logaddexp.reduce(order * np.interp(x - v, x, log_f) + (1 - order) * log_f)
                for v in np.arange(0, 3, 0.2)
            ]
            assert min(second_differences(values)) >= -1e-6


class TestTrapezoidRule:
    def test_density_in_the_strip(self):
        """f(x) (1 - y^2/2) exp(y^2/2) <= |f(x + iy)| <= f(x) exp(y^2/2)."""
        for width, x, y in itertools.product(
            [0.05, 1.0, 5.0], np.linspace(-8, 8, 33), [0.1, 0.5, 1.0, 1.3]
        ):
            value = abs(_complex_erfc(x, y, width))
            real = abs(_complex_erfc(x, 0.0, width))
            assert value <= real * math.exp(y**2 / 2) * (1 + 1e-9)
            assert value >= real * math.exp(y**2 / 2) * (1 - y**2 / 2) * (1 - 1e-9)

    @pytest.mark.parametrize("order", [2, 4, 8])
    def test_coarse_steps_err_by_less_than_the_bound(self, order):
        width, shift = 3.0, 1.0
        exact = gaussian_uniform_cumulants(shift, width, 8)[order]
        for step in (0.9, 0.7, 0.5):
            x = np.arange(-60, 60) * step
            moved, still = log_density(x - shift, 1.0, width), log_density(x, 1.0, width)
            terms = order * moved + (1 - order) * still
            rule = math.log(np.exp(terms).sum() * step)
            bound = min(
                2
                * math.exp(a * a / 2)
                * (1 - a * a / 2) ** (1 - order)
                / math.expm1(2 * math.pi * a / step)
                for a in np.linspace(0.05, 1.35, 60)
            )
            assert abs(math.expm1(rule - exact)) <= bound * (1 + 1e-6) + 1e-11

    @pytest.mark.parametrize("last", [8, 32, 128, 256])
    def test_steps_in_use_err_by_less_than_rounding(self, last):
        a, step = math.sqrt(2 / last), 0.22 / math.sqrt(last)
        bound = 2 * math.exp(1 / last) * (1 - 1 / last) ** (1 - last)
        assert bound / math.expm1(2 * math.pi * a / step) < 5e-17


def _complex_erfc(x, y, width):
    """Return Phi(x + iy + w/2) - Phi(x + iy - w/2), by the Faddeeva function in the half-plane."""

    def upper(z):  # the upper tail of the normal law, for Re z >= 0
        z = z / math.sqrt(2)
        return np.exp(-z * z) * wofz(1j * z) / 2

    z = complex(abs(x), y)
    low, high = z - width / 2, z + width / 2
    first = upper(low) if low.real >= 0 else 1 - upper(-low)
    return first - upper(high)


class TestTails:
    def test_slope_of_the_exponent_right_of_the_peak(self):
        """For x above w/2 + k v the exponent falls with slope at least x - k v - w/2."""
        width, shift = 4.0, 1.5
        for order in (2, 5, 9):
            x = np.linspace(width / 2 + order * shift, width / 2 + order * shift + 8, 50)
            with mp.workdps(40):

                def exponent(t, order=order):
                    def log_f(y):
                        return mp.log(mp.erfc((y - 2) / mp.sqrt(2)) - mp.erfc((y + 2) / mp.sqrt(2)))

                    return order * log_f(t - shift) + (1 - order) * log_f(t)

                for point in x[::7]:
                    slope = mp.diff(exponent, mp.mpf(float(point)))
                    assert slope <= -(point - order * shift - width / 2) + 1e-12
