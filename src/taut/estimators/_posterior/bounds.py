"""From what is known of a regression to the precision with which its posterior may be sampled.

Everything is in units of the clips: features and targets are at most one.
"""

from __future__ import annotations

import math

from taut.accounting import Adjacency
from taut.errors import InfeasibleBudget
from taut.estimators._posterior.pair import PosteriorPair, has_shift, largest_shift
from taut.estimators._posterior.samples import VARIATION

__all__ = [
    "LARGEST_EPSILON",
    "largest_growth",
    "largest_precision",
    "loosest_pair",
    "public_log_residual",
]

LARGEST_EPSILON = 40.0
"""The largest epsilon that a sample makes use of: beyond, errors of the sampler weigh too much."""

_UP = 1 + 1e-12  # rounding of a few operations, and of clips by up to a few last places
_LARGEST_LOG = 500.0  # of a residual; its exponential's square is a float, and no noise is as large
_LEAST_GROWTH, _LARGEST_GROWTH, _HALVINGS = 1e-12, 1e6, 60  # of a search, to twelve digits
_LEAST_PRECISION = 1e-250  # below, deviations leave the range of floats


def loosest_pair(
    growth: float, log_residual: float, precision: float, relation: Adjacency
) -> PosteriorPair:
    """Return the pair that covers all records, from bounds at the data at hand.

    Args:
        growth: bound on one over the smallest eigenvalue without any one record.
        log_residual: bound on the logarithm of one plus the length of the solution.
        precision: precision of the residuals.
        relation: neighbouring relation.
    """
    length = math.sqrt(precision) * math.exp(log_residual) * _reach(growth, relation)
    return PosteriorPair(length * _UP, growth * _UP)


def largest_precision(
    growth: float, log_residual: float, *, epsilon: float, delta: float, relation: Adjacency
) -> float | None:
    """Return the largest precision with which a sample keeps a promise, None if there is none.

    Args:
        growth: bound on one over the smallest eigenvalue without any one record.
        log_residual: bound on the logarithm of one plus the length of the solution.
        epsilon: promise for one sample.
        delta: probability delta of it.
        relation: neighbouring relation.
    """
    if not log_residual < _LARGEST_LOG:
        return None
    own = _of_one_record(epsilon, delta, relation)
    if own is None:
        return None
    epsilon, left = own
    shift = largest_shift(growth * _UP, epsilon=epsilon, delta=left)
    if shift is None:
        return None
    root = shift / (math.exp(log_residual) * _reach(growth, relation) * _UP)
    precision = root * root / _UP
    return precision if precision > _LEAST_PRECISION else None


def largest_growth(*, epsilon: float, delta: float, relation: Adjacency) -> float:
    """Return the largest growth with which a sample can keep a promise at all, rounded down.

    Args:
        epsilon: promise for one sample.
        delta: probability delta of it.
        relation: neighbouring relation.

    Raises:
        InfeasibleBudget: if delta is below what floating point leaves.
    """
    own = _of_one_record(epsilon, delta, relation)
    low, high = _LEAST_GROWTH, _LARGEST_GROWTH
    if own is None or not has_shift(low, epsilon=own[0], delta=own[1]):
        raise InfeasibleBudget(
            f"no posterior sample keeps epsilon={epsilon:g} at delta={delta:g}; raise either"
        )
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        fits = has_shift(middle, epsilon=own[0], delta=own[1])
        low, high = (middle, high) if fits else (low, middle)
    return low / _UP**2


def _of_one_record(epsilon: float, delta: float, relation: Adjacency) -> tuple[float, float] | None:
    """Return the promise that one added or removed record must have, None if there is none."""
    epsilon = min(epsilon, LARGEST_EPSILON)  # which keeps the promise all the more
    left = delta - VARIATION * (1 + math.exp(epsilon)) * _UP
    if relation is Adjacency.REPLACE:  # a removal and an addition, half of the promise each
        epsilon /= 2
        left /= (1 + math.exp(epsilon)) * _UP
    return (epsilon, left) if left > 0 else None


def public_log_residual(ridge: float, records: int) -> float:
    """Return a bound for all data with so many records: a solution is at most sqrt(n / ridge) / 2.

    Args:
        ridge: ridge of the regression.
        records: public number of records.
    """
    return math.log1p(math.sqrt(records / ridge) / 2) * _UP


def _reach(growth: float, relation: Adjacency) -> float:
    """Return how far a record moves the mean, per unit of residual and root of the precision.

    A record that is there moves it by its root of mu, which is at most that of the growth; one that
    takes the place of another has a residual that is larger by 1 + growth, and moves the mean by
    that over 1 + mu.
    """
    if relation is Adjacency.REPLACE and growth > 1:
        return (1 + growth) / 2
    return math.sqrt(growth)
