"""Ranges of columns: rows stay in them, and means around centres cost what theory says."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import UnsoundConfiguration
from taut.noise import (
    Box,
    CentredRanges,
    Ranges,
    SeededForExperiments,
    optimal_gaussian,
    optimal_laplace,
    recommend,
)

PEOPLE = Ranges({"age": (18, 90), "income": (0, 1e5)})
EXTREMES = [1.79e308, -1.79e308, math.nan, math.inf, -math.inf, 5e-324, -0.0, 50.0]
ENDS = st.floats(-1e6, 1e6).flatmap(
    lambda low: st.tuples(st.just(low), st.floats(low, low + 1e6).filter(lambda high: high > low))
)


class TestClip:
    def test_extreme_rows_neither_warn_nor_raise_nor_touch_others(self):
        rows = np.array(list(itertools.product(EXTREMES, repeat=2)))
        for one in (PEOPLE, PEOPLE.centred(), PEOPLE.differences()):
            with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
                warnings.simplefilter("error")
                clipped = one.clip(rows)
                alone = np.array([one.clip(row) for row in rows])
            np.testing.assert_array_equal(clipped, alone)
            assert np.isfinite(clipped).all()

    @given(ENDS, st.lists(st.floats(width=32), min_size=1, max_size=5))
    def test_rows_of_any_type_stay_in_the_range(self, ends, values):
        one = Ranges([ends])
        for kind in (np.float64, np.float32):
            clipped = one.clip(np.array(values, dtype=kind)[:, None])
            assert clipped.dtype == np.float64
            assert (clipped >= ends[0]).all()
            assert (clipped <= ends[1]).all()

    def test_a_broken_row_is_the_point_nearest_to_zero(self):
        rows = [[math.nan, 3.0], [40.0, 3.0]]
        assert Ranges([(18, 90), (-5, -2)]).clip(rows).tolist() == [[18, -2], [40, -2]]
        with pytest.raises(ValueError, match="NaN or infinity"):
            PEOPLE.clip(rows, non_finite="raise")


class TestWhatMoves:
    @pytest.mark.parametrize("ends", [(18.0, 90.0), (-3.0, -1.0), (-2.0, 5.0), (0.1, 0.7)])
    def test_adding_and_replacing(self, ends):
        one = Ranges([ends])
        rows = one.clip(np.array([[1.79e308], [-1e9], [math.nan], [0.3], [0.0]]))
        assert np.abs(rows).max() == one.widths[0]
        changes = np.abs(rows - rows.T)
        assert changes.max() <= one.differences().widths[0]
        assert changes.max() == pytest.approx(one.differences().widths[0], rel=1e-15)

    def test_a_box_that_is_symmetric_pays_more(self):
        loose = optimal_gaussian(Box([90.0]).differences(), epsilon=1.0, delta=1e-6).error
        tight = optimal_gaussian(Ranges([(18, 90)]).differences(), epsilon=1.0, delta=1e-6).error
        assert loose / tight == pytest.approx((180 / 72) ** 2)

    def test_declared_for_replace_one_is_the_same(self):
        declared = Ranges({"age": (18, 90)}, adjacency="replace")
        assert declared == Ranges({"age": (18, 90)}).differences()
        assert declared.clip([[1.0]]).tolist() == [[18.0]]

    @pytest.mark.parametrize("one", [PEOPLE, PEOPLE.differences(), PEOPLE.centred()])
    def test_every_option_keeps_the_promise(self, one):
        found = recommend(one, 0.7, 1e-6)
        assert "grouped l_inf" in {option.name for option in found.options}
        for option in found.options:
            assert option.mechanism.loss.epsilon(1e-6) <= 0.7

    @pytest.mark.parametrize(
        ("ranges", "message"),
        [
            ({"age": 90}, "a pair"),
            ([(1, 2, 3)], "a pair"),
            ([], "a pair"),
            ([(2, 1)], r"lower < upper, got \(2.0, 1.0\)"),
            ([(1, 1)], "lower < upper"),
            ([(0, math.inf)], "finite"),
            ([(False, True)], "real numbers"),
        ],
    )
    def test_mistakes(self, ranges, message):
        with pytest.raises(ValueError, match=message):
            Ranges(ranges)

    def test_a_narrow_range_far_away_is_refused_for_replace_one(self):
        with pytest.raises(ValueError, match="count from a public number nearby"):
            Ranges([(1e9, 1e9 + 1)]).differences()


class TestCentres:
    @given(ENDS, st.lists(st.floats(), min_size=1, max_size=5))
    def test_no_row_is_beyond_half_the_width(self, ends, values):
        one = Ranges([ends]).centred()
        clipped = one.clip(np.array(values)[:, None])
        assert (np.abs(clipped) <= one.widths).all()
        assert one.widths[1] == pytest.approx((ends[1] - ends[0]) / 2, rel=1e-9, abs=1e-9)

    def test_broken_rows_are_counted_nowhere(self):
        clipped = PEOPLE.centred().clip([[54.0, math.nan], [90.0, 5e4]])
        assert clipped.tolist() == [[0, 0, 0], [1, 36, 0]]
        with pytest.raises(ValueError, match="NaN or infinity"):
            PEOPLE.centred().clip([[54.0, math.nan]], non_finite="raise")

    def test_gaussian_noise_for_a_mean_is_that_of_replace_one_with_a_public_size(self):
        one = Ranges([(18, 90)])
        centred = one.centred()
        noise = optimal_gaussian(
            centred, epsilon=1.0, delta=1e-6, weights=centred.mean_weights
        )  # fmt: skip
        count, ages = noise.coordinate_errors()
        public = optimal_gaussian(one.differences(), epsilon=1.0, delta=1e-6).error
        assert ages + 36**2 * count == pytest.approx(public, rel=1e-9)

    @pytest.mark.parametrize("ends", [(18.0, 90.0), (-7.0, -3.0), (2.0, 10.0)])
    def test_for_a_sum_the_count_comes_for_nothing(self, ends):
        one = Ranges([ends])
        centre = float(one.centres[0])
        joint = optimal_gaussian(
            one.centred(), epsilon=1.0, delta=1e-6, weights=[centre**2, 1.0]
        )  # fmt: skip
        plain = optimal_gaussian(one, epsilon=1.0, delta=1e-6)
        count, sums = joint.coordinate_errors()
        assert sums + centre**2 * count == pytest.approx(plain.error, rel=1e-9)

    def test_means_are_as_good_as_predicted_and_better_than_sums_over_counts(self):
        rng = np.random.default_rng(0)
        ages = rng.uniform(40, 60, size=(2000, 1))
        source = SeededForExperiments(seed=1)
        centred = Ranges([(18, 90)]).centred()
        noise = recommend(centred, 1.0, weights=centred.mean_weights).best.mechanism
        plain = optimal_laplace(Box([1.0, 90.0]), epsilon=1.0, weights=[50.0**2, 1.0])
        total = centred.clip(ages).sum(axis=0)
        found = [centred.means(noise.release(total, source))[0] for _ in range(400)]
        worse = []
        for _ in range(400):
            count, sums = plain.release([2000.0, ages.sum()], source)
            worse.append(sums / count)
        count, sums = noise.coordinate_errors()
        truth = float(ages.mean())
        predicted = (sums + (truth - 54) ** 2 * count) / 2000**2
        assert np.mean((np.array(found) - truth) ** 2) == pytest.approx(predicted, rel=0.3)
        assert np.var(worse) > 5 * np.var(found)

    def test_sums_and_means_come_back_by_name(self):
        centred = PEOPLE.centred()
        assert centred.columns == ("count", "age", "income")
        noise = optimal_laplace(centred, epsilon=1e9)
        table = {"income": [1e4, 2e4, 9e9], "age": [30, 40, math.nan], "other": ["a", "b", "c"]}
        released = noise.release_sum(table)
        assert list(released) == ["count", "age", "income"]
        assert centred.means(released) == pytest.approx({"age": 35, "income": 15e3}, rel=1e-3)
        assert centred.sums(released) == pytest.approx({"age": 70, "income": 30e3}, rel=1e-3)
        assert centred.sums(list(released.values())) == pytest.approx([70, 30e3], rel=1e-3)

    def test_means_stay_in_their_ranges_whatever_the_noise(self):
        centred = PEOPLE.centred()
        assert centred.means([-5.0, 1e9, -1e9]).tolist() == [90, 0]

    def test_refusals(self):
        with pytest.raises(UnsoundConfiguration, match="centring gains nothing"):
            CentredRanges(PEOPLE.differences())
        with pytest.raises(UnsoundConfiguration, match=r"ranges\.differences"):
            PEOPLE.centred().differences()
        with pytest.raises(ValueError, match="the count and 2 sums, got shape"):
            PEOPLE.centred().means([1.0, 2.0])
        with pytest.raises(ValueError, match="names belong to the ranges"):
            PEOPLE.centred().named(["a", "b", "c"])


def test_no_rows_have_no_sum():
    centred = Ranges([(0, 1)]).centred()
    assert centred.clip(np.zeros((0, 1))).shape == (0, 2)
