"""Claims: what a privacy loss lets any attacker reach, in a form that is quick to ask."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut.accounting import Adjacency, PrivacyLoss
from taut.errors import UnsoundConfiguration

__all__ = ["Claim", "epsilon_at_least"]

_POINTS = 24
_SHARP = 1e-2  # relative: runs resolve no more
_LARGEST = 700.0  # the exponential function ends at 709
_ONE_SIDED = (Adjacency.ADD, Adjacency.REMOVE)


class Claim:
    """The true-positive rates that a claimed loss allows.

    **Guarantee**: `allowed` is never below the best true-positive rate of any attack on a mechanism
    that meets the claim, for either order of the neighbours: it is the least of the bounds
    delta + exp(epsilon) fpr, and of those for the complement, over certified pairs of epsilon and
    delta (Wasserman and Zhou 2010, Theorem 2.4; Kairouz, Oh and Viswanath 2015).

    Raises:
        UnsoundConfiguration: for a loss of one half of add/remove, which says nothing about the
            other order of the neighbours.
    """

    def __init__(self, loss: PrivacyLoss, delta: float) -> None:
        validate.instance(PrivacyLoss, loss=loss)
        if loss.adjacency in _ONE_SIDED:
            raise UnsoundConfiguration(
                f"claimed must bound both orders of the neighbours, got adjacency="
                f"{str(loss.adjacency)!r}; make the loss for 'add_remove'"
            )
        self.delta = validate.below_one(delta=delta)
        curve = _curve(loss, self.delta)
        self.epsilon = float(curve[0, -1])
        self._factors: NDArray[np.float64] = np.exp(np.minimum(curve[0], _LARGEST))
        self._deltas: NDArray[np.float64] = curve[1]

    @property
    def lines(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Slopes and intercepts of lines in the false-positive rate that no attack is above."""
        slopes = np.concatenate([self._factors, 1.0 / self._factors])
        intercepts = np.concatenate([self._deltas, 1.0 - (1.0 - self._deltas) / self._factors])
        return slopes, intercepts

    def allowed(self, fpr: ArrayLike) -> NDArray[np.float64]:
        """Return upper bounds on the true-positive rate at these false-positive rates."""
        slopes, intercepts = self.lines
        rate = np.asarray(fpr, dtype=np.float64)[..., None]
        return np.asarray((slopes * rate + intercepts).min(-1).clip(0.0, 1.0))


@lru_cache(maxsize=32)
def _curve(loss: PrivacyLoss, delta: float) -> NDArray[np.float64]:
    """Return pairs of epsilon and certified delta, the last of them at the given delta."""
    last = loss.epsilon(delta)
    if not math.isfinite(last):
        raise ValueError(
            f"claimed promises nothing at delta={delta!r}; give the delta that it was made for"
        )
    # Denser near zero, where the false-positive rates lie that few trials can resolve.
    grid = last * np.linspace(0.0, 1.0, _POINTS) ** 1.5
    deltas = [loss.delta(float(epsilon), _SHARP) for epsilon in grid[:-1]]
    return np.array([grid, [*deltas, delta]])


def epsilon_at_least(tpr: ArrayLike, fpr: ArrayLike, delta: float) -> NDArray[np.float64]:
    """Return the least epsilon at `delta` that allows these rates, for either order."""
    hit, false = np.asarray(tpr, dtype=np.float64), np.asarray(fpr, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        direct = np.log((hit - delta).clip(0.0) / false)
        complement = np.log((1.0 - false - delta).clip(0.0) / (1.0 - hit))
    best = np.fmax(np.fmax(direct, complement), 0.0)
    return np.asarray(np.nan_to_num(best, nan=0.0, posinf=np.inf))
