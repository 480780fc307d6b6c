"""The Renyi cumulant of twice sampling as a function of the noise in every block, with its slope.

In floating point and rounded to no side: it guides a search, whose outcome is accounted for by
`taut.accounting.twice_sampled_blocks`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, xlog1py, xlogy

from taut._base.arrays import Vector
from taut._base.floats import log_expm1
from taut._base.worst_record import Vertex

__all__ = ["MaskedCurve"]


class MaskedCurve:
    """K(a) = log sum_v B(v) exp K0(v), with K0(v) the sum over blocks of that of their vertices.

    Convex in the inverse variances: sums and logarithms of sums of exponentials of linear
    functions (docs/theory/coordinates.md).

    Args:
        order: an integer from 2 on.
        record_rate: sampling rate of records, in [0, 1].
        coordinate_rate: sampling rate of coordinates, in [0, 1].
        vertices: the record that is hardest to hide, in every block.
    """

    def __init__(
        self, order: int, record_rate: float, coordinate_rate: float, vertices: list[Vertex]
    ) -> None:
        v = np.arange(2.0, order + 1)
        self._records = _log_binomial(order, v, record_rate)
        self._pairs = v * (v - 1)
        self._cells = _log_binomial(v[:, None], v[None, :], coordinate_rate)
        parts = [
            (j, count, size**2 / 2)
            for j, at in enumerate(vertices)
            for count, size in ((at.full, at.large), (1, at.rest))
            if size > 0
        ]
        self._block = np.array([j for j, _, _ in parts])
        self._count = np.array([float(count) for _, count, _ in parts])
        self._half = np.array([half for _, _, half in parts])
        self._blocks = len(vertices)

    def __call__(self, log_variances: Vector) -> tuple[float, Vector]:
        """Return the cumulant, and its derivatives by the logarithms of the variances."""
        inside = np.zeros(self._pairs.shape)
        slopes = np.zeros((self._blocks, self._pairs.size))
        for block, count, half in zip(self._block, self._count, self._half, strict=True):
            unit = half * np.exp(-log_variances[block])
            exponents = self._pairs * unit
            log_excess = _log_sum(self._cells + log_expm1(exponents))
            cumulant = np.logaddexp(0.0, log_excess)
            weighted = _log_sum(self._cells + exponents + np.log(self._pairs))
            inside += count * cumulant
            slopes[block] += count * unit * np.exp(weighted - cumulant)
        total = np.logaddexp(0.0, _log_sum(self._records + log_expm1(inside)))
        return float(total), -(slopes @ np.exp(self._records + inside - total))


def _log_binomial(n: Vector | int, k: Vector, rate: float) -> Vector:
    """Return the logarithms of Binomial(n, rate) probabilities at k, -inf beyond n."""
    rest = np.maximum(n - k, 0.0)
    logs = gammaln(np.add(n, 1.0)) - gammaln(k + 1.0) - gammaln(rest + 1.0)
    logs = logs + xlogy(k, rate) + xlog1py(rest, -rate)
    return np.where(k <= n, logs, -np.inf)


def _log_sum(terms: Vector) -> Vector:
    """Return the logarithm of the sum of exponentials over the last axis."""
    peak = terms.max(axis=-1, keepdims=True)
    shift = np.where(np.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore"):
        total: Vector = np.log(np.exp(terms - shift).sum(axis=-1)) + shift[..., 0]
    return total
