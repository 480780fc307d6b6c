"""Bounds on secret steps contain what brute force finds, in both directions and in odd cases."""

import math

import numpy as np
import pytest
from matrix.pairs import bins_of, sampled, subsets

from taut.accounting import PrivacyLoss, gaussian
from taut.matrix import (
    BallsInBins,
    BandedEncoder,
    CyclicPoisson,
    DenseEncoder,
    PoissonRounds,
    ToeplitzEncoder,
    TreeEncoder,
    Workload,
    amplified_loss,
    identity,
    optimal_dense,
    square_root,
)

HALVES = ("remove", "add")
UNSEEN = 1e-7  # a delta that thousands of draws may miss altogether
RANDOM = np.random.default_rng(5)
ENCODERS = {
    "root of 3": square_root(Workload(3)),
    "root of 5": square_root(Workload(5)),
    "optimum of 6": optimal_dense(Workload(6)).encoder,
    "random": DenseEncoder(np.tril(RANDOM.uniform(0.0, 1.0, (4, 4))) + 0.3 * np.eye(4)),
    "two unequal bands": BandedEncoder([[1.0, 0.3, 2.0, 1.0], [0.7, 1.1, 0.2, 0.0]]),
    "tree of 4": TreeEncoder(4),
    "tree of 6": TreeEncoder(6),
    "forest": TreeEncoder(6, levels=2),
    "full tree": TreeEncoder(4).full_honaker(),
}


def contains(loss, truth, epsilon):
    """Check both directions of a loss against an estimate with its standard error."""
    for half, (delta, error) in zip(HALVES, truth, strict=True):
        found = PrivacyLoss(loss.terms, half).delta_bounds(epsilon)
        assert found.lower <= delta + 5 * error + UNSEEN
        assert found.upper >= delta - 5 * error


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize(("rate", "sigma"), [(0.1, 2.0), (0.6, 0.8)])
def test_poisson_rounds(name, rate, sigma):
    encoder = ENCODERS[name]
    loss = amplified_loss(encoder, PoissonRounds(rate), sigma, delta=1e-3)
    truth = sampled(*subsets(encoder.matrix(), rate), sigma)
    for epsilon in (0.2, 1.0, 2.5):
        contains(loss, truth(epsilon), epsilon)


@pytest.mark.parametrize("groups", [2, 3])
def test_cyclic_sampling_of_the_worst_group(groups):
    encoder = square_root(Workload(9))
    loss = amplified_loss(encoder, CyclicPoisson(groups, 0.3), 3.0, delta=1e-4)
    for first in range(groups):
        truth = sampled(*subsets(encoder.matrix()[:, first::groups], 0.3), 3.0)
        for epsilon in (0.3, 1.0):
            for half, (delta, error) in zip(HALVES, truth(epsilon), strict=True):
                found = PrivacyLoss(loss.terms, half).delta_bounds(epsilon)
                assert found.upper >= delta - 5 * error
                assert first or found.lower <= delta + 5 * error + UNSEEN


def test_cyclic_sampling_where_a_later_group_is_the_worst():
    encoder = BandedEncoder([[1.0, 2.0, 1.0, 2.0, 1.0, 2.0], [0.5] * 5 + [0.0], [0.2] * 4 + [0, 0]])
    loss = amplified_loss(encoder, CyclicPoisson(2, 0.3), 3.0, delta=1e-4)
    for first in (0, 1):
        pair = subsets(encoder.matrix()[:, first::2], 0.3)
        for half, (delta, error) in zip(HALVES, sampled(*pair, 3.0)(0.5), strict=True):
            assert PrivacyLoss(loss.terms, half).delta_bounds(0.5).upper >= delta - 5 * error


@pytest.mark.parametrize(("bins", "bands"), [(3, 4), (4, 3), (6, 2), (12, 1), (12, 4), (24, 3)])
def test_balls_in_bins(bins, bands):
    encoder = square_root(Workload(24), bands=bands)
    for sigma in (2.0, 6.0):
        loss = amplified_loss(encoder, BallsInBins(bins), sigma, delta=1e-3)
        truth = sampled(*bins_of(encoder.matrix(), bins), sigma)
        for epsilon in (0.1, 0.5):
            contains(loss, truth(epsilon), epsilon)


def test_bins_without_a_step_are_a_sample():
    encoder = square_root(Workload(4), bands=2)
    loss = amplified_loss(encoder, BallsInBins(10), 2.0, delta=1e-3)
    centres, _ = bins_of(encoder.matrix(), 4)
    with_none = np.vstack([centres, np.zeros((6, 4))])
    for epsilon in (0.1, 0.5):
        contains(loss, sampled(with_none, np.full(10, 0.1), 2.0)(epsilon), epsilon)


def test_entries_below_zero_are_covered():
    matrix = np.array([[1.0, 0.0, 0.0], [-0.6, 1.0, 0.0], [0.3, -0.6, 1.0]])
    loss = amplified_loss(DenseEncoder(matrix), PoissonRounds(0.3), 2.0, delta=1e-3)
    for signs in ((1, 1, 1), (1, -1, 1), (1, -1, -1)):
        pair = subsets(matrix * np.array(signs), 0.3)
        for half, (delta, error) in zip(HALVES, sampled(*pair, 2.0)(0.5), strict=True):
            assert PrivacyLoss(loss.terms, half).delta_bounds(0.5).upper >= delta - 5 * error


@pytest.mark.parametrize("delta", [1e-30, 1e-12, 1e-6, 0.5])
def test_any_delta_has_a_finite_epsilon(delta):
    encoder = square_root(Workload(16))
    sigma = 20 * float(encoder.column_norms().max())
    lower, upper = amplified_loss(
        encoder, PoissonRounds(1 / 16), sigma, delta=delta
    ).epsilon_bounds(delta)
    assert lower <= upper <= max(4 * lower, 1e-3)


def test_a_smaller_delta_costs_more():
    encoder = square_root(Workload(16))
    found = [
        amplified_loss(encoder, PoissonRounds(1 / 16), 30.0, delta=delta).epsilon(delta)
        for delta in (1e-3, 1e-6, 1e-9, 1e-15, 1e-30)
    ]
    assert found == sorted(found)


@pytest.mark.parametrize("encoder", [square_root(Workload(6)), TreeEncoder(8)])
def test_with_hardly_any_noise_bounds_stay_in_order(encoder):
    lower, upper = amplified_loss(encoder, PoissonRounds(0.2), 0.05, delta=1e-6).epsilon_bounds(
        1e-6
    )
    assert lower <= upper
    assert upper > 100


@pytest.mark.parametrize("encoder", [square_root(Workload(6)), TreeEncoder(8)])
def test_with_much_noise_hardly_anything_is_lost(encoder):
    lower, upper = amplified_loss(encoder, PoissonRounds(0.2), 1e6, delta=1e-6).epsilon_bounds(1e-6)
    assert 0 <= lower <= upper < 1e-3


def test_little_noise_costs_no_more_than_one_block():
    encoder = square_root(Workload(32))
    sigma = 2 * float(encoder.column_norms().max())
    found = amplified_loss(encoder, PoissonRounds(1 / 32), sigma, delta=1e-6).epsilon(1e-6)
    everything = np.linalg.norm(encoder.matrix().sum(axis=1))
    assert found < gaussian(sigma, float(everything)).epsilon(1e-6)
    assert found < 12


def test_columns_next_to_zero_cost_next_to_nothing():
    matrix = np.diag([1.0, 1e-100, 0.5])
    matrix[2, 0] = 0.4
    small = DenseEncoder([[1.0, 0.0], [0.4, 0.5]])
    sampler = PoissonRounds(0.2)
    found = amplified_loss(DenseEncoder(matrix), sampler, 2.0, delta=1e-5).epsilon(1e-5)
    lower, upper = amplified_loss(small, sampler, 2.0, delta=1e-5).epsilon_bounds(1e-5)
    # A matrix without an inverse has no triangular factor, which is the better order here.
    assert lower <= found <= 1.15 * upper


def test_one_row_is_one_sampled_gaussian():
    loss = amplified_loss(DenseEncoder([[1.7]]), PoissonRounds(0.2), 2.0)
    assert loss.epsilon(1e-5) == gaussian(2.0, 1.7).poisson(0.2).epsilon(1e-5)


def test_independent_noise_under_all_samplers():
    cyclic = amplified_loss(identity(12), CyclicPoisson(4, 0.5), 1.5)
    assert cyclic == 3 * gaussian(1.5, adjacency="zero_out").poisson(0.5)
    every = amplified_loss(identity(12), CyclicPoisson(4, 1.0), 1.5).epsilon(1e-5)
    assert every == pytest.approx((3 * gaussian(1.5)).epsilon(1e-5), rel=1e-9)


def test_more_bands_than_groups_cost_little_more_than_as_many():
    few, more = (
        amplified_loss(ToeplitzEncoder(64, [1.0, 0.5, 0.25, last]), CyclicPoisson(3, 0.1), 8.0)
        for last in (0.0, 1e-3)
    )
    assert more.epsilon(1e-6) < 1.05 * few.epsilon(1e-6)
    assert math.isfinite(more.epsilon(1e-6))
