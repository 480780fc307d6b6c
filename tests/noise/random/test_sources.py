"""The bits that releases draw from: fresh in every thread and process, seeded only by name."""

import json
import os
import pickle
import threading
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from noise.words import Words
from scipy import stats

from taut.noise._random import sources as _secure
from taut.noise._random.sources import (
    SecureGenerator,
    SeededForExperiments,
    below_exp,
    default_generator,
    exp_bounds,
    rational,
)


@pytest.fixture(params=["installed", "operating system"])
def secure(request, monkeypatch):
    if request.param == "operating system":
        monkeypatch.setattr(_secure, "_ciphers", lambda: None)
    return SecureGenerator()


def test_bytes_are_uniform(secure):
    counts = np.bincount(np.frombuffer(secure.bytes(1 << 20), dtype=np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-9


@pytest.mark.parametrize("n", [0, 1, 7, 1000, (1 << 16) - 1, 1 << 16, 200_001])
def test_as_many_bytes_as_asked_for(secure, n):
    assert len(secure.bytes(n)) == n


def test_no_word_comes_twice(secure):
    words = [secure.integers_u64(n) for n in (3, 5000, 20_000, 5000, 3)]
    assert np.unique(np.concatenate(words)).size == 30_006


def test_source_is_named(monkeypatch):
    monkeypatch.setattr(_secure, "_ciphers", lambda: None)
    assert SecureGenerator().source == "os.urandom"
    monkeypatch.undo()
    assert SecureGenerator().source == "ChaCha20"


def test_keystream_is_chacha20(monkeypatch):
    # RFC 8439, appendix A.1, test vector 1: zero key, zero nonce, counter 0.
    ciphers = _secure._ciphers()
    monkeypatch.setattr(os, "urandom", bytes)
    stream = _secure._chacha20(ciphers)(16)
    assert stream.hex() == "76b8e0ada0f13d90405d6ae55386bd28"


def test_missing_package_is_no_error(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(_secure.importlib, "import_module", missing)
    assert SecureGenerator().source == "os.urandom"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_children_draw_other_bytes(secure):
    secure.bytes(8)  # a block is in the pool when the child is made
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, secure.bytes(32))
        os._exit(0)
    theirs = os.read(reading, 32)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    assert len(theirs) == 32
    assert theirs != secure.bytes(32)


def test_threads_draw_other_bytes(secure):
    drawn = []
    threads = [threading.Thread(target=lambda: drawn.append(secure.bytes(1000))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 8


def test_key_is_replaced_when_it_has_lived(secure, monkeypatch):
    monkeypatch.setattr(_secure, "_KEY_BYTES", 1 << 17)
    pools = set()
    kept = []
    for _ in range(5):
        secure.bytes(1 << 16)
        kept.append(secure._local.pool)
        pools.add(id(kept[-1]))
    assert len(pools) == 3


def test_pickled_generator_repeats_nothing(secure):
    secure.bytes(8)
    copy = pickle.loads(pickle.dumps(secure))
    assert copy.secure
    assert copy.bytes(32) != secure.bytes(32)


def test_default_is_secure():
    assert default_generator().secure is True
    assert default_generator() is default_generator()


def test_seed_repeats_and_says_so():
    first, second = SeededForExperiments(3), SeededForExperiments(3)
    assert first.bytes(100) == second.bytes(100)
    assert first.bytes(100) != SeededForExperiments(4).bytes(100)
    assert first.secure is False
    assert repr(first) == "SeededForExperiments(seed=3)"


def test_experiment_goes_on_from_a_state_that_went_through_json():
    first, second = SeededForExperiments(3), SeededForExperiments(4)
    first.bytes(77)
    state = json.loads(json.dumps(first.state_dict()))
    ahead = first.bytes(50)
    second.load_state_dict(state)
    assert second.bytes(50) == ahead
    assert second.seed == 3
    second.load_state_dict(state)  # a state can be used more than once
    assert second.bytes(50) == ahead


@pytest.mark.parametrize("seed", [None, -1, 1.5, True, "1"])
def test_bad_seed(seed):
    with pytest.raises((TypeError, ValueError), match="seed"):
        SeededForExperiments(seed)


@pytest.mark.parametrize("n", [-1, 2.0, 1 << 40])
def test_bad_count(n):
    for generator in (SecureGenerator(), SeededForExperiments(1)):
        with pytest.raises((TypeError, ValueError), match="n must be"):
            generator.bytes(n)


@pytest.mark.parametrize("bound", [1, 2, 3, 6, 64, 1000])
def test_uniform_below_is_uniform(bound):
    values = SeededForExperiments(bound).uniform_below(bound, 60_000)
    assert values.max() < bound
    if bound > 1:
        counts = np.bincount(values.astype(np.int64), minlength=bound)
        assert counts.size == bound
        assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("bound", [(1 << 63) + 1, (1 << 64) - 1, 1 << 64])
def test_uniform_below_large_bounds(bound):
    values = SeededForExperiments(5).uniform_below(bound, 4000)
    assert int(values.max()) < bound
    assert stats.kstest(values.astype(float) / bound, "uniform").pvalue > 1e-4


def test_words_past_the_last_multiple_are_drawn_again():
    top = (1 << 64) - 1  # 2^64 = 1 mod 3: the last word would favour 0
    assert Words([top, 7, top, top, 5]).uniform_below(3, 2).tolist() == [5 % 3, 7 % 3]


@pytest.mark.parametrize("bound", [0, -3, (1 << 64) + 1, 2.0, True])
def test_bad_bound(bound):
    with pytest.raises((TypeError, ValueError), match="bound"):
        SeededForExperiments(1).uniform_below(bound, 2)


@pytest.mark.parametrize("exponent", [0.01, 0.3, Fraction(1, 3), 1, 2.5, 7])
def test_bernoulli_exp_frequency(exponent):
    bits = SeededForExperiments(11).bernoulli_exp(exponent, 200_000)
    p = float(
        mpmath.exp(-mpmath.mpf(Fraction(exponent).numerator) / Fraction(exponent).denominator)
    )
    assert stats.binomtest(int(bits.sum()), bits.size, p).pvalue > 1e-4


def test_bernoulli_exp_at_the_ends():
    generator = SeededForExperiments(1)
    assert generator.bernoulli_exp(0, 10).all()
    assert not generator.bernoulli_exp(10_000, 10).any()
    assert generator.bernoulli_exp(5e-324, 10).all()


def words_around(exponent):
    """Return the word in whose cell exp(-exponent) lies, and the 64 bits that follow."""
    with mpmath.workprec(400):
        scaled = int(mpmath.floor(mpmath.exp(-mpmath.mpf(exponent)) * 2**128))
    return scaled >> 64, scaled & ((1 << 64) - 1)


@pytest.mark.parametrize("exponent", [0.25, 1, 3.75])
def test_undecided_words_take_more_bits(exponent):
    word, following = words_around(exponent)
    assert Words([word - 1]).bernoulli_exp(exponent, 1).all()
    assert not Words([word + 1]).bernoulli_exp(exponent, 1).any()
    assert Words([word, following - 1]).bernoulli_exp(exponent, 1).all()
    assert not Words([word, following + 1]).bernoulli_exp(exponent, 1).any()
    assert Words([word, following, 0]).bernoulli_exp(exponent, 1).all()
    assert below_exp(Fraction(exponent), word, 64, Words([0]))
    assert below_exp(Fraction(0), (1 << 64) - 1, 64, Words([]))


@pytest.mark.parametrize("bits", [53, 64, 128, 500])
@pytest.mark.parametrize(
    "exponent", [Fraction(1, 10**30), Fraction(1, 3), Fraction(0.1), Fraction(40), Fraction(10**9)]
)
def test_exponential_lies_between_its_bounds(exponent, bits):
    low, high = exp_bounds(exponent, bits)
    with mpmath.workprec(bits + 300):
        power = mpmath.mpf(exponent.numerator) / exponent.denominator
        exact = int(mpmath.floor(mpmath.exp(-power) * 2**bits))
    assert low <= exact <= high < 1 << bits
    assert high - low <= 1


def test_exponential_of_zero_is_one():
    assert exp_bounds(Fraction(0), 64) == (1 << 64, 1 << 64)


@pytest.mark.parametrize("exponent", [-1, float("nan"), float("inf"), "1", True, 1j])
def test_bad_exponent(exponent):
    with pytest.raises((TypeError, ValueError), match="exponent"):
        SeededForExperiments(1).bernoulli_exp(exponent, 1)


def test_floats_are_the_rationals_that_they_are():
    assert rational(scale=0.1) == Fraction(3602879701896397, 2**55)
    assert rational(scale=np.int64(3)) == 3
    assert rational(scale=np.float64(0.5)) == Fraction(1, 2)
    assert rational(scale=Fraction(1, 3)) == Fraction(1, 3)
