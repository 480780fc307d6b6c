"""E47: rows that are taken for independent, with unchanged rates, are not a lower bound."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from taut.accounting import mixture_of_gaussians

RATE, SIGMA, DELTA = 0.25, 2.0, 1e-5
MATRIX = np.array([[1.0, 0.0], [0.5, 1.0]])


def exact_added(epsilon):
    at = np.linspace(-9.0, 9.0, 1201)
    x, y = np.meshgrid(at, at, indexing="ij")
    plain = norm.pdf(x) * norm.pdf(y) * (at[1] - at[0]) ** 2
    ratio = 0.0
    for drawn in np.ndindex(2, 2):
        a, b = MATRIX @ drawn / SIGMA
        weight = math.prod(RATE if one else 1 - RATE for one in drawn)
        ratio = ratio + weight * np.exp(a * x + b * y - (a**2 + b**2) / 2)
    return float((plain * np.maximum(1 - math.exp(epsilon) * ratio, 0.0)).sum())


def test_adding_a_record_costs_less_than_independent_rows():
    exact = brentq(lambda epsilon: exact_added(epsilon) - DELTA, 0.2, 0.57)
    first = mixture_of_gaussians([1 - RATE, RATE], [0.0, 1.0], SIGMA, adjacency="add")
    masses = [(1 - RATE) ** 2, RATE * (1 - RATE), RATE * (1 - RATE), RATE**2]
    second = mixture_of_gaussians(masses, [0.0, 0.5, 1.0, 1.5], SIGMA, adjacency="add")
    assert exact == pytest.approx(0.4387, abs=1e-3)
    assert (first + second).epsilon_bounds(DELTA).lower == pytest.approx(0.5234, abs=1e-3)
