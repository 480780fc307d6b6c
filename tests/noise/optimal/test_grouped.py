"""Noise in groups: the partition is the best, the promise holds, samples have the error."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gamma, kstest

from taut.errors import UnsoundConfiguration
from taut.noise import (
    Box,
    L1Ball,
    LInfBall,
    SeededForExperiments,
    grouped_linf,
    optimal_gaussian,
    optimal_laplace,
)

positive = st.floats(0.05, 20.0)


def partitions(items):
    """Yield all partitions of a list into groups."""
    if not items:
        yield []
        return
    first, *rest = items
    for partition in partitions(rest):
        yield [[first], *partition]
        for k in range(len(partition)):
            yield [*partition[:k], [first, *partition[k]], *partition[k + 1 :]]


def error_of(partition, values):
    loads = [(len(g) + 1) * (len(g) + 2) / 3 * sum(values[i] for i in g) for g in partition]
    return sum(load ** (1 / 3) for load in loads) ** 3


class TestPartition:
    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.tuples(positive, positive), min_size=1, max_size=7))
    def test_no_partition_is_better(self, pairs):
        widths, weights = (np.array(column) for column in zip(*pairs, strict=True))
        noise = grouped_linf(Box(widths), epsilon=1.0, weights=weights)
        values = (weights * widths**2).tolist()
        best = min(error_of(p, values) for p in partitions(list(range(len(values)))))
        assert noise.error == pytest.approx(best, rel=1e-9)
        assert noise.certificate.gap < 1e-9

    @given(st.lists(positive, min_size=1, max_size=30))
    def test_never_above_laplace_noise(self, widths):
        box = Box(widths)
        laplace = optimal_laplace(box, epsilon=0.3).error
        assert grouped_linf(box, epsilon=0.3).error <= laplace * (1 + 1e-9)

    @pytest.mark.parametrize(
        ("widths", "gain"),
        [
            (np.arange(1.0, 21) ** 2, 3.60),
            (np.arange(1.0, 101), 5.21),
            (np.arange(1.0, 1001) ** 2, 5.75),
            (np.ones(1000), 5.98),
            (np.exp(np.arange(1.0, 21)), 1.53),
        ],
    )
    def test_known_gains(self, widths, gain):
        box = Box(widths)
        found = optimal_laplace(box, epsilon=1).error / grouped_linf(box, epsilon=1).error
        assert found == pytest.approx(gain, abs=0.006)

    def test_uniform_beats_gaussian_up_to_45(self):
        wins = [
            grouped_linf(Box(np.ones(k)), epsilon=0.5).error
            < optimal_gaussian(Box(np.ones(k)), epsilon=0.5, delta=1e-6).error
            for k in range(1, 60)
        ]
        assert sum(wins) == 45

    def test_many_coordinates(self):
        box = Box(np.random.default_rng(0).exponential(size=50_000) + 1e-3)
        noise = grouped_linf(box, epsilon=1.0)
        assert noise.certificate.lower_bound == 0
        assert sorted(np.concatenate(noise.groups)) == list(range(50_000))
        assert noise.error < optimal_laplace(box, epsilon=1.0).error / 4


class TestPrivacy:
    def density(self, noise, points):
        """Return the density, from the volume of the ball and the law of its radius."""
        result = np.ones(len(points))
        for group, budget in zip(noise.groups, noise.budgets, strict=True):
            widths = noise.sensitivity.widths[group]
            norms = np.abs(points[:, group] / widths).max(axis=1)
            constant = (budget / 2) ** group.size / math.factorial(group.size) / widths.prod()
            result *= constant * np.exp(-budget * norms)
        return result

    @pytest.mark.parametrize("widths", [[1.0, 0.8], [1.0, 0.05], [1.0, 0.9, 0.1]])
    def test_ratios_of_densities(self, widths):
        noise = grouped_linf(Box(widths), epsilon=0.7)
        rng = np.random.default_rng(0)
        points = rng.normal(size=(2000, len(widths))) * 5
        shifts = rng.uniform(-1, 1, size=points.shape) * widths
        shifts[::2] = np.sign(shifts[::2]) * widths
        ratios = np.log(self.density(noise, points) / self.density(noise, points + shifts))
        assert np.abs(ratios).max() <= 0.7
        assert np.abs(ratios).max() > 0.69

    @pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.5])
    @pytest.mark.parametrize("widths", [[1.0, 0.8], [1.0, 0.05]])
    def test_true_delta_is_within_the_loss(self, widths, epsilon):
        noise = grouped_linf(Box(widths), epsilon=0.7)
        sizes = np.zeros(2)
        for group, budget in zip(noise.groups, noise.budgets, strict=True):
            sizes[group] = 12 * noise.sensitivity.widths[group] / budget
        axes = [np.linspace(-size, size, 1201) for size in sizes]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
        cell = np.prod([x[1] - x[0] for x in axes])
        one = self.density(noise, points)
        assert one.sum() * cell == pytest.approx(1.0, rel=5e-3)
        for corner in ([1, 1], [1, -1], [1, 0], [0.5, 1]):
            other = self.density(noise, points - np.array(corner) * widths)
            found = np.maximum(one - math.exp(epsilon) * other, 0).sum() * cell
            assert found <= noise.loss.delta(epsilon) * (1 + 5e-3)

    def test_budgets_sum_to_epsilon(self):
        noise = grouped_linf(Box(np.arange(1.0, 40) ** 3), epsilon=0.7)
        assert math.fsum(noise.budgets) == pytest.approx(0.7, rel=1e-10)
        assert noise.loss.epsilon(0.0) <= 0.7


class TestSample:
    def test_error_and_law_of_the_norm(self):
        noise = grouped_linf(Box([1.0, 0.9, 0.02]), epsilon=0.5)
        generator = SeededForExperiments(2)
        draws = np.array([noise.sample(generator) for _ in range(20_000)])
        assert (draws**2).sum(axis=1).mean() == pytest.approx(noise.total_variance, rel=0.03)
        for group, budget in zip(noise.groups, noise.budgets, strict=True):
            norms = np.abs(draws[:, group] / noise.sensitivity.widths[group]).max(axis=1)
            # The norm of u has the density k t^(k-1): the law is Gamma with shape k.
            assert kstest(norms * budget, gamma(group.size).cdf).pvalue > 1e-3

    def test_weighted_error_and_total_variance(self):
        noise = grouped_linf(Box([1.0, 2.0]), epsilon=0.5, weights=[3.0, 3.0])
        assert noise.error == pytest.approx(3 * noise.total_variance)

    def test_zero_widths_get_no_noise(self):
        noise = grouped_linf(Box([1.0, 0.0, 2.0], allow_zero=True), epsilon=0.5)
        assert noise.release([1.0, 9.0, 1.0])[1] == 0

    def test_ball(self):
        noise = grouped_linf(LInfBall(4, 0.5), epsilon=1.0)
        assert noise.error == pytest.approx(5 * 6 / 3 * 4 * 0.25)


@pytest.mark.parametrize(
    ("one", "arguments", "word"),
    [
        (L1Ball(2, 1.0), {"epsilon": 1.0}, "LInfBall"),
        (Box([1.0]), {"epsilon": -1.0}, "epsilon"),
        (Box([1.0]), {"epsilon": 1.0, "weights": [1.0, 2.0]}, "weights"),
    ],
)
def test_bad_input(one, arguments, word):
    with pytest.raises(ValueError, match=word):
        grouped_linf(one, **arguments)


def test_a_basis_is_refused():
    with pytest.raises(UnsoundConfiguration, match="basis"):
        grouped_linf(Box([1.0, 2.0], np.eye(2)), epsilon=1.0)


@pytest.mark.parametrize(
    "tail",
    [1e-8 * 0.9 ** np.arange(1500.0), 1e-9 * 0.5 ** np.arange(200.0), 0.99 ** np.arange(6000.0)],
    ids=["small", "steep", "many"],
)
def test_never_above_laplace_noise(tail):
    """A running sum from the large end would lose the small ones beside the first width."""
    box = Box(np.concatenate([[1.0], tail]))
    noise = grouped_linf(box, epsilon=1.0)
    assert noise.error <= optimal_laplace(box, epsilon=1.0).error * (1 + 1e-9)
    assert noise.certificate.lower_bound <= noise.error


@pytest.mark.parametrize(
    ("widths", "weights"), [([1.0, 1e-12], [1.0, 1e-300]), ([1.0, 1e-170], None), ([1e60], None)]
)
def test_parts_far_apart(widths, weights):
    noise = grouped_linf(Box(widths), epsilon=1.0, weights=weights)
    assert sorted(np.concatenate(noise.groups)) == list(range(len(widths)))
    assert (noise.budgets > 0).all()
    assert math.fsum(noise.budgets) <= 1.0
    assert np.isfinite(noise.release(np.zeros(len(widths)))).all()
