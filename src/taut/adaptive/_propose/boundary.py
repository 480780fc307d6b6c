"""Where functions of users are asked about the data: nothing that they do gets out.

An exception, a warning or a NaN depends on the data like any other answer. So it counts as the
worst answer that there is, and the release goes on, with noise.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

from taut._base import validate
from taut.adaptive._secret import Secret, reveal
from taut.errors import UnsoundConfiguration

__all__ = ["asked", "check_distance", "check_losses", "distance_of", "loss_of", "number_of"]

_FARTHEST = 100_000  # distances that a check looks at: a second or two


def asked(function: Callable[..., Any], *arguments: object) -> Any:
    """Return what a function answers about the data, None if it raises.

    Interrupts and exits are nobody's answer, and pass.
    """
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            answer = function(*arguments)
    except Exception:
        return None
    return reveal(answer) if isinstance(answer, Secret) else answer


def distance_of(answer: object, cap: int) -> int:
    """Return a distance, at most ``cap``; what is none is zero, the distance of the worst data."""
    if isinstance(answer, bool | np.bool_):
        return 0
    try:
        if isinstance(answer, Integral):
            return min(max(int(answer), 0), cap)
        # Not as a float: a fraction beyond them would raise.
        return cap if isinstance(answer, float | np.floating) and answer == math.inf else 0
    except Exception:  # numbers of users may raise where they are converted
        return 0


def loss_of(answer: object) -> float:
    """Return a loss; what is none, NaN or negative is infinite."""
    number = number_of(answer)
    return math.inf if number is None or number < 0 else number


def number_of(answer: object) -> float | None:
    """Return a real number, infinite if it is too large for a float, None for what is none."""
    if isinstance(answer, bool | np.bool_) or not isinstance(answer, Real):
        return None
    try:
        number = _rounded(answer)
    except Exception:  # numbers of users may raise where they are converted
        return None
    return None if math.isnan(number) else number


def _rounded(answer: Real) -> float:
    try:
        return float(answer)
    except OverflowError:
        return math.inf if bool(answer > 0) else -math.inf  # type: ignore[operator]


def check_distance(distance: Callable[[Any], object], data: object, neighbour: object) -> None:
    """Raise if a distance is none, or differs by more than one between two neighbours.

    Args:
        distance: function that says how many records must change before a bound is violated.
        data: dataset that was made up for the purpose.
        neighbour: another one, which differs in one record.

    For tests, on data that hide nothing: that it raises tells about them, and here exceptions of
    the function are raised as they are.

    **Guarantee**: none, except about this pair.

    Raises:
        UnsoundConfiguration: if the distances are no sensitivity-one query on this pair.

    Example:
        >>> from taut.adaptive import check_distance
        >>> check_distance(len, [3, 1], [3, 1, 4])
        >>> check_distance(sum, [3, 1], [3, 1, 4])
        Traceback (most recent call last):
        ...
        taut.errors.UnsoundConfiguration: distance must differ by at most 1 between neighbours, ...
    """
    one, other = (_whole(_plain(distance(each))) for each in (data, neighbour))
    for answer in (one, other):
        if answer is None or answer < 0:
            raise UnsoundConfiguration(
                "distance must be an integer of at least 0, or infinity; anything else counts as "
                "0, which may be far from what a neighbour has"
            )
    # Infinity minus a number is none if that is too large for a float.
    if one != other and (math.inf in (one, other) or abs(one - other) > 1):  # type: ignore[operator]
        raise UnsoundConfiguration(
            "distance must differ by at most 1 between neighbours, and these are further apart: "
            "noise would not hide who was in the data. Count the records that must change, in the "
            "adjacency of the test"
        )


def check_losses(
    losses: Callable[[Any, int], object], data: object, neighbour: object, *, most: int = 10
) -> None:
    """Raise if losses within a distance do not cover those of a neighbour one step nearer.

    Args:
        losses: function of a dataset and a distance d: a bound on the loss at every dataset within
            d of this one.
        data: dataset that was made up for the purpose.
        neighbour: another one, which differs in one record.
        most: largest distance that is looked at.

    The condition is losses(neighbour, d) <= losses(data, d + 1), and the same the other way round.
    It makes the distance to a violation a query of sensitivity one.

    **Guarantee**: none, except about this pair.

    Raises:
        UnsoundConfiguration: if the condition fails on this pair, or a value is no loss.
        ValueError: for distances beyond 100,000.
    """
    farthest = validate.integer(most=most)
    if farthest > _FARTHEST:
        raise ValueError(
            f"most must be at most {_FARTHEST:,}, each of which asks four times, got most={most!r}"
        )
    for d in range(farthest + 1):
        for one, other in ((data, neighbour), (neighbour, data)):
            near, far = (_plain(losses(one, d)), _plain(losses(other, d + 1)))
            if any(number_of(each) is None or number_of(each) < 0 for each in (near, far)):  # type: ignore[operator]
                raise UnsoundConfiguration(
                    "losses must be numbers of at least 0, or infinity; anything else counts as a "
                    "violation"
                )
            if loss_of(near) > loss_of(far):
                raise UnsoundConfiguration(
                    f"losses(data, {d}) exceeds losses(neighbour, {d + 1}) on this pair: the "
                    "second must bound the loss at every dataset within its distance, and the "
                    "neighbours of these are within it"
                )


def _whole(answer: object) -> int | float | None:
    """Return a whole number as Python's, whose differences do not wrap around, or infinity."""
    if isinstance(answer, bool | np.bool_):
        return None
    if isinstance(answer, Integral):
        return int(answer)
    return math.inf if isinstance(answer, float | np.floating) and answer == math.inf else None


def _plain(answer: object) -> object:
    return reveal(answer) if isinstance(answer, Secret) else answer
