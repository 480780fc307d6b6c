"""Integrals of log-concave functions: enclosed, and closely."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from taut.adaptive._sparse_vector.integrals import log_integrals


def bounds(function, low, high, cells=400, begins=False):
    z = np.linspace(low, high, cells + 1)
    logs = function(z)[None]
    found = log_integrals(logs, z[1] - z[0], np.zeros_like(logs), begins=begins)
    return float(found.lower[0]), float(found.upper[0])


FUNCTIONS = {
    "normal": lambda z: -(z**2) / 2,
    "laplace": lambda z: -np.abs(z - 0.013),
    "many below": lambda z: -(z**2) / 2 + 500 * stats.norm.logcdf(z / 2 - 1),
    "several above": lambda z: -(z**2) / 2 + 7 * stats.norm.logsf(z - 3),
    "steep": lambda z: -(z**2) / 2 + 60 * z,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_quadrature_lies_between(name):
    function = FUNCTIONS[name]
    centre = 60.0 if name == "steep" else 0.0
    low, high = bounds(function, centre - 12, centre + 12)
    peak = max(function(np.linspace(centre - 12, centre + 12, 20_001)))
    truth, _ = integrate.quad(
        lambda z: math.exp(function(z) - peak),
        centre - 20,
        centre + 20,
        limit=400,
        points=[centre, 0.013] if name == "laplace" else [centre],
        epsabs=0,
        epsrel=1e-10,
    )
    assert low <= math.log(truth) + peak <= high
    assert high - low < 5e-2
    fine_low, fine_high = bounds(function, centre - 12, centre + 12, 6400)
    assert fine_high - fine_low < (high - low) / 30  # 16 times the cells: of the second order


def test_functions_that_begin_and_end():
    def uniform(z):
        return np.where((z >= 0) & (z <= 1), -z, -np.inf)

    low, high = bounds(uniform, -0.5, 1.5, 4000)
    assert low <= math.log(1 - math.exp(-1)) <= high
    assert high - low < 2e-3
    one_sided = bounds(lambda z: -z, 0.0, 50.0, begins=True)
    assert one_sided[0] <= 0 <= one_sided[1] < 1e-2
    # Not known to begin there, and rising to the left.
    assert bounds(lambda z: -z, 0.0, 50.0)[1] == math.inf


def test_too_few_knots_to_tell():
    spike = np.full((1, 9), -np.inf)
    spike[0, 4] = 0.0
    found = log_integrals(spike, 1.0, np.zeros_like(spike))
    assert (found.lower[0], found.upper[0]) == (-math.inf, math.inf)


def test_doubts_widen_the_bounds():
    z = np.linspace(-9, 9, 801)
    logs = -(z[None] ** 2) / 2
    sure = log_integrals(logs, z[1] - z[0], np.zeros_like(logs))
    rng = np.random.default_rng(0)
    blurred = logs + rng.uniform(-1e-3, 1e-3, logs.shape)
    found = log_integrals(blurred, z[1] - z[0], np.full_like(logs, 1e-3))
    assert found.lower[0] < sure.lower[0]
    assert found.upper[0] > sure.upper[0]
    assert found.lower[0] <= math.log(math.sqrt(2 * math.pi)) <= found.upper[0]
