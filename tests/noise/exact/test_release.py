"""Value plus ideal noise, rounded: exactly that distribution, and exactly its loss."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noise.words import Words
from scipy import stats

import taut
from taut.noise import (
    Blocks,
    Box,
    L2Ball,
    SeededForExperiments,
    gaussian_with_scales,
    optimal_gaussian,
)
from taut.noise._exact.grid_values import MOST_STEPS, exact_value
from taut.noise._exact.release import (
    _CLEAR_TAIL,
    _MARGIN,
    STANDARD_LAPLACE,
    STANDARD_NORMAL,
    RoundedNoise,
    noisy_steps,
)

KINDS = {"normal": (STANDARD_NORMAL, stats.norm), "laplace": (STANDARD_LAPLACE, stats.laplace)}
SQRT_2 = math.sqrt(2)


def in_steps(numbers):
    """Return numbers as grid values, on the grid of integers."""
    vector = np.atleast_1d(np.asarray(numbers, dtype=np.float64))
    return exact_value(vector, np.zeros(vector.size, dtype=np.intc))


def masses(law, value, ratio, steps):
    """Return the exact probabilities of the integers: between halves, from the nearer tail."""
    low, high = (steps - 0.5 - value) / ratio, (steps + 0.5 - value) / ratio
    return np.where(low > 0, law.sf(low) - law.sf(high), law.cdf(high) - law.cdf(low))


def mp_tail(kind, point):
    point = mpmath.mpf(point.numerator) / point.denominator
    return mpmath.erfc(point / mpmath.sqrt(2)) if kind == "normal" else mpmath.exp(-point)


def mp_magnitude(kind, tail):
    """Return z with the given tail; for the normal by Newton's iteration, which falls towards it.

    The logarithm of the tail is concave, and the start is on its far side.
    """
    wanted = -mpmath.log(tail)
    if kind == "laplace" or wanted == 0:
        return wanted
    point, step = mpmath.sqrt(2 * wanted), 1
    while step > mpmath.mpf(2) ** (20 - mpmath.mp.prec) * point:
        mass = mpmath.erfc(point / mpmath.sqrt(2))
        hazard = mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-(point**2) / 2) / mass
        step = (-mpmath.log(mass) - wanted) / hazard
        point -= step
    return point


class TestDistribution:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("ratio", [0.2, 1.0, 1.7, 12.3])
    @pytest.mark.parametrize("value", [0.25, 0.5, 0.5 - 2.0**-54, -1.4999, 1e6 + 0.5])
    def test_bins_have_their_probabilities(self, kind, ratio, value):
        unit, law = KINDS[kind]
        count, source = 20_000, SeededForExperiments(11)
        drawn = noisy_steps(in_steps(np.full(count, value)), np.full(count, ratio), unit, source)
        centre, reach = round(value), max(3, math.ceil(8 * ratio))
        steps = np.arange(centre - reach, centre + reach + 1)
        expected = count * masses(law, value, ratio, steps)
        inside = np.clip(drawn - steps[0], -1, steps.size) + 1
        seen = np.bincount(inside, minlength=steps.size + 2)[1:-1]
        kept = expected > 8
        expected = np.append(expected[kept], count - expected[kept].sum())
        seen = np.append(seen[kept], count - seen[kept].sum())
        kept = expected > 1e-6
        assert seen[~kept].sum() == 0
        statistic = ((seen - expected)[kept] ** 2 / expected[kept]).sum()
        assert stats.chi2(max(int(kept.sum()) - 1, 1)).sf(statistic) > 1e-4

    @pytest.mark.parametrize("fineness", [-1, 0, 10])
    def test_of_a_mechanism(self, monkeypatch, fineness):
        monkeypatch.setattr("taut.noise._exact.release._FINENESS", fineness)
        size, scale, value = 50_000, 3.7, 10.11
        noise = gaussian_with_scales(Box(np.ones(size)), np.full(size, scale))
        grid = noise.grid[0]
        released = noise.release(np.full(size, value), SeededForExperiments(5))
        assert (released % grid == 0).all()
        # Multiples of the grid up to a point are as frequent as what rounds to them.
        points = grid * np.rint(stats.norm(value, scale).ppf(np.linspace(0.02, 0.98, 25)) / grid)
        for point in np.unique(points):
            share = stats.norm(value, scale).cdf(point + grid / 2)
            seen = np.count_nonzero(released <= point)
            assert abs(seen - size * share) < 4.5 * math.sqrt(size * share * (1 - share))

    def test_every_coordinate_has_its_own_scale(self):
        scales = np.array([1.0, 40.0, 0.003])
        noise = gaussian_with_scales(Box([1.0, 1.0, 1.0]), scales)
        assert (noise.grid == [2.0**-10, 2.0**-5, 2.0**-19]).all()
        source = SeededForExperiments(3)
        draws = np.stack([noise.release([1.0, 2.0, 3.0], source) for _ in range(4000)])
        for draw, centre, scale in zip(draws.T, [1.0, 2.0, 3.0], scales, strict=True):
            assert stats.kstest(draw, stats.norm(centre, scale).cdf).pvalue > 1e-3


class TestDoubles:
    """What is claimed of floating point, against arithmetic of many digits."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_inverse_is_within_its_bound(self, kind):
        rng = np.random.default_rng(0)
        tails = np.concatenate(
            [
                2.0 ** -rng.uniform(0, 24, 400),
                rng.uniform(0, 1, 400),
                1 - 2.0 ** -rng.uniform(1, 53, 200),
                [1.0, 2.0**-24, math.exp(-2) * 2, 0.5, np.nextafter(1.0, 0)],
            ]
        )
        found = KINDS[kind][0].magnitudes(tails)
        with mpmath.workprec(150):
            worst = max(
                abs(mp_magnitude(kind, mpmath.mpf(float(t))) - mpmath.mpf(float(z)))
                for t, z in zip(tails, found, strict=True)
            )
        assert worst < 2.0**-44

    @pytest.mark.parametrize("kind", KINDS)
    def test_all_that_a_word_leaves_open_is_within_the_margin(self, kind):
        rng = np.random.default_rng(1)
        edge = [_CLEAR_TAIL, _CLEAR_TAIL + 1, 2**63 - 1, 2**63 - 2, 2**52 + 1]
        words = [*edge, *(int(2.0 ** rng.uniform(40, 63)) for _ in range(150))]
        with mpmath.workprec(150):
            for word in words:
                for ratio in (2.0**-40, 0.7, 1999.99):
                    rest = float(rng.uniform(-0.5, 1))
                    tail = (np.array([word], dtype=np.uint64).astype(np.float64) + 0.5) * 2.0**-63
                    moved = rest + ratio * KINDS[kind][0].magnitudes(tail)[0] + 0.5
                    for end in (word, word + 1):
                        ideal = rest + 0.5 + ratio * mp_magnitude(kind, mpmath.mpf(end) / 2**63)
                        assert abs(ideal - mpmath.mpf(float(moved))) < _MARGIN * (1 + ratio)


def boundary_words(kind, point, words, last):
    """Return words whose bits are those of the tail at a point, but for the last."""
    bits = 63 + 64 * words
    with mpmath.workprec(bits + 600):
        tail = int(mpmath.floor(mp_tail(kind, abs(point)) * mpmath.mpf(2) ** bits))
    head = tail >> (64 * words)
    rest = [(tail >> (64 * (words - 1 - j))) & (2**64 - 1) for j in range(words)]
    sign = 1 if point > 0 else 0
    return [head << 1 | sign, *rest, last]


class TestUnclearDraws:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("known", [0, 1, 3])
    @pytest.mark.parametrize("last", [0, 2**64 - 1])
    @pytest.mark.parametrize(
        ("value", "ratio", "step"),
        [
            (0.0, 1.0, 1),
            (0.1, 1500.1, 1400),
            (0.1, 1500.1, -4000),
            (-0.3, 0.37, 1),
            (12345.4, 2.0**-3, 12346),
            (1e-300, 1.0, -2),
            (0.25, 1100.0, 7000),
        ],
    )
    def test_bits_decide_where_they_differ_from_the_boundary(
        self, kind, known, last, value, ratio, step
    ):
        """The noise begins like the boundary, for 63 bits and whole words; the last word tells."""
        point = (step - Fraction(1, 2) - Fraction(value)) / Fraction(ratio)
        words = boundary_words(kind, point, known, last)
        spare = [0x9E3779B97F4A7C15] * 4
        source = Words(words + spare)
        found = noisy_steps(in_steps(value), np.array([ratio]), KINDS[kind][0], source)[0]
        assert 2 + known <= source.used <= 3 + known
        # A smaller tail is a larger magnitude: the boundary is passed on the far side of it.
        with mpmath.workprec(1500):
            drawn = 0
            for word in [words[0] >> 1, *words[1:]]:
                drawn = drawn << 64 | word
            bits = 63 + 64 * (known + 1)
            beyond = mpmath.mpf(drawn) / mpmath.mpf(2) ** bits < mp_tail(kind, abs(point))
        reached = beyond if point > 0 else not beyond
        assert found == (step if reached else step - 1)
        assert beyond == (last == 0)

    @pytest.mark.parametrize("kind", KINDS)
    @given(
        st.floats(-3, 3),
        st.floats(0.01, 3000),
        st.lists(st.integers(0, 2**64 - 1), min_size=4, max_size=4),
    )
    def test_exact_path_agrees_with_arithmetic_of_many_digits(self, kind, value, ratio, words):
        # Below the clear tail, so that doubles are not asked; and there is always another word.
        shrunk = [words[0] & 0xFFFFFFFFFF, *words[1:], *[0x9E3779B97F4A7C15] * 4]
        source = Words(shrunk)
        found = noisy_steps(in_steps(value), np.array([ratio]), KINDS[kind][0], source)[0]
        with mpmath.workprec(700):
            drawn = shrunk[0] >> 1
            for word in shrunk[1:]:
                drawn = drawn << 64 | word
            magnitude = mp_magnitude(kind, mpmath.mpf(drawn) / mpmath.mpf(2) ** (63 + 7 * 64))
            signed = magnitude if words[0] & 1 else -magnitude
            ideal = mpmath.mpf(value) + mpmath.mpf(ratio) * signed + 0.5
        assert source.used >= 2
        assert found == int(mpmath.floor(ideal))

    def test_tails_have_no_end(self):
        """Words of zeros are ever larger noise, and no word is the last."""
        for zeros in (1, 2, 4, 8, 20):
            source = Words([1, *[0] * (zeros - 1), *[2**63] * 3])
            found = noisy_steps(in_steps(0.0), np.ones(1), STANDARD_NORMAL, source)[0]
            with mpmath.workprec(200):
                expected = mp_magnitude("normal", mpmath.mpf(2) ** (-64 * zeros))
            assert found == round(float(expected))

    @pytest.mark.parametrize("kind", KINDS)
    def test_at_a_half_the_sign_decides(self, kind):
        for sign in (0, 1):
            source = Words([2**64 - 2 + sign])
            drawn = noisy_steps(in_steps(7.5), np.ones(1), KINDS[kind][0], source)
            assert drawn[0] == 7 + sign
            assert source.used == 1

    @pytest.mark.parametrize("kind", KINDS)
    def test_integers_agree_with_doubles_wherever_these_can_tell(self, monkeypatch, kind):
        ratio, size = 1.3, 1000
        words = SeededForExperiments(8).integers_u64(size).tolist()
        arguments = in_steps(np.zeros(size)), np.full(size, ratio), KINDS[kind][0]
        doubles = noisy_steps(*arguments, Words(words))
        monkeypatch.setattr("taut.noise._exact.release._MARGIN", 2.0)  # nothing is clear
        assert (noisy_steps(*arguments, Words(words)) == doubles).all()


class TestLoss:
    """The true delta of what is released, bin by bin, is within the loss."""

    @pytest.mark.parametrize("offset", [0.0, 0.3, 0.5])
    @pytest.mark.parametrize("fineness", [0, 3, 10])
    @pytest.mark.parametrize("kind", KINDS)
    def test_one_dimension(self, monkeypatch, kind, fineness, offset):
        monkeypatch.setattr("taut.noise._exact.release._FINENESS", fineness)
        scale, width = 0.83, 1.0
        unit, law = KINDS[kind]
        grid = RoundedNoise(np.array([scale]), unit).grid[0]
        loss = taut.gaussian(scale / width) if kind == "normal" else taut.laplace(scale / width)
        ratio, shift = scale / grid, width / grid
        steps = np.arange(-math.ceil(40 * ratio), math.ceil(40 * ratio))
        one, other = (masses(law, offset + by, ratio, steps) for by in (0.0, shift))
        for epsilon in (0.0, 0.3, 1.0, 1.15):
            for p, q in ((one, other), (other, one)):
                true = np.maximum(p - math.exp(epsilon) * q, 0).sum()
                claimed = loss.delta(epsilon=epsilon)
                assert true <= claimed * (1 + 1e-9) + 1e-14
                assert fineness < 10 or true > 0.99 * claimed

    @pytest.mark.parametrize("kind", KINDS)
    def test_two_dimensions(self, monkeypatch, kind):
        monkeypatch.setattr("taut.noise._exact.release._FINENESS", 2)
        scales, shift = np.array([0.9, 3.1]), np.array([0.5, 1.9])
        unit, law = KINDS[kind]
        grid = RoundedNoise(scales, unit).grid
        if kind == "normal":
            loss = gaussian_with_scales(Box(shift), scales).loss
        else:
            loss = taut.laplace(scales[0] / shift[0]) + taut.laplace(scales[1] / shift[1])
        sides = []
        for by in (0.0, 1.0):
            parts = [
                masses(law, 0.37 + by * s / g, c / g, np.arange(-250, 250))
                for s, g, c in zip(shift, grid, scales, strict=True)
            ]
            sides.append(np.outer(*parts))
        for epsilon in (0.1, 0.5, 1.0):
            claimed = loss.delta(epsilon=epsilon)
            for p, q in (sides, sides[::-1]):
                true = np.maximum(p - math.exp(epsilon) * q, 0).sum()
                assert 0.5 * claimed < true <= claimed * (1 + 1e-9) + 1e-14


class TestRelease:
    def test_neighbours_share_one_support(self):
        """Every output of one neighbour has words that lead to it from the other."""
        noise = gaussian_with_scales(Box([1.0]), [10.0])
        grid, source = noise.grid[0], SeededForExperiments(2)
        values = (0.1234567, 1.0 + 0.7654321 / 3)
        for value, other in (values, values[::-1]):
            for _ in range(200):
                output = noise.release([value], source)[0]
                point = (Fraction(output) - Fraction(other)) / 10
                low, high = STANDARD_NORMAL.tail_bounds(abs(point), 63)
                word = Words([low << 1 | (point > 0)])
                assert noise.release([other], word)[0] == output
                assert output % grid == 0
                assert high - low <= 1

    def test_low_bits_do_not_depend_on_the_value(self):
        size, counts = 40_000, []
        noise = gaussian_with_scales(Box(np.ones(size)), np.full(size, 10.0))
        for seed, value in enumerate((0.1234567, 1.7654321)):
            released = noise.release(np.full(size, value), SeededForExperiments(seed))
            low = (released / noise.grid).astype(np.int64) % 16
            counts.append(np.bincount(low, minlength=16))
        assert stats.chi2_contingency(np.array(counts)).pvalue > 1e-3

    def test_public_constants_stay_as_they_are(self):
        box = Box([1.0, 0.0], allow_zero=True)
        noise = gaussian_with_scales(box, [1.0, 0.0])
        released = noise.release([5.0, 7.0], SeededForExperiments(0), public=[math.pi, math.pi])
        assert released[1] == math.pi
        assert released[0] % noise.grid[0] == 0
        assert noise.grid[1] == 0
        assert noise.release([5.0, 7.0])[1] == noise.release_sum([[5.0, 7.0]])[1] == 0

    @pytest.mark.parametrize("scale", [5e-324, 1e-310, 2.0**-1022, 1e-3, 1e300, 1.7e308])
    def test_any_scale(self, scale):
        source = SeededForExperiments(1)
        noise = RoundedNoise(np.full(2000, scale), STANDARD_NORMAL)
        released = noise.release(np.zeros(2000), source)
        steps = released / noise.grid
        finite = np.isfinite(released)
        assert (steps[finite] == np.rint(steps[finite])).all()
        assert finite.all() or scale > 1e307
        if scale > 1e-300:  # below, steps are coarse, as there is no finer normal grid
            middle = np.median(np.abs(steps)) * (noise.grid[0] / scale)
            assert middle == pytest.approx(0.6745, abs=0.06)

    def test_huge_values_are_cut(self):
        noise = gaussian_with_scales(Box([1.0, 1.0]), [1.0, 1.0])
        released = noise.release([1e300, -1e300], SeededForExperiments(0))
        edge = MOST_STEPS * noise.grid
        assert released == pytest.approx([edge[0], -edge[1]], abs=10)

    def test_large_values_stay_exact(self):
        """Steps far from zero are those near it, moved."""
        noise = gaussian_with_scales(Box([1.0]), [1.0])
        near, far = (noise.release([v], SeededForExperiments(4))[0] for v in (0.25, 2.0**30 + 0.25))
        assert far - near == 2.0**30

    def test_sums_are_exact(self):
        """Rows that cancel leave nothing, however large they were on the way."""
        noise = optimal_gaussian(Blocks([1, 2], [1e9, 1.0]), multiplier=1e-6)
        stays = noise.grid * [3, -1, 5]
        rows = np.array([[1e9 / 3, 0.5, 0.1], stays, [-1e9 / 3, -0.5, -0.1]] * 400)
        total = noise.release_sum(rows, SeededForExperiments(6))
        alone = noise.release_sum(rows[1:2], SeededForExperiments(6))
        assert (total - alone == 399 * stays).all()
        assert (total % noise.grid == 0).all()

    def test_replaced_records(self):
        noise = optimal_gaussian(L2Ball(2, 1.0).differences(), multiplier=1e-6)
        rows = [[3.0, 4.0], [math.nan, 1.0], [0.1, 0.0]]
        assert noise.release_sum(rows) == pytest.approx([0.7, 0.8], abs=1e-4)
