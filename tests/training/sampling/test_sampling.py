"""Samplers draw exactly the distribution that their losses are for."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import taut
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource, SeededForExperiments
from taut.training import FixedSizeSampling, PoissonSampling
from taut.training._sampling.poisson_gaps import geometric_gaps
from taut.training.extend import Sampling


def seeded(seed=0):
    return SeededForExperiments(seed)


def chi_square(counts, probabilities):
    """Return the p-value, rare outcomes put together."""
    counts, expected = np.asarray(counts, float), np.asarray(probabilities) * np.sum(counts)
    common = expected >= 5
    seen = [*counts[common], counts[~common].sum()]
    wanted = [*expected[common], expected[~common].sum()]
    if wanted[-1] == 0:
        seen, wanted = seen[:-1], wanted[:-1]
    return stats.chisquare(seen, np.array(wanted) * sum(seen) / sum(wanted)).pvalue


# --- Poisson -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.004, 0.1, 0.125, 0.3, 0.97])
def test_poisson_batch_sizes_are_binomial(rate):
    n, source = 400, seeded(1)
    sizes = [PoissonSampling(rate).draw(n, source).size for _ in range(4_000)]
    counts = np.bincount(sizes, minlength=n + 1)
    assert chi_square(counts, stats.binom.pmf(np.arange(n + 1), n, rate)) > 1e-3


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_poisson_members_are_equally_likely_and_pairwise_independent(rate):
    n, rounds, source = 12, 15_000, seeded(2)
    inside = np.zeros((rounds, n))
    for row in inside:
        row[PoissonSampling(rate).draw(n, source)] = 1
    deviation = math.sqrt(rounds * rate * (1 - rate))
    assert np.abs(inside.sum(0) - rounds * rate).max() < 4.5 * deviation
    together = inside.T @ inside
    off = ~np.eye(n, dtype=bool)
    deviation = math.sqrt(rounds * rate**2 * (1 - rate**2))
    assert np.abs(together[off] - rounds * rate**2).max() < 4.8 * deviation


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_poisson_draws_every_subset_with_its_probability(rate):
    n, rounds, source = 5, 15_000, seeded(3)
    bits = 1 << np.arange(n)
    counts = np.zeros(1 << n)
    for _ in range(rounds):
        counts[bits[PoissonSampling(rate).draw(n, source)].sum()] += 1
    sizes = np.array([bin(code).count("1") for code in range(1 << n)])
    assert chi_square(counts, rate**sizes * (1 - rate) ** (n - sizes)) > 1e-3


def test_poisson_with_rate_one_draws_all():
    assert np.array_equal(PoissonSampling(1.0).draw(7), np.arange(7))


def test_poisson_with_a_tiny_rate_draws_from_a_huge_dataset():
    source = seeded(4)
    sizes = [PoissonSampling(1e-12).draw(10**13, source).size for _ in range(500)]
    assert abs(np.mean(sizes) - 10) < 4.5 * math.sqrt(10 / 500)
    assert PoissonSampling(5e-324).draw(10**13, source).size == 0


def test_poisson_with_more_members_than_a_block():
    batch = PoissonSampling(0.1).draw(1_500_000, seeded(5))
    assert abs(batch.size - 150_000) < 5 * math.sqrt(150_000)
    assert (np.diff(batch) > 0).all()
    assert batch[-1] < 1_500_000


def test_poisson_of_an_empty_dataset_is_empty():
    assert [PoissonSampling(rate).draw(0).size for rate in (0.01, 0.5, 1.0)] == [0, 0, 0]


class Scripted(RandomSource):
    """Words that a test has chosen."""

    secure = False

    def __init__(self, *words):
        self.words = list(words)

    def bytes(self, n):
        words, self.words = self.words[: n // 8], self.words[n // 8 :]
        return np.array(words, dtype="<u8").tobytes()


@pytest.mark.parametrize("rate", [0.5, 0.3, 0.01, 1e-5])
@pytest.mark.parametrize("gap", [1, 2, 7, 40])
def test_gap_is_decided_by_further_bits_at_the_boundary(rate, gap):
    """A uniform number just below (1 - rate)^k has a gap of k, just above of k - 1."""
    power = (1 - Fraction(rate)) ** gap
    cut = math.floor(power * 2**256)
    words = [(cut >> shift) & (2**64 - 1) for shift in (192, 128, 64, 0)]
    below, above = Scripted(*words[:3], 0, 0), Scripted(*words[:3], 2**64 - 1, 2**64 - 1)
    if power * 2**256 == cut:  # dyadic: the digits of the power itself end in zeros
        below = Scripted(*_digits(cut - 1))
    assert geometric_gaps(rate, 10**9, 1, below)[0] == gap
    assert geometric_gaps(rate, 10**9, 1, above)[0] == gap - 1


def _digits(cut):
    return [(cut >> shift) & (2**64 - 1) for shift in (192, 128, 64, 0)] + [0] * 4


def test_gap_of_the_smallest_words_is_large_but_cut():
    assert geometric_gaps(0.5, 60, 1, Scripted(0, 0, 0, 5, 0))[0] == 60
    assert geometric_gaps(0.5, 1_000, 1, Scripted(0, 0, 1, 7))[0] == 191


@given(
    rate=st.floats(1e-9, 0.999),
    seed=st.integers(0, 2**32),
)
def test_gaps_agree_with_rational_arithmetic(rate, seed):
    words = SeededForExperiments(seed).integers_u64(4)
    gaps = geometric_gaps(rate, 2_000, 4, Scripted(*map(int, words), *([2**63] * 8)))
    stay = 1 - Fraction(rate)
    for word, gap in zip(words, gaps, strict=True):
        uniform = Fraction(2 * int(word) + 1, 2**65)  # what the word and then 2^63 spell
        if gap < 2_000:
            assert float(stay ** int(gap)) >= float(uniform) * (1 - 1e-14)
            assert float(stay ** (int(gap) + 1)) <= float(uniform) * (1 + 1e-14)
        else:
            assert float(uniform) <= float(stay) ** 2_000 * (1 + 1e-9)


def test_poisson_loss_is_that_of_the_sampled_gaussian():
    assert PoissonSampling(0.02).step_loss(1.3, 500) == taut.gaussian(1.3).poisson(0.02)
    total = PoissonSampling(0.02).loss(1.3, 500, 40)
    assert total == 40 * taut.gaussian(1.3).poisson(0.02)


# --- fixed size --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_fixed_size_subsets_are_uniform(size):
    n, source = 5, seeded(6)
    bits = 1 << np.arange(n)
    counts = np.zeros(1 << n)
    for _ in range(10_000):
        batch = FixedSizeSampling(size).draw(n, source)
        assert batch.size == size
        assert (np.diff(batch) > 0).all()
        counts[bits[batch].sum()] += 1
    possible = np.array([bin(code).count("1") == size for code in range(1 << n)])
    assert counts[~possible].sum() == 0
    if possible.sum() > 1:
        assert stats.chisquare(counts[possible]).pvalue > 1e-3


@given(n=st.integers(1, 3_000), share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_fixed_size_draws_distinct_places_in_range(n, share, seed):
    size = max(1, round(share * n))
    batch = FixedSizeSampling(size).draw(n, SeededForExperiments(seed))
    assert batch.dtype == np.int64
    assert np.unique(batch).size == batch.size == size
    assert 0 <= batch.min() <= batch.max() < n


def test_fixed_size_loss_has_twice_the_sensitivity():
    loss = FixedSizeSampling(50).step_loss(2.0, 1_000)
    base = taut.gaussian(2.0, sensitivity=2.0, adjacency="replace")
    assert loss == base.fixed_size(50, 1_000, adjacency="replace")
    assert loss.adjacency == FixedSizeSampling.adjacency == "replace"


def test_fixed_size_needs_the_dataset_it_was_accounted_for():
    FixedSizeSampling(5).check_examples(100, 100)
    with pytest.raises(UnsoundConfiguration, match="examples=100, the dataset has 99"):
        FixedSizeSampling(5).check_examples(100, 99)
    PoissonSampling(0.1).check_examples(100, 99)


# --- the family --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampling",
    [PoissonSampling(), PoissonSampling(0.1), FixedSizeSampling(), FixedSizeSampling(64)],
)
def test_samplings_round_trip(sampling):
    assert Sampling.from_dict(sampling.to_dict()) == sampling


def test_a_new_sampling_is_found_by_its_name():
    class Everybody(PoissonSampling):
        name = "everybody"

    assert isinstance(Sampling.from_dict({"name": "everybody", "rate": 1.0}), Everybody)
    with pytest.raises(ValueError, match="name must be new"):
        type("Other", (PoissonSampling,), {"name": "everybody"})


def test_secure_generator_is_the_default():
    first, second = (PoissonSampling(0.5).draw(200) for _ in range(2))
    assert not np.array_equal(first, second)
    first, second = (FixedSizeSampling(100).draw(200) for _ in range(2))
    assert not np.array_equal(first, second)


def test_seeded_batches_repeat():
    draws = [PoissonSampling(0.05).draw(1_000, seeded(9)) for _ in range(2)]
    assert np.array_equal(*draws)
    batches = FixedSizeSampling(3).batches(50, seeded(9))
    assert not np.array_equal(next(batches), next(batches))


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan, True, "a"])
def test_bad_rates(rate):
    with pytest.raises(ValueError, match="rate must be"):
        PoissonSampling(rate)


def test_bad_sizes():
    with pytest.raises(ValueError, match="batch_size must be an integer"):
        FixedSizeSampling(2.5)
    with pytest.raises(ValueError, match="at most examples=3"):
        FixedSizeSampling(4).draw(3)
    with pytest.raises(ValueError, match="examples must be at most 2\\^46"):
        PoissonSampling(0.5).draw(2**47)
    with pytest.raises(ValueError, match="give batch_size instead of rate"):
        FixedSizeSampling().fitted(10, 0.25)


def test_unfitted_samplings_do_not_draw():
    with pytest.raises(ValueError, match="rate must be set"):
        PoissonSampling().draw(10)
    with pytest.raises(ValueError, match="batch_size must be set"):
        FixedSizeSampling().draw(10)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "shuffled"}, "name must be one of .*poisson"),
        ({"name": "poisson", "speed": 3}, "malformed 'poisson'"),
        ({"rate": 0.1}, "an object with a name"),
        ("poisson", "an object with a name"),
    ],
)
def test_malformed_json(data, message):
    with pytest.raises(ValueError, match=message):
        Sampling.from_dict(data)
