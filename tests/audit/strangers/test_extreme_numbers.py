"""Numbers at the ends of their types, found by hostile calls: refused, or answered right."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

import taut
from taut import accounting, adaptive, audit, estimators, matrix, noise, statistics
from taut.accounting import diagnostics
from taut.errors import UnsoundConfiguration

HUGE = 10**400
LABELS = {
    "points": 9,
    "unstable": 2,
    "threshold_noise": adaptive.ScalarNoise("laplace", 4.0),
    "query_noise": adaptive.ScalarNoise("laplace", 8.0),
    "stability_delta": 1e-6,
    "adjacency": "replace",
}
ADVICE = {"examples": 50_000, "epsilon": 8.0, "delta": 1e-5, "parameters": 270_000}
POSTERIOR = {
    "row_clip": 1.0,
    "target_clip": 1.0,
    "records": 100,
    "features": 2,
    "epsilon": 1.0,
    "delta": 1e-6,
    "adjacency": "replace",
}
TOSSES = np.random.default_rng(0).normal(size=(60, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: taut.PrivacyOdometer(1e-6, orders=HUGE), "orders must be"),
        (lambda: taut.PrivacyOdometer(1e-6, orders=[1j]), "orders must be"),
        (
            lambda: accounting.renyi.optimal_composition(1e308, 1e-9, 227),
            "epsilon must be at most",
        ),
        (lambda: accounting.BudgetFile(None), "path must be a path"),
        (lambda: taut.discrete_gaussian(1e-100), "sensitivity / sigma must lie between"),
        (lambda: accounting.renyi.sampled_gaussian(0.1, HUGE, 8), "sigmas must be finite"),
        (
            lambda: statistics.estimate_bounds([1.0], epsilon=1.0, largest=1e308),
            "largest must be at most",
        ),
        (lambda: estimators.ridge_posterior(**POSTERIOR, ridge=1e200), "ridge must be between"),
        (lambda: estimators.ridge_posterior(**(POSTERIOR | {"delta": 0.0})), "delta must be"),
        (lambda: estimators.ridge_posterior(**(POSTERIOR | {"records": -1})), "records must be"),
        (
            lambda: estimators.PrivateGaussianNB(classes=[1, None], bounds=(0, 1)).fit([[1]], [1]),
            "classes must be labels of one type",
        ),
        (lambda: accounting.budget_for(1e308, 1e-5), "epsilon must be at most 1e100"),
        (lambda: accounting.gaussian_mu(1e308, 1e-5), "epsilon must be at most 1e100"),
        (lambda: accounting.group_poisson(1.0, 0.1, 2**53), "must be at most 100000"),
        (lambda: accounting.group_poisson(1.0, 0.0, 2**31), "must be at most 100000"),
        (lambda: accounting.group_poisson(1.0, 0.1, 2, 1e308), "shifts must be finite"),
        (lambda: accounting.group_fixed_size(1.0, 9, 2**53, 2**31), "must be at most 100000"),
        (lambda: accounting.linear_last_iterate(1.0, 0.1, 2**53), "must be at most 100000"),
        (lambda: accounting.linear_last_iterate(0.3, 0.1, 1, 1e308), "shifts must be below"),
        (lambda: accounting.noisy_screening(2**53, 1.0, 1.0), "k must be at most"),
        (lambda: accounting.noisy_screening(3, 1e308, 1.0), "sigma must be at least"),
        (lambda: accounting.screening_rdp(3, 1.0, 1e-200, [2.0]), "sigma must be at least"),
        (lambda: diagnostics.data_dependent_lnmax([3, 1], 2e-308, [2.0]), "scale must be between"),
        (lambda: diagnostics.data_dependent_gnmax([3, 1], 1e308, [2.0]), "sigma must be between"),
        (lambda: diagnostics.data_dependent_gnmax([3, 1], 1.0, [1e300]), "at most 1e12"),
        (lambda: diagnostics.data_dependent_gnmax([1e300, 1], 1.0, [2.0]), "votes must be finite"),
        (lambda: noise.discrete_laplace_noise(1.0, 2**53), "size must be at most 2^30"),
        (lambda: noise.discrete_gaussian_noise(1.0, 2**31), "size must be at most 2^30"),
        (lambda: noise.geometry.advise_clip_norm(1e308, **ADVICE), "kappa must be smaller"),
        (
            lambda: noise.geometry.geometry_report([[1e200]] * 4, provenance="public"),
            "vectors must have entries within",
        ),
        (lambda: noise.clipping.clip_lp([[1.0]], HUGE, 1.0), "p must be greater than 0"),
        (
            lambda: accounting.renyi.delta_from_rdp(lambda order: order, 1.0, orders=HUGE),
            "orders must be finite",
        ),
        (
            lambda: noise.GaussianProducts(1.0, 1.0, 1.0).release([[1.0]], None),
            "right must be of class FixedRows",
        ),
        (
            lambda: audit.crafted(2**53, clip_norm=1.0, dimension=2, adjacency="replace"),
            "at most 10^8",
        ),
        (
            lambda: audit.crafted(2, clip_norm=1e308, dimension=2, adjacency="replace"),
            "clip_norm must be at most",
        ),
        (
            lambda: audit.noise_game(
                noise.optimal_laplace(noise.L1Ball(1, 1.0), epsilon=1.0), HUGE
            ),
            "shift must be a member",
        ),
        (
            lambda: audit.audit_observations(HUGE, TOSSES, claimed=taut.gaussian(1.0), delta=1e-5),
            "without: ",
        ),
        (
            lambda: audit.audit_observations(
                TOSSES, 1e200 * TOSSES, claimed=taut.gaussian(1.0), delta=1e-5
            ),
            "including: runs hold numbers beyond 1e100",
        ),
        (
            lambda: adaptive.PrivateLabels(9, **{**LABELS, "query_noise": np.int64(5)}),
            "query_noise must be a ScalarNoise",
        ),
        (
            lambda: adaptive.PrivateLabels(
                9, **{**LABELS, "query_noise": adaptive.ScalarNoise("laplace", 1e200)}
            ),
            "query_noise must have a scale",
        ),
        (lambda: adaptive.check_losses(lambda *_: 1.0, [1], [], most=2**53), "most must be at"),
        (
            lambda: matrix.amplified_loss(
                matrix.identity(4), matrix.PoissonRounds(0.5), 2e-308, delta=0.01
            ),
            "sigma must be between",
        ),
        (
            lambda: noise.gaussian_moments(
                [2, 3], [1.0, 1.0], epsilon=1.0, delta=0.1, portion=5e-324, adjacency="replace"
            ),
            "portion must be between",
        ),
        (
            lambda: estimators.RidgePosterior(
                row_clip=1e308, target_clip=5.0, ridge=1e-9, precision=1.0, records=1
            ),
            "ridge must be finite and greater than 0",
        ),
        (lambda: adaptive.vote_losses(HUGE, 1.0, 1e-5), "leads must be whole numbers"),
        (lambda: adaptive.vote_losses([1e17], 1.0, 1e-5), "leads must be whole numbers"),
        (lambda: adaptive.vote_losses([0.5], 1.0, 1e-5), "leads must be whole numbers"),
        (lambda: adaptive.vote_losses([3], -math.inf, 1e-5), "epsilon must be finite"),
        (lambda: adaptive.vote_losses([3], 1.0, -1), "delta must be in"),
    ],
)
def test_extreme_numbers_are_refused_without_work(call, message):
    with pytest.raises(ValueError, match=message.replace("^", r"\^")):
        call()


def test_powers_of_norms_may_be_of_any_real_type():
    rows = [[0.0, 3.0], [1.0, 1.0]]
    third = noise.clipping.clip_lp(rows, Fraction(1, 3), 1.0)
    np.testing.assert_array_equal(third, noise.clipping.clip_lp(rows, 1 / 3, 1.0))
    assert third.dtype == np.float64


def test_no_delta_is_zero_for_an_epsilon_beyond_all():
    found = accounting.renyi.delta_from_rdp(lambda order: order, 1e308, orders=[2.0, 1e300])
    assert 0 < found.value < 1e-300


def test_vectors_near_zero_have_no_bias():
    tiny = [[5e-324, 0.0], [0.0, 5e-324]]
    report = noise.geometry.explore_clip_bias(tiny, [5e-324, 1e308], provenance="public")
    assert report.deviation == 0.0


def test_an_odometer_that_overflows_is_infinite():
    odometer = taut.PrivacyOdometer(1e-6, orders=[1e308])
    for _ in range(9):
        odometer.spend(taut.gaussian(1.0))
    assert odometer.epsilon == math.inf


@pytest.mark.parametrize("width", [50.0, 200.0, 1e6])
def test_edges_far_apart_have_information_of_their_own(width):
    def at_one_edge(x):
        return math.exp(-(x**2)) / (2 * math.pi) / ndtr(x)

    expected = 2 * quad(at_one_edge, -30, 30)[0] / width
    assert accounting.diagnostics.fisher_information(1.0, width) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("sigma", "expected"), [(5e-324, math.inf), (1e-300, math.inf), (1e308, 0.0)]
)
def test_information_beyond_doubles_needs_no_warning(sigma, expected):
    assert accounting.diagnostics.fisher_information(sigma, 0.0) == expected


def test_screening_beside_hardly_any_noise_is_infinite_at_most():
    found = accounting.screening_rdp(3, 0.1, 1e-9, [2.0, 1e300], 0.76)
    assert not np.isnan(found).any()
    assert found[0] > 1e15


def test_counts_in_blocks_have_the_divergences_of_all_at_once(monkeypatch):
    whole = accounting.screening_rdp(5, 2.3, 1.0, [1.5, 3.0])
    monkeypatch.setattr("taut.accounting._mechanisms.screening._LOOKED_AT", 4)
    assert accounting.screening_rdp(5, 2.3, 1.0, [1.5, 3.0]).tolist() == whole.tolist()


def test_the_divergence_of_smooth_noise_near_order_one_is_above_that_of_order_one():
    # Kullback-Leibler divergence of N(m, e^(2b) s^2) from N(0, s^2), the worse direction.
    b, sigma = 0.1, 1e6
    least = max((math.exp(2 * c) - 1) / 2 - c for c in (b, -b))
    for order in (1 + 1e-15, 1 + 1e-13, 1 + 1e-9, 1 + 1e-6):
        assert least * (1 - 1e-6) <= adaptive.smooth_noise_rdp(order, b, sigma) < least * 1.001


@pytest.mark.parametrize(("sigma", "expected"), [(1e308, 0.0), (2.2e-308, math.inf)])
def test_smooth_noise_of_extreme_deviation_needs_no_warning(sigma, expected):
    assert adaptive.smooth_noise_rdp(2.0, 0.0, sigma) == expected


def test_distances_are_compared_as_whole_numbers():
    far = {"here": np.uint64(0), "there": np.uint64(2**64 - 1)}  # their difference wraps to one
    with pytest.raises(UnsoundConfiguration, match="differ by at most 1"):
        adaptive.check_distance(far.get, "here", "there")
    with pytest.raises(UnsoundConfiguration, match="differ by at most 1"):
        adaptive.check_distance({"here": HUGE, "there": math.inf}.get, "here", "there")
    adaptive.check_distance({"here": HUGE, "there": HUGE + 1}.get, "here", "there")


def test_clip_advice_scales_with_kappa():
    tiny = noise.geometry.advise_clip_norm(1e-300, **ADVICE)
    assert tiny.norm == pytest.approx(tiny.least)
    assert noise.geometry.advise_clip_norm(
        1.0, **{**ADVICE, "excess_loss": 1e200, "smoothness": 1e200}
    ).norm == pytest.approx(noise.geometry.advise_clip_norm(1.0, **ADVICE).least)


def test_constant_runs_are_audited_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = audit.audit_observations(
            np.zeros((400, 3)),
            np.ones((400, 3), dtype=bool),
            claimed=taut.gaussian(1.0),
            delta=1e-5,
        )
    assert not result.passed


def test_products_clipped_at_floats_of_fewer_bits_lose_as_much_as_at_doubles():
    third = np.float32(1 / 3)
    one = noise.GaussianProducts(third, third, np.float32(0.7))
    assert one.mu == noise.GaussianProducts(float(third), float(third), float(np.float32(0.7))).mu
