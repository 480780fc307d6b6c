"""Noise uniform in a scaled box, rounded: exactly the ideal distribution, and its pure loss."""

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noise.words import Words
from scipy import stats

from taut.errors import InfeasibleBudget
from taut.noise import (
    Box,
    LInfBall,
    SeededForExperiments,
    grouped_linf,
    optimal_laplace,
    recommend,
)
from taut.noise._exact.grouped import _CLEAR_TAIL, RoundedGroups, grouped_release
from taut.noise._random.lazy_bits import OpenLength, OpenUniform, minus_log_bounds, rounded_alike

MOST = 2**64 - 1
words_of = st.integers(0, MOST)


def joined(words):
    """Return the integer whose bits are those of the words."""
    total = 0
    for word in words:
        total = total << 64 | int(word)
    return total


def one_group(widths, budget):
    """Return a release with a single group."""
    widths = np.asarray(widths, dtype=np.float64)
    return grouped_release(widths, (np.arange(widths.size),), np.array([budget]))


def box_masses(widths, budget, edges):
    """Return the probabilities of the rectangles of a grid under exp(-budget max |t_i| / width_i).

    The density is an integral over its levels: bodies s B weigh budget exp(-budget s) ds. Between
    the places where an edge enters the body the integrand is a polynomial times exp(-budget s).
    """
    dimension = len(widths)
    stops = np.unique(np.concatenate([np.abs(e) / w for e, w in zip(edges, widths, strict=True)]))
    stops = np.unique(np.append(stops, [0.0, stops[-1] + 60 / budget]))
    pieces = np.concatenate([np.linspace(a, b, 5)[:-1] for a, b in pairwise(stops)])
    pieces = np.append(pieces, stops[-1])
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = np.diff(pieces)[:, None] / 2
    levels = (pieces[:-1, None] + half * (1 + nodes)).ravel()
    weight = (half * weights).ravel() * budget * np.exp(-budget * levels)
    overlaps = []
    for e, w in zip(edges, widths, strict=True):
        inside = np.clip(e[None, :], -levels[:, None] * w, levels[:, None] * w)
        overlaps.append(np.diff(inside, axis=1))
    volume = math.factorial(dimension) * np.prod([2 * w / budget for w in widths])
    if dimension == 1:
        return weight @ overlaps[0] / volume
    return np.einsum("l,li,lj->ij", weight, *overlaps) / volume


def chi_square(seen, masses, count):
    """Return the p-value of counts; cells of few, and what lies outside, are pooled."""
    seen, expected = np.ravel(seen), count * np.ravel(masses)
    kept = expected > 8
    seen = np.append(seen[kept], count - seen[kept].sum())
    expected = np.append(expected[kept], count - expected[kept].sum())
    statistic = ((seen - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    return stats.chi2(max(seen.size - 1, 1)).sf(statistic)


class TestOpenDraws:
    @given(st.lists(st.integers(1, MOST), min_size=1, max_size=40), st.integers(0, 3))
    def test_logarithms_of_products_are_enclosed(self, starts, more):
        bits = 64 * (1 + more)
        starts = [joined([start, *[start ^ 0x5DEECE66D] * more]) for start in starts]
        low, high = minus_log_bounds(starts, bits)
        with mpmath.workprec(bits + 200):
            most = -mpmath.fsum(mpmath.log(mpmath.mpf(s) / 2**bits) for s in starts)
            least = -mpmath.fsum(mpmath.log(mpmath.mpf(s + 1) / 2**bits) for s in starts)
            enclosed = [mpmath.mpf(end.numerator) / end.denominator for end in (low, high)]
            assert enclosed[0] <= least <= most <= enclosed[1]
            slack = len(starts) * mpmath.mpf(2) ** (1 - bits)
            assert enclosed[1] - enclosed[0] <= most - least + slack

    def test_many_factors(self):
        words = SeededForExperiments(0).integers_u64(3000).tolist()
        low, high = minus_log_bounds(words, 64)
        with mpmath.workprec(200):
            exact = -mpmath.fsum(mpmath.log((mpmath.mpf(w) + 0.5) / 2**64) for w in words)
            assert low < Fraction(int(exact * 2**100), 2**100) < high
        assert high - low < Fraction(1, 2**40)

    def test_further_bits_lie_within_the_first(self):
        source = SeededForExperiments(1)
        draws = OpenLength([5, 2**63, MOST], source), OpenUniform(-(2**62), source, bits=63)
        for draw in draws:
            outer = draw.bounds
            for _ in range(3):
                draw.extend()
                inner = draw.bounds
                assert outer[0] <= inner[0] < inner[1] <= outer[1]
                assert inner[1] - inner[0] < (outer[1] - outer[0]) / 2**50
                outer = inner

    def test_lengths_have_no_end(self):
        for zeros in (1, 3, 10):
            source = Words([0, 2**63] * (zeros - 1) + [2**63, 2**63] * 3)
            length = OpenLength([0, 2**63], source)
            assert length.nearly() == pytest.approx((64 * zeros + 2) * math.log(2), abs=1e-12)

    def test_an_interval_is_rounded_if_all_of_it_is(self):
        half = Fraction(1, 2)
        assert rounded_alike((half, Fraction(7, 5))) == 1
        assert rounded_alike((Fraction(2, 5), half)) is None
        assert rounded_alike((-half, Fraction(2, 5))) == 0


class TestDoubles:
    @pytest.mark.parametrize("size", [1, 2, 7, 300])
    @pytest.mark.parametrize("seed", [0, 1])
    def test_all_that_the_words_leave_open_is_within_the_margin(self, size, seed):
        """Both ends of what the first words allow, in many digits, against the margin."""
        rng = np.random.default_rng(seed)
        rounding = one_group(2.0 ** rng.uniform(-5, 5, size), float(rng.uniform(0.1, 3)))
        words = SeededForExperiments(seed).integers_u64(size + 1).copy()
        words[: min(size, 3)] = [_CLEAR_TAIL, _CLEAR_TAIL + 1, MOST][: min(size, 3)]
        lengths, opened = rounding._lengths(words, Words([]))
        assert not opened
        places = rng.integers(-(2**63), 2**63 - 1, size)
        places[0] = -(2**63)
        spread = rounding._ratios * lengths[0]
        moved = (places + 0.5) * 2.0**-63 * spread
        # The margin is where depths turn clear; half of it is kept in reserve.
        margins = (
            (size + 1) * 2.0**-39 * rounding._ratios + (size + 9) * 2.0**-51 * spread + 2.0**-49
        )
        for nudge, unclear in ((1 - 1e-6, True), (1 + 1e-6, False)):
            assert (rounding._unclear(margins * nudge, spread) == unclear).all()
            assert (rounding._unclear(1 - margins * nudge, spread) == unclear).all()
        with mpmath.workprec(160):
            sums = [
                -mpmath.fsum(mpmath.log((mpmath.mpf(int(w)) + end) / 2**64) for w in words)
                for end in (0, 1)
            ]
            for i in rng.choice(size, min(size, 20), replace=False):
                scale = mpmath.mpf(rounding.widths[i]) / mpmath.mpf(rounding.budgets[0])
                scale /= mpmath.mpf(2) ** int(rounding.exponents[i])
                for total in sums:
                    for end in (0, 1):
                        ideal = scale * total * (int(places[i]) + end) / 2**63
                        assert abs(ideal - mpmath.mpf(float(moved[i]))) < margins[i] / 1.9

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12),
        st.floats(1e-2, 20),
        st.integers(0, 2**32),
        st.integers(0, 11),
    )
    def test_integers_agree_with_doubles_wherever_these_can_tell(self, widths, budget, seed, cut):
        rounding = _two_groups(np.array(widths), budget, cut)
        value = np.linspace(-3, 3, len(widths))
        fast = rounding.release(value, SeededForExperiments(seed))
        patch = pytest.MonkeyPatch()
        with patch.context() as patched:
            patched.setattr("taut.noise._exact.grouped._STEP_MARGIN", 2.0)  # nothing is clear
            assert (rounding.release(value, SeededForExperiments(seed)) == fast).all()
        with patch.context() as patched:
            patched.setattr("taut.noise._exact.grouped._CLEAR_TAIL", MOST)  # nor any length
            assert (rounding.release(value, SeededForExperiments(seed)) == fast).all()

    def test_grid_and_ratios_of_extreme_scales(self):
        for width, budget in ((1e-300, 1e-5), (1e300, 1e3), (5e-324, 1.0), (1e-310, 1e300)):
            rounding = one_group([width], budget)
            exact = Fraction(width) / Fraction(budget) / Fraction(2) ** int(rounding.exponents[0])
            assert rounding._ratios[0] == pytest.approx(float(exact), rel=1e-15, abs=1e-300)
            assert np.isfinite(rounding.release(np.zeros(1), SeededForExperiments(0))).all()


def _two_groups(widths, budget, cut):
    """Return a release with the coordinates before and after a cut as groups."""
    every = np.arange(widths.size)
    groups = tuple(g for g in (every[:cut][::-1].copy(), every[cut:]) if g.size)
    return grouped_release(widths, groups, np.full(len(groups), budget))


def ideal_steps(rounding, value, lengths, places):
    """Return the nearest integers for given bits: lists of words of every number."""
    with mpmath.workprec(2000):
        total = -mpmath.fsum(
            mpmath.log(mpmath.mpf(joined(words)) / mpmath.mpf(2) ** (64 * len(words)))
            for words in lengths
        )
        found = []
        for i, words in enumerate(places):
            bits = 64 * len(words) - 1
            start = joined(words) - (1 << (bits + 1) if words[0] >= 2**63 else 0)
            scale = mpmath.mpf(rounding.widths[i]) / mpmath.mpf(rounding.budgets[0])
            scale /= mpmath.mpf(2) ** int(rounding.exponents[i])
            centre = mpmath.mpf(value[i]) / mpmath.mpf(2) ** int(rounding.exponents[i])
            place = mpmath.mpf(start) / mpmath.mpf(2) ** bits
            found.append(int(mpmath.floor(centre + scale * total * place + 0.5)))
        return found


class TestUnclearDraws:
    @pytest.mark.parametrize("steps", [(3, -700), (-1, 1500), (0, 1)])
    @pytest.mark.parametrize("last", [0, 1, 2**63, MOST])
    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_bits_of_both_decide(self, steps, last, seed):
        """Two coordinates whose first words put them on a boundary, on one common length."""
        rounding = one_group([1.0, 0.37], 0.9)
        value = np.array([0.1, -0.7])
        first = [2**60 + 12345, 2**58 + 77, 2**61 + 5]
        with mpmath.workprec(300):
            total = -mpmath.fsum(mpmath.log(mpmath.mpf(word) / 2**64) for word in first)
            places = []
            for i in range(2):
                unit = mpmath.mpf(2) ** int(rounding.exponents[i])
                scale = mpmath.mpf(rounding.widths[i]) / mpmath.mpf(0.9) / unit
                point = (steps[i] - mpmath.mpf(0.5) - mpmath.mpf(value[i]) / unit) / scale / total
                places.append(int(mpmath.floor(point * 2**63)) % 2**64)
        rng = np.random.default_rng(seed)
        rest = [last, *rng.integers(0, 2**63, 2), last, *rng.integers(0, 2**63, 40)]
        source = Words([*first, *places, *rest])
        found = rounding.release(value, source) / rounding.grid
        assert source.used > 5 + 3
        # Words follow in this order: three for the length and one for the place, once or more
        # for the first coordinate, then for the other one, on the length as far as it is known.
        grown, left = [[word] for word in first], list(rest)
        grown_places = [[word] for word in places]
        for i in range(2):
            while True:
                bounds = minus_log_bounds([joined(w) for w in grown], 64 * len(grown[0]))
                if _is_decided(rounding, value, i, bounds, grown_places[i]):
                    break
                for number in grown:
                    number.append(int(left.pop(0)))
                grown_places[i].append(int(left.pop(0)))
        assert source.used == 5 + len(rest) - len(left)
        assert found.tolist() == ideal_steps(rounding, value, grown, grown_places)
        assert all(abs(found[i] - steps[i]) <= 1 for i in range(2))

    @settings(max_examples=40, deadline=None)
    @given(st.lists(words_of, min_size=40, max_size=40), st.integers(0, _CLEAR_TAIL - 1))
    def test_small_words_take_more_bits(self, words, small):
        rounding = one_group([2.0, 0.5], 1.3)
        value = np.array([0.3, 7.7])
        source = Words([words[0], small, *words[1:], *[0x9E3779B97F4A7C15] * 12])
        found = rounding.release(value, source) / rounding.grid
        drawn = source.words
        assert source.used >= 6
        # The length is extended first, by three words at a time, before places are drawn.
        grown, at = [[word] for word in drawn[:3]], 3
        while not all(joined(w) for w in grown) or _too_wide(grown):
            for number in grown:
                number.append(drawn[at])
                at += 1
        assert source.used == at + 2
        places = [[drawn[at]], [drawn[at + 1]]]
        assert found.tolist() == ideal_steps(rounding, value, grown, places)


def _too_wide(grown):
    low, high = minus_log_bounds([joined(w) for w in grown], 64 * len(grown[0]))
    return high - low > Fraction(1, 2**45)


def _is_decided(rounding, value, i, length, words):
    """Return whether all numbers that begin with the words round alike, in rational numbers."""
    bits = 64 * len(words) - 1
    start = joined(words) - (1 << (bits + 1) if words[0] >= 2**63 else 0)
    unit = Fraction(2) ** int(rounding.exponents[i])
    scale = Fraction(float(rounding.widths[i])) / Fraction(float(rounding.budgets[0])) / unit
    ends = [
        Fraction(float(value[i])) / unit + scale * a * Fraction(start + b, 2**bits)
        for a in length
        for b in (0, 1)
    ]
    return len({math.floor(end + Fraction(1, 2)) for end in ends}) == 1


class TestDistribution:
    @pytest.mark.parametrize("value", [0.0, 0.43, -17.2])
    def test_a_group_of_one_is_laplace_noise(self, monkeypatch, value):
        monkeypatch.setattr("taut.noise._exact.release._FINENESS", 1)
        size, width, budget = 40_000, 0.8, 1.7
        groups = tuple(np.array([i]) for i in range(size))
        rounding = grouped_release(np.full(size, width), groups, np.full(size, budget))
        grid = rounding.grid[0]
        released = rounding.release(np.full(size, value), SeededForExperiments(3)) / grid
        steps = np.arange(-60, 61) + round(value / grid)
        law = stats.laplace(value / grid, width / budget / grid)
        masses = np.diff(law.cdf(np.append(steps, steps[-1] + 1) - 0.5))
        seen = [np.count_nonzero(released == step) for step in steps]
        assert sum(seen) > 0.999 * size
        assert chi_square(seen, masses, size) > 1e-3

    @pytest.mark.parametrize("widths", [(1.0, 1.0), (0.9, 0.25)])
    def test_a_group_of_two_has_its_joint_masses(self, monkeypatch, widths):
        monkeypatch.setattr("taut.noise._exact.release._FINENESS", 1)
        pairs, budget, value = 30_000, 1.1, np.array([0.33, -0.2])
        groups = tuple(np.array([2 * i, 2 * i + 1]) for i in range(pairs))
        rounding = grouped_release(np.tile(widths, pairs), groups, np.full(pairs, budget))
        grid = rounding.grid[:2]
        released = rounding.release(np.tile(value, pairs), SeededForExperiments(4))
        steps = (released.reshape(pairs, 2) / grid).astype(np.int64)
        reach = 25
        edges = [
            (np.arange(-reach, reach + 2) - 0.5) * g - v for g, v in zip(grid, value, strict=True)
        ]
        masses = box_masses(widths, budget, edges)
        assert 0.999 < masses.sum() <= 1 + 1e-9
        kept = (np.abs(steps) <= reach).all(axis=1)
        seen = np.zeros(masses.shape)
        np.add.at(seen, tuple((steps[kept] + reach).T), 1)
        assert chi_square(seen, masses, pairs) > 1e-3
        for axis in (0, 1):
            assert chi_square(seen.sum(axis=axis), masses.sum(axis=axis), pairs) > 1e-3

    @pytest.mark.parametrize("size", [3, 30])
    def test_the_largest_ratio_of_a_group_is_gamma(self, size):
        """The norm of noise with the density exp(-epsilon norm) in K dimensions has shape K."""
        count, budget = 2000, 0.7
        widths = np.linspace(1, 2, size)
        groups = tuple(np.arange(size) + size * g for g in range(count))
        rounding = grouped_release(np.tile(widths, count), groups, np.full(count, budget))
        drawn = rounding.release(np.zeros(size * count), SeededForExperiments(12))
        norms = np.abs(drawn.reshape(count, size) / widths).max(axis=1)
        assert stats.kstest(norms, stats.gamma(size, scale=1 / budget).cdf).pvalue > 1e-3

    def test_low_bits_do_not_depend_on_the_value(self):
        noise, counts = grouped_linf(Box(np.ones(40_000)), epsilon=4e4), []
        for seed, value in enumerate((0.1234567, 1.7654321)):
            released = noise.release(np.full(40_000, value), SeededForExperiments(seed))
            counts.append(np.bincount((released / noise.grid).astype(np.int64) % 16))
        for count in counts:
            assert stats.chisquare(count).pvalue > 1e-3
        assert stats.chi2_contingency(np.array(counts)).pvalue > 1e-3

    def test_masses_of_rectangles_sum_to_those_of_laplace_noise(self):
        edges = np.linspace(-4, 5, 19)
        law = stats.laplace(scale=0.7 / 1.3)
        assert box_masses([0.7], 1.3, [edges]) == pytest.approx(np.diff(law.cdf(edges)), rel=1e-9)

    def test_error_is_as_predicted(self):
        box = Box([1.0, 1.2, 0.8, 40.0])
        noise, source = grouped_linf(box, epsilon=0.7), SeededForExperiments(9)
        value = np.array([0.123, 4.5, -7.7, 1e4])
        squares = np.array([(noise.release(value, source) - value) ** 2 for _ in range(6000)])
        errors = squares.sum(axis=1)
        assert errors.mean() == pytest.approx(noise.error, abs=4.5 * errors.std() / 6000**0.5)
        means, spread = squares.mean(axis=0), squares.std(axis=0) / 6000**0.5
        assert (np.abs(means - noise.coordinate_errors()) < 4.5 * spread).all()
        # What rounding adds, a twelfth of a squared step, is far below a thousandth.
        assert ((noise.grid**2 / 12) < 1e-6 * noise.coordinate_errors()).all()


class TestLoss:
    @pytest.mark.parametrize("fineness", [0, 2])
    @pytest.mark.parametrize("shift", [(1.0, 1.0), (1.0, -0.3), (0.0, 1.0)])
    def test_masses_of_neighbours_are_within_the_promise(self, monkeypatch, fineness, shift):
        """Every rectangle of the grid has a likelihood ratio of at most exp(epsilon)."""
        monkeypatch.setattr("taut.noise._exact.release._FINENESS", fineness)
        widths, epsilon, value = np.array([0.9, 0.25]), 0.8, np.array([0.1234, 0.777])
        grid = one_group(widths, epsilon).grid
        steps = np.arange(-20, 22) - 0.5
        sides = []
        for by in (0.0, 1.0):
            moved = value + by * np.array(shift) * widths
            edges = [steps * g - m for g, m in zip(grid, moved, strict=True)]
            sides.append(box_masses(widths, epsilon, edges))
        assert min(side.min() for side in sides) > 0
        ratios = np.log(sides[0] / sides[1])
        assert np.abs(ratios).max() <= epsilon * (1 + 1e-9)
        assert np.abs(ratios).max() > 0.8 * epsilon

    def test_neighbours_share_one_support(self):
        """Every output of one neighbour has words that lead to it from the other."""
        noise = grouped_linf(Box([1.0, 1.0]), epsilon=0.9)
        rounding, source = noise._rounded, SeededForExperiments(2)
        first = [2**41, 2**41, 2**41]  # a length of 47
        length = -3 * math.log(2.0**-23)
        values = np.array([0.1234567, 0.3]), np.array([1.0 + 0.7654321 / 3, -0.7])
        for value, other in (values, values[::-1]):
            for _ in range(100):
                output = noise.release(value, source)
                scale = np.array([1.0, 1.0]) / float(noise.budgets[0])
                places = np.rint((output - other) / (scale * length) * 2.0**63)
                words = Words([*first, *(int(place) % 2**64 for place in places)])
                assert (rounding.release(other, words) == output).all()
                assert (output % noise.grid == 0).all()


class TestMechanism:
    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.floats(0, 1e4).filter(lambda w: w == 0 or w > 1e-3), min_size=1, max_size=30),
        st.floats(1e-2, 10),
        st.integers(0, 2**32),
    )
    def test_shapes(self, widths, epsilon, seed):
        if not any(widths):
            widths[0] = 1.0
        noise = grouped_linf(Box(widths, allow_zero=True), epsilon=epsilon)
        grid, errors = noise.grid, noise.coordinate_errors(1.0)
        positive = np.array(widths) > 0
        assert ((grid > 0) == positive).all()
        assert (grid[positive] <= errors[positive] * 2.0**-10 * (1 + 1e-9)).all()
        assert (grid[positive] >= errors[positive] * 2.0**-11).all()
        value, source = np.linspace(-5, 1e5, len(widths)), SeededForExperiments(seed)
        released = noise.release(value, source, public=np.ones(len(widths)))
        assert (released[positive] % grid[positive] == 0).all()
        assert (released[~positive] == 1).all()

    def test_sums_are_exact(self):
        noise = grouped_linf(Box([1e3, 1.0, 1.0]), epsilon=5.0)
        stays = noise.grid * [3, -1, 5]
        assert (np.abs(stays) < 1).all()
        rows = np.array([[1e3 / 3, 0.5, 0.1], stays, [-1e3 / 3, -0.5, -0.1]] * 400)
        total = noise.release_sum(rows, SeededForExperiments(6))
        alone = noise.release_sum(rows[1:2], SeededForExperiments(6))
        assert (total - alone == 399 * stays).all()

    def test_large_values_stay_exact(self):
        noise = grouped_linf(LInfBall(3, 1.0), epsilon=3.0)
        near, far = (
            noise.release(np.full(3, v), SeededForExperiments(4)) for v in (0.25, 2.0**30 + 0.25)
        )
        assert (far - near == 2.0**30).all()

    def test_groups_of_one_have_the_grid_of_laplace_noise(self):
        box = Box([1.0, 1e-3, 1e4])
        noise = grouped_linf(box, epsilon=1.0)
        assert len(noise.groups) == 3
        assert (noise.grid == optimal_laplace(box, epsilon=1.0).grid).all()

    def test_a_box_that_is_a_point(self):
        rounding = RoundedGroups(np.zeros(2), np.zeros(2), (), np.zeros(0))
        assert (rounding.release(np.ones(2), Words([])) == 0).all()
        assert (rounding.grid == 0).all()

    def test_recommended_without_a_caveat(self):
        found = recommend(Box([1.0, 1.0, 1.0]), epsilon=1.0)
        assert found.best.name == "grouped l_inf"
        assert found.best.guarantee == "pure, epsilon = 1"

    def test_widths_whose_squares_vanish_still_get_noise(self):
        noise = grouped_linf(Box([1.0, 1e-200]), epsilon=1.0)
        released = [noise.release([0.0, 0.0])[1] for _ in range(4)]
        # Two of them are equal once in some thousands, all four less than once in 10^11.
        assert len(set(released)) > 1
        assert noise.loss.epsilon(delta=0) <= 1.0

    def test_what_doubles_cannot_hold_is_refused(self):
        with pytest.raises(InfeasibleBudget, match="choose epsilon"):
            grouped_linf(Box([1e60]), epsilon=1e-150)
