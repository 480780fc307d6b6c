"""Games: how a mechanism is run on its worst pair of neighbours, and the likelihood ratio there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from taut._base import validate
from taut.accounting import PrivacyLoss, gaussian, laplace, randomized_response
from taut.noise import RandomSource

__all__ = [
    "MechanismGame",
    "allocated_gaussian_game",
    "gaussian_game",
    "laplace_game",
    "randomized_response_game",
    "sampled_gaussian_game",
    "trials_of",
]

_MOST_TRIALS = 10**8  # on each side: four gigabytes of ratios

LogRatios: TypeAlias = Callable[[bool, int, RandomSource], NDArray[np.float64]]
"""Releases with the record or without it, as often as asked, by their exact log ratios."""


@dataclass(frozen=True)
class MechanismGame:
    """A mechanism on two neighbours, seen through its likelihood ratio.

    Attributes:
        name: what it is called.
        claimed: the loss that it is said to have.
        log_ratios: function that releases with the record (True) or without it (False), a number of
            times, from a source of random bits, and returns log(p / q) of every release, of shape
            (releases,), where p is the density with the record and q without.
        exact: whether releases are drawn from p and q themselves, so that ratios are exact but for
            rounding; say so for simulations only, never for code whose noise is to be audited.

    **Guarantee**: unless it is said to be exact, an audit of a game is valid whatever `log_ratios`
    returns: it is a statistic. Where the ratio is exact, no attack on these neighbours does better
    (Neyman and Pearson), and means of what it says are bounded as well.
    """

    name: str
    claimed: PrivacyLoss
    log_ratios: LogRatios
    exact: bool = False


def gaussian_game(sigma: float) -> MechanismGame:
    """Return the game of normal noise of deviation `sigma` on a sum that a record moves by one."""
    return sampled_gaussian_game(sigma, 1.0, 1)


def sampled_gaussian_game(sigma: float, rate: float, steps: int) -> MechanismGame:
    """Return the game of steps of normal noise on Poisson samples.

    Args:
        sigma: deviation of the noise, for a record that moves a sum by one.
        rate: probability that the record is in a sample.
        steps: number of samples.

    Example:
        >>> from taut.audit import audit_mechanism, sampled_gaussian_game
        >>> game = sampled_gaussian_game(0.7, 0.3, 3)
        >>> result = audit_mechanism(game, delta=0.1, trials=20_000, seed=0)
        >>> 0.7 < result.epsilon_lower / result.claimed_epsilon < 1
        True
    """
    deviation, share = validate.positive(sigma=sigma), validate.probability(rate=rate)
    count = validate.positive_integer(steps=steps)

    def log_ratios(with_record: bool, releases: int, source: RandomSource) -> NDArray[np.float64]:
        noise = deviation * source.standard_normal(releases * count).reshape(releases, count)
        if with_record:
            noise += source.uniform(releases * count).reshape(releases, count) < share
        step = (2 * noise - 1) / (2 * deviation**2)
        with np.errstate(divide="ignore"):
            logs = np.logaddexp(np.log1p(-share), np.log(share) + step)
        return np.asarray(logs.sum(1))

    once = gaussian(deviation)
    loss = count * (once if share == 1 else once.poisson(share))
    return MechanismGame(
        "gaussian" if share == 1 else "sampled gaussian", loss, log_ratios, exact=True
    )


def allocated_gaussian_game(sigma: float, steps: int) -> MechanismGame:
    """Return the game of normal noise on steps of which the record is in exactly one."""
    deviation, count = validate.positive(sigma=sigma), validate.positive_integer(steps=steps)

    def log_ratios(with_record: bool, releases: int, source: RandomSource) -> NDArray[np.float64]:
        noise = deviation * source.standard_normal(releases * count).reshape(releases, count)
        if with_record:
            noise[np.arange(releases), source.uniform_below(count, releases).astype(int)] += 1.0
        step = (2 * noise - 1) / (2 * deviation**2)
        return np.asarray(logsumexp(step, axis=1) - np.log(count))

    return MechanismGame(
        "allocated gaussian", gaussian(deviation).allocated(count), log_ratios, exact=True
    )


def laplace_game(scale: float) -> MechanismGame:
    """Return the game of Laplace noise of this scale on a sum that a record moves by one."""
    width = validate.positive(scale=scale)

    def log_ratios(with_record: bool, releases: int, source: RandomSource) -> NDArray[np.float64]:
        values = width * source.standard_laplace(releases) + with_record
        return np.asarray((np.abs(values) - np.abs(values - 1)) / width)

    return MechanismGame("laplace", laplace(width), log_ratios, exact=True)


def randomized_response_game(truth: float) -> MechanismGame:
    """Return the game of an answer that is true with this probability."""
    right = validate.probability(truth=truth)

    def log_ratios(with_record: bool, releases: int, source: RandomSource) -> NDArray[np.float64]:
        answers = (source.uniform(releases) < right) == with_record
        return np.asarray(np.where(answers, 1.0, -1.0) * np.log(right / (1 - right)))

    return MechanismGame("randomized response", randomized_response(right), log_ratios, exact=True)


def trials_of(trials: int) -> int:
    """Return a number of releases on each side, if memory holds their ratios."""
    count = validate.positive_integer(trials=trials)
    if count > _MOST_TRIALS:
        raise ValueError(f"trials must be at most {_MOST_TRIALS}, got trials={trials!r}")
    return count
