"""How far noise reaches, in standard deviations: what intervals are made of."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

from taut.noise import (
    GaussianNoise,
    GroupedNoise,
    IntegerLaplaceNoise,
    LaplaceNoise,
    NoiseMechanism,
    SeededForExperiments,
    StaircaseNoise,
)

__all__ = ["deviations_within"]

_DRAWS = 4000  # of noise without a formula: a 95 % reach is then right to some 3 %
_FALL = 60.0  # nats by which the density of staircase noise has fallen where sums end
_OUTWARDS = 1 + 1e-9  # whole noise is often exactly at the end of an interval: it belongs to it


def deviations_within(mechanism: NoiseMechanism, level: float) -> float:
    """Return the multiple of its standard deviation that noise stays within, with a probability.

    What is computed from several coordinates errs like something between the noise of one and a
    normal distribution, whichever reaches further: neither does at all levels, so that intervals
    are a little long.

    Args:
        mechanism: public noise.
        level: probability, between 0 and 1.
    """
    beyond = 1 - level
    normal = float(-ndtri(beyond / 2))
    if isinstance(mechanism, GaussianNoise):
        return normal
    if isinstance(mechanism, IntegerLaplaceNoise):  # of counts, which are coordinates alone
        return _whole(float(mechanism.scales.max()), beyond)
    laplace = -math.log(beyond) / math.sqrt(2)
    if isinstance(mechanism, LaplaceNoise):
        return max(laplace, normal)
    if isinstance(mechanism, GroupedNoise):  # a coordinate of many in a box is nearly uniform
        return max(laplace, normal, math.sqrt(3) * level)
    if isinstance(mechanism, StaircaseNoise):
        return max(_in_balls(mechanism, beyond), normal)
    # The distribution is public, so that draws from a seed tell nothing.
    source = SeededForExperiments(seed=0)
    drawn = np.array([mechanism.sample(source) for _ in range(_DRAWS)])
    ratios = np.abs(drawn) / np.sqrt(mechanism.coordinate_errors())
    return max(float(np.quantile(ratios, level, axis=0).max()), normal)


def _in_balls(mechanism: StaircaseNoise, beyond: float) -> float:
    """Return the k with P(|noise| > k) = beyond, in standard deviations of staircase noise.

    It is uniform in a random l1 ball, of which (1 - t / r)^n is farther than t along an axis.
    """
    n = mechanism.scales.size
    falls = np.arange(math.ceil(_FALL / mechanism.epsilon) + 2.0)
    radii = falls + mechanism.gamma
    weights = radii**n * np.exp(-mechanism.epsilon * falls)

    def excess(reach: float) -> float:
        farther = np.maximum(1 - reach / radii, 0.0) ** n
        return float(weights @ farther / weights.sum()) - beyond

    reach = brentq(excess, 0.0, float(radii[-1]), xtol=1e-12)
    deviation = math.sqrt(mechanism.coordinate_errors()[0]) / float(mechanism.scales[0])
    return float(reach) * _OUTWARDS / deviation


def _whole(scale: float, beyond: float) -> float:
    """Return the least k with P(|noise| > k) <= beyond, in standard deviations of whole noise."""
    q = math.exp(-1 / scale)
    tail = 2 * q / (1 + q)  # P(|noise| >= 1), which falls by q with every step
    steps = max(0, math.ceil(math.log(beyond / tail) / math.log(q) - 1e-9)) if tail > beyond else 0
    deviation = math.sqrt(2 * q) / -math.expm1(-1 / scale)
    return steps * _OUTWARDS / deviation
