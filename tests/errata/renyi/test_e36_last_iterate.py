"""E36: the epsilon printed for the last iterate is that of adding a record only."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

import taut
from taut.accounting import mixture_of_gaussians

STEPS, DELTA = 128, 1e-6
RATE, SIGMA = 1 / STEPS, math.sqrt(STEPS)
SHIFTS = np.arange(STEPS + 1.0)
WEIGHTS = np.array(
    [math.comb(STEPS, j) * RATE**j * (1 - RATE) ** (STEPS - j) for j in range(STEPS + 1)]
)


def loss(x):
    with np.errstate(divide="ignore"):
        exponents = np.log(WEIGHTS) + (SHIFTS * x - SHIFTS**2 / 2) / SIGMA**2
    return float(np.logaddexp.reduce(exponents))


def removing(epsilon):
    x = brentq(lambda x: loss(x) - epsilon, -3000, 3000, xtol=1e-12)
    return float(WEIGHTS @ ndtr((SHIFTS - x) / SIGMA)) - math.exp(epsilon) * ndtr(-x / SIGMA)


def adding(epsilon):
    x = brentq(lambda x: loss(x) + epsilon, -3000, 3000, xtol=1e-12)
    return ndtr(x / SIGMA) - math.exp(epsilon) * float(WEIGHTS @ ndtr((x - SHIFTS) / SIGMA))


def epsilon_of(profile):
    return brentq(lambda epsilon: profile(epsilon) - DELTA, 0.01, 0.9)


def test_removal_is_the_larger_half():
    assert epsilon_of(adding) == pytest.approx(0.29083, abs=1e-5)
    assert epsilon_of(removing) == pytest.approx(0.41994, abs=1e-5)
    assert removing(0.291) == pytest.approx(6.28e-5, rel=1e-3)


def test_taut_takes_both_halves():
    last = mixture_of_gaussians(WEIGHTS / WEIGHTS.sum(), SHIFTS, SIGMA)
    assert last.epsilon(DELTA) == pytest.approx(epsilon_of(removing), abs=1e-8)
    every = STEPS * taut.gaussian(1.0).poisson(RATE)
    assert every.epsilon(DELTA, tolerance=1e-5) == pytest.approx(0.8064, abs=1e-4)
