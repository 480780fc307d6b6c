"""What other ways of accounting would have said about the same steps."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from taut._base.arrays import Vector
from taut.accounting import Bounds, PrivacyLoss, gaussian, renyi
from taut.report._privacy.evidence import Evidence

__all__ = ["OtherAccount", "other_accounts"]


USUAL_ORDERS = (*(1 + x / 10 for x in range(1, 100)), *(float(x) for x in range(12, 64)))
"""The orders that Renyi accountants for training usually try."""

GRID = 1e-4  # the usual width of fixed grids
_MOST_NODES = 1 << 22
_LEAST_DELTA = 1e-11  # below it the rounding of a plain Fourier transform shows
_TILTS = np.geomspace(1e-2, 1e3, 61)


@dataclass(frozen=True)
class OtherAccount:
    """An epsilon by another method.

    Attributes:
        method: what it is.
        epsilon: what it says at the delta of the promise.
        is_bound: whether the number is proved; else it is an estimate.
        note: what to know about it.
    """

    method: str
    epsilon: float
    is_bound: bool
    note: str


def other_accounts(evidence: Evidence, certified: Bounds) -> tuple[OtherAccount, ...]:
    """Return other accounts of the same loss, computed here, not by running other tools."""
    loss, delta = evidence.loss, evidence.delta
    if delta == 0:
        return ()
    found = _renyi(loss, delta)
    plan = evidence.plan
    if plan is not None and evidence.is_sampled_gaussian:
        steps = evidence.counted_steps or 0
        found += _fixed_grid(plan.noise_multiplier, plan.rate, steps, delta)
        found += _central_limit(plan.noise_multiplier, plan.rate, steps, delta, certified)
    return tuple(account for account in found if math.isfinite(account.epsilon))


def _renyi(loss: PrivacyLoss, delta: float) -> list[OtherAccount]:
    """Return Rényi accounts: with the usual orders, and with the best one."""
    table = {order: loss.rdp(order) for order in USUAL_ORDERS}

    def curve(orders: Vector) -> Vector:
        return np.array([table[order] for order in orders.tolist()])

    found = []
    for conversion, paper in (
        ("classic", "Mironov 2017"),
        ("improved", "Canonne, Kamath and Steinke 2020"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a usual list that ends too early is news
            value, order = renyi.epsilon_from_rdp(
                curve, delta, conversion=conversion, orders=USUAL_ORDERS
            )
        note = f"{paper}; best order {order:g}"
        if order == USUAL_ORDERS[-1]:
            note += ", the last of the list: larger ones would prove more"
        found.append(
            OtherAccount(f"Rényi, usual orders, {conversion} conversion", value, True, note)
        )
    best = loss.explain(delta).rdp_epsilon
    note = "the best that one order proves by this conversion"
    return [*found, OtherAccount("Rényi, all orders, improved conversion", best, True, note)]


def _fixed_grid(sigma: float, rate: float, steps: int, delta: float) -> list[OtherAccount]:
    """Return the account of losses that are rounded up to a fixed grid."""
    if not delta >= _LEAST_DELTA or not 0 < rate < 1:
        return []
    sides = [_rounded_up(sigma, rate, half, delta / steps) for half in ("remove", "add")]
    values = [_composed(low, masses, cut, steps, delta) for low, masses, cut in sides]
    if any(value is None for value in values):
        return []
    worst = max(value for value in values if value is not None)
    note = (
        f"every loss rounded up to a multiple of {GRID:g}, then a plain Fourier transform: "
        "pessimistic by construction, but rounding errors of the transform are not bounded"
    )
    return [OtherAccount("Loss distribution on a fixed grid", worst, False, note)]


def _rounded_up(sigma: float, rate: float, half: str, level: float) -> tuple[int, Vector, float]:
    """Return the first node, the masses on nodes from there on, and the mass that is cut off."""
    cut = 1e-6 * level
    far = sigma * math.sqrt(2 * math.log(1 / cut))  # outside, the mass is below `cut`
    ends = np.array([-far, 1 + far])
    sign = 1.0 if half == "remove" else -1.0
    with np.errstate(over="ignore"):
        losses = np.sort(sign * np.log1p(rate * np.expm1((2 * ends - 1) / (2 * sigma**2))))
    if not losses[1] - losses[0] <= GRID * _MOST_NODES:
        return 0, np.empty(0), cut
    low, high = math.floor(losses[0] / GRID), math.ceil(losses[1] / GRID)
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = np.expm1(sign * GRID * np.arange(low, high + 1)) + rate
        places = sigma**2 * np.log(inside / rate) + 0.5
    places = np.where(np.isnan(places), -math.inf, places)
    if half == "remove":
        below = (1 - rate) * ndtr(places / sigma) + rate * ndtr((places - 1) / sigma)
    else:
        below = ndtr(-places / sigma)
    masses = np.diff(below, prepend=0.0)
    return low, np.maximum(masses, 0.0), cut


def _composed(low: int, masses: Vector, cut: float, steps: int, delta: float) -> float | None:
    """Return epsilon for the sum of so many rounded losses, None if the grid is too fine."""
    if masses.size == 0:
        return None
    losses = GRID * (low + np.arange(masses.size))
    cumulants = np.array(
        [[_log_mean(masses, sign * tilt * losses) for tilt in _TILTS] for sign in (1, -1)]
    )
    # Chernoff's bounds on where the sum is, but for a millionth of delta.
    reach = ((steps * cumulants + math.log(1e6 / delta)) / _TILTS).min(axis=1)
    first, last = math.floor(-reach[1] / GRID), math.ceil(reach[0] / GRID)
    size = 1 << max(last - first + 1, masses.size).bit_length()
    if size > _MOST_NODES:
        return None
    total = np.fft.irfft(np.fft.rfft(masses, size) ** steps, size)
    total = np.maximum(np.roll(total, (steps * low - first) % size), 0.0)
    sums = GRID * (first + np.arange(size))
    lost = steps * cut + 2e-6 * delta
    return _epsilon_of(sums, total, delta - lost)


def _log_mean(masses: Vector, exponents: Vector) -> float:
    peak = float(exponents.max())
    return peak + math.log(float((masses * np.exp(exponents - peak)).sum()))


def _epsilon_of(sums: Vector, masses: Vector, delta: float) -> float:
    """Return the epsilon at which E (1 - exp(epsilon - sum))_+ falls to delta."""
    low, high = 0.0, max(float(sums[-1]), 0.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = sums > middle
        excess = float((masses[above] * -np.expm1(middle - sums[above])).sum())
        low, high = (middle, high) if excess > delta else (low, middle)
    return high


def _central_limit(
    sigma: float, rate: float, steps: int, delta: float, certified: Bounds
) -> list[OtherAccount]:
    """Return the limit for many steps, which is no bound."""
    if sigma < 0.04:  # exp(1 / sigma^2) leaves the range of floats
        return []
    mu = rate * math.sqrt(steps * math.expm1(1 / sigma**2))
    value = gaussian(1 / mu).epsilon(delta)
    note = "central limit theorem (Bu, Dong, Long and Su 2020): an approximation, not a bound"
    if value < certified.lower:
        note += "; here it is too low, it would promise what does not hold"
    return [OtherAccount("Gaussian limit for many steps", value, False, note)]
