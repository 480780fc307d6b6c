"""docs/theory/lattice.md: rounding to both sides, and composition."""

import math
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest

from taut.accounting._adjacency import Half
from taut.accounting._answers.answer import epsilon_bounds
from taut.accounting._engines.half_sum import HalfSum
from taut.accounting._pairs.discretisation import _lift, discretise, place
from taut.accounting._pairs.exponential import exponential_mechanism_pair, laplace_pair
from taut.accounting._pairs.gaussian import GaussianPair, VariancePair
from taut.accounting._pairs.sampled import ReplaceSampledPair, SampledPair

PAIRS = {
    "gaussian": GaussianPair(0.7),
    "laplace": laplace_pair(0.9),
    "exponential": exponential_mechanism_pair(1.1),
    "variance": VariancePair(1.2, 1.0),
    "narrow variance": VariancePair(1.0, 1.2),
    "removal": SampledPair(GaussianPair(1.0), 0.1, Half.REMOVE),
    "addition": SampledPair(laplace_pair(2.0), 0.1, Half.ADD),
    "replace": ReplaceSampledPair(GaussianPair(1.0), 0.1),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("step", [0.3, 0.05])
def test_discretised_profiles_enclose_the_exact_one(name, step):
    pair, tail = PAIRS[name], 1e-9
    bracket = discretise(pair, place(pair, step, tail), tail)
    for epsilon in np.linspace(-1.5, 2.5, 41):
        exact = float(pair.profile(np.array([epsilon]))[0])
        low, high = (
            -(side.masses * np.expm1(np.minimum(epsilon - side.losses, 0.0))).sum() + side.mass_inf
            for side in bracket
        )
        assert low <= exact * (1 + 1e-9) + 1e-15
        assert high >= exact * (1 - 1e-9)
        assert high - low <= step + 4 * tail


def composed(masses, losses, epsilon, copies):
    total_mass, total_loss = np.array([1.0]), np.array([0.0])
    for _ in range(copies):
        total_mass = np.multiply.outer(total_mass, masses).ravel()
        total_loss = np.add.outer(total_loss, losses).ravel()
    return -(total_mass * np.expm1(np.minimum(epsilon - total_loss, 0.0))).sum()


def random_cells(rng, edges):
    """Return atoms inside of cells, and the masses x, y of their connect-the-dots split."""
    losses = np.concatenate([rng.uniform(a, b, 3) for a, b in pairwise(edges)])
    masses = rng.dirichlet(np.ones(losses.size))
    cell = np.repeat(np.arange(edges.size - 1), 3)
    mass, q_mass = np.bincount(cell, masses), np.bincount(cell, masses * np.exp(-losses))
    raised = (mass - np.exp(edges[:-1]) * q_mass) / -np.expm1(-np.diff(edges))
    return losses, masses, mass, raised


@pytest.mark.parametrize("seed", range(10))
def test_any_feasible_fractions_bound_three_copies_from_below(seed):
    rng = np.random.default_rng(seed)
    edges = np.cumsum(np.append(-1.0, rng.uniform(0.2, 0.8, 4)))
    losses, masses, mass, raised = random_cells(rng, edges)
    width = np.diff(edges)
    lack, offer = np.expm1(width) * (mass - raised), -np.expm1(-width) * raised
    fraction = np.zeros(mass.size)
    for i in range(mass.size - 2, -1, -1):  # from the top: as much as (1) allows, or less
        most = min((1 - fraction[i + 1]) * offer[i + 1] / lack[i], 1.0)
        fraction[i] = rng.uniform(0.3, 1.0) * most
    lower, upper = np.zeros(edges.size), np.zeros(edges.size)
    lower[1:] += fraction * mass
    lower[:-1] += (1 - fraction) * mass
    upper[1:] += raised
    upper[:-1] += mass - raised
    for epsilon in (-0.5, 0.0, 0.4, 1.0, 2.0):
        exact = composed(masses, losses, epsilon, 3)
        assert composed(lower, edges, epsilon, 3) <= exact + 1e-12
        assert composed(upper, edges, epsilon, 3) >= exact - 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_chosen_fractions_are_feasible(seed):
    rng = np.random.default_rng(seed)
    edges = np.cumsum(np.append(-1.0, rng.uniform(0.05, 1.0, 40)))
    _, _, mass, raised = random_cells(rng, edges)
    width = np.diff(edges)
    fraction = _lift(mass - raised, raised, width)
    assert ((fraction >= 0) & (fraction <= 1)).all()
    lack = fraction * np.expm1(width) * (mass - raised)
    offer = np.append(((1 - fraction) * -np.expm1(-width) * raised)[1:], 0.0)
    assert (lack <= offer * (1 + 1e-12) + 1e-18).all()


class DisguisedGaussian(GaussianPair):
    """A Gaussian loss that only the lattice can compose."""

    closed_form = False
    gaussian_mu = 0.0


@pytest.mark.parametrize("copies", [3, 400, 10**5, 10**8])
@pytest.mark.parametrize("delta", [1e-1, 1e-6, 1e-25])
def test_sums_enclose_the_closed_form(copies, delta):
    mu = 1.5 / math.sqrt(copies)
    part = HalfSum(Half.ADD, ((DisguisedGaussian(mu), copies),))
    bounds = epsilon_bounds([part], delta, 1e-3).bounds
    assert bounds.gap <= 1e-2 * bounds.upper
    with mp.workdps(50):
        total = mp.sqrt(copies) * mp.mpf(mu)

        def profile(e):
            return mp.ncdf(total / 2 - e / total) - mp.exp(e) * mp.ncdf(-total / 2 - e / total)

        assert profile(mp.mpf(bounds.upper)) <= delta
        assert profile(mp.mpf(bounds.lower)) >= delta
