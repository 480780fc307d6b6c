"""Point queries on a shifted contour: exact sums of closed-form losses in a few hundred terms.

For 0 < c where E exp(c L) is finite,

    delta(e) = m_inf + 1/(2 pi) * integral of exp(K(z) - z e) / (z (z + 1)) dy,   z = c + i y,

with K the cumulant of the finite loss. The trapezoid rule with spacing s returns the sum over all
integers k of delta(e + k w) exp(c k w), w = 2 pi / s: every alias term is non-negative, so the
untruncated rule is an upper bound, and the aliases are bounded by Chernoff's inequality
(docs/theory/contour.md). A Gaussian part bounds the truncated tail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from taut._base.floats import RELATIVE_ERROR
from taut.accounting._engines.bounds import Bounds
from taut.accounting._engines.saddle_point import Cumulants, Saddle
from taut.accounting._pairs.pair import Pair

__all__ = ["Contour"]

_ALIAS_SHARE = 1e-15  # of delta: aliases below are lost in rounding; they are bounded in any case
_MOST_WIDENINGS = 60  # of a period by a quarter: 6e5 times 8 deviations; aliases are bounded anyway
_FADED_EXPONENT = -40.0  # of an integrand over its peak: exp(-40) = 4e-18 is below rounding
_NODE_BLOCK = 256  # nodes evaluated at a time, between looks at whether the integrand has faded
_MOST_CONTOUR_NODES = 65_536  # beyond, a lattice answers sooner: the contour is not certified

Complex = NDArray[np.complex128]


class Contour:
    """Bounds on delta near one saddle point of a sum.

    The cumulants must be closed formulas. With a Gaussian part the bounds are certified; otherwise
    the sum is cut where its terms fade, an estimate to many digits.
    """

    def __init__(
        self, terms: Sequence[tuple[Pair, int]], saddle: Saddle, cumulants: Cumulants
    ) -> None:
        """Prepare the nodes on the line through ``saddle``."""
        self._tilt = saddle.tilt
        self._width, self._probes = _plan(terms, saddle, math.sqrt(cumulants.spread(saddle.tilt)))
        self._spacing = 2 * math.pi / self._width
        mu = math.sqrt(math.fsum(count * pair.gaussian_mu**2 for pair, count in terms))
        self.certified = mu > 0 and all(pair.closed_form for pair, _ in terms)
        self._z, values = self._line(terms, mu)
        self.certified &= self._z.size < _MOST_CONTOUR_NODES
        self.faded = float(values[-1].real) - float(values[0].real) < _FADED_EXPONENT
        self._log_peak = float(values[0].real)
        self._weights = np.exp(values - self._log_peak) / (self._z * (self._z + 1))
        self._weights[0] /= 2
        # |exp K(c + i y)| <= exp(K(c) - mu^2 y^2 / 2), integrated from the last node on.
        y = self._z.imag
        last = float(y[-1])
        self._truncated = math.exp(-0.5 * (mu * last) ** 2) / (math.pi * last) if mu else 0.0
        size = 1 + math.fsum(n * float(np.abs(pair.log_mgf(self._z)).max()) for pair, n in terms)
        magnitude = np.abs(self._weights) * (RELATIVE_ERROR * self._spacing / math.pi)
        self._rounding = (size * float(magnitude.sum()), float(magnitude @ y))
        self._mass_inf = -math.expm1(math.fsum(n * math.log1p(-p.mass_inf) for p, n in terms))

    def _line(self, terms: Sequence[tuple[Pair, int]], mu: float) -> tuple[Complex, Complex]:
        """Return nodes from the real axis up to where the integrand fades, and cumulants there."""
        reach = math.sqrt(-2 * math.log(_ALIAS_SHARE * 1e-3)) / mu if self.certified else math.inf
        nodes, cumulants, size = [], [], 0
        while size < _MOST_CONTOUR_NODES:
            y = self._spacing * np.arange(size, size + _NODE_BLOCK)
            z = (self._tilt + 1j * y).astype(np.complex128)
            nodes.append(z)
            cumulants.append(_total(terms, z))
            size += _NODE_BLOCK
            drop = float((cumulants[-1].real - cumulants[0][0].real).max())
            if z[-1].imag > reach or (drop < _FADED_EXPONENT and not self.certified):
                break
        return np.concatenate(nodes), np.concatenate(cumulants)

    def delta(self, epsilon: float) -> Bounds:
        """Return bounds on delta at ``epsilon``."""
        phase = np.exp(-1j * self._z.imag * epsilon)
        value = float((self._weights * phase).sum().real) * self._spacing / math.pi
        scale = math.exp(min(self._log_peak - self._tilt * epsilon, 700.0))
        doubt = self._truncated + self._rounding[0] + self._rounding[1] * abs(epsilon)
        upper = self._mass_inf + scale * (value + doubt)
        lower = self._mass_inf + max(scale * (value - doubt) - self._aliases(epsilon), 0.0)
        return Bounds(min(lower, 1.0), min(upper, 1.0))

    def _aliases(self, epsilon: float) -> float:
        """Return a bound on the sum of all alias terms."""
        total = 0.0
        for z, cumulant in self._probes:
            fall = abs(z - self._tilt) * self._width
            total += math.exp(min(cumulant - z * epsilon - fall, 700.0)) / -math.expm1(-fall)
        return total


def _plan(
    terms: Sequence[tuple[Pair, int]], saddle: Saddle, spread: float
) -> tuple[float, list[tuple[float, float]]]:
    """Return a period at which aliases vanish, and exponents with cumulants that prove it."""
    below = saddle.tilt * np.linspace(0.02, 0.95, 24)
    # Any exponents prove something; those beyond the range of squares are of no use.
    above = saddle.tilt + np.minimum(np.geomspace(0.1, 30.0, 24) / max(spread, 1e-100), 1e100)
    sides = [(z, _total(terms, z.astype(np.complex128)).real) for z in (below, above)]
    target = saddle.log_delta + math.log(_ALIAS_SHARE)
    width = 8 * spread
    for _ in range(_MOST_WIDENINGS):
        logs = [
            cumulant - z * saddle.epsilon - np.abs(z - saddle.tilt) * width for z, cumulant in sides
        ]
        if max(float(log.min()) for log in logs) < target:
            break
        width *= 1.25
    best = [int(np.argmin(log)) for log in logs]
    return width, [(float(z[i]), float(k[i])) for (z, k), i in zip(sides, best, strict=True)]


def _total(terms: Sequence[tuple[Pair, int]], z: Complex) -> Complex:
    """Return the cumulant of the sum at complex ``z``."""
    value = np.zeros(z.shape, dtype=np.complex128)
    for pair, count in terms:
        value = value + count * pair.log_mgf(z)
    return value
