"""Cells far out in normal tails: the stated error covers what 50 digits say."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

from taut.accounting._adjacency import Half
from taut.accounting._pairs.gaussian import GaussianPair, VariancePair
from taut.accounting._pairs.mixture import MixturePair
from taut.accounting._pairs.pair import CUMULANT_ERROR

DIGITS = 50
FARTHEST = 36.0  # deviations: beyond, masses are below 1e-290 and leave the floats
UNDERFLOW = 1e-300  # absolute: what is smaller loses its digits


def between(low, high, shift=0, scale=1):
    """Return the mass of N(shift, scale^2) between two points, from tails on the small side."""
    low, high = (low - shift) / scale, (high - shift) / scale
    return mp.ncdf(-low) - mp.ncdf(-high) if low > 0 else mp.ncdf(high) - mp.ncdf(low)


def assert_covered(cells, masses, edges):
    """Compare surpluses with masses (p, q) of every cell in 50 digits."""
    for i, (p, q) in enumerate(masses):
        surplus = p - mp.exp(mp.mpf(float(edges[i]))) * q
        assert abs(mp.mpf(float(cells.surplus[i])) - surplus) <= float(cells.error[i]) + UNDERFLOW


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("start", [4.0, 8.0, 15.0, 25.0, 33.0])
@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0, 20.0])
def test_gaussian_cells_know_their_error(mu, start, side):
    x = np.linspace(start, min(start + 1, FARTHEST), 20)
    x = x if side > 0 else np.sort(-x) - mu
    edges = mu * x + mu**2 / 2
    with mp.workdps(DIGITS):
        m = mp.mpf(mu)
        at = [mp.mpf(float(edge)) / m - m / 2 for edge in edges]
        masses = [(between(a, b), between(a, b, -m)) for a, b in itertools.pairwise(at)]
        assert_covered(GaussianPair(mu).cells(edges), masses, edges)


@pytest.mark.parametrize("sigma_p", [0.8, 1.25])
@pytest.mark.parametrize("start", [4.0, 8.0, 15.0, 25.0])
def test_cells_of_unequal_variances_know_their_error(sigma_p, start):
    pair = VariancePair(sigma_p, 1.0)
    with mp.workdps(DIGITS):
        sp, sq = mp.mpf(sigma_p), mp.mpf(1)
        peak, curvature = mp.log(sq / sp), (1 / sp**2 - 1 / sq**2) / 2
        x = np.linspace(start, start + 1, 20) * sigma_p
        edges = np.sort([float(peak - curvature * mp.mpf(float(y)) ** 2) for y in x])
        at = [mp.sqrt((peak - mp.mpf(float(edge))) / curvature) for edge in edges]
        masses = []
        for ends in itertools.pairwise(at):
            a, b = sorted(ends)
            masses.append(tuple(2 * between(a, b, scale=s) for s in (sp, sq)))
        assert_covered(pair.cells(edges), masses, edges)


@pytest.mark.parametrize("half", [Half.ADD, Half.REMOVE])
@pytest.mark.parametrize("start", [4.0, 8.0, 15.0, 25.0, 33.0])
@pytest.mark.parametrize("side", [-1, 1])
def test_mixture_cells_know_their_error(side, start, half):
    weights, shifts = (0.7, 0.3), (0.5, 1.5)
    pair = MixturePair(weights, shifts, half)
    x = np.linspace(start, min(start + 20, FARTHEST), 8)
    with mp.workdps(DIGITS):

        def log_ratio(y):
            parts = zip(weights, shifts, strict=True)
            return mp.log(sum(mp.mpf(w) * mp.exp(c * y - mp.mpf(c) ** 2 / 2) for w, c in parts))

        sign = 1 if half is Half.REMOVE else -1
        edges = np.sort([float(sign * log_ratio(mp.mpf(float(side * y)))) for y in x])
        at = [
            mp.findroot(lambda y, e=edge: log_ratio(y) - sign * mp.mpf(float(e)), side * start)
            for edge in edges
        ]
        masses = []
        for ends in itertools.pairwise(at):
            a, b = sorted(ends)
            mixed = sum(mp.mpf(w) * between(a, b, c) for w, c in zip(weights, shifts, strict=True))
            plain = between(a, b)
            masses.append((mixed, plain) if half is Half.REMOVE else (plain, mixed))
        assert_covered(pair.cells(edges), masses, edges)


@pytest.mark.parametrize("sigma_q", [1.1, 1.001, 1.00001])
@pytest.mark.parametrize("epsilon", [-0.05, -0.5, -0.9, -2.0])
def test_profile_of_nearly_equal_variances_holds_below_zero(sigma_q, epsilon):
    pair = VariancePair(1.0, sigma_q)
    with mp.workdps(DIGITS):
        sq, e = mp.mpf(sigma_q), mp.mpf(epsilon)
        x = mp.sqrt((mp.log(sq) - e) / ((1 - 1 / sq**2) / 2))
        truth = mp.erf(x / mp.sqrt(2)) - mp.exp(e) * mp.erf(x / (sq * mp.sqrt(2)))
    found = float(pair.profile(np.array([epsilon]))[0])
    assert found == pytest.approx(float(truth), rel=pair.profile_error)


@pytest.mark.parametrize("sigma_q", [2.0, 30.0, 300.0, 3000.0])
def test_quadrature_resolves_the_narrower_of_two_variances(sigma_q):
    pair = VariancePair(1.0, sigma_q)
    losses, log_weights = pair.quadrature(0.0)
    mean = float((np.exp(log_weights) * losses).sum())
    divergence = math.log(sigma_q) + (sigma_q**-2 - 1) / 2
    assert mean == pytest.approx(divergence, rel=CUMULANT_ERROR)
