"""What every pair promises to the engines, checked against its own exact profile."""

import math

import numpy as np
import pytest

from taut.accounting._adjacency import Half
from taut.accounting._pairs.exponential import exponential_mechanism_pair, laplace_pair
from taut.accounting._pairs.finite import (
    DiscreteGaussianPair,
    FailingPair,
    FinitePair,
    binary_pair,
    discrete_laplace_pair,
    finite_pair,
)
from taut.accounting._pairs.gaussian import GaussianPair, VariancePair
from taut.accounting._pairs.sampled import ReplaceSampledPair, SampledPair

BASES = {
    "gaussian": GaussianPair(1.0),
    "loud gaussian": GaussianPair(12.0),
    "laplace": laplace_pair(1.5),
    "selection": exponential_mechanism_pair(1.2),
    "response": binary_pair(0.8),
    "discrete laplace": discrete_laplace_pair(1.5, 3),
    "discrete gaussian": DiscreteGaussianPair(1.5, 1),
    "discrete gaussian, far shift": DiscreteGaussianPair(1.0, 12),
    "variance, unbounded": VariancePair(1.2, 1.0),
    "variance, bounded": VariancePair(1.0, 1.2),
    "finite with zeros": finite_pair(np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.6, 0.4])),
    "failing": FailingPair(laplace_pair(1.0), 1e-3),
}
SAMPLED = {
    f"{half} half of sampled {name}": SampledPair(pair, 0.2, half)
    for name, pair in BASES.items()
    for half in (Half.ADD, Half.REMOVE)
}
REPLACED = {
    f"replace sampled {name}": ReplaceSampledPair(BASES[name], 0.3)
    for name in ("gaussian", "laplace", "response", "discrete gaussian")
}
PAIRS = BASES | SAMPLED | REPLACED
TAILS = [1e-3, 1e-12]


@pytest.fixture(params=PAIRS.values(), ids=PAIRS.keys())
def pair(request):
    return request.param


def profile(pair, epsilon):
    return float(pair.profile(np.array([epsilon]))[0])


def missing_q(pair, epsilon):
    """Return E_Q (1 - exp(-e) p/q)_+, at most the Q-mass of losses below epsilon."""
    # h(t) = 1 - t + t E_Q (1 - p/(q t))_+
    return (profile(pair, epsilon) + math.expm1(epsilon)) * math.exp(-epsilon)


def outcomes(pair, tail, size=4001):
    """Return losses and P-masses of the whole pair on a fine grid, cells at their lower edge."""
    edges = np.unique(pair.grid(tail, size))
    if pair.continuous and edges.size > 1:
        edges = np.union1d(edges, np.linspace(edges[0], edges[-1], size))
    losses, masses, _ = pair.atoms(tail)
    if edges.size > 1:
        cells = pair.cells(edges)
        losses, masses = np.append(losses, edges[:-1]), np.append(masses, cells.mass)
    return losses, masses


@pytest.mark.parametrize("tail", TAILS)
def test_grid_leaves_little_above(pair, tail):
    top = float(np.max(pair.grid(tail, 64)))
    assert profile(pair, top) - pair.mass_inf <= tail * (1 + 1e-6) + 1e-15


@pytest.mark.parametrize("tail", TAILS)
def test_grid_leaves_little_below(pair, tail):
    bottom = float(np.min(pair.grid(tail, 64)))
    # Subtracting the profile from one loses digits far down; there the Q-masses must do.
    lost_digits = 1e-14 * math.exp(-bottom)
    excess = missing_q(pair, bottom) - pair.mass_minus_inf
    assert excess <= tail * (1 + 1e-6) + 1e-12 + lost_digits


@pytest.mark.parametrize("tail", TAILS)
def test_masses_add_up(pair, tail):
    _, masses = outcomes(pair, tail)
    assert masses.sum() + pair.mass_inf == pytest.approx(1, abs=3 * tail + 1e-12)


@pytest.mark.parametrize("tail", TAILS)
def test_q_masses_add_up(pair, tail):
    losses, masses, _ = pair.atoms(tail)
    total = float((masses * np.exp(-losses)).sum()) if losses.size else 0.0
    if pair.continuous:
        edges = np.unique(pair.grid(tail, 4001))
        total += float(pair.cells(edges).q_mass.sum())
    # Q-mass above the top is at most its P-mass times exp(-top).
    assert total + pair.mass_minus_inf == pytest.approx(1, abs=3 * tail + 1e-9)


def test_atoms_are_sorted_and_positive(pair):
    losses, masses, _ = pair.atoms(1e-12)
    assert (np.diff(losses) >= 0).all()
    assert (masses >= 0).all()


def test_no_loss_above_the_largest(pair):
    losses, masses, _ = pair.atoms(1e-12)
    assert (losses[masses > 0] <= pair.max_loss * (1 + 1e-12) + 1e-12).all()
    if math.isfinite(pair.max_loss):
        assert profile(pair, pair.max_loss + 1e-9) == pytest.approx(pair.mass_inf, abs=1e-15)


def test_profile_is_a_profile(pair):
    thresholds = np.exp(np.linspace(-4, 4, 201))
    values = pair.profile(np.log(thresholds))
    assert (values <= 1 + 1e-12).all()
    assert (values >= np.maximum(1 - thresholds, 0) - 1e-12).all()
    assert (np.diff(values) <= 1e-12).all()
    slopes = np.diff(values) / np.diff(thresholds)
    assert (np.diff(slopes) >= -1e-7).all()


def test_profile_is_the_expectation_over_its_outcomes(pair):
    losses, masses = outcomes(pair, 1e-13)
    for epsilon in (-0.5, 0.0, 0.3, 1.0):
        # Cells are taken at their lower edge, hence a bound from below, and nearly equal.
        value = float((masses * -np.expm1(np.minimum(epsilon - losses, 0))).sum()) + pair.mass_inf
        exact = profile(pair, epsilon)
        assert value <= exact + 1e-9
        assert value == pytest.approx(exact, abs=0.02)


def test_cells_know_their_surplus(pair):
    if not pair.continuous:
        assert pair.cells(np.linspace(-1, 1, 5)).mass.sum() == 0
        return
    edges = np.linspace(-1.0, 1.0, 41)
    mass, q_mass, surplus, error = pair.cells(edges)
    expected = mass - np.exp(edges[:-1]) * q_mass
    assert (np.abs(surplus - expected) <= error + 1e-12).all()
    assert (surplus >= 0).all()
    assert (surplus <= mass).all()


BOUNDED = {name: pair for name, pair in PAIRS.items() if math.isfinite(pair.max_loss)}


@pytest.mark.parametrize("tilt", [0.25, 1.0])
@pytest.mark.parametrize("name", BOUNDED)
def test_cumulant_is_the_transform_of_the_profile(name, tilt):
    # E exp(c L) = c (c + 1) times the integral of exp(c e) (h(exp(e)) - mass_inf)
    pair = BOUNDED[name]
    epsilons = np.linspace(-60, pair.max_loss, 40_001)
    values = np.exp(tilt * epsilons) * (pair.profile(epsilons) - pair.mass_inf)
    integral = tilt * (tilt + 1) * float(np.trapezoid(values, epsilons))
    value = math.exp(pair.log_mgf(np.array([tilt + 0j]))[0].real)
    assert value == pytest.approx(integral, rel=3e-3)


def test_cumulant_at_zero_is_the_finite_mass(pair):
    value = pair.log_mgf(np.array([0j]))[0]
    assert value.real == pytest.approx(math.log1p(-pair.mass_inf), abs=1e-7)
    assert abs(value.imag) < 1e-12


def test_profile_at_many_thresholds_is_that_at_each():
    rng = np.random.default_rng(3)
    losses, masses = np.sort(rng.normal(0, 3, 700)), rng.dirichlet(np.ones(700))
    pair = FinitePair(tuple(losses.tolist()), tuple(np.log(masses).tolist()), 1e-30)
    at = np.append(rng.normal(0, 6, 999), [-math.inf, math.inf, losses[-1], losses[0]])
    # In long double, term by term.
    far = np.minimum(at[:, None].astype(np.longdouble) - losses, 0)
    direct = 1e-30 - (masses * np.expm1(far)).sum(axis=1)
    expected = np.maximum(direct, -np.expm1(at))
    assert pair.profile(at) == pytest.approx(expected.astype(float), rel=1e-12, abs=0)
