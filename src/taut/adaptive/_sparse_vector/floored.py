"""Queries that are never below a known value: normal noise, at any length.

A query at its least value is the hardest to get an answer above from, so the noisy threshold alone
bounds the likelihood ratio of such an answer. Expectations over that threshold are integrated cell
by cell, with a line above the logarithm of the integrand, so that they are upper bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from taut._base.arrays import Vector
from taut.adaptive._sparse_vector.scalar_noise import hazard, log_tail

__all__ = ["Floored"]

_CELLS = 3000  # over some 24 deviations and the tilt: lines leave the curve by 1e-4 at most
_REACH = 12.0  # deviations: beyond are 1e-32 of a normal distribution, bounded by themselves
_ROUNDINGS = 64 * 2.0**-53  # relative, of the logarithms that are added
_SLOPE_ROOM = 1 + 1e-9  # for the rounding of differences of hazards
_STEEPEST = 1e4  # of a slope times the deviation: beyond, a bound would exceed 10^7


@dataclass(frozen=True)
class Floored:
    """Normal noise on a threshold and on queries, none of which lies far below the threshold.

    Attributes:
        threshold_deviation: standard deviation of the threshold's noise.
        query_deviation: standard deviation of the queries' noise.
        margin: largest distance of a threshold from the least value of a query.
    """

    threshold_deviation: float
    query_deviation: float
    margin: float

    def log_ratio_moment(
        self,
        mean: float,
        shift: float,
        power: float,
        caps: Callable[[Vector], Vector] | None = None,
    ) -> float:
        """Return a bound on log E[(G(u - D) / G(u))^power], u = (margin + z) / s2.

        Args:
            mean: mean of z, whose deviation is that of the threshold's noise.
            shift: the distance D, in deviations of the queries' noise.
            power: exponent, at least zero.
            caps: function of u that never falls and bounds the logarithm of what is wanted, where
                that is less than the ratio.
        """
        s1, s2 = self.threshold_deviation, self.query_deviation
        # The logarithm of the ratio has slope l(u) - l(u - D) <= D, as hazards rise by one at most.
        steepest = power * shift / s2
        if steepest * s1 > _STEEPEST:
            return math.inf
        z = np.linspace(mean - _REACH * s1, mean + steepest * s1**2 + _REACH * s1, _CELLS + 1)
        u = (self.margin + z) / s2
        logs = power * (log_tail("gaussian", u - shift) - log_tail("gaussian", u))
        rises = hazard("gaussian", u[1:]) - hazard("gaussian", u[:-1] - shift)
        slopes = power / s2 * np.minimum(rises * _SLOPE_ROOM, shift)
        inside = logs[:-1] + _log_mass(mean, s1, z[:-1], z[1:], slopes, z[:-1])
        if caps is not None:
            flat = _log_mass(mean, s1, z[:-1], z[1:], np.zeros(_CELLS), z[:-1])
            inside = np.minimum(inside, caps(u[1:]) + flat)
        pieces = [
            logs[:1] + _log_mass(mean, s1, np.array([-math.inf]), z[:1], np.zeros(1), z[:1]),
            inside,
            logs[-1:]
            + _log_mass(mean, s1, z[-1:], np.array([math.inf]), np.array([steepest]), z[-1:]),
        ]
        return _log_sum(np.concatenate(pieces), power * abs(float(log_tail("gaussian", u)[-1])))

    def log_length_moment(self, power: float) -> float:
        """Return a bound on log E[E[K | z]^power], E[K | z] = 1 / G((margin + z) / s2).

        That is the expected number of answers up to the first above, where all queries have
        their least value. Infinite unless s2^2 > power s1^2.
        """
        s1, s2 = self.threshold_deviation, self.query_deviation
        curvature = 1 / s1**2 - power / s2**2
        if not curvature > 0:
            return math.inf
        z = np.linspace(-_REACH * s1, _REACH / math.sqrt(curvature), _CELLS + 1)
        u = (self.margin + z) / s2
        logs = -power * log_tail("gaussian", u)
        slopes = power / s2 * hazard("gaussian", u[1:]) * _SLOPE_ROOM
        # Beyond, the logarithm of 1 / G lies below a parabola, because hazards rise by one at most.
        rise = power / s2 * float(hazard("gaussian", u[-1:])[0]) - z[-1] / s1**2
        root = math.sqrt(curvature)
        beyond = (
            logs[-1]
            - 0.5 * (z[-1] / s1) ** 2
            - math.log(s1 * root)
            + 0.5 * (rise / root) ** 2
            + log_ndtr(rise / root)
        )
        pieces = [
            logs[:1] + _log_mass(0.0, s1, np.array([-math.inf]), z[:1], np.zeros(1), z[:1]),
            logs[:-1] + _log_mass(0.0, s1, z[:-1], z[1:], slopes, z[:-1]),
            np.array([beyond]),
        ]
        return _log_sum(np.concatenate(pieces), float(np.abs(logs).max()))


def _log_mass(
    mean: float, deviation: float, low: Vector, high: Vector, slopes: Vector, at: Vector
) -> Vector:
    """Return log E[exp(slope (z - at)); low < z < high] for normal z, entry by entry."""
    centre = mean + slopes * deviation**2
    tilt = slopes * (mean - at) + 0.5 * (slopes * deviation) ** 2
    left, right = (low - centre) / deviation, (high - centre) / deviation
    above = left > 0
    near = log_ndtr(np.where(above, -left, right))
    far = log_ndtr(np.where(above, -right, left))
    with np.errstate(divide="ignore"):
        result: Vector = tilt + near + np.log1p(-np.exp(np.minimum(far - near, 0.0)))
    return result


def _log_sum(logs: Vector, size: float) -> float:
    """Return the logarithm of the sum, not too small, where `size` is that of what was added."""
    total = float(np.logaddexp.reduce(logs))
    return total + _ROUNDINGS * (_CELLS + size + abs(total))
