"""A posterior sample whose precision suits the data: what its loss depends on is released first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtri

from taut import calibrate
from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting import Adjacency, PrivacyLoss, approximate, gaussian
from taut.adaptive import Outcome
from taut.estimators._posterior.bounds import largest_growth, largest_precision
from taut.estimators._posterior.equations import Equations
from taut.estimators._posterior.release import drawn
from taut.noise import Box, GaussianNoise, RandomSource, gaussian_with_scales

__all__ = ["Budget", "RidgeSample", "adaptive_ridge", "budget", "eigenvalue_above", "sampled_with"]

_MARGIN = 1 + 1e-9  # relative: a quantile and a sum are good to 1e-13
_EIGENVALUE_MOVE = 1 + 2.0**-18  # of the smallest eigenvalue: two steps of 2^-20 for its rounding
_LOG_MOVE = (1 + 1e-6, 1e-12)  # of a logarithm: relative and absolute, for its rounding
# Shares of a budget; any are sound, and no share is best for all data.
_RIDGES, _TRIED = (2.0**-10, 2.0**40), 512  # in squares of the clip; the ends are never the best
_SAMPLE_SHARE = 0.5  # of epsilon, for the sample itself
_SAMPLE_DELTA, _FAILURE = 0.25, 0.25  # of delta: for the sample, for bounds that are too small


@dataclass(frozen=True, eq=False)
class RidgeSample:
    """A sample, and what it was drawn with: all of it released.

    Attributes:
        coefficients: one per feature.
        ridge: ridge in squares of the clip of the features.
        precision: precision in one over squares of the clip of the targets.
    """

    coefficients: Vector
    ridge: float
    precision: float


@dataclass(frozen=True)
class Budget:
    """How a promise is divided between bounds on the data and a sample.

    Attributes:
        epsilon: epsilon of the sample.
        delta: delta of the sample.
        failure: probability that one of the released bounds is wrong.
        sigma: deviation of the noise on a bound, in units of what a record moves it.
        bounds: number of bounds that are released.
    """

    epsilon: float
    delta: float
    failure: float
    sigma: float
    bounds: int

    def raised(
        self, value: float, by: float, relation: Adjacency, source: RandomSource | None
    ) -> float:
        """Release a number, raised above itself but for a share of the failures.

        Args:
            value: private number.
            by: how far a record moves it.
            relation: neighbouring relation.
            source: source of the noise.
        """
        noise = _noise(by, by * self.sigma, relation)
        margin = -float(ndtri(self.failure / self.bounds)) * float(noise.scales[0])
        noisy = float(noise.release([value], source)[0])
        return noisy + (margin + float(noise.grid[0])) * _MARGIN


@cache
def budget(epsilon: float, delta: float, adjacency: Adjacency, bounds: int) -> Budget:
    """Return how a promise is divided: Gaussian noise on bounds, and a sample, composed tightly.

    Args:
        epsilon: promise for bounds and sample together.
        delta: probability delta of it.
        adjacency: neighbouring relation.
        bounds: number of bounds that are released.
    """
    goal, level = validate.positive(epsilon=epsilon), validate.below_one(delta=delta)
    own, failure = goal * _SAMPLE_SHARE, level * _FAILURE
    sample = approximate(own, level * _SAMPLE_DELTA, adjacency=adjacency)

    def whole(sigma: float) -> PrivacyLoss:
        return gaussian(sigma, adjacency=adjacency) + sample

    found = calibrate(whole, epsilon=goal, delta=(level - failure) / _MARGIN)
    return Budget(own, level * _SAMPLE_DELTA, failure, found.value * math.sqrt(bounds), bounds)


def eigenvalue_above(
    equations: Equations, spent: Budget, relation: Adjacency, source: RandomSource | None
) -> float:
    """Release a number below the smallest eigenvalue without any one record, at least zero.

    Args:
        equations: normal equations in units of the clips.
        spent: budget with noise and failures.
        relation: neighbouring relation.
        source: source of the noise.
    """
    found = -spent.raised(-equations.least_eigenvalue, _EIGENVALUE_MOVE, relation, source)
    return max(found - 1.0, 0.0)


def sampled_with(
    equations: Equations,
    ridge: float,
    eigenvalue: float,
    spent: Budget,
    loss: PrivacyLoss,
    *,
    unit: float,
    source: RandomSource | None,
) -> Outcome[RidgeSample]:
    """Release a bound on residuals, then a sample as precise as bounds allow, or a refusal.

    Args:
        equations: normal equations in units of the clips.
        ridge: ridge in squares of the clip.
        eigenvalue: released bound below the smallest eigenvalue without any one record.
        spent: budget with noise and failures.
        loss: what all of this costs.
        unit: clip of the targets over that of the features.
        source: source of all randomness.
    """
    relation = loss.adjacency
    growth = 1 / (ridge + eigenvalue)
    moved = math.log1p(growth * _MARGIN) * (2 if relation is Adjacency.REPLACE else 1)
    by = moved * _LOG_MOVE[0] + _LOG_MOVE[1]
    residual = spent.raised(equations.ridge(ridge).log_residual, by, relation, source)
    precision = largest_precision(
        growth, max(residual, 0.0), epsilon=spent.epsilon, delta=spent.delta, relation=relation
    )
    if precision is None:
        return Outcome(False, None, loss)
    own = approximate(spent.epsilon, spent.delta, adjacency=relation)
    found = drawn(equations, ridge, precision, unit=unit, loss=own, generator=source)
    return Outcome(True, RidgeSample(found, ridge, precision), loss)


def adaptive_ridge(features: int, eigenvalue: float, spent: Budget, relation: Adjacency) -> float:
    """Return the ridge of AdaOPS: least bound on its error, among those that need no refusal.

    Args:
        features: number of features.
        eigenvalue: released bound below the smallest eigenvalue.
        spent: budget of the sample.
        relation: neighbouring relation.
    """
    whole = 2 * spent.epsilon
    ratio = min(whole / 2, math.sqrt(whole / 2))
    log_risk, log_delta = math.log(1 / 0.05), math.log(1 / spent.delta)
    noise = (features / 2 + math.sqrt(features * log_risk) + log_risk) * log_delta / ratio**2
    power = 2 * 4 * log_delta / whole

    def error(ridge: float) -> float:
        strength = ridge + eigenvalue
        growth = power * math.log1p(1 / strength)
        return noise * math.exp(min(growth, 600.0)) / strength + ridge

    least = 1 / largest_growth(epsilon=spent.epsilon, delta=spent.delta, relation=relation)
    ridges: list[float] = np.geomspace(_RIDGES[0], _RIDGES[1], _TRIED).tolist()
    return min((max(ridge, least - eigenvalue) for ridge in ridges), key=error)


def _noise(by: float, scale: float, relation: Adjacency) -> GaussianNoise:
    return gaussian_with_scales(Box([by], adjacency=relation), [scale])
