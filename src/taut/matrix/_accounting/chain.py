"""A mean of ratios around a circle, each correlated with its two neighbours, by transfer matrices.

The ratio is R = (1/m) sum_j U_j U_{j+1} W_j with independent lognormal factors of mean one. It is
linear in every factor, so that spreading a factor's law to nodes, with mass and mean kept, only
raises E f(R) for convex f (docs/theory/amplified.md, balls in bins).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from taut._base.arrays import Matrix, Vector
from taut.accounting import PrivacyLoss, from_profile
from taut.matrix._encoders.encoder import Indices

__all__ = ["chain_losses"]

# Nodes of a factor of two neighbours, in steps of its logarithm: fine in the bulk, where the error
# falls with the square of the step. Products of nodes are on the same ladder.
_RUNGS = np.concatenate([np.arange(-36, -18, 3), np.arange(-18, 19), np.arange(21, 37, 3)])
_RATIO_NODES = 2**14  # nodes of R
_CUT_FACTORS = 1e-4  # of delta: factors that are cut and counted as betrayed
_CUT_SUMS = 1e-2  # of delta: the same for sums, whose tails are bounded less sharply
_RANGES = 4.0 * 2.0 ** np.arange(8)  # of R that are tried before the circle is given up
# Of transforms and of products of matrices, relative to all masses, for every rounding: 8 units.
_PRODUCT_ERROR = 8 * float(np.finfo(np.float64).eps)
_SPLIT_ERROR = 1e-12  # of means of cells, in all: differences of moments of 2^14 cells
_CHERNOFF_TILTS = np.geomspace(4.0, 80.0, 30)  # of Chernoff's bound, in units of the range
_LEAST_OWN_SHARE = 1e-6  # of the shared variance that W has at least
_NO_COEFFICIENT = 1e-17  # bound on a coefficient of the transform that is taken for zero


def chain_losses(
    length: int, shared: float, own: float, delta: float
) -> dict[str, PrivacyLoss] | None:
    """Return losses of both directions that dominate the mean around a circle, or nothing.

    Args:
        length: number of ratios around the circle, m, at least three.
        shared: covariance of neighbours' exponents, positive: the variance of log U.
        own: variance of log W, what is left of that of an exponent, at least zero.
        delta: where the losses are to be sharp.
    """
    tail = _CUT_FACTORS * delta / (6 * length)
    # Kahane's inequality allows for larger variances: W must have some.
    own = max(own, _LEAST_OWN_SHARE * shared)
    nodes, masses = _spread(shared, tail)
    for top in _RANGES.tolist():
        if _alone(top, length, 2 * shared + own) > _CUT_SUMS * delta:
            continue
        terms = _terms(nodes, own, length, top / _RATIO_NODES, _RATIO_NODES)
        beyond = _beyond(terms, masses, length)
        if beyond <= _CUT_SUMS * delta:
            law, noise = _circle(terms, masses, length)
            cut = 4 * length * tail + beyond
            return _as_losses(law, terms.step, cut, noise)
    return None


def _alone(top: float, length: int, variance: float) -> float:
    """Return about how much of the mean of R is in single terms beyond ``top``: a first look."""
    far = (math.log(length * top) - variance / 2) / math.sqrt(variance)
    return length * float(ndtr(-far))


@dataclass(frozen=True)
class _Terms:
    """Laws of u_i u_j W / m on a lattice, by the rung of the product; the last is that of zero.

    Attributes:
        laws: masses, shape (rungs, lattice).
        pairs: index of the law of two nodes' product, shape (nodes, nodes).
        step: distance of the lattice's nodes.
        lost: share of the mean of the product that lies beyond the lattice, shape (rungs,).
    """

    laws: Matrix
    pairs: Indices
    step: float
    lost: Vector


def _log_moments(values: Vector, variance: float) -> tuple[Vector, Vector]:
    """Return mass and mean of a lognormal variable of mean one below ``values``."""
    deviation = math.sqrt(variance)
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    return ndtr((logs + variance / 2) / deviation), ndtr((logs - variance / 2) / deviation)


def _spread(variance: float, tail: float) -> tuple[Vector, Vector]:
    """Return zero and the nodes of the ladder, and masses that keep mass and mean.

    Above the nodes there is less than ``tail``, with and without the record.
    """
    reach = -float(ndtri(tail))
    deviation = math.sqrt(variance)
    step = (variance / 2 + reach * deviation) / float(_RUNGS[-1])
    values = np.append(0.0, np.exp(step * _RUNGS))
    mass, mean = (np.diff(each) for each in _log_moments(values, variance))
    share = np.clip((mean - mass * values[:-1]) / np.diff(values), 0.0, mass)
    masses = np.append(mass - share, 0.0)
    masses[1:] += share
    return values, masses


def _terms(values: Vector, own: float, length: int, step: float, size: int) -> _Terms:
    """Return the laws of a term of the mean for every product of two nodes."""
    step_of_logs = math.log(values[-1]) / float(_RUNGS[-1])
    lowest = 2 * int(_RUNGS[0])
    scales = np.exp(step_of_logs * np.arange(lowest, -lowest + 1)) / length
    laws = np.zeros((scales.size + 1, size))
    laws[-1, 0] = 1.0
    ends = step * np.arange(size)
    for law, scale in zip(laws, scales.tolist(), strict=False):
        mass, mean = (np.diff(each) for each in _log_moments(ends / scale, own))
        share = np.clip((scale * mean - mass * ends[:-1]) / step, 0.0, mass)
        law[:-1] = mass - share
        law[1:] += share
    pairs = np.full((values.size, values.size), scales.size, dtype=np.int64)
    pairs[1:, 1:] = _RUNGS[:, None] + _RUNGS[None, :] - lowest
    # What W beyond the lattice contributes to E U U W, for every rung.
    deviation = math.sqrt(own)
    far = (np.log(ends[-1] / scales) - own / 2) / deviation
    lost = np.append(length * scales * ndtr(-far), 0.0) * (1 + 1e-9)
    return _Terms(laws, pairs, step, lost)


def _beyond(terms: _Terms, masses: Vector, length: int) -> float:
    """Return a bound on E[R; R > top], one term alone beyond the top included.

    Chernoff's inequality with x <= top exp((x - top) / top). For one term: to be with the record
    makes no term larger than the term of the record's own bin.
    """
    alone = length * float(masses @ terms.lost[terms.pairs] @ masses)
    ends = terms.step * np.arange(terms.laws.shape[1])
    top = float(ends[-1])
    root = np.sqrt(masses)
    best = math.inf
    for tilt in _CHERNOFF_TILTS / top:
        with np.errstate(over="ignore"):
            values = terms.laws @ np.exp(tilt * ends)
            matrix = root[:, None] * values[terms.pairs] * root
            if not np.isfinite(matrix).all():
                break
            largest = float(np.linalg.norm(matrix, 2))
            log_bound = math.log(masses.size) + length * math.log(largest)
        best = min(best, top * math.exp(min(log_bound - tilt * top, 700.0)))
    return best + alone


def _circle(terms: _Terms, masses: Vector, length: int) -> tuple[Vector, float]:
    """Return masses of R on the lattice, and a bound on their errors in the l2-norm.

    A coefficient of the transform is the trace of a power of a matrix. It is at most the power of
    the Frobenius norm, and taken for zero where that is next to nothing.
    """
    size = terms.laws.shape[1]
    root = np.sqrt(masses)
    weight = root[:, None] * root
    transformed = np.fft.rfft(terms.laws, axis=1)
    found = np.zeros(transformed.shape[1], dtype=np.complex128)
    by_law = np.bincount(terms.pairs.ravel(), (weight**2).ravel(), minlength=terms.laws.shape[0])
    with np.errstate(divide="ignore"):
        log_norm = 0.5 * np.log(by_law @ np.abs(transformed) ** 2)
    bound = np.exp(np.minimum(length * log_norm, 0.0))
    some = np.flatnonzero(bound > _NO_COEFFICIENT)
    for start in range(0, some.size, _MATRICES_AT_ONCE):
        at = some[start : start + _MATRICES_AT_ONCE]
        matrices = weight * transformed[:, at].T[:, terms.pairs]
        power = np.linalg.matrix_power(matrices, length)
        found[at] = np.trace(power, axis1=1, axis2=2)
    law = np.maximum(np.fft.irfft(found, size), 0.0)
    roundings = length * (2 * math.log2(size) + masses.size + 8)
    return law, roundings * _PRODUCT_ERROR + 2 * _NO_COEFFICIENT


_MATRICES_AT_ONCE = 64  # matrices that are multiplied together: 3 megabytes


def _as_losses(law: Vector, step: float, cut: float, noise: float) -> dict[str, PrivacyLoss]:
    """Return both directions of the profile, at thresholds of the lattice."""
    ends = step * np.arange(1.0, law.size)
    above = np.cumsum(law[::-1])[::-1]
    below = np.cumsum(law)
    excess = step * np.append(np.cumsum(above[2:][::-1])[::-1], 0.0)
    lack = step * np.cumsum(below[:-1]) / ends
    # By the inequality of Cauchy and Schwarz, with the l2-norms of (R - t)_+ and (1 - R / t)_+.
    missed = noise * ends[-1] * math.sqrt(law.size), noise * math.sqrt(law.size)
    wrong = _SPLIT_ERROR
    removed = np.clip(excess * (1 + 1e-9) + missed[0] + cut + wrong, 1 - ends, 1.0)
    added = np.clip(lack * (1 + 1e-9) + missed[1] + cut + wrong / ends, 1 - 1 / ends, 1.0)
    at = np.unique(np.geomspace(1, ends.size, _CIRCLE_KNOTS).astype(np.int64)) - 1
    some = np.unique(np.append(at, np.flatnonzero(np.abs(np.log(ends)) < _NEAR)[::_THIN]))
    logs = np.log(ends[some])
    return {
        "remove": from_profile(_points(logs, removed[some]), adjacency="remove"),
        "add": from_profile(_points(-logs, added[some]), adjacency="add"),
    }


_CIRCLE_KNOTS = 1000  # of the profile, over the whole range of thresholds
_NEAR, _THIN = 3.0, 4  # more of them: every fourth node of the lattice up to epsilon 3


def _points(epsilons: Vector, deltas: Vector) -> dict[float, float]:
    """Return the points of a profile, with one far below."""
    points = dict(zip(epsilons.tolist(), deltas.tolist(), strict=True))
    points[-50.0] = 1.0
    return points
