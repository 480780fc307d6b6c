"""From what was released to statistics and their errors: no data are looked at here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logit

from taut._base.arrays import Vector
from taut.accounting import Promise
from taut.noise import NoiseMechanism
from taut.statistics._mechanisms.quantile_tree import QuantileTree
from taut.statistics._mechanisms.tails import deviations_within
from taut.statistics._releases.coordinates import Coordinate, Moments, Places
from taut.statistics._releases.descriptions import (
    CellCounts,
    LinearStatistic,
    Quantiles,
)
from taut.statistics._releases.estimates import Estimate, Interval
from taut.statistics._releases.groups import GroupStatistic, GroupSums

__all__ = [
    "NoisySums",
    "counts_estimate",
    "groups_estimate",
    "linear_estimate",
    "quantiles_estimate",
]


@dataclass(frozen=True)
class NoisySums:
    """Sums as they were released, and the noise in them.

    Attributes:
        coordinates: what was released.
        values: its values.
        deviations: standard deviations of the noise in them.
        records: the number of records, where it is public; otherwise a coordinate.
        mechanism: where the noise came from.
    """

    coordinates: tuple[Coordinate, ...]
    values: Vector
    deviations: Vector
    records: int | None
    mechanism: NoiseMechanism

    def moments(self, values: Vector) -> Moments:
        """Return values of the coordinates in the form that statistics take."""
        places = self.places
        records = values[places.of[Coordinate()]] if self.records is None else self.records
        return Moments(float(records), values, places)

    @cached_property
    def places(self) -> Places:
        """Where each coordinate stands among the values."""
        return Places(self.coordinates)


def linear_estimate(statistic: LinearStatistic, sums: NoisySums, promise: Promise) -> Estimate:
    """Return a statistic of noisy sums, with its error to first order.

    The slope along every sum is that of the secant over one standard deviation on either side,
    before the value is cut to its limits: at a limit the noise is no smaller.
    """
    value = statistic.of(sums.moments(sums.values))
    found = {sums.places.of.get(coordinate) for coordinate, _ in statistic.terms()}
    variance = np.zeros(value.shape)
    for i in sorted(place for place in found if place is not None):  # a public count has none
        step = np.zeros(sums.values.size)
        step[i] = sums.deviations[i]
        ends = [statistic.of(sums.moments(sums.values + sign * step)) for sign in (1, -1)]
        variance += ((ends[0] - ends[1]) / 2) ** 2
    kept, error = statistic.kept(value), np.sqrt(variance)
    return _with_noise(statistic, kept, error, sums.mechanism, promise, statistic.limits)


def counts_estimate(
    statistic: CellCounts,
    values: Vector,
    deviations: Vector,
    mechanism: NoiseMechanism,
    promise: Promise,
) -> Estimate:
    """Return the counts of cells."""
    shape = statistic.shape
    table = values.reshape(shape)
    return _with_noise(statistic, table, deviations.reshape(shape), mechanism, promise)


def groups_estimate(
    statistic: GroupStatistic | CellCounts,
    groups: GroupSums,
    values: Vector,
    deviations: Vector,
    mechanism: NoiseMechanism,
    promise: Promise,
) -> Estimate:
    """Return a statistic of every group, with its error to first order.

    The noise of two sums has one size, so that counts and sums, which are their sum and their
    difference, are uncorrelated.
    """
    counts, sums = groups.counts_and_sums(values)
    pairs = deviations.reshape(*groups.shape, 2)
    deviation = np.hypot(pairs[..., 0], pairs[..., 1]) / groups.size
    if isinstance(statistic, CellCounts):
        return _with_noise(statistic, counts, deviation, mechanism, promise)
    found = statistic.of(counts, sums)
    errors = statistic.deviations(counts, sums, deviation)
    return _with_noise(statistic, found, errors, mechanism, promise, statistic.limits)


def quantiles_estimate(
    statistic: Quantiles,
    places: Sequence[int],
    tree: QuantileTree,
    records: float | None,
    promise: Promise,
) -> Estimate:
    """Return quantiles, with errors read off the released ones nearby.

    Args:
        statistic: what was asked for.
        places: candidates of the grid that were released.
        tree: the mechanism.
        records: number of records, public or released; None if it is neither.
        promise: promise of the whole release.
    """
    values = np.array([statistic.grid.value(place) for place in places])
    within = _RanksWithin(statistic, values, np.array(tree.rank_errors), records)
    error = within.standard_error()
    return Estimate(statistic, _plain(values), error, promise, within.ranks, _within=within)


@dataclass(frozen=True, eq=False)
class _NoiseWithin:
    """Intervals of values with additive noise."""

    value: Vector
    error: Vector
    mechanism: NoiseMechanism
    limits: tuple[float, float]

    def __call__(self, level: float) -> Interval:
        reach = deviations_within(self.mechanism, level) * self.error
        # What the data can have lies within the limits, so that a cut loses no coverage.
        ends = (np.clip(self.value + sign * reach, *self.limits) for sign in (-1, 1))
        return Interval(*map(_plain, ends))


@dataclass(frozen=True, eq=False)
class _RanksWithin:
    """Intervals of quantiles: from one released value, or bound, to another, by rank.

    Between released values a column may be spread evenly, or like a tail: linearly in the share, or
    in its logit. Nobody knows, so that the one that errs more counts.
    """

    statistic: Quantiles
    values: Vector
    ranks: Vector
    records: float | None

    def __call__(self, level: float) -> Interval:
        if self.records is None:
            nothing = np.full(self.values.shape, np.nan)
            return Interval(nothing, nothing)
        # Ranks err like Laplace noise where values lie dense.
        away = -math.log(1 - level) / math.sqrt(2) * self.ranks / max(self.records, 1.0)
        below, above = (np.clip(self._shares + sign * away, 0, 1) for sign in (-1, 1))
        return Interval(np.minimum(*self._values_at(below)), np.maximum(*self._values_at(above)))

    def standard_error(self) -> Vector:
        """Return rank errors times the slope between the released neighbours."""
        if self.records is None or self.values.size < 2:
            return np.full(self.values.shape, np.nan)
        shares = self._shares
        even = np.gradient(self.values, shares)
        tailed = np.gradient(self.values, logit(shares)) / (shares * (1 - shares))
        error: Vector = np.maximum(even, tailed) * self.ranks / max(self.records, 1.0)
        return error

    def _values_at(self, shares: Vector) -> tuple[Vector, Vector]:
        """Return values at some shares, for a column spread evenly, and for one with tails."""
        known, (lower, upper) = self._shares, self.statistic.bounds
        even = np.interp(shares, [0.0, *known, 1.0], [lower, *self.values, upper])
        tailed = np.interp(logit(shares), logit(known), self.values)
        return even, np.where((known[0] <= shares) & (shares <= known[-1]), tailed, even)

    @cached_property
    def _shares(self) -> Vector:
        return np.array([float(share) for share in self.statistic.fractions])


def _with_noise(
    statistic: LinearStatistic | CellCounts | GroupStatistic,
    value: Vector,
    error: Vector,
    mechanism: NoiseMechanism,
    promise: Promise,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> Estimate:
    within = _NoiseWithin(value, error, mechanism, limits)
    return Estimate(statistic, _plain(value), _plain(error), promise, _within=within)


def _plain(value: Vector) -> float | Vector:
    """Return a number as a float, and an array as it is, read-only."""
    if not value.shape:
        return float(value)
    value.setflags(write=False)
    return value
