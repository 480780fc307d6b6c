"""Mechanisms behind noisy statistics, and behind a noisy bound on their loss."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

import taut
from taut.adaptive import CalibratedRelease, SmoothLossRelease, smooth_noise_rdp
from taut.audit import refute_training, replay
from taut.errors import AdjacencyMismatch, UnsoundConfiguration
from taut.noise import (
    Box,
    Histogram,
    SeededForExperiments,
    gaussian_with_scales,
    integer_laplace,
    laplace_with_scales,
)

NOISE = laplace_with_scales(Box([1.0]), [2.0])
WITHIN = taut.pure(0.4)


def chance(statistic, parameter):
    """Return how probably a mechanism says yes: its loss is high where the statistic is low."""
    return 0.2 + 0.6 * math.exp(-parameter * max(statistic, 0.0)) * (statistic % 2)


def divergence(p, q, t):
    return max(p - t * q, 0.0) + max(1 - p - t * (1 - q), 0.0)


def losses(statistic, parameter):
    """Return the exact pure loss from a statistic to its neighbours."""
    p = chance(statistic, parameter)
    others = [chance(statistic + step, parameter) for step in (-1, 1)]
    return max(max(math.log(p / q), math.log((1 - p) / (1 - q))) for q in others)


@pytest.mark.parametrize("fixed", [True, False])
def test_loss_holds_behind_noisy_statistics(fixed):
    """Quadrature over the released statistic, for whole statistics and both neighbours."""
    parameters = [0.3] if fixed else [0.1, 0.2, 0.3, 0.6]
    delta = 0.05

    def choose(low, _):
        start = max(math.floor(float(low[0])), 0)
        for parameter in parameters:
            if all(losses(s, parameter) <= 0.4 for s in range(start, start + 60)):
                return parameter
        return None

    release = CalibratedRelease(
        lambda data: [float(len(data))],
        NOISE,
        choose,
        lambda data, parameter: chance(len(data), parameter),
        WITHIN,
        delta,
        fixed=fixed,
    )
    margin = float(release.margins[0])
    assert stats.laplace.sf(margin, scale=2.0) * 2 <= delta
    grid = np.arange(-30.0, 60.0, 0.05) + 0.025
    chosen = [choose([u - margin], None) for u in grid]
    assert None in chosen
    assert any(chosen)
    for here in range(1, 12):
        for there in (here - 1, here + 1):
            p, q = (stats.laplace.pdf(grid, s, 2.0) * 0.05 for s in (here, there))
            for e in (0.5, 0.7, 0.9):
                t = math.exp(e)
                truth = sum(
                    max(a - t * b, 0.0)
                    if phi is None
                    else a * divergence(chance(here, phi), chance(there, phi), t * b / a)
                    for a, b, phi in zip(p, q, chosen, strict=True)
                )
                assert truth <= release.loss.delta(e) + 1e-4  # the grid's own error


def test_guarantees_add_up_as_proven():
    gaussian = gaussian_with_scales(Box([1.0]), [3.0])
    parts = {"statistics": len, "choose": len, "mechanism": len, "delta": 2e-6}
    point = taut.approximate(0.5, 1e-6)
    for fixed, delta in ((True, 1e-7 + 2e-6), (False, 1e-7 + 3e-6)):
        release = CalibratedRelease(
            noise=gaussian, within=point, noise_delta=1e-7, fixed=fixed, **parts
        )
        expected = gaussian.loss.epsilon(1e-7) + 0.5
        assert release.loss.epsilon(delta * (1 + 1e-9)) == pytest.approx(expected)
        assert release.loss.epsilon(delta * (1 - 1e-9)) == math.inf
    curve = CalibratedRelease(noise=gaussian, within=taut.from_rdp({9.0: 0.1}), **parts)
    plain = taut.from_rdp({9.0: 0.1 + gaussian.loss.rdp(9.0)})
    assert curve.loss.epsilon(1e-5) == pytest.approx(plain.epsilon(8e-6), rel=1e-3)


def test_bounds_hold_as_often_as_promised():
    for noise in (
        laplace_with_scales(Box([1.0, 1.0]), [2.0, 5.0]),
        gaussian_with_scales(Box([1.0, 1.0]), [2.0, 5.0]),
    ):
        missed = 0
        release = CalibratedRelease(
            lambda _: [3.0, -4.0],
            noise,
            lambda low, high: (low, high),
            lambda _, bounds: bounds,
            taut.from_rdp({2.0: 0.1}),
            0.2,
        )
        source = SeededForExperiments(4)
        for _ in range(500):
            low, high = release.release(None, source).value
            missed += not ((low <= [3.0, -4.0]).all() and (high >= [3.0, -4.0]).all())
        assert 0.1 < missed / 500 < 0.26


def test_nothing_is_known_of_statistics_where_releases_are_cut():
    release = CalibratedRelease(
        lambda data: [data],
        NOISE,
        lambda low, high: (low, high),
        lambda _, bounds: bounds,
        taut.from_rdp({2.0: 0.1}),
        1e-6,
    )
    for statistic in (1e15, 1e300, -1e300):
        low, high = release.release(statistic).value
        assert low[0] <= statistic <= high[0]


@pytest.mark.parametrize("sigma", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("smooth", [0.0, 1e-300, 1e-9])
def test_losses_above_the_limit_are_refused_at_any_scale_of_noise(sigma, smooth):
    for limit in (1e-9, 0.2, 1e9):
        release = smooth_release(
            limit=limit,
            sigma=sigma,
            delta=1e-6,
            loss_at=lambda _, most=limit: 1e6 * most,
            smooth_sensitivity=lambda _: smooth,
        )
        assert not release.release([1]).released


def broken(*_):
    raise ValueError("record 777")


@pytest.mark.parametrize(
    "bad",
    [
        {"statistics": broken},
        {"statistics": lambda _: [math.nan]},
        {"statistics": lambda _: [1.0, 2.0]},
        {"statistics": lambda _: "many"},
        {"choose": broken},
        {"choose": lambda *_: None},
        {"mechanism": broken},
    ],
    ids=lambda bad: next(iter(bad)),
)
def test_functions_that_misbehave_are_refused(bad):
    good = {
        "statistics": lambda data: [float(len(data))],
        "noise": NOISE,
        "choose": lambda *_: 1,
        "mechanism": lambda data, _: len(data),
        "within": WITHIN,
        "delta": 1e-6,
    }
    outcome = CalibratedRelease(**{**good, **bad}).release([777])
    assert (outcome.released, outcome.value) == (False, None)
    assert CalibratedRelease(**good).release([777]).value == 1


def test_unsuitable_arguments_are_refused():
    good = {
        "statistics": len,
        "noise": NOISE,
        "choose": len,
        "mechanism": len,
        "within": WITHIN,
        "delta": 1e-6,
    }
    for bad, error, says in [
        ({"noise": integer_laplace(Histogram(1), epsilon=1.0)}, UnsoundConfiguration, "noise"),
        (
            {"noise": laplace_with_scales(Box([1.0, 0.0], allow_zero=True), [1.0, 0.0])},
            UnsoundConfiguration,
            "every statistic",
        ),
        ({"choose": 3}, TypeError, "choose"),
        ({"delta": 0.7}, ValueError, "delta"),
        ({"within": taut.laplace(1.0)}, UnsoundConfiguration, "within"),
        ({"within": taut.pure(1.0, adjacency="replace")}, AdjacencyMismatch, "add_remove"),
        ({"noise": gaussian_with_scales(Box([1.0]), [3.0])}, ValueError, "noise_delta"),
        ({"noise_delta": -1.0}, ValueError, "noise_delta"),
    ]:
        with pytest.raises(error, match=says):
            CalibratedRelease(**{**good, **bad})


# --- smooth sensitivity of the loss --------------------------------------------------------------


def normal_divergence(order, shift, ratio, sigma):
    """Return the divergence of N(0, sigma^2) from N(shift, (ratio sigma)^2) by quadrature."""

    def integrand(x):
        p = stats.norm.logpdf(x, 0.0, sigma)
        return math.exp(order * p + (1 - order) * stats.norm.logpdf(x, shift, ratio * sigma))

    centre = order * 0.0 + (1 - order) * shift
    return math.log(integrate.quad(integrand, centre - 400, centre + 400, limit=2000)[0]) / (
        order - 1
    )


@pytest.mark.parametrize(("order", "smoothness", "sigma"), [(5, 0.03, 3.0), (3, 0.1, 2.0)])
def test_divergence_of_smooth_noise_is_the_worst_of_all_neighbours(order, smoothness, sigma):
    worst = smooth_noise_rdp(order, smoothness, sigma)
    exact = normal_divergence(order, math.exp(-smoothness), math.exp(-smoothness), sigma)
    assert worst == pytest.approx(exact, rel=1e-6)
    for step in np.linspace(-smoothness, smoothness, 9):
        for part in (0.0, 0.5, 1.0):
            shift = part * min(1.0, math.exp(step))
            assert normal_divergence(order, shift, math.exp(step), sigma) <= worst * (1 + 1e-9)


def test_divergence_of_smooth_noise_is_infinite_where_it_is():
    assert smooth_noise_rdp(60, 0.01, 15) == math.inf
    assert smooth_noise_rdp(5, 0.0, 2.0) == pytest.approx(5 / 8)
    for bad in ({"order": 1.0}, {"smoothness": -1.0}, {"sigma": 0.0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            smooth_noise_rdp(**{"order": 3.0, "smoothness": 0.1, "sigma": 1.0, **bad})


def smooth_release(**changes):
    given = {
        "mechanism": lambda _: "done",
        "loss_at": lambda data: 0.02 + 0.001 * sum(data),
        "smooth_sensitivity": lambda _: 0.001,
        "smoothness": 0.05,
        "order": 8.0,
        "limit": 0.2,
        "sigma": 4.0,
        "delta": 0.01,
        "adjacency": "add_remove",
    }
    return SmoothLossRelease(**{**given, **changes})


def test_bounds_on_a_loss_hold_but_for_delta():
    release = smooth_release(delta=0.2)
    source, low = SeededForExperiments(3), 0
    for _ in range(400):
        width = math.exp(release._above(math.log(0.001), 0.05, source))
        low += width < 0.001 or release._above(0.1, width, source) < 0.1
    assert low / 400 <= 0.2 + 4 * math.sqrt(0.2 * 0.8 / 400)
    assert low / 400 > 0.08


def test_noise_of_any_size_ends_in_an_answer():
    source = SeededForExperiments(9)
    for delta in (0.4, 1e-6):
        release = smooth_release(sigma=1e6, smoothness=1.0, delta=delta)
        assert {release.release([1], source).released for _ in range(20)} <= {True, False}


def test_loss_adds_order_over_variance_and_the_limit():
    release = smooth_release(delta=1e-6)
    plain = taut.from_rdp({8.0: 8 / 16 + 0.2})
    assert release.loss.epsilon(1e-5) == pytest.approx(plain.epsilon(9e-6), rel=1e-4)
    assert release.loss.epsilon(1e-5) > plain.epsilon(9e-6)


def test_losses_within_the_limit_are_released_and_others_refused():
    release = smooth_release(delta=1e-6)
    assert release.release([1] * 20).value == "done"
    for changes in (
        {"loss_at": lambda _: 0.5},
        {"loss_at": lambda _: math.nan},
        {"loss_at": lambda _: -1.0},
        {"loss_at": lambda _: math.inf},
        {"loss_at": broken},
        {"smooth_sensitivity": broken},
        {"smooth_sensitivity": lambda _: 1e300},
        {"mechanism": broken},
    ):
        outcome = smooth_release(delta=1e-6, **changes).release([777])
        assert (outcome.released, outcome.value) == (False, None)


def test_bad_parameters_are_named():
    for bad in (
        {"order": 1.0},
        {"smoothness": 0.0},
        {"limit": -1.0},
        {"sigma": math.nan},
        {"sigma": 1e-3},
        {"smoothness": 1e-9},
        {"delta": 0.0},
        {"adjacency": "same"},
        {"loss_at": 3},
    ):
        with pytest.raises((ValueError, TypeError), match=next(iter(bad))):
            smooth_release(**bad)


def test_replay_finds_nothing():
    data, neighbour = [1] * 20, [1] * 21
    for release in (
        smooth_release(delta=1e-6),
        CalibratedRelease(
            lambda rows: [float(len(rows))], NOISE, lambda *_: 1, lambda *_: 7, WITHIN, 1e-6
        ),
    ):
        result = replay(lambda rows, r=release: r.release(rows).value, data, neighbour)
        assert result.passed, result.findings
        assert result.exercised


def test_sequential_audit_finds_nothing():
    release = smooth_release(loss_at=lambda data: 0.15 + 0.001 * len(data), sigma=2.0)

    def run(with_canary, seed):
        data = [1] * (20 + with_canary)
        return [float(release.release(data, SeededForExperiments(seed)).released)]

    assert refute_training(run, claimed=release.loss, delta=0.05, most_runs=100, seed=1).passed
