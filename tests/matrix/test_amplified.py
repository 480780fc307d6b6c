"""Losses with secret steps: between brute force and what is known exactly."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from taut.accounting import PrivacyLoss, gaussian
from taut.errors import UnsoundConfiguration
from taut.matrix import (
    BallsInBins,
    CyclicPoisson,
    DenseEncoder,
    PoissonRounds,
    ToeplitzEncoder,
    TreeEncoder,
    Workload,
    amplified_loss,
    identity,
    square_root,
)

TWO_ROWS = DenseEncoder([[1.0, 0.0], [0.5, 1.0]])


def exact_deltas(vectors, weights, sigma, epsilon):
    """Both directions of a mixture over vectors of two dimensions, by quadrature."""
    at = np.linspace(-9.0, 11.0, 801)
    x, y = np.meshgrid(at, at, indexing="ij")
    plain = norm.pdf(x) * norm.pdf(y) * (at[1] - at[0]) ** 2
    ratio = sum(
        w * np.exp((a * x + b * y) / sigma - (a**2 + b**2) / (2 * sigma**2))
        for w, (a, b) in zip(weights, vectors, strict=True)
    )
    removed = float((plain * np.maximum(ratio - math.exp(epsilon), 0.0)).sum())
    added = float((plain * np.maximum(1 - math.exp(epsilon) * ratio, 0.0)).sum())
    return removed, added


def of_subsets(matrix, rate):
    vectors, weights = [], []
    for drawn in itertools.product((0, 1), repeat=matrix.shape[1]):
        vectors.append(matrix @ np.array(drawn))
        weights.append(rate ** sum(drawn) * (1 - rate) ** (len(drawn) - sum(drawn)))
    return vectors, weights


@pytest.mark.parametrize("rate", [0.05, 0.25, 0.7])
@pytest.mark.parametrize("sigma", [1.0, 2.0, 6.0])
def test_two_rows_lie_between_the_bounds_in_both_directions(rate, sigma):
    loss = amplified_loss(TWO_ROWS, PoissonRounds(rate), sigma, delta=1e-4)
    (release, _), *_ = loss.terms
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        truth = exact_deltas(*of_subsets(TWO_ROWS.matrix(), rate), sigma, epsilon)
        for half, exact in zip(("remove", "add"), truth, strict=True):
            found = PrivacyLoss([(release, 1)], half).delta_bounds(epsilon)
            assert found.lower <= exact * (1 + 1e-5) + 1e-12
            assert found.upper >= exact * (1 - 1e-5)


def test_two_rows_have_the_epsilon_of_the_reference():
    loss = amplified_loss(TWO_ROWS, PoissonRounds(0.25), 2.0, delta=1e-5)
    lower, upper = loss.epsilon_bounds(1e-5)
    assert lower <= 1.5317785621 <= upper <= 1.93


def test_two_bins_lie_between_the_bounds():
    loss = amplified_loss(TWO_ROWS, BallsInBins(2), 2.0)
    (release, _), *_ = loss.terms
    for epsilon in (0.1, 0.5, 1.0):
        truth = exact_deltas(TWO_ROWS.matrix().T, [0.5, 0.5], 2.0, epsilon)
        for half, exact in zip(("remove", "add"), truth, strict=True):
            found = PrivacyLoss([(release, 1)], half).delta_bounds(epsilon)
            assert found.lower <= exact * (1 + 1e-5)
            assert found.upper >= exact * (1 - 1e-5)


def test_independent_noise_is_that_of_sampled_gaussians():
    steps = 128
    loss = amplified_loss(identity(steps), PoissonRounds(1 / steps), 1.0)
    assert loss == steps * gaussian(1.0, adjacency="zero_out").poisson(1 / steps)
    assert loss.epsilon(1e-6) == pytest.approx(0.8063956, rel=1e-3)


def test_few_bands_under_cyclic_sampling_are_sampled_gaussians():
    loss = amplified_loss(ToeplitzEncoder(8, [1.0, 0.5]), CyclicPoisson(2, 0.2), 2.0)
    assert loss.epsilon(1e-5) == pytest.approx(1.3232063, rel=1e-3)


def test_cyclic_sampling_of_all_bands_contains_the_exact_value():
    loss = amplified_loss(square_root(Workload(8)), CyclicPoisson(4, 0.4), 5.0, delta=1e-5)
    lower, upper = loss.epsilon_bounds(1e-5)
    assert lower <= 0.74019 <= upper < 0.84186


def test_a_tree_is_answered_at_the_least_delta():
    """Shares of it that histories could be given up for are no floats."""
    least = 5e-324
    loss = amplified_loss(TreeEncoder(4), PoissonRounds(0.3), sigma=3.0, delta=least)
    bounds = loss.epsilon_bounds(least)
    assert 0 < bounds.lower <= bounds.upper < math.inf


def test_a_tree_is_close_to_the_truth_and_below_the_published_order():
    loss = amplified_loss(TreeEncoder(32), PoissonRounds(1 / 32), 8 * math.sqrt(6))
    lower, upper = loss.epsilon_bounds(1e-6)
    assert lower == pytest.approx(0.3213265, rel=1e-3)
    assert 0.3212 < upper < 0.372


def test_a_square_root_is_below_its_published_order():
    encoder = square_root(Workload(128))
    sigma = 10 * float(encoder.column_norms().max())
    lower, upper = amplified_loss(encoder, PoissonRounds(1 / 128), sigma).epsilon_bounds(1e-6)
    assert 0.2 < lower < upper < 0.256


def test_rates_of_zero_and_one_are_nothing_and_everything():
    encoder = square_root(Workload(4))
    assert amplified_loss(encoder, PoissonRounds(0.0), 1.0).epsilon(1e-6) == 0
    everything = float(np.linalg.norm(encoder.matrix().sum(axis=1)))
    found = amplified_loss(encoder, PoissonRounds(1.0), 3.0).epsilon(1e-6)
    assert found == pytest.approx(gaussian(3.0, everything).epsilon(1e-6), rel=1e-9)


def test_one_step_is_one_sampled_gaussian():
    loss = amplified_loss(identity(1), PoissonRounds(0.1), 2.0)
    assert loss == gaussian(2.0, adjacency="zero_out").poisson(0.1)


def test_bins_without_correlation_are_one_allocation():
    loss = amplified_loss(identity(100), BallsInBins(10), 4.0)
    expected = gaussian(4.0, math.sqrt(10), adjacency="zero_out").allocated(10)
    assert loss.epsilon(1e-6) == pytest.approx(expected.epsilon(1e-6), rel=1e-6)


def test_losses_survive_json_and_add_up():
    loss = amplified_loss(TWO_ROWS, PoissonRounds(0.25), 2.0, delta=1e-5)
    assert PrivacyLoss.from_json(loss.to_json()) == loss
    assert (2 * loss).epsilon(1e-4) > loss.epsilon(1e-4)
    assert "2 steps" in repr(loss)


def test_a_shuffled_order_is_refused():
    with pytest.raises(UnsoundConfiguration, match="BallsInBins"):
        amplified_loss(identity(4), "shuffle", 1.0)


def test_replacing_is_refused():
    with pytest.raises(UnsoundConfiguration, match="replace"):
        amplified_loss(identity(4), PoissonRounds(0.1), 1.0, adjacency="replace")


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan])
def test_noise_must_be_positive(sigma):
    with pytest.raises(ValueError, match="sigma"):
        amplified_loss(identity(4), PoissonRounds(0.1), sigma)


def test_rates_are_probabilities_and_sizes_positive():
    with pytest.raises(ValueError, match="rate"):
        PoissonRounds(1.5)
    with pytest.raises(ValueError, match="groups"):
        CyclicPoisson(0, 0.1)
    with pytest.raises(ValueError, match="bins"):
        BallsInBins(0)


def test_matrices_that_are_too_large_are_refused():
    with pytest.raises(ValueError, match="4096"):
        amplified_loss(square_root(Workload(5000)), PoissonRounds(0.1), 1.0)
