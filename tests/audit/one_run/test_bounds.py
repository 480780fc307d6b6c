"""Bounds on right guesses: exact for randomised response, valid where the truth is known."""

import numpy as np
import pytest
from scipy.stats import binom, norm

import taut
from taut.audit._attacks.claim import Claim
from taut.audit._one_run.bounds import curve_p_value, epsilon_lower_bound, epsilon_p_value


def test_pure_bound_is_attained_by_randomised_response():
    """Each coin is told rightly with probability e / (1 + e), independently of the others."""
    draw, trials, canaries = np.random.default_rng(0), 20_000, 60
    correct = draw.binomial(canaries, np.e / (1 + np.e), trials)
    for least in (40, 45, 50):
        bound = epsilon_p_value(canaries, canaries, least, 1.0, 0.0)
        assert np.mean(correct >= least) == pytest.approx(bound, abs=4 * np.sqrt(bound / trials))


@pytest.mark.parametrize("delta", [1e-3, 1e-2])
def test_failures_with_probability_delta_are_covered(delta):
    """A coin is told with probability delta, or all of them are; else by randomised response."""
    draw, trials, canaries = np.random.default_rng(1), 20_000, 40
    accuracy = 1 / (1 + np.exp(-1.0))
    single = draw.random((trials, canaries)) < np.where(
        draw.random((trials, canaries)) < delta, 1.0, accuracy
    )
    together = draw.random((trials, canaries)) < np.where(
        draw.random((trials, 1)) < delta, 1.0, accuracy
    )
    for correct in (single.sum(1), together.sum(1)):
        for least in (30, 34, 38):
            found = np.mean(correct >= least)
            bound = epsilon_p_value(canaries, canaries, least, 1.0, delta)
            assert found <= bound + 4 * np.sqrt(bound / trials)


def test_lower_bound_is_the_root_of_the_p_value():
    found = epsilon_lower_bound(1_000, 100, 90, 1e-5, 0.05)
    assert epsilon_p_value(1_000, 100, 90, found, 1e-5) == pytest.approx(0.05, rel=1e-6)
    assert epsilon_lower_bound(1_000, 100, 50, 1e-5, 0.05) == 0.0


def gaussian_guesses(draw, canaries, guesses, mu):
    included = draw.random(canaries) < 0.5
    order = np.argsort(draw.normal(size=canaries) + mu * included)
    half = guesses // 2
    return included[order[-half:]].sum() + (~included[order[:half]]).sum()


@pytest.mark.parametrize(("mu", "canaries", "guesses"), [(0.5, 60, 20), (1.0, 60, 60)])
def test_curve_covers_what_gaussian_noise_gives_away(mu, canaries, guesses):
    draw, claim = np.random.default_rng(2), Claim(taut.gaussian(1 / mu), 1e-6)
    seen = np.array([gaussian_guesses(draw, canaries, guesses, mu) for _ in range(4_000)])
    for quantile in (0.5, 0.9, 0.99):
        least = int(np.quantile(seen, quantile))
        bound = curve_p_value(canaries, guesses, least, claim)
        assert np.mean(seen >= least) <= bound + 4 * np.sqrt(bound / len(seen))


def test_curve_covers_randomised_response_and_a_shared_failure():
    """One release tells all coins with probability 0.2: each single one is (0, 0.2)-private."""
    claim = Claim(taut.approximate(0.0, 0.2), 0.2)
    exact = 0.2 + 0.8 * binom.sf(17, 20, 0.5)
    assert exact <= curve_p_value(20, 20, 18, claim)
    pure = Claim(taut.randomized_response(1 / (1 + np.exp(-1.0))), 0.0)
    exact = binom.sf(17, 20, 1 / (1 + np.exp(-1.0)))
    assert exact <= curve_p_value(20, 20, 18, pure) <= 1.0


def test_single_canary_is_bounded_by_the_curve_itself():
    """With one canary the most right guesses are those of the best test at equal error rates."""
    claim = Claim(taut.gaussian(1.0), 1e-6)
    assert curve_p_value(1, 1, 1, claim) == pytest.approx(norm.cdf(0.5), abs=5e-3)


def test_curve_refutes_more_than_one_epsilon_does():
    """Eighty-eight of a hundred guesses: the curve of epsilon 1.7 is refuted, not 1.7 itself."""
    loss = taut.gaussian(1 / 0.45)
    assert loss.epsilon(1e-5) > 1.6
    assert curve_p_value(1_000, 100, 88, Claim(loss, 1e-5)) < 0.05
    assert epsilon_p_value(1_000, 100, 88, loss.epsilon(1e-5), 1e-5) > 0.05
