"""Exposure of planted secrets, and the certified bound on guessing them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import bdtr
from scipy.stats import norm

import taut
from taut.accounting import Adjacency
from taut.audit import Exposure
from taut.errors import UnsoundConfiguration


def test_exposure_is_the_logarithm_of_candidates_over_rank():
    found = Exposure([1, 2, 1024], 1024)
    assert found.bits == (10.0, 9.0, 0.0)
    assert found.mean == pytest.approx(19 / 3)
    assert found.extracted == 1


@given(st.integers(1, 3000))
def test_blind_exposure_is_the_mean_over_all_ranks(candidates):
    every = Exposure(range(1, candidates + 1), candidates)
    assert every.blind == pytest.approx(every.mean, abs=1e-9)


def test_blind_exposure_tends_to_the_logarithm_of_e():
    assert Exposure([1], 10**6).blind == pytest.approx(math.log2(math.e), abs=1e-4)


@pytest.mark.parametrize(
    ("ranks", "candidates", "message"),
    [
        ([], 10, "at least one secret"),
        ([11], 10, "at most candidates=10, got 11"),
        ([0], 10, "rank"),
        ([1], 0, "candidates"),
        ([1.5], 10, "rank"),
    ],
)
def test_ranks_that_cannot_be_are_refused(ranks, candidates, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Exposure(ranks, candidates)


def best_guesser(candidates, sigma, guesses):
    """Return how often the secret is among the largest entries of a noisy one-hot vector.

    That is what is best to guess if it was released with normal noise, by symmetry.
    """
    answer, _ = quad(
        lambda x: norm.pdf(x - 1 / sigma) * bdtr(guesses - 1, candidates - 1, norm.sf(x)),
        -12,
        12 + 1 / sigma,
        limit=200,
    )
    return answer


@pytest.mark.parametrize("guesses", [1, 3])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("candidates", [4, 100, 10_000])
def test_nobody_finds_more_than_is_certified(candidates, sigma, guesses):
    # One example adds a one-hot vector of length one to a sum; the sum is released with noise.
    bound = Exposure([1], candidates).most_found(taut.gaussian(sigma=sigma), guesses)
    best = best_guesser(candidates, sigma, guesses)
    assert guesses / candidates < best <= bound < 1


def test_the_bound_allows_what_an_answer_at_random_tells_of_one_of_two():
    right = math.exp(2.0) / (1 + math.exp(2.0))
    assert Exposure([1], 2).most_found(taut.pure(2.0)) >= right * (1 - 1e-12)


def test_every_candidate_tried_finds_everything():
    assert Exposure([1], 5).most_found(taut.gaussian(sigma=1.0), guesses=9) == pytest.approx(1.0)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD, Adjacency.REMOVE])
def test_a_loss_in_one_direction_is_refused(adjacency):
    loss = taut.gaussian(sigma=1.0, adjacency=adjacency)
    with pytest.raises(UnsoundConfiguration, match="one direction alone"):
        Exposure([1], 10).most_found(loss)


def test_ranks_of_numpy_are_whole_numbers():
    assert Exposure(np.array([1, 3]), 10).ranks == (1, 3)
