"""A quick, certified look at a sum: where to tilt, how wide to look, what Chernoff already proves.

The scout keeps a few hundred nodes per distinct loss, discretised upwards, so its cumulants and
everything it derives from them are upper bounds; they need no common lattice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from taut.accounting._lattice import upper_masses
from taut.accounting._pair import Pair, Vector
from taut.accounting._tilted import Window

__all__ = ["Saddle", "Scout"]

_NODES = 512
_COARSE = np.geomspace(1e-4, 1e4, 49)
_FINE = np.linspace(-1.0, 1.0, 13)


class Saddle(NamedTuple):
    """Where the tilted sum concentrates on the question.

    Attributes:
        tilt: the exponent c.
        epsilon: the epsilon that Chernoff's bound proves, or the one that was asked about.
        log_delta: the log delta that goes with it.
    """

    tilt: float
    epsilon: float
    log_delta: float


class Scout:
    """Upper cumulants of a sum of losses, at finitely many nodes."""

    def __init__(self, terms: Sequence[tuple[Pair, int]], tail: float) -> None:
        """Discretise every pair of ``terms`` with at most ``tail`` of its mass cut."""
        self._terms = []
        for pair, count in terms:
            losses = np.union1d(pair.grid(tail, _NODES), pair.atoms(tail).losses)
            if losses.size > 4 * _NODES:
                losses = losses[np.linspace(0, losses.size - 1, 4 * _NODES).astype(int)]
            if losses.size == 1:
                losses = np.append(losses, losses[0] + 1.0)
            with np.errstate(divide="ignore"):
                self._terms.append((losses, np.log(upper_masses(pair, losses, tail)), count))

    def log_mgf(self, tilts: Vector) -> Vector:
        """Return the cumulant of the sum at real ``tilts`` of shape (m,)."""
        total = np.zeros(tilts.shape)
        for part, (_, _, count) in zip(self.cumulants(tilts), self._terms, strict=True):
            total += count * part
        return total

    def cumulants(self, tilts: Vector) -> list[Vector]:
        """Return the cumulant of one copy of every term at real ``tilts`` of shape (m,)."""
        values = []
        for losses, log_masses, _ in self._terms:
            exponent = log_masses + tilts[:, None] * losses
            peak = exponent.max(axis=1)
            values.append(peak + np.log(np.exp(exponent - peak[:, None]).sum(axis=1)))
        return values

    def spread(self, tilt: float) -> float:
        """Return the variance of the tilted sum."""
        return math.fsum(count * variance for _, variance, count in self._moments(tilt))

    def means(self, tilt: float) -> list[float]:
        """Return the mean tilted loss of every term, all its copies together."""
        return [count * mean for mean, _, count in self._moments(tilt)]

    def _moments(self, tilt: float) -> list[tuple[float, float, int]]:
        """Return mean and variance of one tilted copy, and the count, of every term."""
        moments = []
        for losses, log_masses, count in self._terms:
            exponent = log_masses + tilt * losses
            weight = np.exp(exponent - exponent.max())
            weight /= weight.sum()
            mean = float(weight @ losses)
            moments.append((mean, float(weight @ (losses - mean) ** 2), count))
        return moments

    def at_delta(self, delta: float) -> Saddle:
        """Return the best Chernoff epsilon at ``delta`` and its tilt."""
        tilts, values = self._search(
            lambda c: (self.log_mgf(c) + _log_kernel(c) - math.log(delta)) / c
        )
        best = int(np.argmin(values))
        return Saddle(float(tilts[best]), float(values[best]), math.log(delta))

    def at_epsilon(self, epsilon: float) -> Saddle:
        """Return the best Chernoff log delta at ``epsilon`` and its tilt."""
        tilts, values = self._search(lambda c: self.log_mgf(c) + _log_kernel(c) - c * epsilon)
        best = int(np.argmin(values))
        return Saddle(float(tilts[best]), epsilon, min(float(values[best]), 0.0))

    def window(self, tilt: float, escape: float) -> Window:
        """Return the narrowest window that Chernoff's bound allows at ``tilt``."""
        margin = -math.log(escape)
        unit = math.sqrt(2 * margin / max(self.spread(tilt), 1e-300))
        factors = unit * np.geomspace(2.0**-5, 4.0, 15)
        centre = self.log_mgf(np.array([tilt]))[0]
        high = (self.log_mgf(tilt + factors) - centre + margin) / factors
        low = (self.log_mgf(tilt - factors) - centre + margin) / factors
        return Window(
            tilt=tilt,
            low=tilt - float(factors[np.argmin(low)]),
            high=tilt + float(factors[np.argmin(high)]),
            escape=escape,
        )

    def _search(self, objective: Callable[[Vector], Vector]) -> tuple[Vector, Vector]:
        """Return tilts around the minimum of a unimodal ``objective``, and its values there."""
        scale = 1 / math.sqrt(max(self.spread(0.0), 1e-300))
        tilts = np.clip(scale * _COARSE, 1e-9, 1e12)
        best = float(tilts[np.argmin(objective(tilts))])
        for ratio in (_COARSE[1] / _COARSE[0], (_COARSE[1] / _COARSE[0]) ** (1 / 6)):
            tilts = best * ratio**_FINE
            values = objective(tilts)
            best = float(tilts[np.argmin(values)])
        return tilts, values


def _log_kernel(tilt: Vector) -> Vector:
    """Return log max_x exp(-c x)(1 - exp(-x)): what a tail bound gains over a moment bound."""
    return tilt * np.log(tilt) - (1 + tilt) * np.log1p(tilt)
