"""Exact integer noise: masses, tails, cases that 64 bits leave open, and other algorithms."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noise.words import Words
from scipy import stats

from taut.noise._random.discrete import (
    _Gaussian,
    _Laplace,
    _sampler,
    discrete_gaussian_noise,
    discrete_laplace_noise,
)
from taut.noise._random.sources import SecureGenerator, SeededForExperiments

SIZE = 200_000
SCALES = [0.2, 0.5, 1.0, 1.7, 12.3, 15.99, 63.9, 64, Fraction(1000, 7), 1e4]


def gaussian_mass(scale, x):
    return np.exp(-(x.astype(float) ** 2) / (2 * float(scale) ** 2))


def laplace_mass(scale, x):
    return np.exp(-np.abs(x) / float(scale))


CASES = [(discrete_gaussian_noise, gaussian_mass), (discrete_laplace_noise, laplace_mass)]


def p_value(values, masses, x):
    """Return the chi-square p-value against masses on ``x``, in about a hundred cells."""
    assert x[0] <= values.min() <= values.max() <= x[-1]
    probabilities = masses / masses.sum()
    cells = np.floor((np.cumsum(probabilities) - probabilities / 2) * 100).astype(int)
    expected = np.bincount(cells, probabilities) * values.size
    observed = np.bincount(cells[values - x[0]], minlength=expected.size)
    kept = expected > 5
    rest = [observed[~kept].sum()], [expected[~kept].sum()]
    if rest[1][0] < 1e-9:
        rest = [], []
    return stats.chisquare(
        np.append(observed[kept], rest[0]),
        np.append(expected[kept], rest[1]) * values.size / expected.sum(),
    ).pvalue


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("draw", "mass"), CASES)
def test_masses(draw, mass, scale):
    values = draw(scale, size=SIZE, generator=SeededForExperiments(2024))
    reach = math.ceil(45 * float(scale) + 2)
    x = np.arange(-reach, reach + 1)
    assert p_value(values, mass(scale, x), x) > 1e-3


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("draw", [discrete_gaussian_noise, discrete_laplace_noise])
def test_symmetric(draw, scale):
    values = draw(scale, size=SIZE, generator=SeededForExperiments(77))
    positive, negative = int((values > 0).sum()), int((values < 0).sum())
    assert stats.binomtest(positive, max(positive + negative, 1)).pvalue > 1e-3


@pytest.mark.parametrize("scale", [2**20 + 0.3, 2.0**40, 2**50])
def test_large_scales_follow_the_continuous_law(scale):
    gaussian = discrete_gaussian_noise(scale, size=SIZE, generator=SeededForExperiments(5))
    laplace = discrete_laplace_noise(scale, size=SIZE, generator=SeededForExperiments(6))
    assert stats.kstest(gaussian / float(scale), stats.norm.cdf).pvalue > 1e-3
    assert stats.kstest(laplace / float(scale), stats.laplace.cdf).pvalue > 1e-3
    assert np.unique(gaussian % 2).tolist() == [0, 1]


def test_tail_has_its_share():
    values = np.abs(discrete_gaussian_noise(10, size=4_000_000, generator=SeededForExperiments(9)))
    x = np.arange(-200, 201)
    mass = gaussian_mass(10, x)
    for reach in (30, 40, 45):
        p = float(mass[np.abs(x) >= reach].sum() / mass.sum())
        assert stats.binomtest(int((values >= reach).sum()), values.size, p).pvalue > 1e-3


def bernoulli_factory(exponent, source):
    """Canonne, Kamath and Steinke (2020), Algorithm 1."""
    while exponent > 1:
        if not bernoulli_factory(Fraction(1), source):
            return False
        exponent -= 1
    k = 1
    while source.integers(k * exponent.denominator) < exponent.numerator:
        k += 1
    return k % 2 == 1


def factory_laplace(scale, source):
    """Algorithm 2, for an integer scale."""
    while True:
        place = int(source.integers(scale))
        if not bernoulli_factory(Fraction(place, scale), source):
            continue
        block = 0
        while bernoulli_factory(Fraction(1), source):
            block += 1
        magnitude = place + scale * block
        negative = bool(source.integers(2))
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def factory_gaussian(variance, source):
    """Algorithm 3."""
    scale = math.isqrt(math.floor(variance)) + 1
    while True:
        value = factory_laplace(scale, source)
        if bernoulli_factory((abs(value) - variance / scale) ** 2 / (2 * variance), source):
            return value


@pytest.mark.parametrize("variance", [Fraction(1, 3), Fraction(7, 2), Fraction(30)])
def test_same_law_as_the_published_algorithm(variance):
    source = np.random.default_rng(4)
    theirs = np.array([factory_gaussian(variance, source) for _ in range(4000)])
    ours = discrete_gaussian_noise(
        variance=variance, size=100_000, generator=SeededForExperiments(8)
    )
    edges = np.arange(-12.5, 13.5) * max(1, round(float(variance) ** 0.5 / 3))
    table = np.array([np.histogram(v, edges)[0] for v in (theirs, ours)])
    table = table[:, table.sum(axis=0) > 60]
    assert stats.chi2_contingency(table).pvalue > 1e-3


def exact_boundaries(shape, bits, count):
    """Return the cumulative block probabilities by multiple-precision sums over both sides."""
    sampler = _sampler(shape)
    with mpmath.workprec(2 * bits + 100):
        costs = (shape.cost(sampler._nearest(block)) for block in itertools.count())
        weights = []
        for cost in costs:
            weights.append(mpmath.exp(-mpmath.mpf(cost.numerator) / cost.denominator))
            if cost > 2 * bits:
                break
        total = mpmath.fsum(weights)
        partial = itertools.accumulate(weights[:count])
        return [int(mpmath.floor(value / total * 2**bits)) for value in partial]


@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize(
    "shape",
    [
        _Gaussian(Fraction(1, 4)),
        _Gaussian(Fraction(12345)),
        _Laplace(Fraction(0.3)),
        _Laplace(Fraction(99, 2)),
        _Laplace(Fraction(15.743108293787948)),  # floors sum to less than the truth in both:
        _Laplace(Fraction(6.5798258517009325)),
    ],
)
def test_boundaries_enclose_the_cumulative_probabilities(shape, bits):
    lower, upper = _sampler(shape)._boundaries(bits)
    exact = exact_boundaries(shape, bits, len(lower))
    assert all(a <= b <= c for a, b, c in zip(lower, exact, upper, strict=True))
    assert sum(c - a for a, c in zip(lower, upper, strict=True)) <= len(lower) // 8 + 1


@settings(max_examples=15, deadline=None)
@given(st.floats(0.2, 200), st.sampled_from([_Gaussian, _Laplace]))
def test_boundaries_enclose_the_probabilities_of_any_scale(scale, kind):
    shape = kind(Fraction(scale))
    lower, upper = _sampler(shape)._boundaries(64)
    exact = exact_boundaries(shape, 64, len(lower))
    assert all(a <= b <= c for a, b, c in zip(lower, exact, upper, strict=True))


def test_block_at_a_boundary_takes_more_bits():
    shape = _Gaussian(Fraction(4))
    at = exact_boundaries(shape, 128, 3)[2]  # the end of block 2, the integer 1
    word, following = at >> 64, at & ((1 << 64) - 1)
    sampler = _sampler(shape)
    assert sampler.draw(1, Words([word, following - 1])).tolist() == [1]
    assert sampler.draw(1, Words([word, following + 1])).tolist() == [-2]
    assert sampler.draw(1, Words([word - 1])).tolist() == [1]
    assert sampler.draw(1, Words([word + 1])).tolist() == [-2]


def test_support_does_not_end():
    top = (1 << 64) - 1
    sampler = _sampler(_Gaussian(Fraction(4)))
    far = [abs(int(sampler.draw(1, Words([top] * n + [0]))[0])) for n in (2, 4, 8)]
    assert 20 < far[0] < far[1] < far[2]


def test_open_block_of_many_integers_is_finished_exactly():
    shape = _Gaussian(Fraction(128**2))
    sampler = _sampler(shape)
    assert sampler._bits == 2
    at = exact_boundaries(shape, 128, 3)[2]  # the end of block 2, the integers 4 to 7
    word, following = at >> 64, at & ((1 << 64) - 1)
    place, top = 3, (1 << 64) - 1
    accepted = Words([word, 0, following - 1, place, 0])
    assert sampler.draw(1, accepted).tolist() == [7]
    rejected = Words([word, 0, following - 1, place, top, 0, 2])
    assert sampler.draw(1, rejected).tolist() == [2]
    mirrored = Words([word, 0, following + 1, place, 0])
    assert sampler.draw(1, mirrored).tolist() == [-8]


def acceptance(place, at):
    """Return the word that asks for ``place`` in block 0 with the uniform number ``at`` / 2^53."""
    return (at << 11) | place


def test_acceptance_is_exact_at_the_mass_ratio():
    shape = _Gaussian(Fraction(128**2))
    with mpmath.workprec(300):
        ratio = mpmath.exp(-mpmath.mpf(9) / (2 * 128**2))
        cut = int(mpmath.floor(ratio * 2**53))
        following = int(mpmath.floor((ratio * 2**53 - cut) * 2**64))
    draw = _sampler(shape).draw
    assert draw(1, Words([0, acceptance(3, cut - 1), 0])).tolist() == [3]
    assert draw(1, Words([0, acceptance(3, cut), following - 1])).tolist() == [3]
    assert draw(1, Words([0, acceptance(3, cut), following + 1, 0, 1])).tolist() == [1]
    above = acceptance(3, min(cut + (1 << 15), (1 << 53) - 1))
    assert draw(1, Words([0, above, 0, 1])).tolist() == [1]


@settings(max_examples=50, deadline=None)
@given(
    st.floats(1e2, 1e15),
    st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 1)), min_size=1, max_size=20),
)
def test_float_steps_stay_within_their_margin(scale, wanted):
    for shape in (_Gaussian(Fraction(scale) ** 2), _Laplace(Fraction(scale))):
        sampler = _sampler(shape)
        blocks = np.array([block for block, _ in wanted])
        places = np.array([int(part * ((1 << sampler._bits) - 1)) for _, part in wanted])
        nearest = np.array([sampler._nearest(int(block)) for block in blocks])
        ratios = np.exp(-shape.approximate_step(nearest, places))
        for block, place, ratio in zip(blocks, places, ratios, strict=True):
            step = sampler._step(int(block), int(place))
            exact = mpmath.exp(-mpmath.mpf(step.numerator) / step.denominator)
            assert abs(float(ratio / exact - 1)) < 2**-46


def test_secure_by_default(monkeypatch):
    drawn = []
    original = SecureGenerator.bytes
    monkeypatch.setattr(
        SecureGenerator, "bytes", lambda self, n: drawn.append(n) or original(self, n)
    )
    assert discrete_gaussian_noise(3, size=5).shape == (5,)
    assert discrete_laplace_noise(3, size=5).shape == (5,)
    assert sum(drawn) >= 80


def test_sizes_and_types():
    assert discrete_gaussian_noise(3, size=0).shape == (0,)
    assert discrete_gaussian_noise(3).dtype == np.int64
    assert discrete_gaussian_noise(1e-9, size=100).tolist() == [0] * 100
    values = discrete_gaussian_noise(1e5, size=(1 << 14) + 1, generator=SeededForExperiments(1))
    assert values.size == (1 << 14) + 1
    assert values.std() == pytest.approx(1e5, rel=0.05)


def test_floats_variances_and_fractions_agree():
    draws = [
        discrete_gaussian_noise(0.75, size=50, generator=SeededForExperiments(1)),
        discrete_gaussian_noise(Fraction(3, 4), size=50, generator=SeededForExperiments(1)),
        discrete_gaussian_noise(variance=0.5625, size=50, generator=SeededForExperiments(1)),
    ]
    assert (draws[0] == draws[1]).all()
    assert (draws[0] == draws[2]).all()


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf"), 2.0**51, "1", True, None])
def test_bad_scale(scale):
    with pytest.raises((TypeError, ValueError), match="sigma"):
        discrete_gaussian_noise(scale)
    with pytest.raises((TypeError, ValueError), match="scale"):
        discrete_laplace_noise(scale)


def test_one_of_sigma_and_variance():
    with pytest.raises(ValueError, match="exactly one"):
        discrete_gaussian_noise(1, variance=1)
    with pytest.raises(ValueError, match="variance"):
        discrete_gaussian_noise(variance=-1)


@pytest.mark.parametrize("size", [-1, 2.5])
def test_bad_size(size):
    with pytest.raises((TypeError, ValueError), match="size"):
        discrete_gaussian_noise(1, size=size)
    with pytest.raises((TypeError, ValueError), match="size"):
        discrete_laplace_noise(1, size=size)


def test_numpy_generators_are_refused():
    with pytest.raises(TypeError, match="SeededForExperiments"):
        discrete_gaussian_noise(1, generator=np.random.default_rng(0))
