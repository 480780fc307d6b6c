"""Calibration: the least noise, or the most use, that a budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from taut._base import validate
from taut.accounting._engines.bounds import Bounds
from taut.accounting._loss import PrivacyLoss
from taut.errors import InfeasibleBudget

__all__ = ["Calibration", "calibrate", "least"]

_LARGEST_PARAMETER = 2.0**40  # and one over it the smallest: beyond, no noise level makes sense
# Halving alone would narrow 2**40 to any accuracy; the good end is always sound.
_MOST_SECANTS = 100
_CERTIFIED = 1e-3  # of epsilon at an end of the bracket that is returned; as `epsilon` answers
_FARAWAY_TOLERANCE = 1e-2  # of epsilon, away from the budget; what is returned is certified anew


@dataclass(frozen=True)
class Calibration:
    """A parameter on the safe side of a budget.

    Attributes:
        value: the parameter.
        loss: the loss at that parameter.
        epsilon: certified bounds at that parameter; ``epsilon.upper`` is within the budget.
        delta: the delta of the budget.
    """

    value: float
    loss: PrivacyLoss
    epsilon: Bounds
    delta: float

    def __float__(self) -> float:
        """Return the parameter."""
        return float(self.value)


def calibrate(
    make_loss: Callable[[float], PrivacyLoss],
    *,
    epsilon: float,
    delta: float,
    tolerance: float = 1e-4,
    bracket: tuple[float, float] | None = None,
    integer: bool = False,
) -> Calibration:
    """Return the parameter at which a loss just meets (``epsilon``, ``delta``).

    Args:
        make_loss: the loss as a function of one parameter in which epsilon is monotone, falling
            (a noise level) or rising (a number of steps, a rate).
        epsilon: the budget.
        delta: its delta, in [0, 1).
        tolerance: relative accuracy of the parameter. Nothing is computed more sharply than that
            takes: epsilon near the budget to an eighth of it. A hundredth is several times faster
            than the default where sharp bounds are slow.
        bracket: where to search; by default all positive numbers, starting from 1.
        integer: whether the parameter is a whole number, such as a count.

    **Guarantee**: the certified upper bound on epsilon at the returned value is at most
    ``epsilon``. Monotonicity is what you promise; it decides optimality, not privacy.

    Raises:
        InfeasibleBudget: if no parameter in the bracket meets the budget, or all do.

    Example:
        >>> import taut
        >>> found = taut.calibrate(
        ...     lambda sigma: 1_000 * taut.gaussian(sigma).poisson(rate=0.01), epsilon=3, delta=1e-5
        ... )
        >>> round(found.value, 3), found.epsilon.upper <= 3
        (0.814, True)
    """
    target = validate.positive(epsilon=epsilon)
    level = validate.below_one(delta=delta)
    accuracy = validate.positive(tolerance=tolerance)
    if accuracy < 1e-8:  # bounds at an eighth of it are near the sharpest, 1e-9
        raise ValueError(f"tolerance must be at least 1e-8, got tolerance={tolerance!r}")
    if bracket is not None and (not isinstance(bracket, tuple | list) or len(bracket) != 2):
        raise ValueError(f"bracket must be a pair (low, high), got bracket={bracket!r}")

    def loss(value: float) -> PrivacyLoss:
        made = make_loss(int(value) if integer else value)
        if not isinstance(made, PrivacyLoss):
            raise validate.WrongType(f"make_loss must return a PrivacyLoss, got {made!r}")
        return made

    def bounds_at(value: float, sharpness: float) -> Bounds:
        return loss(value).epsilon_bounds(level, sharpness)

    value, bounds = least(bounds_at, target, level, accuracy, bracket, integer=integer)
    return Calibration(int(value) if integer else value, loss(value), bounds, level)


def least(
    bounds_at: Callable[[float, float], Bounds],
    epsilon: float,
    delta: float,
    accuracy: float,
    bracket: tuple[float, float] | None = None,
    *,
    integer: bool = False,
) -> tuple[float, Bounds]:
    """Return the parameter that just meets a budget, and the bounds on epsilon there.

    Args:
        bounds_at: bounds on epsilon as a function of the parameter and of the relative gap wanted;
            only the upper one decides.
        epsilon: the budget.
        delta: its delta, for messages.
        accuracy: relative accuracy of the parameter.
        bracket: where to search; by default all positive numbers, starting from 1.
        integer: whether the parameter is a whole number.

    Raises:
        InfeasibleBudget: if no parameter in the bracket meets the budget, or all do.
    """
    search = _Search(bounds_at, epsilon, delta, accuracy, integer)
    return search.refine(search.bracket(bracket))


@dataclass
class _Search:
    """Keeps the best parameter within the budget (good) and the nearest beyond it (bad)."""

    bounds_at: Callable[[float, float], Bounds]
    target: float
    delta: float
    accuracy: float
    integer: bool
    found: Bounds | None = None
    stays_apart: bool = False
    """Whether bounds did not come as close as was asked, as where none is known from below."""

    def excess(self, value: float, tolerance: float = _FARAWAY_TOLERANCE) -> float:
        """Return log(epsilon / budget) at ``value``: at most 0 if surely within the budget.

        Rough bounds decide most parameters; only those near the budget cost a sharp one.
        """
        while True:
            bounds = self.bounds_at(value, tolerance)
            self.stays_apart |= bounds.gap > 2 * tolerance * bounds.upper
            if bounds.upper <= self.target:
                self.found = bounds
                return math.log(bounds.upper / self.target) if bounds.upper > 0 else -math.inf
            # Where no lower bound is known, as for masks, the upper one is as good as the
            # tolerance, and says how far to go.
            beyond = max(bounds.lower, bounds.upper * (1 - 2 * tolerance)) > self.target
            if beyond or tolerance <= self._sharp:
                # An excess only guides the search: any finite one above zero says "beyond".
                guide = bounds.lower if bounds.lower > self.target else min(bounds.upper, 1e300)
                return max(math.log(guide / self.target), 1e-15)  # above zero, however near
            tolerance = max(tolerance / 30, self._sharp)

    @property
    def _sharp(self) -> float:
        """The gap at which bounds near the budget cost the parameter a part of its accuracy.

        Bounds that stay apart, whatever is asked, get sharper slowly; there the accuracy will do.
        """
        return self.accuracy if self.stays_apart else self.accuracy / 8

    def bracket(self, given: tuple[float, float] | None) -> dict[float, float]:
        """Return two parameters, one within the budget and one beyond it, with their excess."""
        if given is None:
            ends = self._expand()
        else:
            low, high = (validate.positive(bracket=end) for end in given)
            ends = {low: self.excess(low), high: self.excess(high)}
        beyond = [excess > 0 for excess in ends.values()]
        if any(beyond) and not all(beyond):
            return ends
        low, high = min(ends), max(ends)
        if all(beyond):
            word, remedy = "exceeds", "allow a larger epsilon or delta, or widen the bracket"
        else:
            word, remedy = "meets", "the budget does not bind there; widen the bracket"
        raise InfeasibleBudget(
            f"epsilon={self.target:g} at delta={self.delta:g}: every parameter tried between "
            f"{low:g} and {high:g} {word} the budget; {remedy}"
        )

    def _expand(self) -> dict[float, float]:
        """Return two neighbours on a doubling ladder from 1 between which the budget is crossed."""
        low, high = 1.0, 2.0
        at_low = self.excess(low)
        try:
            at_high = self.excess(high)
        except ValueError:  # 1 is the end of the domain, as it is for a rate
            low, high, at_high = 0.5, low, at_low
            at_low = self.excess(low)
        if at_low == at_high:  # no direction to go by: first as if the parameter were noise
            directions = [at_low > 0, at_low <= 0]
        else:
            directions = [(at_low > at_high) == (at_low > 0)]
        for upwards in directions:
            ends = self._walk({low: at_low, high: at_high}, upwards=upwards)
            if len({excess > 0 for excess in ends.values()}) == 2:
                break
        return ends

    def _walk(self, ends: dict[float, float], *, upwards: bool) -> dict[float, float]:
        """Return the first neighbours in one direction between which the budget is crossed."""
        (low, at_low), (high, at_high) = sorted(ends.items())
        smallest = 1 if self.integer else 1 / _LARGEST_PARAMETER
        while (at_low > 0) == (at_high > 0):
            try:
                if upwards and high < _LARGEST_PARAMETER:
                    low, at_low, high = high, at_high, 2 * high
                    at_high = self.excess(high)
                elif not upwards and low > smallest:
                    high, at_high, low = low, at_low, low / 2
                    at_low = self.excess(low)
                else:
                    break
            except ValueError:  # the parameter left its domain, such as a rate above 1
                break
        return {low: at_low, high: at_high}

    def refine(self, ends: dict[float, float]) -> tuple[float, Bounds]:
        """Close the bracket with the secant rule in logarithms, then certify the good end."""
        good, bad = sorted(ends, key=ends.__getitem__)
        at_good, at_bad = ends[good], ends[bad]
        bounds: Bounds | None = None
        for _ in range(_MOST_SECANTS):
            if self._closed(good, bad):
                break
            middle = self._between(good, at_good, bad, at_bad)
            # The secant is wrong by a small share of the bracket; that is the accuracy needed.
            value = self.excess(
                middle, min(max(0.02 * (at_bad - at_good), self._sharp), _FARAWAY_TOLERANCE)
            )
            if value <= 0:
                good, at_good, bounds = middle, value, self.found
            else:
                bad, at_bad = middle, value
        gap = max(self._sharp, _CERTIFIED)
        if bounds is None:
            bounds = self.bounds_at(good, gap)
        elif bounds.gap > gap * bounds.upper and not self.stays_apart:
            again = self.bounds_at(good, gap)  # both are certified, and so is what they share
            bounds = Bounds(max(bounds.lower, again.lower), min(bounds.upper, again.upper))
        return good, bounds

    def _closed(self, good: float, bad: float) -> bool:
        if self.integer:
            return abs(good - bad) <= 1
        return abs(good - bad) <= self.accuracy * min(good, bad)

    def _between(self, good: float, at_good: float, bad: float, at_bad: float) -> float:
        """Return the secant point, moved past the root so that the bracket closes on both sides."""
        log_good, log_bad = math.log(good), math.log(bad)
        share = 0.5
        if math.isfinite(at_good) and at_bad < 1:
            share = at_bad / (at_bad - at_good)
        # A secant always lands on the same side; half the accuracy beyond it, the next one closes.
        nudge = 0.5 * self.accuracy / abs(log_good - log_bad)
        share = share + nudge if share < 0.5 else share - nudge
        value = math.exp(log_bad + min(max(share, 0.01), 0.99) * (log_good - log_bad))
        if not self.integer:
            return value
        low, high = sorted((good, bad))
        return min(max(round(value), low + 1), high - 1)
