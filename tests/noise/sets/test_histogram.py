"""Histograms: what a record changes, noise for it, and its loss, against enumeration."""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from oracles.laplace import true_delta

import taut
from taut.errors import UnsoundConfiguration
from taut.noise import (
    Box,
    Histogram,
    L1Ball,
    L2Ball,
    LInfBall,
    SeededForExperiments,
    integer_laplace,
    optimal_gaussian,
    optimal_laplace,
    recommend,
)

EXTREMES = [1.79e308, -1.79e308, math.nan, math.inf, -math.inf, 5e-324, 0.0, -0.0, 0.5, 1.0]


def members(cells, per_record):
    """All rows of zeros and ones with at most so many ones."""
    rows = itertools.product([0.0, 1.0], repeat=cells)
    return np.array([row for row in rows if sum(row) <= per_record])


class TestClip:
    @pytest.mark.parametrize("per_record", [1, 2, 4])
    def test_is_the_nearest_row_of_zeros_and_ones(self, per_record):
        rows = np.random.default_rng(0).normal(0.4, 0.6, size=(300, 4))
        clipped = Histogram(4, per_record).clip(rows)
        allowed = members(4, per_record)
        least = ((rows[:, None] - allowed) ** 2).sum(axis=2).min(axis=1)
        assert {tuple(row) for row in clipped} <= {tuple(row) for row in allowed}
        assert ((rows - clipped) ** 2).sum(axis=1) == pytest.approx(least)

    def test_extreme_rows_neither_warn_nor_raise_nor_touch_others(self):
        rows = np.array(list(itertools.product(EXTREMES, repeat=3)))
        histogram = Histogram(3, 2)
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            clipped = histogram.clip(rows)
            alone = np.array([histogram.clip(row) for row in rows])
        np.testing.assert_array_equal(clipped, alone)
        assert clipped.sum(axis=1).max() <= 2

    def test_labels_without_a_cell_are_counted_nowhere(self):
        rows = Histogram(["a", "b"]).indicators(["b", "c", "a", float("nan"), None])
        assert rows.tolist() == [[0, 1], [0, 0], [1, 0], [0, 0], [0, 0]]
        assert Histogram(3).indicators(np.array([2, 0, 7])).tolist() == [
            [0, 0, 1],
            [1, 0, 0],
            [0, 0, 0],
        ]

    def test_names_are_the_columns(self):
        table = {"south": [1, 0], "north": [0, 1]}
        assert Histogram(["north", "south"]).clip(table).tolist() == [[0, 1], [1, 0]]


class TestWhatMoves:
    @pytest.mark.parametrize(("cells", "per_record"), [(2, 1), (4, 1), (4, 2), (3, 2), (1, 1)])
    def test_differences_hold_every_replacement_and_no_less(self, cells, per_record):
        rows = members(cells, per_record)
        one = Histogram(cells, per_record)
        both = one.differences()
        changes = (rows[:, None] - rows).reshape(-1, cells)
        assert all(one.contains(row) for row in rows)
        assert all(both.contains(change) for change in changes)
        assert max(np.abs(changes).sum(axis=1)) == both.moved
        assert max(np.linalg.norm(changes, axis=1)) == pytest.approx(both.max_l2)

    def test_declared_for_replace_one_is_the_same(self):
        named = Histogram(["a", "b", "c"], adjacency="replace")
        assert named == Histogram(["a", "b", "c"]).differences()
        assert named.clip([0.0, 1.0, 0.0]).tolist() == [0, 1, 0]

    def test_parts_of_a_count_are_outside(self):
        assert not Histogram(2).contains([0.5, 0.0])
        assert not Histogram(2).contains([1.0, 1.0])

    def test_of_differences_are_refused(self):
        with pytest.raises(UnsoundConfiguration, match="already one of replace-one"):
            Histogram(3).differences().differences()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((0,), "cells must be at least 1"),
            ((2.5,), "cells must be an integer"),
            ((3, 4), "per_record must be at most the 3 cells"),
            ((3, 0), "per_record must be at least 1"),
            ((["a", "a"],), "different names"),
            ((["a", 1],), "columns must be texts"),
        ],
    )
    def test_mistakes(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            Histogram(*arguments)


def enumerated_delta(scale, moved, epsilon):
    """Sum (P - e^epsilon Q)+ over the outputs of so many counts that move by one."""
    x = np.arange(-400, 401)
    mass = np.exp(-np.abs(x) / scale)
    mass /= mass.sum()
    other = np.exp(-np.abs(x - 1) / scale)
    other /= other.sum()
    p, q = mass, other
    for _ in range(moved - 1):
        p, q = np.outer(p, mass).ravel(), np.outer(q, other).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


class TestLosses:
    @pytest.mark.parametrize("relation", ["add_remove", "replace"])
    @pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.6])
    def test_integer_noise_costs_what_enumeration_says(self, relation, epsilon):
        histogram = Histogram(6, adjacency=relation)
        noise = integer_laplace(histogram, epsilon=0.7)
        truth = enumerated_delta(float(noise.scales[0]), histogram.moved, epsilon)
        assert noise.loss.delta(epsilon, 1e-6) == pytest.approx(truth, rel=1e-5)
        assert noise.loss.delta(0.7) == 0

    @pytest.mark.parametrize("relation", ["add_remove", "replace"])
    def test_laplace_noise_costs_what_quadrature_says(self, relation):
        histogram = Histogram(6, adjacency=relation)
        noise = optimal_laplace(histogram, epsilon=0.7)
        ratios = [1 / float(noise.scales[0])] * histogram.moved
        assert noise.loss.delta(0.3, 1e-6) == pytest.approx(true_delta(ratios, 0.3), rel=1e-5)
        assert noise.loss.delta(0.7) == 0

    @pytest.mark.parametrize("relation", ["add_remove", "replace"])
    @pytest.mark.parametrize("per_record", [1, 3])
    def test_gaussian_noise_sees_the_counts_that_move(self, relation, per_record):
        histogram = Histogram(8, per_record, adjacency=relation)
        noise = optimal_gaussian(histogram, epsilon=1.0, delta=1e-6)
        scalar = float(noise.scales[0]) / math.sqrt(histogram.moved)
        exact = taut.gaussian(scalar).delta(1.0)
        assert noise.loss.delta(1.0) == pytest.approx(exact, rel=1e-6)
        assert exact == pytest.approx(1e-6, rel=1e-6)

    def test_least_gaussian_is_claimed_only_for_one_count(self):
        one, two = (
            optimal_gaussian(histogram, multiplier=1.0).certificate
            for histogram in (Histogram(5), Histogram(5).differences())
        )
        assert one.gap < 1e-9
        assert two.lower_bound == 0

    def test_weights_keep_the_promise(self):
        weights = np.array([1.0] * 11 + [100.0])
        noise = integer_laplace(Histogram(12, 3), epsilon=0.5, weights=weights)
        assert noise.scales[0] > noise.scales[-1]
        assert np.sort(1 / noise.scales)[-3:].sum() <= 0.5
        assert noise.loss.delta(0.5) == 0


class TestIntegerNoise:
    @pytest.mark.parametrize("power", [1.0, 2.0, 3.5])
    @pytest.mark.parametrize("scale", [0.3, 4.0, 700.0])
    def test_moments(self, power, scale):
        noise = integer_laplace(Histogram(2), epsilon=1 / scale)
        x = np.arange(1.0, 200 * scale + 50)
        mass = np.exp(-x / scale)
        moment = 2 * (x**power * mass).sum() / (1 + 2 * mass.sum())
        assert noise.coordinate_errors(power) == pytest.approx([moment] * 2, rel=1e-5)

    def test_draws_have_the_distribution(self):
        noise = integer_laplace(Histogram(40_000), epsilon=0.8)
        released = noise.release(np.full(40_000, 7.0), SeededForExperiments(seed=3)) - 7
        q = math.exp(-0.8)
        for x in range(-4, 5):
            mass = (1 - q) / (1 + q) * q ** abs(x)
            share = float((released == x).mean())
            assert share == pytest.approx(mass, abs=5 * math.sqrt(mass / 40_000))

    def test_sums_are_whole_and_rows_are_counted_once(self):
        noise = integer_laplace(Histogram(3), epsilon=50.0)
        rows = [[0, 0.9, 0.2], [1, 0, 0], [math.nan, 1, 0], [7, 7, 7]]
        assert noise.release_sum(rows).tolist() == [2, 1, 0]
        assert noise.grid.tolist() == [1, 1, 1]

    def test_rounding_moves_with_the_value(self):
        noise = integer_laplace(Histogram(1), epsilon=200.0)
        for value in (-1.5, -0.5, 0.5, 2.5, 0.49999999999999994, -0.3):
            first, second = (float(noise.release([value + k])[0]) for k in (0.0, 1.0))
            if Fraction(value + 1) - Fraction(value) == 1:
                assert second - first == 1

    def test_other_sets_are_refused(self):
        with pytest.raises(ValueError, match=r"must be a Histogram.*got a set of the kind L1Ball"):
            integer_laplace(L1Ball(3, 1.0), epsilon=1.0)

    def test_scales_beyond_what_can_be_drawn(self):
        with pytest.raises(ValueError, match=r"at most 2\^50"):
            integer_laplace(Histogram(3), epsilon=1e-20)


class TestRecommendation:
    def test_fifty_cells_need_no_more_than_the_textbook(self):
        for delta in (0.0, 1e-6):
            found = recommend(Histogram(50), 1.0, delta)
            assert found.best.error < 100
            assert found.best.name == "integer Laplace"

    def test_many_cells_per_record_go_to_gaussian_noise(self):
        assert recommend(Histogram(200, 60), 1.0, 1e-6).best.name.startswith("Gaussian")
        assert recommend(Histogram(200, 60), 1.0).best.name == "integer Laplace"

    @pytest.mark.parametrize(
        ("loose", "call"),
        [
            (Box(np.ones(50), l2=1.0), "Histogram(50)"),
            (Box(np.ones(50)), "Histogram(50)"),
            (L2Ball(50, 1.0), "Histogram(50)"),
            (LInfBall(50, 1.0), "Histogram(50)"),
            (Box(np.full(50, 3.0), l2=3.0), "L1Ball(50, 3)"),
            (Box(np.ones(50), l2=1.0).differences(), "Histogram(50).differences()"),
        ],
    )
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_says_what_one_cell_per_record_would_need(self, loose, call, delta):
        found = recommend(loose, 1.0, delta)
        (said,) = [reason for reason in found.reasons if "one of these 50" in reason]
        smaller = eval(call, {"Histogram": Histogram, "L1Ball": L1Ball})
        gain = found.best.error / recommend(smaller, 1.0, delta).best.error
        assert f"{call} is the set" in said
        assert f"{gain:.3g} times less" in said

    @pytest.mark.parametrize(
        "one",
        [
            Histogram(50),
            L1Ball(50, 1.0),
            L2Ball(50, 2.0),
            Box(np.ones(50), l1=1.0),
            Box(np.linspace(1, 2, 50), l2=1.5),
            Box(np.full(50, 3.0)),
            Box([1.0], l2=1.0),
        ],
        ids=str,
    )
    def test_says_nothing_where_nothing_hints_at_one_cell(self, one):
        reasons = recommend(one, 1.0, 1e-6).reasons
        assert not any("one of these" in reason for reason in reasons)
