"""The audit of one run: guesses about its canaries, and what they prove."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from taut._base import validate
from taut._base.rounding import round_down, round_up
from taut.accounting import PrivacyLoss, gaussian
from taut.audit._attacks.claim import Claim
from taut.audit._one_run.bounds import curve_p_value, epsilon_lower_bound
from taut.audit._one_run.canaries import OneRunScores
from taut.audit._one_run.signed import signed_p_value
from taut.audit._one_run.weighted import grid_lower_bound, weighs_guesses, weighted_p_value

__all__ = ["OneRunResult", "audit_one_run"]

SCHEMA = "taut.one_run_audit/1"
_SHARE = 0.1  # of all canaries that are guessed about: few are surer, many are more
_HALVINGS = 8  # of the interval of mu, to 1/256 of it
_LARGEST_MU = 8.0  # no number of canaries that fits into a run refutes more


@dataclass(frozen=True)
class OneRunResult:
    """What one run gives away about canaries that were in its data or not.

    Attributes:
        canaries: how many there were.
        guesses: number of them that were guessed about, fixed before.
        correct: how many guesses are right.
        delta: where `epsilon_lower` is stated.
        confidence: probability with which each single statement holds.
        epsilon_lower: the run is not (epsilon, delta)-DP for any smaller epsilon.
        mu_lower: the run is not mu-GDP for any smaller mu, 0 if that was not asked.
        gaussian_epsilon: what Gaussian noise of `mu_lower` promises at `delta`: an estimate of the
            run's epsilon if its trade-off curve is near that of Gaussian noise, and no bound.
        claimed_epsilon: what the claim says at `delta`, None without a claim.
        p_value: probability of so many right guesses, at most, if the claim is kept.

    **Guarantee**: if every canary was included by a fair coin of its own, and scores do not depend
    on coins but through the training, each of `epsilon_lower`, `mu_lower` and the verdict is wrong
    with probability at most 1 - `confidence`. A pass proves nothing.
    """

    canaries: int
    guesses: int
    correct: int
    delta: float
    confidence: float
    epsilon_lower: float
    mu_lower: float
    gaussian_epsilon: float
    claimed_epsilon: float | None
    p_value: float | None

    @property
    def passed(self) -> bool:
        """Whether the claim, if there is one, was not refuted."""
        return self.p_value is None or self.p_value >= 1 - self.confidence

    def __str__(self) -> str:
        lines = [
            f"one run, {self.canaries} canaries: {self.correct} of {self.guesses} guesses right",
            f"{round_down(self.epsilon_lower, 4)} <= epsilon at delta {self.delta:g}, confidence "
            f"{self.confidence:g}",
        ]
        if self.mu_lower > 0:
            lines.append(
                f"not mu-GDP for mu below {round_down(self.mu_lower, 4)}, the curve of epsilon "
                f"{round_down(self.gaussian_epsilon, 4)} (estimate)"
            )
        if self.claimed_epsilon is not None:
            verdict = "not refuted (which proves nothing)" if self.passed else "REFUTED"
            lines.append(
                f"claimed {round_up(self.claimed_epsilon, 4)}: {verdict}, p-value at most "
                f"{self.p_value:.2g}"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {"schema": SCHEMA, "passed": self.passed, **asdict(self)}

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)


def audit_one_run(
    scores: OneRunScores,
    *,
    delta: float,
    claimed: PrivacyLoss | None = None,
    confidence: float = 0.95,
    guesses: int | None = None,
) -> OneRunResult:
    """Guess which canaries were in the data of one run, and bound epsilon from below.

    Args:
        scores: scores of canaries by one run, from :meth:`RunCanaries.scored`.
        delta: where `epsilon_lower` is stated.
        claimed: loss that is claimed for the run; if given, it is tested as a whole, and so are
            curves of Gaussian noise.
        confidence: probability with which each statement holds.
        guesses: number of canaries that are guessed about, half of them to be in and half to be
            out; a tenth of all by default. Fix it before the run.

    **Guarantee**: that of :class:`OneRunResult`. For the relation of `claimed`: a coin adds a
    record or removes it, or decides which of two it is. If scores are log odds, and delta takes at
    most a third of what may fail for all canaries together, `epsilon_lower` weighs all guesses by
    them, and the number of guesses is for the other statements only (docs/theory/one-run.md).
    Signs of canaries are guessed for that; the other statements are those of somebody who knows
    them.

    Raises:
        TypeError: for anything but scores of one run.
        ValueError: for a number of guesses that is odd, or more than there are canaries.

    References:
        Steinke, Nasr and Jagielski 2023, Theorem 5.2; Mahloujifar, Melis and Chaudhuri 2024.
    """
    if not isinstance(scores, OneRunScores):
        raise validate.WrongType(
            "scores must be OneRunScores of RunCanaries.scored(...), whose coins were tossed "
            f"before the run, got {type(scores).__name__}; many runs go to audit_observations"
        )
    small = validate.below_one(delta=delta)
    level = validate.probability(confidence=confidence)
    if not 0.5 <= level < 1:
        raise ValueError(
            f"confidence must be at least 0.5 and below 1, got confidence={confidence!r}; "
            "a usual choice is 0.95"
        )
    count = len(scores.values)
    tried = _number(guesses, count)
    order = np.argsort(scores.values, kind="stable")
    half = tried // 2
    correct = int(scores.included[order[-half:]].sum() + (~scores.included[order[:half]]).sum())
    if scores.log_odds and weighs_guesses(count, small, 1 - level):
        lower = grid_lower_bound(lambda epsilon: _p_value(scores, epsilon, small), 1 - level)
    else:
        lower = epsilon_lower_bound(count, tried, correct, small, 1 - level)
    mu, p_value, epsilon = 0.0, None, None
    if claimed is not None:
        claim = Claim(claimed, small)
        epsilon, p_value = claim.epsilon, curve_p_value(count, tried, correct, claim)
        mu = _mu_lower(count, tried, correct, small, 1 - level)
    return OneRunResult(
        canaries=count,
        guesses=tried,
        correct=correct,
        delta=small,
        confidence=level,
        epsilon_lower=lower,
        mu_lower=mu,
        gaussian_epsilon=gaussian(1 / mu).epsilon(small) if mu > 0 else 0.0,
        claimed_epsilon=epsilon,
        p_value=p_value,
    )


def _p_value(scores: OneRunScores, epsilon: float, delta: float) -> float:
    """Return how likely guesses that weigh so much are, of what is (epsilon, delta)-DP."""
    if scores.signs is None or scores.by_sign is None:
        return weighted_p_value(scores.values, scores.included, epsilon, delta)
    return signed_p_value(scores.by_sign, scores.included, scores.signs, epsilon, delta)


def _number(guesses: int | None, canaries: int) -> int:
    if guesses is None:
        return max(2 * round(_SHARE * canaries / 2), 2)
    number = validate.positive_integer(guesses=guesses)
    if number % 2 or number > canaries:
        raise ValueError(
            f"guesses must be even, and at most the {canaries} canaries, got guesses={guesses!r}"
        )
    return number


def _mu_lower(canaries: int, guesses: int, correct: int, delta: float, failure: float) -> float:
    """Return the largest mu on a grid that is refuted; smaller ones are refuted with it."""
    low, high = 0.0, _LARGEST_MU
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        claim = Claim(gaussian(1 / middle), delta)
        if curve_p_value(canaries, guesses, correct, claim) < failure:
            low = middle
        else:
            high = middle
    return low
