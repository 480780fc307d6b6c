"""Any symmetric log-concave noise, independent on every coordinate, from its log-density alone.

Between two points a concave function lies above its chord and below the secants of the
neighbouring intervals. So values of a log-concave density on a grid bound every moment of its
likelihood ratio from above, with no derivative and no error estimate (docs/theory/mixed-noise.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut._base.validate import Probability
from taut._base.worst_record import vertex
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.cumulant_tables import divergences_from
from taut.accounting._releases.release import refuse_sampled_exchange
from taut.accounting._releases.renyi_only import RenyiOnly
from taut.accounting.renyi._sums import poisson_cumulants

__all__ = ["AdditiveNoise", "additive_noise"]

LogDensity = Callable[[Vector], Vector]

# On either side of zero. Secants bound every cell from above and chords from below, so that the
# number decides about tightness only, which improves with its square.
_SIDE_NODES = 2**14
_BEND_NODES = 2049  # by which the others are placed where the log-density bends; any place is sound
_TAIL_DEPTH = 60.0  # nats below the peak where tails are cut; exp(-60) = 9e-27, bounded and added
_MOST_DOUBLINGS = 100  # of a scale from 2^-100: noise outside of 2^+-100 is refused
# Relative to the largest slope: by how much rounding may seem to bend a chord upwards. The check
# refuses what it can see; that the density is log-concave is for the caller to promise.
_SLOPE_ERROR = 1e-7


@dataclass(frozen=True)
class AdditiveNoise(RenyiOnly):
    """Symmetric log-concave noise, by bounds on its moments at the worst shift.

    ``cumulants`` are those at orders 2, 3, ... without sampling.
    """

    kind = "additive_noise"
    cumulants: tuple[float, ...]
    rate: Probability

    def check_fields(self) -> None:
        """Check the parameters."""
        if not self.cumulants:
            raise ValueError("cumulants must not be empty; give at least the one at order 2")
        for value in self.cumulants:
            validate.non_negative(cumulant=value)

    def renyi(self, half: Half, orders: Vector) -> Vector:
        """Return the sampled divergences, infinite beyond the known orders."""
        largest = len(self.cumulants) + 1

        def table(_: int) -> Vector:
            return poisson_cumulants(self.rate, np.array([0.0, 0.0, *self.cumulants]))

        value = np.full(orders.shape, math.inf)
        known = orders <= largest
        if known.any():
            value[known] = divergences_from(table, orders[known])
        return value

    def sampled(self, rate: float) -> AdditiveNoise:
        """Return the same release on a Poisson sample of the records: rates multiply."""
        return AdditiveNoise(self.cumulants, validate.probability(rate=rate) * self.rate)

    def check(self, adjacency: Adjacency) -> None:
        """Sampling needs add/remove or zero-out; without it all relations serve."""
        refuse_sampled_exchange(self, self.rate, adjacency)

    def __str__(self) -> str:
        """Return the number of orders and the rate."""
        return f"additive_noise({len(self.cumulants)} orders, rate={self.rate:g})"


def additive_noise(
    log_density: LogDensity,
    *,
    reach: float,
    tail_curvature: float,
    sensitivity: float = 1.0,
    sensitivity_inf: float | None = None,
    dimension: int | None = None,
    rate: float = 1.0,
    largest_order: int = 32,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of a sum with independent symmetric log-concave noise on every coordinate.

    Args:
        log_density: log f on arrays of points x >= 0, up to a constant; f(-x) = f(x). Concave and
            finite everywhere: noise of bounded support hides nothing at its ends.
        reach: distance from which on ``tail_curvature`` holds.
        tail_curvature: bound on -(log f)'' beyond ``reach``: 0 for exponential tails, 1/sigma^2
            for Gaussian ones and for a Gaussian plus anything independent and log-concave.
        sensitivity: bound on the **l1**-norm of the contribution of a record.
        sensitivity_inf: bound on each of its coordinates; by default ``sensitivity``.
        dimension: number of coordinates, which matters only with ``sensitivity_inf``.
        rate: probability with which a record takes part in the sum.
        largest_order: the largest Renyi order that is prepared; cost grows with it.
        adjacency: the relation for which the sensitivities hold; not replace-one if ``rate`` < 1.

    **Guarantee**: upper bounds on Renyi divergences for add/remove and zero-out, with a secret
    Poisson sample (all relations without one), if ``log_density`` is as described. Moments are
    log-convex in the shift for every log-concave density, so under an l1-bound the worst record
    concentrates (docs/theory/mixed-noise.md); sampling is the binomial sum, and removal the larger
    direction by symmetry (Mironov, Talwar and Zhang 2019, Theorem 5). Only randomness that is
    added, independent of the data, may be accounted this way: dropout, augmentation and mixup are
    not.

    Raises:
        ValueError: if the density is not finite, not concave on the grid, or its tails do not
            fall; for arguments out of range.
        UnsoundConfiguration: for replace-one with a sample, which has no theorem.

    Example:
        >>> import numpy as np
        >>> from taut.accounting import additive_noise
        >>> logistic = lambda x: -x - 2 * np.log1p(np.exp(-x))
        >>> loss = additive_noise(
        ...     logistic, reach=20.0, tail_curvature=1e-8, largest_order=4
        ... )
        >>> round(loss.rdp(2), 5)
        0.30899
    """
    bound = validate.positive(sensitivity=sensitivity)
    largest = bound if sensitivity_inf is None else sensitivity_inf
    validate.positive(sensitivity_inf=largest)
    if dimension is not None:
        validate.positive_integer(dimension=dimension)
    if validate.positive_integer(largest_order=largest_order) < 2:
        raise ValueError(f"largest_order must be at least 2, got largest_order={largest_order!r}")
    noise = _Noise(
        log_density,
        validate.non_negative(reach=reach),
        validate.non_negative(tail_curvature=tail_curvature),
    )
    at = vertex(bound, largest, dimension, 1.0)
    cumulants = at.full * noise.cumulants(at.large, largest_order)
    if at.rest > 0:
        cumulants = cumulants + noise.cumulants(at.rest, largest_order)
    release = AdditiveNoise(tuple(cumulants.tolist()), validate.probability(rate=rate))
    return PrivacyLoss([(release, 1)], adjacency)


@dataclass(frozen=True)
class _Noise:
    """A log-density on x >= 0 with what is promised about its tail."""

    log_density: LogDensity
    reach: float
    tail_curvature: float

    def __call__(self, x: Vector) -> Vector:
        """Return the log-density at any points."""
        with np.errstate(all="ignore"):
            values = np.asarray(self.log_density(np.abs(x)), dtype=float)
        if values.shape != x.shape or not np.isfinite(values).all():
            raise ValueError(
                "log_density must return one finite value per point; write it with NumPy "
                "functions, in a form that does not overflow"
            )
        return values

    def cumulants(self, shift: float, largest: int) -> Vector:
        """Return log int f(x - shift)^k f(x)^(1-k) dx, rounded up, at k = 2 to ``largest``."""
        nodes = self._nodes(shift, largest)
        unshifted, shifted = self(nodes), self(nodes - shift)
        self._require_shape(nodes, unshifted)
        mass = _log_sum(_below(nodes, unshifted))
        orders = range(2, largest + 1)
        found = [self._log_moment(nodes, shifted, unshifted, shift, k) for k in orders]
        size = np.abs(unshifted).max() + np.abs(shifted).max()
        slack = RELATIVE_ERROR * (4 + 2 * np.arange(2, largest + 1) * size)
        bounds: Vector = np.maximum(np.array(found) - mass, 0.0) + slack
        return bounds

    def _log_moment(
        self, nodes: Vector, shifted: Vector, unshifted: Vector, shift: float, order: int
    ) -> float:
        """Return an upper bound on the integral over the line, tails included."""
        k = float(order)
        inner = slice(1, -1)  # cells with a neighbour on either side
        cells = _above(nodes, k * shifted, (1 - k) * unshifted)
        ends = k * shifted + (1 - k) * unshifted
        # Beyond the cells the exponent falls at least as fast as at their ends.
        left = (unshifted[2] - unshifted[1]) / (nodes[2] - nodes[1])
        right = -(shifted[-2] - shifted[-3]) / (nodes[-2] - nodes[-3])
        right -= (k - 1) * self.tail_curvature * shift
        tails = np.array([ends[1] - math.log(left), ends[-2] - math.log(right)])
        return _log_sum(np.concatenate([cells[inner], tails]))

    def _require_shape(self, nodes: Vector, values: Vector) -> None:
        """Refuse a density that is not concave, or bends more in its tails than promised."""
        lengths = np.diff(nodes)
        slopes = np.diff(values) / lengths
        error = 8 * RELATIVE_ERROR * np.abs(values).max() / np.minimum(lengths[1:], lengths[:-1])
        error += _SLOPE_ERROR * np.abs(slopes).max()
        bend = -np.diff(slopes)
        if (bend < -error).any():
            raise ValueError("log_density must be concave; this one bends upwards somewhere")
        allowed = self.tail_curvature * (lengths[1:] + lengths[:-1]) / 2 + error
        tail = (nodes[:-2] > self.reach) | (nodes[2:] < -self.reach)
        if (bend > allowed)[tail].any():
            raise ValueError(
                f"log_density bends more beyond reach={self.reach:g} than tail_curvature="
                f"{self.tail_curvature:g}; give a larger one, or a larger reach"
            )

    def _nodes(self, shift: float, largest: int) -> Vector:
        """Return a grid for f(x) and f(x - shift), dense where the log-density bends."""
        scale = self._scale()
        end = self._end(scale, shift, largest)
        # Nodes may lie anywhere: secants and chords bound every cell.
        coarse = np.append(0.0, np.geomspace(1e-4 * scale, end, _BEND_NODES))
        slopes = np.diff(self(coarse)) / np.diff(coarse)
        bend = np.sqrt(np.maximum(-np.diff(slopes), 0.0) * np.diff(coarse)[1:])
        # Above zero for densities that do not bend, so that nodes are spread evenly there.
        measure = np.append(0.0, np.cumsum(np.append(0.0, bend) + max(bend.mean(), 1e-6)))
        half = np.interp(np.linspace(0, measure[-1], _SIDE_NODES), measure, coarse)
        both = np.concatenate([-half[::-1], half])
        nodes = np.unique(np.concatenate([both, both + shift]))
        # Slopes over shorter cells would be all rounding.
        kept: Vector = nodes[np.append(True, np.diff(nodes) > 1e-7 * scale)]
        return kept

    def _scale(self) -> float:
        """Return how far the log-density takes to fall by one, to a few digits."""
        top = float(self(np.zeros(1))[0])
        scale = 2.0**-_MOST_DOUBLINGS
        while top - float(self(np.array([scale]))[0]) < 1:
            scale *= 2
            if scale > 2.0**_MOST_DOUBLINGS:
                raise ValueError("log_density must fall; this one is as good as flat")
        fine = np.linspace(scale / 2, scale, 65)
        return float(fine[np.argmax(top - self(fine) >= 1)])

    def _end(self, scale: float, shift: float, largest: int) -> float:
        """Return where all moments up to ``largest`` have negligible tails that fall."""
        end = max(2 * scale, self.reach) + shift
        for _ in range(_MOST_DOUBLINGS):
            at = np.array([0.0, end - scale / 8, end, end - shift, end - shift - scale / 8])
            top, before, value, moved, moved_before = self(at).tolist()
            rate = (moved_before - moved) / (scale / 8)
            rate -= (largest - 1) * self.tail_curvature * shift
            moment = largest * moved + (1 - largest) * value
            if rate > 0 and before > value and moment < top - _TAIL_DEPTH:
                return end
            end += max(scale, end / 8)
        raise ValueError(
            "log_density must fall at least exponentially, and tail_curvature must be the bound "
            f"on its bend beyond reach={self.reach:g}; lower largest_order if it is"
        )


def _log_pieces(start: Vector, end: Vector, lengths: Vector) -> Vector:
    """Return the log of int exp over pieces on which the exponent is linear."""
    # So small that (1 - exp(-x)) / x is one: it only keeps zero from being divided by zero.
    fall = np.maximum(np.abs(end - start), 1e-300)
    with np.errstate(divide="ignore"):
        return np.maximum(start, end) + np.log(-np.expm1(-fall) / fall) + np.log(lengths)


def _below(nodes: Vector, values: Vector) -> Vector:
    """Return logs of lower bounds on int exp of a concave function over the cells: chords."""
    return _log_pieces(values[:-1], values[1:], np.diff(nodes))


def _above(nodes: Vector, concave: Vector, convex: Vector) -> Vector:
    """Return logs of upper bounds on int exp(concave + convex) over the cells.

    The convex part lies below its chord, the concave part below the secants of the two
    neighbouring cells, which meet inside; the first and last cells have but one neighbour.
    """
    lengths = np.diff(nodes)
    slopes = np.diff(concave) / lengths
    before, after = np.append(slopes[0], slopes[:-1]), np.append(slopes[1:], slopes[-1])
    bend = before - after
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = np.where(bend > 0, (slopes - after) / bend, 0.5)
    meet = np.clip(meet, 0.0, 1.0)
    peak = concave[:-1] + before * meet * lengths
    peak = np.maximum(peak, concave[:-1] + slopes * meet * lengths)
    # A secant carries the rounding of its values over the length of this cell.
    size = np.maximum(np.abs(concave[:-1]), np.abs(concave[1:])) + np.abs(slopes) * lengths
    shortest = np.minimum(np.append(lengths[0], lengths[:-1]), np.append(lengths[1:], lengths[-1]))
    peak += RELATIVE_ERROR * (1 + lengths / shortest) * size
    start, end = concave[:-1] + convex[:-1], concave[1:] + convex[1:]
    middle = peak + (1 - meet) * convex[:-1] + meet * convex[1:]
    first = _log_pieces(start, middle, meet * lengths)
    return np.logaddexp(first, _log_pieces(middle, end, (1 - meet) * lengths))


def _log_sum(logs: Vector) -> float:
    peak = float(logs.max())
    return peak + math.log(float(np.exp(logs - peak).sum()))
