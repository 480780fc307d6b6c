"""Searched bounds, smooth sensitivity, and bounds that are released: exact profiles."""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from oracles.tested_releases import THRESHOLDS, exchanged, laplace_profile, whole_noise
from scipy import integrate, stats

from taut.adaptive import BoundedRelease, SearchedMedian, SmoothMedian
from taut.adaptive._propose.classic import smooth_median
from taut.adaptive._propose.classic.median_distance import moves_to_exceed
from taut.audit import refute_training, replay
from taut.noise import SeededForExperiments

SEARCH = SearchedMedian(0, 4, (1.0, 2.0, 3.0), test_epsilon=0.9, epsilon=0.6, delta=0.1)


def lower_median(data):
    return sorted(data)[(len(data) + 1) // 2 - 1]


def first_passing(search, distances):
    """Return the probability that each candidate is the first to pass, by enumeration."""
    rho_scale, nu_scale = (float(s) for s in search._scales)
    at, mass = whole_noise(1 / rho_scale, math.ceil(40 * rho_scale))
    rate = 1 / nu_scale
    left, found = np.ones(at.size), []
    for distance in distances:
        needed = search.threshold + at - distance
        upper = np.exp(-rate * np.abs(needed)) / (1 + math.exp(-rate))
        below = np.exp(-rate * np.abs(1 - needed)) / (1 + math.exp(-rate))
        passes = np.where(needed >= 0, upper, 1 - below)
        found.append(float((mass * left * passes).sum()))
        left = left * (1 - passes)
    return [*found, float((mass * left).sum())]


def test_search_fails_as_seldom_as_it_says():
    for epsilon, delta in [(0.9, 0.1), (0.2, 1e-4), (3.0, 1e-9)]:
        search = SearchedMedian(0, 4, (1.0,), test_epsilon=epsilon, epsilon=1.0, delta=delta)
        wrong = first_passing(search, [0])[0]
        assert search.failure == pytest.approx(wrong, rel=1e-6)
        assert wrong <= search.failure <= delta
        assert search._tail(search.threshold - 1) > delta or search.threshold == 1


def test_search_keeps_its_loss_on_all_neighbours():
    outputs, worst = {}, 0.0
    claimed = {t: SEARCH.loss.profile(t) for t in THRESHOLDS.tolist()}
    for one, other in exchanged((0, 1, 2, 4), 4):
        masses = []
        for data in (tuple(sorted(one)), tuple(sorted(other))):
            if data not in outputs:
                values = np.array(data, dtype=float)
                distances = [moves_to_exceed(values, 0.0, 4.0, b, 99) for b in SEARCH.bounds]
                outputs[data] = first_passing(SEARCH, distances)
            masses.append(outputs[data])
        shift = abs(lower_median(one) - lower_median(other))
        p, q = masses
        for t, most in claimed.items():
            truth = max(p[-1] - t * q[-1], 0.0) + sum(
                p[j] * laplace_profile(0.6 * shift / bound, t * q[j] / p[j])
                for j, bound in enumerate(SEARCH.bounds)
            )
            assert truth <= most * (1 + 1e-9)
            worst = max(worst, truth / most)
    assert worst > 0.3


def test_search_takes_the_first_bound_that_fits():
    search = SearchedMedian(0, 1000, (1e-6, 0.1, 500.0), test_epsilon=1.0, epsilon=1.0, delta=1e-6)
    data = np.linspace(20, 60, 200_001)
    values = [search.release(data, SeededForExperiments(s)).value for s in range(20)]
    assert np.abs(np.array(values) - 40).max() < 1  # noise of 0.1, neither refused nor of 500
    with pytest.raises(ValueError, match="no data of 2 records"):
        search.release([1.0, 777.0])


def test_smooth_median_keeps_its_loss_on_all_neighbours(monkeypatch):
    monkeypatch.setattr(smooth_median, "_STEPS", 4)
    median = SmoothMedian(0, 4, epsilon=0.8, delta=0.1)
    known, worst = {}, 0.0
    at = np.arange(-400, 405)

    def masses(data):
        values = np.array(data, dtype=float)
        rate = median.epsilon / (2 * median._smooth_sensitivity(values))
        return np.exp(-rate * np.abs(at - lower_median(data))) * math.tanh(rate / 2)

    claimed = {t: median.loss.profile(t) for t in THRESHOLDS.tolist()}
    for one, other in exchanged((0, 1, 2, 4), 5):
        p, q = (known.setdefault(tuple(sorted(d)), masses(d)) for d in (one, other))
        for t, most in claimed.items():
            truth = float(np.maximum(p - t * q, 0).sum())
            assert truth <= most * (1 + 1e-9)
            worst = max(worst, truth / most)
    assert worst > 0.4


def test_smooth_sensitivity_is_smooth_and_covers_the_local_one():
    median = SmoothMedian(0, 1, epsilon=1.0, delta=1e-4)
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = median._whole(rng.random(41) ** 3)
        neighbour = np.append(values[:-1], rng.choice([0, 1 << 20, 1 << 19]))
        one, other = (math.log(median._smooth_sensitivity(v)) for v in (values, neighbour))
        assert abs(one - other) <= median.smoothness * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("delta", [1e-200, 1e-6, 0.4])
def test_rounded_weights_are_as_smooth_as_is_proven(epsilon, delta):
    median = SmoothMedian(0, 1, epsilon, delta)
    with mpmath.workdps(40):
        proven = mpmath.log1p(mpmath.mpf(epsilon) / (2 * mpmath.log(2 / mpmath.mpf(delta))))
        for k in np.geomspace(1, 13.8 / median.smoothness, 200).astype(int).tolist():
            here, there = (mpmath.mpf(math.exp(-median.smoothness * i)) for i in (k, k + 1))
            # A product with the local sensitivity rounds each of them once more.
            assert mpmath.log(here / there) + 2.0**-52 <= proven


def test_released_bound_keeps_its_loss():
    """Quadrature over the released bound, for the worst shifts of value and sensitivity."""
    first, second, delta, step = 0.8, 0.6, 0.05, 1.0
    release = BoundedRelease(len, len, step, 0.0, 1e6, first, second, delta, "replace")
    margin, claimed = release._margin, release.loss
    scale = step / first
    for local, other in [(3.0, 3.0), (3.0, 4.0), (4.0, 3.0)]:
        shift = min(local, other)
        for e in (0.0, 0.7, 1.4):
            t = math.exp(e)

            def gain(u, t=t, shift=shift, local=local, other=other):
                p = stats.laplace.pdf(u - margin, local, scale)
                q = stats.laplace.pdf(u - margin, other, scale)
                return p * laplace_profile(second * shift / max(u, 1e-9), t * q / p)

            kinks = sorted({0.0, local + margin, other + margin, shift, shift * 0.5})
            edges = [-40.0, *kinks, 80.0]
            truth = sum(integrate.quad(gain, a, b, limit=200)[0] for a, b in pairwise(edges))
            assert truth <= claimed.delta(e) + 1e-7


def test_released_bound_covers_the_local_sensitivity_but_for_delta():
    release = BoundedRelease(len, lambda _: 50.0, 1.0, 0.0, 1e6, 1.0, 1.0, 0.2, "replace")
    source, low = SeededForExperiments(5), 0
    for _ in range(2_000):
        noisy = float(release._bound_noise.release([50.0], source)[0]) + release._margin
        low += noisy < 50.0
    assert 0.15 < low / 2_000 < 0.22


class OddNumber(float):
    def __float__(self):
        raise RuntimeError("record 777")


@pytest.mark.parametrize(
    "answer", [math.nan, -1.0, "x", None, 1 / 3 + 1j, True, 10**400, OddNumber(3)], ids=str
)
def test_answers_that_are_none_count_as_the_worst(answer):
    def broken(_):
        raise RuntimeError("record 777")

    for local in (lambda _: answer, broken):
        release = BoundedRelease(lambda _: answer, local, 1.0, 0.0, 10.0, 5.0, 5.0, 1e-6, "replace")
        assert 0.0 <= release.release([777]).value <= 10.0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: SearchedMedian(0, 1, (), 1.0, 1.0, 0.1), "bounds"),
        (lambda: SearchedMedian(0, 1, (0.2, 0.1), 1.0, 1.0, 0.1), "bounds must increase"),
        (lambda: SearchedMedian(0, 1, (-1.0,), 1.0, 1.0, 0.1), "bound"),
        (lambda: SearchedMedian(1, 0, (0.1,), 1.0, 1.0, 0.1), "low"),
        (lambda: SearchedMedian(0, 1, (0.1,), 0.0, 1.0, 0.1), "test_epsilon"),
        (lambda: SearchedMedian(0, 1, (0.1,), 1e-15, 1.0, 0.1), "test_epsilon"),
        (lambda: SearchedMedian(0, 1, (0.1,), 1.0, 1.0, 0.7), "delta"),
        (lambda: SmoothMedian(0, 1, 0.0, 0.1), "epsilon"),
        (lambda: SmoothMedian(0, 1, 1e-9, 0.1), "epsilon"),
        (lambda: SmoothMedian(0, 1, 1.0, 0.0), "delta"),
        (lambda: SmoothMedian(2, 1, 1.0, 0.1), "low"),
        (lambda: BoundedRelease(len, len, 0.0, 0, 1, 1.0, 1.0, 0.1, "replace"), "step"),
        (lambda: BoundedRelease(len, 3, 1.0, 0, 1, 1.0, 1.0, 0.1, "replace"), "local_sensitivity"),
        (lambda: BoundedRelease(len, len, 1.0, 0, 1, 1.0, 1.0, 0.6, "replace"), "delta"),
        (lambda: BoundedRelease(len, len, 1e-9, 0, 1e6, 1.0, 1.0, 0.1, "replace"), "2\\^40"),
        (lambda: BoundedRelease(len, len, 1.0, 0, 1, 1.0, 1.0, 0.1, "same"), "adjacency"),
    ],
)
def test_bad_parameters_are_named(make, says):
    with pytest.raises((ValueError, TypeError), match=says):
        make()


def test_replay_finds_nothing():
    data = np.random.default_rng(0).normal(5, 0.1, 501)
    neighbour = np.append(data[:-1], 10.0)
    search = SearchedMedian(0, 10, (0.01, 0.1, 1.0), test_epsilon=1.0, epsilon=1.0, delta=1e-6)
    smooth = SmoothMedian(0, 10, epsilon=1.0, delta=1e-6)
    bounded = BoundedRelease(
        lambda rows: float(np.clip(rows, 0, 1).sum()) ** 2,
        lambda rows: 2 * float(np.clip(rows, 0, 1).sum()) + 3,
        step=2.0,
        low=0,
        high=1e6,
        bound_epsilon=1.0,
        epsilon=1.0,
        delta=1e-6,
        adjacency="replace",
    )
    for release in (search, smooth, bounded):
        result = replay(lambda rows, r=release: r.release(rows).value, data, neighbour)
        assert result.passed, result.findings
        assert result.releases


def test_sequential_audit_finds_nothing():
    sides = [np.repeat([0.0, 4.0], [29, 5]), np.repeat([0.0, 4.0], [28, 6])]

    def run(with_canary, seed):
        outcome = SEARCH.release(sides[with_canary], SeededForExperiments(seed))
        return [float(outcome.released), outcome.value if outcome else 0.0]

    assert refute_training(run, claimed=SEARCH.loss, delta=0.15, most_runs=100, seed=1).passed
