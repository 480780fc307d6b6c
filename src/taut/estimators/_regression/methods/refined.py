"""Moments once, then residuals several times: the mean of a belief that each of them sharpens.

The noise of X'X enters coefficients multiplied by what they are. Residuals of coefficients that
are nearly right are multiplied by what is wrong of them alone, and can be cut closer, so that
later releases of X'(y - X at) have little noise of either kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Vector
from taut.accounting import PrivacyLoss
from taut.estimators._regression.belief import Belief, first_belief
from taut.estimators._regression.method import Fit
from taut.estimators._regression.methods.ssp import penalty_of
from taut.estimators._regression.moments import (
    Measurement,
    MomentRelease,
    NoisyMoments,
    ResidualRelease,
    moment_release,
)
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import RandomSource

__all__ = ["RefinedMean", "posterior_mean", "refined"]

_ROUNDS = 3
_FIRST_PORTION = 0.4  # of the budget, for moments; any is sound
_CUT = 2.5  # of residuals, in their standard deviations: of normal ones 1.2 % are longer
_LEAST_CUT = 1e-3  # of the range of targets: below, noise is no concern
_LEAST_RECORDS = 10.0  # as a divisor, where noise hides how many there are


@dataclass(frozen=True, eq=False)
class RefinedMean:
    """The mean of what released moments and residuals let one believe about coefficients.

    Args:
        setting: what is public about the regression.
        moments: how moments are released.
        residuals: how residuals are released; None for moments alone.
        rounds: number of releases of residuals.

    **Guarantee**: `loss`, by composition: bounds of residuals are chosen by what was released.
    """

    setting: Setting
    moments: MomentRelease
    residuals: ResidualRelease | None
    rounds: int

    @property
    def mu(self) -> float:
        """The mu of one fit."""
        of_residuals = 0.0 if self.residuals is None else self.residuals.mu
        return math.hypot(self.moments.mechanism.mu, math.sqrt(self.rounds) * of_residuals)

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one fit."""
        if self.residuals is None:
            return self.moments.loss
        return self.moments.loss + self.rounds * self.residuals.loss

    def fit(self, problem: Problem, generator: RandomSource | None = None) -> Fit:
        """Return coefficients; see `Method.fit`."""
        released = self.moments.release(problem, generator)
        belief = first_belief(released, self.setting.features)
        seen = [released.measurement]
        for _ in range(self.rounds if self.residuals else 0):
            assert self.residuals is not None
            at = belief.mean
            records = max(_records(released, self.setting.intercept), _LEAST_RECORDS)
            bound = _bound(belief, seen[-1], at, records)
            seen.append(self.residuals.release(problem, at, bound, generator))
            belief = belief.learn(seen[-1])
        coefficients = _penalised(belief, penalty_of(self.setting))
        return Fit(coefficients, _words(belief, seen), released, tuple(seen))


def posterior_mean(setting: Setting, epsilon: float, delta: float) -> RefinedMean:
    """Return the method that spends the whole budget on moments."""
    return RefinedMean(setting, moment_release(setting, epsilon, delta), None, 0)


def refined(setting: Setting, epsilon: float, delta: float, portion: float = 1.0) -> RefinedMean:
    """Return the method that releases residuals as well, for a budget or its portion of one."""
    return RefinedMean(
        setting,
        moment_release(setting, epsilon, delta, portion=portion * _FIRST_PORTION),
        ResidualRelease(setting, epsilon, delta, portion * (1 - _FIRST_PORTION) / _ROUNDS),
        _ROUNDS,
    )


def _bound(belief: Belief, last: Measurement, at: Vector, records: float) -> float:
    """Return where residuals are cut: at several of their standard deviations, as far as known."""
    step = at - last.at
    square = last.square - 2 * last.cross @ step + step @ belief.matrix @ step
    # One standard deviation of noise is allowed for, beyond zero wherever noise has taken the
    # square: a cut too close biases by far more than one too far adds noise.
    above = max(float(square), 0.0) + math.sqrt(_square_variance(belief, last, step))
    return min(max(_CUT * math.sqrt(above / records), _LEAST_CUT), 1.0)


def _square_variance(belief: Belief, last: Measurement, step: Vector) -> float:
    """Return the variance of the noise in the sum of squares after a step from what was released.

    Noise of X'X is symmetric: entries beside the diagonal count twice, and are one.
    """
    squared = step**2
    crossed = 2 * squared @ belief.errors @ squared - np.diag(belief.errors) @ squared**2
    return last.square_variance + 4 * float(last.variances @ squared) + float(crossed)


def _records(released: NoisyMoments, intercept: bool) -> float:
    """Return a number of records, rather too small: a row of features is at most 1 long."""
    part = slice(-1, None) if intercept else slice(None)
    known = float(np.trace(released.design[part, part]))
    return known - math.sqrt(float(np.trace(released.design_variances[part, part])))


def _penalised(belief: Belief, penalties: Vector) -> Vector:
    """Return what the ridge penalty that was asked for makes of coefficients."""
    if not penalties.any():
        return belief.mean
    matrix = belief.matrix + np.diag(penalties)
    return np.asarray(np.linalg.lstsq(matrix, belief.matrix @ belief.mean, rcond=None)[0])


def _words(belief: Belief, seen: list[Measurement]) -> str:
    """Return what was chosen, by released numbers."""
    evidence = [one.evidence for one in belief.hypotheses]
    size = math.sqrt(belief.hypotheses[int(np.argmax(evidence))].variance)
    words = (
        "the mean of what noisy moments let one believe about coefficients, which most likely are "
        f"of size {size:.2g} in units of the bounds"
    )
    if len(seen) == 1:
        return words
    bounds = ", ".join(f"{one.bound:.2g}" for one in seen[1:])
    return f"{words}; refined by residuals, cut at {bounds} of the range of targets"
