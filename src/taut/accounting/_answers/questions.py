"""Questions about a sum other than its epsilon and delta."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from taut._base.floats import RELATIVE_ERROR
from taut.accounting._adjacency import Half
from taut.accounting._answers.answer import delta_curve
from taut.accounting._engines.bounds import falls_below
from taut.accounting._engines.contour import Contour
from taut.accounting._engines.fourier import afa_delta
from taut.accounting._engines.half_sum import HalfSum
from taut.accounting._engines.saddle_point import Cumulants, Saddle
from taut.accounting._pairs.pair import Pair, renyi_cumulants
from taut.accounting._releases.release import Release
from taut.accounting._releases.renyi_only import RenyiOnly

__all__ = [
    "cumulant_of_sum",
    "estimate_delta",
    "estimate_epsilon",
    "renyi_divergence",
    "tradeoff",
]

_LEAST_EXCESS_ORDER = 1e-6  # of an order over one, asked instead of less: divergences increase
_FARTHEST_SHARP = 10.0  # log threshold; further out a sharper curve costs more than it gains
_LINE_TOLERANCE = 1e-3  # of delta along a trade-off; a lower bound at any tolerance
_GOLDEN = (math.sqrt(5) - 1) / 2  # of a search by golden sections: shares that can be used again


def cumulant_of_sum(part: HalfSum, z: complex) -> complex:
    """Return log E[exp(z L); L finite] of the whole sum."""
    if part.curves:
        raise ValueError(
            "log_mgf needs a dominating pair for every release, and some are known by their Renyi "
            "divergences only; ask for rdp(order), which is an upper bound"
        )
    point = np.array([z], dtype=np.complex128)
    values = [(complex(pair.log_mgf(point)[0]), n) for pair, n in part.terms]
    if any(math.isinf(value.real) for value, _ in values):
        return complex(math.inf)
    return complex(sum(n * value for value, n in values))


def renyi_divergence(releases: Sequence[tuple[Release, int]], half: Half, order: float) -> float:
    """Return the Renyi divergence of ``order`` >= 1 in one direction."""
    return math.fsum(n * _divergence(release, half, order) for release, n in releases)


def _divergence(release: Release, half: Half, order: float) -> float:
    at = np.array([max(order, 1 + _LEAST_EXCESS_ORDER)])  # divergences grow with the order
    known = None if math.isinf(order) else release.known_divergences(half, at)
    if known is not None:
        return float(known[0])
    if isinstance(release, RenyiOnly):
        return math.inf
    pair = release.pair(half)
    if pair.mass_inf > 0:
        return math.inf
    if math.isinf(order):
        return pair.max_loss
    if order == 1:
        return _kullback_leibler(pair)
    return max(float(renyi_cumulants(pair, np.array([order - 1]))[0]) / (order - 1), 0.0)


def _kullback_leibler(pair: Pair) -> float:
    """Return the mean loss; E exp(-L) - 1, which is known, is taken off to keep terms positive."""
    if pair.gaussian_mu:
        return pair.gaussian_mu**2 / 2
    losses, log_weights = pair.quadrature(0.0)
    weights = np.exp(log_weights)
    near = weights * np.expm1(np.minimum(-losses, 1.0))
    shifted = np.where(losses > -1, near, np.exp(log_weights - losses) - weights)
    return float((weights * losses + shifted).sum()) + pair.mass_minus_inf


def tradeoff(sums: Sequence[HalfSum], swapped: Sequence[HalfSum], fpr: float) -> float:
    """Return a lower bound on the type-II error at type-I error ``fpr``: sup_t 1 - t x - h(t).

    Every threshold gives a valid bound, so the search may stop anywhere.
    """
    if fpr == 0 and not any(part.mass_inf for part in sums):
        return 1.0
    if fpr == 1:
        return 0.0
    if fpr == 0:
        miss = 1 - max(part.mass_inf for part in sums)
    else:
        pairs = zip(sums, swapped, strict=True)
        miss = min(_best_line(part, other, fpr) for part, other in pairs)
    return max(miss - 4 * RELATIVE_ERROR, 0.0)


def _best_line(part: HalfSum, swapped: HalfSum, fpr: float) -> float:
    """Return sup over thresholds of 1 - t fpr - h(t) for one direction.

    A curve is sharp near where it was asked for, so the search is repeated where it ended.
    """
    best, at = _best_near(part, swapped, fpr, 0.0)
    again, _ = _best_near(part, swapped, fpr, min(max(at, -_FARTHEST_SHARP), _FARTHEST_SHARP))
    return max(best, again)


def _delta_near(part: HalfSum, at: float) -> Callable[[float], float]:
    """Return an upper bound on delta, sharp near ``at``; terms far below the rest only shift it."""
    dust = part.dust(_LINE_TOLERANCE)
    curve = delta_curve(part.without_dust(_LINE_TOLERANCE), at, _LINE_TOLERANCE)
    return lambda e: min(curve(max(e - dust, 0.0)).upper + max(dust - e, 0.0), 1.0)


def _best_near(part: HalfSum, swapped: HalfSum, fpr: float, at: float) -> tuple[float, float]:
    """Return the best line, and its log threshold, with curves that are sharp near ``at``."""
    above, below = _delta_near(part, max(at, 0.0)), _delta_near(swapped, max(-at, 0.0))

    def line(epsilon: float) -> float:
        t = math.exp(epsilon)
        if epsilon >= 0:
            return 1 - t * fpr - above(epsilon)
        return t * (1 - fpr) - t * below(-epsilon)

    low, high = -50.0, min(-math.log(fpr), 700.0)
    first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_first, at_second = line(first), line(second)
    best = max((line(0.0), 0.0), (line(at), at), (at_first, first), (at_second, second))
    while high - low > 1e-6:  # of a log threshold: every line is a valid bound, near the best
        if at_first >= at_second:
            high, second, at_second = second, first, at_first
            first = high - _GOLDEN * (high - low)
            at_first = line(first)
        else:
            low, first, at_first = first, second, at_second
            second = low + _GOLDEN * (high - low)
            at_second = line(second)
        best = max(best, (at_first, first), (at_second, second))
    return best


def estimate_delta(
    sums: Sequence[HalfSum], swapped: Sequence[HalfSum], epsilon: float, method: str
) -> float:
    """Return the largest estimate over the halves."""
    for part in sums:
        _refuse_curves(part)
    if _known(method) == "afa":
        pairs = zip(sums, swapped, strict=True)
        return max(afa_delta(part.terms, other.terms, epsilon) for part, other in pairs)
    return max(
        _contour(part, lambda cumulants: cumulants.at_epsilon(epsilon)).delta(epsilon).upper
        if part.terms
        else 0.0
        for part in sums
    )


def estimate_epsilon(
    sums: Sequence[HalfSum], swapped: Sequence[HalfSum], delta: float, method: str
) -> float:
    """Return the largest estimate over the halves."""
    estimators: list[Callable[[float], float]] = []
    for part, other in zip(sums, swapped, strict=True):
        _refuse_curves(part)
        if not part.terms:
            continue
        if _known(method) == "afa":
            estimators.append(partial(afa_delta, part.terms, other.terms))
        else:
            contour = _contour(part, lambda cumulants: cumulants.at_delta(delta))
            estimators.append(partial(_upper, contour))
    return max((falls_below(each, delta, 1.0).upper for each in estimators), default=0.0)


def _refuse_curves(part: HalfSum) -> None:
    if part.curves:
        raise ValueError(
            "estimates need a dominating pair for every release, and some are known by their Renyi "
            "divergences only; epsilon_bounds and delta_bounds answer, certified"
        )


def _upper(contour: Contour, epsilon: float) -> float:
    return contour.delta(epsilon).upper


def _known(method: str) -> str:
    if method not in ("contour", "afa"):
        raise ValueError(f"method must be 'contour' or 'afa', got method={method!r}")
    return method


def _contour(part: HalfSum, saddle: Callable[[Cumulants], Saddle]) -> Contour:
    if not all(pair.closed_form for pair, _ in part.terms):
        raise ValueError(
            "method='contour' needs closed-form cumulants, which sampled and discrete Gaussian "
            "losses lack; epsilon_bounds and delta_bounds answer to any tolerance, certified"
        )
    cumulants = Cumulants(part.terms, 1e-60)  # tails that are far below what an estimate shows
    contour = Contour(part.terms, saddle(cumulants), cumulants)
    if not contour.faded:
        raise ValueError(
            "the contour integral does not fade for this sum (too few or too rare losses); "
            "use epsilon_bounds or delta_bounds, which are certified as well"
        )
    return contour
