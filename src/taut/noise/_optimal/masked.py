"""The least noise for rows that are clipped in blocks and whose coordinates are sampled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.worst_record import vertex
from taut.accounting import PrivacyLoss, calibrate, renyi, twice_sampled_blocks
from taut.noise._optimal.masked_curve import MaskedCurve

__all__ = ["MaskedBlocks", "MaskedNoise", "optimal_masked_noise"]


_MOST_BLOCKS = 64  # as many variables of a search; beyond, the proportions without masks are kept
_ORDERS = 60  # steps by one, to the best order; every order is sound
_LEAST_FLOAT = 5e-324  # stands for a divergence that underflows, whose logarithm is asked


@dataclass(frozen=True)
class MaskedNoise:
    """Noise for twice sampling, of least total variance under a promise.

    Attributes:
        scales: the standard deviation on every coordinate, by block.
        total_variance: the weighted sum of all variances.
        proportional_variance: the same for noise in the proportions that are best without masks,
            scaled to the same promise.
        loss: privacy loss of all releases, from which the promise can be recomputed.
        epsilon: the promise,
        delta: probability delta of the guarantee.
    """

    scales: tuple[float, ...]
    total_variance: float
    proportional_variance: float
    loss: PrivacyLoss
    epsilon: float
    delta: float


@dataclass(frozen=True)
class MaskedBlocks:
    """Blocks of clipped rows under twice sampling: what a search for their noise needs to know.

    Args:
        ranks: how many coordinates of noise count in every block.
        l2: bound on the l2-norm of a row in every block.
        linf: bound on the magnitude of a single coordinate, by block.
        record_rate: probability with which a record takes part.
        coordinate_rate: probability with which a coordinate of a sampled record takes part.
        steps: number of releases.
        dimensions: coordinates of every block that rows fill, if not `ranks`.
        weights: how much a unit of variance in a block counts.
    """

    ranks: tuple[int, ...]
    l2: tuple[float, ...]
    linf: tuple[float, ...]
    record_rate: float
    coordinate_rate: float
    steps: int
    dimensions: tuple[int, ...]
    weights: tuple[float, ...]

    def loss(self, scales: Sequence[float]) -> PrivacyLoss:
        """Return the loss of all releases with this noise."""
        return self.steps * twice_sampled_blocks(
            self.record_rate,
            self.coordinate_rate,
            scales,
            clips=self.l2,
            clip_infs=self.linf,
            dimensions=self.dimensions,
        )

    @property
    def proportions(self) -> Vector:
        """Scales that are best without masks, for multiplier one.

        Xiao, Wan and Devadas (2023, Theorem 4.6).
        """
        counted = np.sqrt(np.multiply(self.weights, self.ranks))
        radii = np.array(self.l2)
        scales: Vector = np.sqrt(radii * (radii @ counted) / counted)
        return scales

    def total(self, scales: Sequence[float] | Vector) -> float:
        """Return the weighted total variance."""
        return float(np.multiply(self.weights, self.ranks) @ np.square(scales))

    def certified(
        self, scales: Vector, epsilon: float, delta: float, tolerance: float = 1e-4
    ) -> Vector:
        """Return the scales times the least factor that keeps the promise, by the accountant."""
        found = calibrate(
            lambda factor: self.loss(tuple(factor * scales)),
            epsilon=epsilon,
            delta=delta,
            tolerance=tolerance,
        ).value
        # Whoever recomputes epsilon with the usual accuracy must find it within the promise.
        while (excess := self.loss(tuple(found * scales)).epsilon(delta) / epsilon) > 1:
            found *= max(math.sqrt(excess), 1 + 1e-5)  # a step that comes to an end
        return found * scales

    def least(self, start: Vector, epsilon: float, delta: float) -> Vector:
        """Return scales of least total variance by one Renyi order; not certified.

        Args:
            start: scales that nearly keep the promise.
            epsilon: the promise.
            delta: the promise.
        """
        if not 1 < len(self.ranks) <= _MOST_BLOCKS:
            return start
        loss = self.loss(tuple(start))
        order = renyi.epsilon_from_rdp(
            lambda orders: np.array([loss.rdp(float(a)) for a in orders]), delta
        ).order
        first = max(round(order), 2)
        found: dict[int, Vector | None] = {}

        def value(a: int) -> float:
            if a not in found:
                found[a] = None if a < 2 else self._at_promise(a, start, epsilon, delta)
            scales = found[a]
            return math.inf if scales is None else self.total(scales)

        best = min((first - 1, first, first + 1), key=value)
        for _ in range(_ORDERS):
            nearer = min((best - 1, best + 1), key=value)
            if not value(nearer) < value(best):
                break
            best = nearer
        chosen = found[best]
        return start if chosen is None else chosen

    def _at_promise(self, order: int, start: Vector, epsilon: float, delta: float) -> Vector | None:
        """Return the least noise for which one order proves the promise, None if none does."""
        room = epsilon - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)
        if room <= 0:
            return None
        return self.at_order(order, room / self.steps, start)

    def at_order(self, order: int, divergence: float, start: Vector | None = None) -> Vector:
        """Return scales of least total variance whose Renyi divergence of one release is as given.

        The problem is convex in the inverse variances. It is solved without constraint in the
        logarithms of variances, every point being moved to the boundary along the diagonal.
        """
        bounds = zip(self.l2, self.linf, self.dimensions, strict=True)
        vertices = [vertex(*bound, 2.0) for bound in bounds]
        curve = MaskedCurve(order, self.record_rate, self.coordinate_rate, vertices)
        log_target = math.log((order - 1) * divergence)
        counted = np.log(np.multiply(self.weights, self.ranks))
        origin = 2 * np.log(self.proportions if start is None else start)

        def moved(t: Vector) -> tuple[Vector, Vector]:
            """Return the point on the boundary, and how its shift depends on the coordinates."""

            def gap(shift: float) -> float:
                return math.log(max(curve(t + shift)[0], _LEAST_FLOAT)) - log_target

            # More noise costs less. Newton's method would leap to and fro over the order's
            # phase transition, so the root is bracketed.
            low, high, reach = 0.0, 0.0, 0.5
            while gap(low) < 0:
                low, high, reach = low - reach, low, 2 * reach
            while gap(high) > 0:
                low, high, reach = high, high + reach, 2 * reach
            # To rounding: what is found is certified by the accountant afterwards.
            shift = brentq(gap, low, high, xtol=1e-13, rtol=1e-14)
            slopes = curve(t + shift)[1]
            return t + shift, -slopes / slopes.sum()

        def objective(t: Vector) -> tuple[float, Vector]:
            at, follow = moved(t)
            logs = counted + at
            total = np.logaddexp.reduce(logs)
            shares = np.exp(logs - total)
            return float(total), shares + shares.sum() * follow

        options = {"ftol": 1e-15, "gtol": 1e-9}  # to rounding, for the same reason
        found = minimize(objective, origin, jac=True, method="L-BFGS-B", options=options)
        best = found.x if found.fun <= objective(origin)[0] else origin
        return np.exp(moved(best)[0] / 2)


def optimal_masked_noise(
    ranks: Sequence[int],
    *,
    l2: Sequence[float],
    linf: Sequence[float],
    record_rate: float,
    coordinate_rate: float,
    epsilon: float,
    delta: float,
    steps: int = 1,
    weights: Sequence[float] | None = None,
) -> MaskedNoise:
    """Return Gaussian noise of least total variance for twice sampling of rows in blocks.

    Args:
        ranks: the number of coordinates of every block.
        l2: bound on the l2-norm of a row in every block.
        linf: bound on the magnitude of a single coordinate, by block.
        record_rate: probability with which a record takes part.
        coordinate_rate: probability with which a coordinate of a sampled record takes part.
        epsilon: the promise over all releases.
        delta: the promise.
        steps: number of releases.
        weights: how much a unit of variance in a block counts, one each by default.

    **Guarantee**: the loss is that of `taut.accounting.twice_sampled_blocks` with the scales that
    are returned, computed again from them: (epsilon, delta) for add/remove, with secret and fresh
    samples and masks. The total is least for the best single Renyi order, up to 1e-4, for up to 64
    blocks (Xiao, Wan and Devadas 2023, Theorem 5.6, which leaves the solution open; it is a convex
    program in the inverse variances). Beyond, the proportions of Theorem 4.6 are scaled.

    Raises:
        ValueError: if blocks do not fit, or a number is out of range.
        InfeasibleBudget: if no noise keeps the promise.

    Example:
        >>> from taut.noise import optimal_masked_noise
        >>> noise = optimal_masked_noise(
        ...     [50, 950], l2=[1.0, 0.5], linf=[0.5, 0.05], record_rate=0.1, coordinate_rate=0.5,
        ...     steps=100, epsilon=2.0, delta=1e-5,
        ... )
        >>> noise.total_variance <= noise.proportional_variance, noise.loss.epsilon(1e-5) <= 2.0
        (True, True)
    """
    blocks = MaskedBlocks(
        tuple(validate.positive_integer(ranks=rank) for rank in ranks),
        tuple(validate.positive(l2=radius) for radius in l2),
        tuple(validate.positive(linf=bound) for bound in linf),
        validate.probability(record_rate=record_rate),
        validate.probability(coordinate_rate=coordinate_rate),
        validate.positive_integer(steps=steps),
        tuple(ranks),
        (1.0,) * len(ranks)
        if weights is None
        else tuple(validate.positive(weights=weight) for weight in weights),
    )
    if not len(blocks.ranks) == len(blocks.l2) == len(blocks.linf) == len(blocks.weights) > 0:
        raise ValueError(
            f"l2, linf and weights must hold one number for each of {len(ranks)} blocks"
        )
    promise = validate.positive(epsilon=epsilon)
    level = validate.below_one(delta=delta)
    start = blocks.certified(blocks.proportions, promise, level)
    best = blocks.certified(blocks.least(start, promise, level), promise, level)
    chosen = min(best, start, key=blocks.total)
    scales = tuple(float(scale) for scale in chosen)
    return MaskedNoise(
        scales, blocks.total(scales), blocks.total(start), blocks.loss(scales), promise, level
    )
