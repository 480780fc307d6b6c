"""Releases that are given by what is known of them: a guarantee, a pair, a curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector, numbers_in_a_row
from taut._base.validate import BelowOne, NonNegative
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._loss import PrivacyLoss
from taut.accounting._pairs.exponential import check_reach
from taut.accounting._pairs.finite import FailingPair, binary_pair, finite_pair
from taut.accounting._pairs.pair import Pair
from taut.accounting._pairs.profile import Knots, convex_knots, larger_pair, pair_of_knots
from taut.accounting._releases.release import Release
from taut.accounting._releases.renyi_only import Renyi
from taut.errors import UnsoundConfiguration

__all__ = [
    "Approximate",
    "Finite",
    "Profile",
    "Pure",
    "PureRenyi",
    "approximate",
    "finite",
    "from_profile",
    "from_rdp",
    "pure",
    "zero",
]


@dataclass(frozen=True)
class Pure(Release):
    """Anything that satisfies epsilon-DP."""

    kind = "pure"
    epsilon: NonNegative

    def check_fields(self) -> None:
        """Check that epsilon is a promise: squares of losses near 1e308 overflow."""
        check_reach(self.epsilon, f"epsilon={self.epsilon!r}", least=0.0)

    def pair(self, half: Half) -> Pair:
        """Symmetric: randomized response is the worst case."""
        return binary_pair(self.epsilon)


@dataclass(frozen=True)
class Approximate(Release):
    """Anything that satisfies (epsilon, delta)-DP.

    The worst of it betrays the record with probability delta, and answers by randomized response
    otherwise (Kairouz, Oh and Viswanath 2015).
    """

    kind = "approximate"
    epsilon: NonNegative
    delta: BelowOne

    def check_fields(self) -> None:
        """Check that epsilon is a promise."""
        check_reach(self.epsilon, f"epsilon={self.epsilon!r}", least=0.0)

    def pair(self, half: Half) -> Pair:
        """Symmetric: randomized response, or failure with probability delta."""
        return FailingPair(binary_pair(self.epsilon), self.delta)


@dataclass(frozen=True)
class PureRenyi(Renyi):
    """Anything that satisfies epsilon-DP and has Renyi divergences that are known besides."""

    kind = "pure_rdp"
    epsilon: NonNegative = 0.0

    @property
    def plain(self) -> Release:
        """The worst of what satisfies epsilon-DP, which dominates this release."""
        return Pure(self.epsilon)

    def renyi(self, half: Half, orders: Vector) -> Vector:
        """Return chords of the cumulants, or epsilon, which no divergence exceeds."""
        return np.minimum(super().renyi(half, orders), self.epsilon)

    def __str__(self) -> str:
        """Return the number of orders, and epsilon."""
        return f"{super().__str__()[:-1]}, epsilon={self.epsilon:g})"


@dataclass(frozen=True)
class Finite(Release):
    """Finitely many outcomes: p without the record, q with it.

    Both list the same outcomes; one that has no mass on one side betrays the record on the other.
    """

    kind = "finite"
    p: tuple[float, ...]
    q: tuple[float, ...]

    def check_fields(self) -> None:
        """Check the parameters."""
        _check_distribution(p=self.p)
        _check_distribution(q=self.q)
        if len(self.p) != len(self.q):
            raise ValueError(
                f"p and q must list the same outcomes, got {len(self.p)} and {len(self.q)} entries"
            )

    def pair(self, half: Half) -> Pair:
        """Asymmetric; under replace-one the maximum of both profiles."""
        p, q = _normalised(self.p), _normalised(self.q)
        if half is Half.ADD:
            return finite_pair(p, q)
        if half is Half.REMOVE:
            return finite_pair(q, p)
        return larger_pair(finite_pair(p, q), finite_pair(q, p))

    def __str__(self) -> str:
        """Return the number of outcomes only."""
        return f"finite({len(self.p)} outcomes)"


@dataclass(frozen=True)
class Profile(Release):
    """Any mechanism with a known upper bound on its privacy profile.

    ``direction`` is the half that the bound is about, or None if it holds for both.
    """

    kind = "profile"
    log_thresholds: tuple[float, ...]
    deltas: tuple[float, ...]
    direction: str | None = None

    def check_fields(self) -> None:
        """Check the parameters."""
        if len(self.log_thresholds) != len(self.deltas) or not self.deltas:
            raise ValueError("a profile needs as many deltas as log thresholds, at least one")
        for value in self.log_thresholds:
            validate.finite(log_threshold=value)
        for value in self.deltas:
            validate.probability(delta=value)
        thresholds, deltas = np.exp(self.log_thresholds), np.array(self.deltas)
        if not (np.diff(thresholds) > 0).all():
            raise ValueError("log_thresholds must increase")
        if not (deltas >= (1 - thresholds) * (1 - 1e-12)).all():  # but for rounding
            raise ValueError("deltas must be at least 1 - threshold, as every profile is")
        steps = np.diff(np.append(0.0, thresholds))
        slopes = np.append(np.diff(np.append(1.0, deltas)) / steps, 0.0)
        # Slopes are quotients of differences, which cancel; the hull of the knots is what is used.
        if not (np.diff(slopes) >= -1e-9 * np.abs(slopes).max()).all():
            raise ValueError("deltas must be convex in the threshold and must not rise")
        if self.direction not in (None, "add", "remove"):
            raise ValueError(f"direction must be 'add', 'remove' or None, got {self.direction!r}")

    def pair(self, half: Half) -> Pair:
        """The same pair in every direction, unless the bound is one-sided."""
        pair = pair_of_knots(Knots(np.array(self.log_thresholds), np.array(self.deltas)))
        return pair if self.direction in (None, half) else pair.swapped()

    def __str__(self) -> str:
        """Return the number of knots only."""
        return f"profile({len(self.deltas)} knots)"


def _normalised(masses: tuple[float, ...]) -> Vector:
    """Return masses that sum to one but for rounding; rounded ones are best left alone."""
    total = math.fsum(masses)
    # Within a rounding of one, dividing would move masses without need.
    return np.array(masses) if abs(total - 1) <= 1e-15 else np.array(masses) / total


def _check_distribution(**argument: tuple[float, ...]) -> None:
    ((name, masses),) = argument.items()
    for mass in masses:
        validate.probability(**{name: mass})
    total = math.fsum(masses)
    if not abs(total - 1) <= 1e-9:  # as far off as decimals that were printed and read
        raise ValueError(f"{name} must sum to 1, got a sum of {total!r}; divide by the sum")


# Orders at which a curve is asked unless some are given. Between them chords are used, which lie
# above: any orders are sound, and neighbours here differ by 6% in the excess over one.
_ASKED_ORDERS = np.union1d(1 + np.geomspace(1e-2, 1e6, 300), np.arange(2.0, 65.0))


_LARGEST_EPSILON = 500.0  # exp(epsilon) of a profile's knots must stay within floating point


def pure(epsilon: float, *, adjacency: Adjacency | str = "add_remove") -> PrivacyLoss:
    """Return the worst loss of any ``epsilon``-DP release (Kairouz, Oh and Viswanath 2015)."""
    return PrivacyLoss([(Pure(validate.non_negative(epsilon=epsilon)), 1)], adjacency)


def approximate(
    epsilon: float, delta: float, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the worst loss of any (``epsilon``, ``delta``)-DP release."""
    epsilon, delta = validate.non_negative(epsilon=epsilon), validate.below_one(delta=delta)
    return PrivacyLoss([(Approximate(epsilon, delta), 1)], adjacency)


def finite(p: ArrayLike, q: ArrayLike, *, adjacency: Adjacency | str = "add_remove") -> PrivacyLoss:
    """Return the loss of a release with finitely many outcomes.

    Args:
        p: probability of every outcome without the record.
        q: probability of every outcome with it, for the worst neighbour.
        adjacency: under replace-one both orders of the pair are covered.
    """
    masses = numbers_in_a_row(p=p), numbers_in_a_row(q=q)
    return PrivacyLoss([(Finite(*(tuple(each.tolist()) for each in masses)), 1)], adjacency)


def from_profile(
    profile: Callable[[float], float] | Mapping[float, float],
    epsilons: Sequence[float] | None = None,
    *,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return a loss from an upper bound on delta(epsilon): bring your own mechanism.

    Args:
        profile: a function, or samples {epsilon: delta}, that bounds delta from above.
        epsilons: where to evaluate a function; by default 2000 points from 0 to where it falls
            below 1e-20, becomes constant, or reaches epsilon 500. Past the last point the
            bound stays constant and counts as infinite loss.
        adjacency: the relation under which the bound holds, in both directions. One-sided
            relations need epsilons below 0 as well.

    **Guarantee**: every true profile below the given points is below their lower convex hull,
    whose pair composes and amplifies like any other (Zhu, Dong and Wang 2022, Proposition 8).

    Example:
        >>> import taut
        >>> loss = taut.from_profile({0.0: 0.1, 1.0: 1e-6})
        >>> loss.epsilon(delta=1e-6)
        1.0
    """
    relation = Adjacency(adjacency)
    if isinstance(profile, Mapping):
        if epsilons is not None:
            raise ValueError("epsilons are the keys of profile; give them only with a function")
        points = (
            np.array([validate.finite(epsilon=e) for e in profile]),
            np.array([validate.probability(delta=d) for d in profile.values()]),
        )
    elif not callable(profile):
        raise TypeError(f"profile must be a function or samples, got profile={profile!r}")
    else:
        grid = _profile_grid(profile) if epsilons is None else np.array(epsilons, dtype=float)
        points = grid, np.array([float(profile(float(e))) for e in grid])
    at, deltas = points
    if at.size == 0:
        raise ValueError("profile has no points; give at least one epsilon with its delta")
    for e, d in zip(at.tolist(), deltas.tolist(), strict=True):
        validate.probability(delta=d)
        if not abs(validate.finite(epsilon=e)) <= _LARGEST_EPSILON:
            raise ValueError(f"epsilons must lie within +-{_LARGEST_EPSILON:g}, got epsilon={e!r}")
    if relation in (Adjacency.ADD, Adjacency.REMOVE):
        if at.min() >= 0:
            raise UnsoundConfiguration(
                f"a profile for the one-sided adjacency {str(relation)!r} must also be known at "
                "epsilons below 0; give them, or use a symmetric relation"
            )
    else:
        # Both directions obey the bound, so the swap rule extends it to thresholds below one.
        mirrored = -np.expm1(-at) + np.exp(-at) * deltas
        at, deltas = np.concatenate([at, -at]), np.concatenate([deltas, mirrored])
    knots = convex_knots(at, deltas)
    direction = str(relation) if relation in (Adjacency.ADD, Adjacency.REMOVE) else None
    release = Profile(tuple(knots.epsilons.tolist()), tuple(knots.deltas.tolist()), direction)
    return PrivacyLoss([(release, 1)], relation)


def from_rdp(
    curve: Callable[[np.ndarray[Any, Any]], ArrayLike] | Mapping[float, float],
    orders: Sequence[float] | None = None,
    *,
    pure_epsilon: float | None = None,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of any mechanism whose Renyi divergences are known.

    Args:
        curve: a mapping from orders above one to divergences, or a function of an array of
            orders. Values are upper bounds for *both* directions of every pair of neighbours
            (unless ``adjacency`` is one-sided), infinite where nothing is known.
        orders: where a function is evaluated; by default at some 360 orders up to a million.
            The values there are what is kept.
        pure_epsilon: an epsilon of pure differential privacy that is known besides, if any.
        adjacency: the relation that the divergences are for.

    The loss has no dominating pair but that of ``pure_epsilon``. A sum that contains it is answered
    by the best valid route, which ``explain`` names: Renyi divergences of everything, or delta
    split between the releases with a pair and the rest.

    **Guarantee**: an upper bound for the adaptive composition (Mironov 2017, Proposition 1;
    conversion of Canonne, Kamath and Steinke 2020, Proposition 12). Between orders the cumulant
    (order - 1) rdp(order), which is convex, is bounded by its chords.

    Raises:
        ValueError: for orders that are not above one, negative or NaN divergences, or none at all.

    Example:
        >>> import taut
        >>> gaussian = taut.from_rdp(lambda order: order / 2)
        >>> round(gaussian.epsilon(delta=1e-5), 3)
        4.728
    """
    relation = Adjacency(adjacency)
    if isinstance(curve, Mapping):
        if orders is not None:
            raise ValueError("orders are the keys of curve; give them only with a function")
        at = np.array(sorted(curve), dtype=float)
        values = np.array([curve[order] for order in sorted(curve)], dtype=float)
    else:
        at = _ASKED_ORDERS if orders is None else np.array(sorted(orders), dtype=float)
        values = np.asarray(curve(at), dtype=float)
    if values.shape != at.shape:
        raise ValueError(
            f"curve must return one divergence per order, got shape {values.shape} for {at.shape}; "
            "write it with NumPy functions, or pass a mapping from orders to divergences"
        )
    if np.isnan(values).any() or (values < 0).any():
        raise ValueError("curve must give divergences of at least 0, and inf where unknown")
    known = np.isfinite(values)
    if not known.any():
        raise ValueError("curve must be finite at one order at least")
    direction = str(relation) if relation in (Adjacency.ADD, Adjacency.REMOVE) else None
    kept = tuple(at[known].tolist()), tuple(values[known].tolist()), direction
    release = Renyi(*kept)
    if pure_epsilon is not None:
        release = PureRenyi(*kept, validate.non_negative(pure_epsilon=pure_epsilon))
    return PrivacyLoss([(release, 1)], relation)


def zero(*, adjacency: Adjacency | str = "add_remove") -> PrivacyLoss:
    """Return the loss of releasing nothing, the identity of ``+`` under every relation."""
    return PrivacyLoss((), adjacency)


def _profile_grid(
    profile: Callable[[float], float],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return 2000 epsilons up to where ``profile`` no longer falls."""
    top = 1.0
    # Below 1e-20 there is nothing to resolve; beyond the last knot a profile counts as constant.
    while top < _LARGEST_EPSILON and profile(top) > 1e-20 and profile(2 * top) < profile(top):
        top *= 2
    return np.linspace(0.0, min(top, _LARGEST_EPSILON), 2000)
