"""Renyi curves: closed forms, and what every curve must obey.

A curve maps an array of orders above one to divergences that hold for both orders of a pair of
neighbours. The closed forms here are rounded up, also where the divergence is tiny.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut._base.floats import RELATIVE_ERROR, UP

__all__ = [
    "Curve",
    "as_orders",
    "checked",
    "gaussian",
    "laplace",
    "pure",
    "randomized_response",
    "tcdp",
    "zcdp",
]

Curve = Callable[[Vector], Vector]
"""Renyi divergences at an array of orders above one; infinite where nothing is known."""


def gaussian(sigma: float, sensitivity: float = 1.0) -> Curve:
    """Return the curve a D^2 / (2 sigma^2) of Gaussian noise on a query of l2-sensitivity D.

    **Guarantee**: exact in any dimension, for the relation that ``sensitivity`` is about (Mironov
    2017, Proposition 7).

    Example:
        >>> from taut.accounting import renyi
        >>> renyi.gaussian(sigma=2.0)([2.0, 8.0]).round(6).tolist()
        [0.25, 1.0]
    """
    multiplier = validate.positive(sigma=sigma) / validate.positive(sensitivity=sensitivity)
    with np.errstate(over="ignore", divide="ignore"):
        rho = float(np.float64(0.5) / multiplier / multiplier)
    return _linear(rho * UP)


def laplace(scale: float, sensitivity: float = 1.0) -> Curve:
    """Return the curve of Laplace noise of ``scale`` on a query of l1-sensitivity ``sensitivity``.

    **Guarantee**: exact for one coordinate (Mironov 2017, Proposition 6); as in
    :func:`taut.laplace` for several.
    """
    scale, sensitivity = (
        validate.positive(scale=scale),
        validate.positive(sensitivity=sensitivity),
    )
    reach = sensitivity / scale

    def cumulants(a: Vector) -> Vector:
        weight = a / (2 * a - 1)
        return _log_mean_exp(weight, (a - 1) * reach, -a * reach)

    return _bounded(cumulants, reach)


def randomized_response(p: float) -> Curve:
    """Return the curve of a bit that is reported truthfully with probability ``p``.

    **Guarantee**: exact (Mironov 2017, Proposition 5). ``p`` of 0 or 1 hides nothing: infinite.
    """
    truth = validate.probability(p=p)
    truth = max(truth, 1 - truth)
    if truth == 1:
        return _linear(math.inf)
    # log(p / (1 - p)), from the small number 2 p - 1 where there is one
    return pure(math.log1p((2 * truth - 1) / (1 - truth)))


def pure(epsilon: float) -> Curve:
    """Return the largest curve of any ``epsilon``-DP release, that of randomized response.

    **Guarantee**: no release with loss at most ``epsilon`` in both directions has more, for any
    adjacency (Kairouz, Oh and Viswanath 2015); it is at most a epsilon^2 / 2 (Bun and Steinke
    2016, Proposition 3.3).

    Example:
        >>> import numpy as np
        >>> from taut.accounting import renyi
        >>> renyi.pure(1.0)(np.array([2.0, 1e6])).round(4).tolist()
        [0.7353, 1.0]
    """
    single = validate.non_negative(epsilon=epsilon)
    weight = np.array(1 / (1 + math.exp(-single)))

    def cumulants(a: Vector) -> Vector:
        return _log_mean_exp(weight, (a - 1) * single, -(a - 1) * single)

    return _bounded(cumulants, single)


def zcdp(rho: float) -> Curve:
    """Return a rho, the curve of ``rho``-zero-concentrated DP (Bun and Steinke 2016).

    Sampled releases have no useful bound of this shape: their curves bend upwards where the
    largest term of the binomial sum takes over. Sample the curve, not its linear bound.
    """
    return _linear(validate.non_negative(rho=rho))


def tcdp(rho: float, omega: float) -> Curve:
    """Return a rho below order ``omega`` and infinity from there on: truncated concentrated DP.

    (Bun, Dwork, Rothblum and Steinke 2018, Definition 1.)
    """
    limit = validate.positive(omega=omega)
    if not limit > 1:
        raise ValueError(f"omega must be greater than 1, got omega={omega!r}")
    line = _linear(validate.non_negative(rho=rho))

    def curve(orders: Vector) -> Vector:
        a = as_orders(orders)
        return np.where(a < limit, line(a), math.inf)

    return curve


def as_orders(orders: ArrayLike) -> Vector:
    """Return ``orders`` as an array of numbers above one; infinity is an order."""
    a = real_numbers(orders, "orders")
    if not (a > 1).all():
        raise ValueError(f"orders must be greater than 1, got orders={orders!r}")
    return a


def checked(rdp: Curve, orders: Vector) -> Vector:
    """Return the curve's values, or say what is wrong with them."""
    values = np.asarray(rdp(orders), dtype=float)
    if values.shape != orders.shape:
        raise ValueError(
            f"rdp must return one value per order, got shape {values.shape} for {orders.shape}; "
            "write it with NumPy functions, or wrap it in numpy.vectorize"
        )
    if not (values >= 0).all():
        raise ValueError("rdp must return divergences that are at least 0, and inf where unknown")
    return values


def _linear(rho: float) -> Curve:
    def curve(orders: Vector) -> Vector:
        a = as_orders(orders)
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(rho > 0, rho * a, 0.0) * UP

    return curve


def _bounded(cumulants: Callable[[Vector], Vector], loss: float) -> Curve:
    """Return the curve of a release whose loss is at most ``loss``, also in closed form."""

    def curve(orders: Vector) -> Vector:
        a = as_orders(orders)
        finite = np.where(np.isinf(a), 2.0, a)
        with np.errstate(over="ignore"):
            value = np.minimum(cumulants(finite) / (finite - 1), finite * (loss / 2) * loss)
        return np.minimum(np.where(np.isinf(a), loss, value), loss) * UP

    return curve


def _log_mean_exp(weight: Vector, up: Vector, down: Vector) -> Vector:
    """Return log(weight e^up + (1 - weight) e^down) for up >= 0 >= down, rounded up."""
    with np.errstate(over="ignore", invalid="ignore"):
        parts = weight * np.expm1(up), (1 - weight) * np.expm1(down)
        near = np.log1p(parts[0] + parts[1] + RELATIVE_ERROR * (parts[0] - parts[1]))
        far = up + np.log(weight + (1 - weight) * np.exp(down - up)) + RELATIVE_ERROR * up
    return np.where(up < 1, near, far) * UP
