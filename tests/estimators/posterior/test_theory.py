"""Posterior sampling, by exact values on grids and by all neighbours of tiny data."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from oracles.posteriors import exact_profile, hockey_stick, posterior

from taut.accounting import Adjacency
from taut.estimators import PosteriorPair
from taut.estimators._posterior.bounds import largest_precision, loosest_pair

SHIFTS, GROWTHS = (0.0, 0.03, 0.3, 1.0, 3.0), (1e-4, 1e-2, 0.1, 1.0, 10.0)
EPSILONS = (0.0, 0.1, 1.0, 3.0)
LITTLE = mpmath.mpf(10) ** -40  # of sixty digits
RECORDS = tuple(itertools.product((-1.0, 1.0, 0.5), (-1.0, 0.0, 1.0)))
DATA = [list(data) for n in (0, 1, 2, 4) for data in itertools.product(RECORDS[:4], repeat=n)]


def test_adding_a_record_is_the_worse_direction():
    for shift, growth, epsilon in itertools.product(SHIFTS, GROWTHS, EPSILONS):
        added = exact_profile(shift, growth, epsilon)
        removed = exact_profile(shift, growth, epsilon, removal=True)
        assert mpmath.fsub(removed, added, exact=True) <= LITTLE


def test_adding_rises_with_shift_and_growth():
    for epsilon in EPSILONS:
        table = [[exact_profile(m, mu, epsilon) for mu in GROWTHS] for m in SHIFTS]
        with mpmath.workdps(60):
            for axis in (0, 1):
                assert (np.diff(np.array(table), axis=axis) >= -LITTLE).all()


def test_removing_does_not_rise_with_growth():
    """Why the removal is bounded by the addition, not by its own worst growth."""
    removed = [exact_profile(1.0, mu, 1.0, removal=True) for mu in (1e-3, 1.0)]
    assert removed[0] > removed[1]


def test_tails_compare_or_densities_do():
    """The two cases of the proof cover all losses below the largest of a removal."""
    rng = np.random.default_rng(0)
    for _ in range(2_000):
        s = rng.uniform(0.02, 0.9999)
        c = 10 ** rng.uniform(-3, 3)
        a = (1 / s**2 - 1) / 2
        end = -math.log(s) + c**2 * (1 - s**2) / 2
        e = end * rng.uniform(0, 1)
        one, other = math.sqrt((end + e) / a), math.sqrt((end - e) / a)
        tails = c * s * (1 + s) >= one + s * other
        log_ratio = (
            -(1 + s**2) / (4 * s**2) * (one**2 - other**2)
            + log_cosh(c * one)
            - log_cosh(c * other)
            - math.log(one / other)
        )
        assert tails or log_ratio <= 1e-9 * (1 + c * one + (one / s) ** 2)


def log_cosh(x):
    return x + math.log1p(math.exp(-2 * x)) - math.log(2)


class TestAllNeighboursOfTinyData:
    """One feature, records in {-1, 0, 1}^2: posteriors are compared by quadrature."""

    @staticmethod
    def of(data, ridge, precision):
        x, y = ([one[k] for one in data] for k in (0, 1))
        return posterior(x, y, ridge, precision)

    @pytest.mark.parametrize(("ridge", "epsilon"), [(0.2, 0.5), (2.0, 0.3)])
    def test_bounds_at_the_data_hold_for_every_record(self, ridge, epsilon):
        precision, worst = 0.05, 0.0
        for data in DATA[::19]:
            x = np.array([one[0] for one in data])
            least = max(float(x @ x) - 1.0, 0.0)
            solution = self.of(data, ridge, precision)[0]
            pair = loosest_pair(
                1 / (ridge + least), math.log1p(abs(solution)), precision, Adjacency.ADD_REMOVE
            )
            neighbours = [[*data, one] for one in RECORDS]
            neighbours += [data[:i] + data[i + 1 :] for i in range(len(data))]
            ours = self.of(data, ridge, precision)
            for neighbour in neighbours:
                theirs = self.of(neighbour, ridge, precision)
                for laws in ((ours, theirs), (theirs, ours)):
                    found = hockey_stick(*laws, epsilon, nodes=20_001)
                    assert found <= pair.delta(epsilon) + 1e-7
                    worst = max(worst, found / pair.delta(epsilon))
        assert worst > 0.3

    def test_bounds_at_the_data_hold_for_exchanges(self):
        ridge, precision, epsilon = 0.4, 0.02, 0.6
        for data in [one for one in DATA[::13] if one]:
            x = np.array([one[0] for one in data])
            least = max(float(x @ x) - 1.0, 0.0)
            ours = self.of(data, ridge, precision)
            pair = loosest_pair(
                1 / (ridge + least), math.log1p(abs(ours[0])), precision, Adjacency.REPLACE
            )
            allowed = pair.delta(epsilon / 2) * (1 + math.exp(epsilon / 2))
            for one in RECORDS:
                theirs = self.of([*data[1:], one], ridge, precision)
                for laws in ((ours, theirs), (theirs, ours)):
                    assert hockey_stick(*laws, epsilon, nodes=20_001) <= allowed + 1e-7


def test_posteriors_in_the_plane_differ_along_the_record_alone():
    """A two-dimensional quadrature agrees with the pair in one dimension."""
    rng = np.random.default_rng(1)
    rows, targets = rng.normal(size=(6, 2)), rng.normal(size=6)
    x, y, precision = np.array([0.6, -0.5]), 0.9, 0.7
    weight = rows.T @ rows + 0.5 * np.eye(2)
    centre = np.linalg.solve(weight, rows.T @ targets)
    heavier = weight + np.outer(x, x)
    moved = np.linalg.solve(heavier, rows.T @ targets + y * x)
    growth = float(x @ np.linalg.solve(weight, x))
    shift = math.sqrt(precision * growth) * abs(y - float(x @ centre)) / (1 + growth)

    axis = np.linspace(-9, 9, 1501)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)

    def density(mean, matrix):
        away = grid - mean
        square = np.einsum("...i,ij,...j->...", away, precision * matrix, away)
        return np.exp(-square / 2) * precision * math.sqrt(np.linalg.det(matrix)) / (2 * math.pi)

    p, q = density(centre, weight), density(moved, heavier)
    for epsilon in (0.0, 0.4):
        found = np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * (axis[1] - axis[0]) ** 2
        assert PosteriorPair(shift, growth).delta(epsilon) == pytest.approx(found, abs=2e-5)


def test_calibrated_precision_keeps_the_promise():
    for relation in (Adjacency.ADD_REMOVE, Adjacency.REPLACE):
        precision = largest_precision(
            0.02, math.log(2.5), epsilon=1.0, delta=1e-6, relation=relation
        )
        pair = loosest_pair(0.02, math.log(2.5), precision, relation)
        assert pair.loss(adjacency=relation, tight_at=1.0).epsilon(1e-6) <= 1 + 1e-9
