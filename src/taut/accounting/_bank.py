"""The bank: one factory for every release whose loss taut knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut.accounting._adjacency import Adjacency, as_adjacency
from taut.accounting._loss import PrivacyLoss
from taut.accounting._primitives import (
    Approximate,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Finite,
    Gaussian,
    Laplace,
    Primitive,
    Profile,
    Pure,
    RandomizedResponse,
    StabilityRelease,
    Variance,
)
from taut.accounting._profile import convex_knots
from taut.accounting._renyi_only import Renyi
from taut.errors import UnsoundConfiguration

__all__ = [
    "approximate",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential",
    "finite",
    "from_profile",
    "from_rdp",
    "gaussian",
    "laplace",
    "pure",
    "randomized_response",
    "stability_release",
    "variance_pair",
    "zero",
]

_RENYI_ORDERS = np.union1d(1 + np.geomspace(1e-2, 1e6, 300), np.arange(2.0, 65.0))
_MAX_EPSILON = 500.0  # exp(epsilon) of a profile's knots must stay within floating point


def gaussian(
    sigma: float, sensitivity: float = 1.0, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of adding N(0, sigma^2) to every coordinate of a vector.

    Args:
        sigma: standard deviation of the noise.
        sensitivity: largest l2-distance between the vectors of two neighbours.
        adjacency: the relation for which ``sensitivity`` holds. Replacing a record in a sum
            clipped at C moves it by up to 2 C.

    **Guarantee**: exact, in any dimension (Balle and Wang 2018, Theorem 8).

    Example:
        >>> import taut
        >>> round(taut.gaussian(sigma=1.0).epsilon(delta=1e-5), 4)
        4.3772
    """
    sigma, sensitivity = (
        validate.positive(sigma=sigma),
        validate.positive(sensitivity=sensitivity),
    )
    return _one(Gaussian(sigma, sensitivity), adjacency)


def laplace(
    scale: float, sensitivity: float = 1.0, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of adding Laplace noise of ``scale`` to a query.

    Args:
        scale: the b of the density exp(-|x| / b) / (2 b).
        sensitivity: largest l1-distance between the answers of two neighbours.
        adjacency: the relation for which ``sensitivity`` holds.

    **Guarantee**: exact for one coordinate. With independent noise on several coordinates the
    one-coordinate shift is the worst case of the same l1-length (docs/theory/laplace-noise.md).

    Example:
        >>> import taut
        >>> taut.laplace(scale=2.0).epsilon(delta=0)
        0.5
    """
    scale, sensitivity = (
        validate.positive(scale=scale),
        validate.positive(sensitivity=sensitivity),
    )
    return _one(Laplace(scale, sensitivity), adjacency)


def randomized_response(p: float, *, adjacency: Adjacency | str = "add_remove") -> PrivacyLoss:
    """Return the loss of reporting a bit truthfully with probability ``p``.

    ``p`` below one half is the same mechanism mirrored; 0 and 1 hide nothing, so epsilon is
    infinite.
    """
    return _one(RandomizedResponse(validate.probability(p=p)), adjacency)


def pure(epsilon: float, *, adjacency: Adjacency | str = "add_remove") -> PrivacyLoss:
    """Return the worst loss of any ``epsilon``-DP release (Kairouz, Oh and Viswanath 2015)."""
    return _one(Pure(validate.non_negative(epsilon=epsilon)), adjacency)


def approximate(
    epsilon: float, delta: float, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the worst loss of any (``epsilon``, ``delta``)-DP release."""
    epsilon, delta = validate.non_negative(epsilon=epsilon), validate.below_one(delta=delta)
    return _one(Approximate(epsilon, delta), adjacency)


def discrete_gaussian(
    sigma: float, sensitivity: int = 1, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of integer Gaussian noise on one integer query.

    **Guarantee**: exact for a single coordinate. No dominating pair is known in several
    dimensions: account each coordinate as a release of its own.
    """
    sigma = validate.positive(sigma=sigma)
    return _one(
        DiscreteGaussian(sigma, validate.positive_integer(sensitivity=sensitivity)), adjacency
    )


def discrete_laplace(
    scale: float, sensitivity: int = 1, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of two-sided geometric noise on one integer query.

    The mass of x is proportional to exp(-|x| / scale).
    """
    scale = validate.positive(scale=scale)
    return _one(
        DiscreteLaplace(scale, validate.positive_integer(sensitivity=sensitivity)), adjacency
    )


def exponential(epsilon: float, *, adjacency: Adjacency | str = "add_remove") -> PrivacyLoss:
    """Return the loss of a selection whose log-probabilities shift within a range of ``epsilon``.

    That is the exponential mechanism with weights exp(epsilon u / (2 sensitivity)),
    report-noisy-max with Gumbel noise, and every ``epsilon``-bounded-range release.

    **Guarantee**: the tight profile over all bounded-range releases (docs/theory/exponential.md);
    much below that of an arbitrary ``epsilon``-DP release.
    """
    return _one(Exponential(validate.positive(epsilon=epsilon)), adjacency)


def variance_pair(
    sigma_p: float, sigma_q: float, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of noise whose own deviation depends on the record.

    Args:
        sigma_p: standard deviation without the record.
        sigma_q: standard deviation with it.
        adjacency: add/remove, one of its halves, or zero-out.
    """
    release = Variance(validate.positive(sigma_p=sigma_p), validate.positive(sigma_q=sigma_q))
    return _one(release, adjacency)


def finite(p: ArrayLike, q: ArrayLike, *, adjacency: Adjacency | str = "add_remove") -> PrivacyLoss:
    """Return the loss of a release with finitely many outcomes.

    Args:
        p: probability of every outcome without the record.
        q: probability of every outcome with it, for the worst neighbour.
        adjacency: under replace-one both orders of the pair are covered.
    """
    return _one(Finite(_masses(p=p), _masses(q=q)), adjacency)


def stability_release(
    epsilon: float, delta: float, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of releasing an exact answer if its noisy distance to instability allows.

    The test is distance + Lap(1/epsilon) > log(1/delta)/epsilon. Failure has mass ``delta / 2``.
    """
    return _one(StabilityRelease(validate.positive(epsilon=epsilon), delta), adjacency)


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
    relation = as_adjacency(adjacency)
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
        if not abs(validate.finite(epsilon=e)) <= _MAX_EPSILON:
            raise ValueError(f"epsilons must lie within +-{_MAX_EPSILON:g}, got epsilon={e!r}")
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
    return _one(release, relation)


def from_rdp(
    curve: Callable[[np.ndarray[Any, Any]], ArrayLike] | Mapping[float, float],
    orders: Sequence[float] | None = None,
    *,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of any mechanism whose Renyi divergences are known.

    Args:
        curve: a mapping from orders above one to divergences, or a function of an array of
            orders. Values are upper bounds for *both* directions of every pair of neighbours
            (unless ``adjacency`` is one-sided), infinite where nothing is known.
        orders: where a function is evaluated; by default at some 360 orders up to a million.
            The values there are what is kept.
        adjacency: the relation that the divergences are for.

    The loss has no dominating pair. A sum that contains it is answered by the best valid route,
    which ``explain`` names: Renyi divergences of everything, or delta split between the releases
    with a pair and the rest.

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
    relation = as_adjacency(adjacency)
    if isinstance(curve, Mapping):
        if orders is not None:
            raise ValueError("orders are the keys of curve; give them only with a function")
        at = np.array(sorted(curve), dtype=float)
        values = np.array([curve[order] for order in sorted(curve)], dtype=float)
    else:
        at = _RENYI_ORDERS if orders is None else np.array(sorted(orders), dtype=float)
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
    release = Renyi(tuple(at[known].tolist()), tuple(values[known].tolist()), direction)
    return _one(release, relation)


def zero(*, adjacency: Adjacency | str = "add_remove") -> PrivacyLoss:
    """Return the loss of releasing nothing, the identity of ``+`` under every relation."""
    return PrivacyLoss((), adjacency)


def _one(release: Primitive, adjacency: Adjacency | str) -> PrivacyLoss:
    return PrivacyLoss([(release, 1)], adjacency)


def _masses(**argument: ArrayLike) -> tuple[float, ...]:
    ((name, value),) = argument.items()
    try:
        masses = np.asarray(value)
    except ValueError:  # nested lists of unequal length
        masses = np.empty(0)
    if masses.ndim != 1 or masses.size == 0 or masses.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be a non-empty vector of probabilities, got {value!r}")
    return tuple(masses.astype(float).tolist())


def _profile_grid(
    profile: Callable[[float], float],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return 2000 epsilons up to where ``profile`` no longer falls."""
    top = 1.0
    while top < _MAX_EPSILON and profile(top) > 1e-20 and profile(2 * top) < profile(top):
        top *= 2
    return np.linspace(0.0, min(top, _MAX_EPSILON), 2000)
