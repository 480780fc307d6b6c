"""What answers about bounded queries cost, given how they came out: normal noise, no delta."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from taut._base import validate
from taut.accounting import Adjacency
from taut.adaptive._sparse_vector.grid import (
    MOST_STEPS,
    checked_sensitivity,
    grid_of,
    sensitivity_on_grid,
)
from taut.adaptive._sparse_vector.integrals import log_integrals
from taut.adaptive._sparse_vector.scalar_noise import hazard, log_tail

__all__ = ["ExPostDesign"]

_CELLS = 4096  # over 18 deviations: bounds then are within some 1e-4 of each other
_REACH = 9.0  # deviations either side of the mode: beyond, lines bound what is less than 1e-17
_ROUNDINGS = 32 * 2.0**-53  # relative error of one logarithm of a tail: with room for log_ndtr
_HALVINGS = 30  # of an interval that holds the mode: it need not be met
_SINGLY = 64  # lengths up to which every one has its own bound; later ones are rounded up
_GROWTH = 1.02  # of lengths beyond: costs grow with their logarithm's root
_LONGEST = 2.0**40  # questions of a round
_LARGEST_SCALE = 2.0**18  # in sensitivities: the noise is then at most 2^30 grid steps
_SMALLEST_SCALE = 2.0**-8  # in sensitivities: below, there is nothing to hide behind


@dataclass(frozen=True)
class ExPostDesign:
    """Normal noise on a threshold and on queries of a known range, and what each outcome costs.

    One *round* asks questions until one is above. Its loss is a function of how long it took:
    for every outcome a bound on the ratio of its probabilities under neighbours, without a delta
    (Lebensold, Precup and Balle 2024; the worst case and its bound are derived in
    docs/theory/ex-post.md).

    Attributes:
        threshold_sigma: standard deviation of the noise on the threshold, drawn in every round.
        query_sigma: standard deviation of the noise on every query.
        sensitivity: how far one record moves any query.
        threshold: public level that queries are compared with.
        lowest: least value of a query; lower ones are cut.
        highest: largest value of a query; higher ones are cut.
        adjacency: the relation for which the sensitivity holds.
        monotone: whether one record moves all queries in one direction, in this adjacency.

    **Guarantee**: for all neighbours, all queries within the range that are chosen by earlier
    answers, and every outcome of a round, the probabilities of that outcome differ by a factor of
    at most exp(`epsilon_above`) or exp(`epsilon_below`). Rounding to `grid` is part of it.

    Example:
        >>> from taut.adaptive import ExPostDesign
        >>> design = ExPostDesign(
        ...     40.0, 80.0, sensitivity=1.0, threshold=50.0, lowest=0.0, highest=100.0,
        ...     adjacency="add_remove",
        ... )
        >>> round(design.epsilon_above(1), 3), round(design.epsilon_above(1000), 3)
        (0.013, 0.26)
    """

    threshold_sigma: float
    query_sigma: float
    sensitivity: float
    threshold: float
    lowest: float
    highest: float
    adjacency: Adjacency | str
    monotone: bool = False

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "sensitivity", checked_sensitivity(self.sensitivity))
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        object.__setattr__(self, "monotone", validate.flag(monotone=self.monotone))
        for name in ("threshold_sigma", "query_sigma"):
            sigma = validate.positive(**{name: getattr(self, name)})
            object.__setattr__(self, name, sigma)
            if not _SMALLEST_SCALE <= sigma / self.sensitivity <= _LARGEST_SCALE:
                raise ValueError(
                    f"{name} must lie between 2^-8 and 2^18 sensitivities, got {name}={sigma!r} "
                    f"and sensitivity={self.sensitivity!r}"
                )
        for name in ("threshold", "lowest", "highest"):
            number = validate.finite(**{name: getattr(self, name)})
            object.__setattr__(self, name, number)
            if not abs(number) <= MOST_STEPS * self.grid:
                raise ValueError(
                    f"{name} must lie within 2^52 grid steps of zero, {MOST_STEPS * self.grid!r}, "
                    f"got {name}={number!r}; subtract a public number from queries and thresholds"
                )
        if not self.lowest < self.highest:
            raise ValueError(
                f"lowest must be below highest, got lowest={self.lowest!r} and "
                f"highest={self.highest!r}"
            )

    @property
    def grid(self) -> float:
        """The public power of two of which queries and thresholds are multiples."""
        return grid_of(self.sensitivity)

    @property
    def rounded_sensitivity(self) -> float:
        """How far one record moves a query after rounding: whole grid steps."""
        return sensitivity_on_grid(self.sensitivity)

    def epsilon_above(self, questions: int) -> float:
        """Return the loss of a round whose answer above came at that question.

        Args:
            questions: number of questions of the round, the last included.
        """
        return _above(self._round, _rounded_up(validate.positive_integer(questions=questions)))

    def epsilon_below(self, questions: int) -> float:
        """Return the loss of a round of so many answers, all below.

        Args:
            questions: number of questions of the round.
        """
        return _below(self._round, _rounded_up(validate.positive_integer(questions=questions)))

    def longest(self, epsilon: float) -> int:
        """Return how many questions a round may have so that no outcome costs more; 0 if none.

        Args:
            epsilon: loss that may be spent.
        """
        left = validate.non_negative(epsilon=epsilon)
        here = self._round

        def too_dear(length: int) -> bool:
            return max(_above(here, length), _below(here, length)) > left

        index = bisect_left(_LENGTHS, True, key=too_dear)
        return _LENGTHS[index - 1] if index else 0

    @property
    def _round(self) -> _Round:
        reach = self.rounded_sensitivity
        # Rounding moves ends of the range and the threshold by half a grid step each; a threshold
        # and query noise on the grid look like ideal ones that are up to a step away.
        low = self.lowest - self.threshold - self.grid
        high = self.highest - self.threshold + self.grid
        return _Round(
            self.threshold_sigma, self.query_sigma, reach, low, high, self.grid, self.monotone
        )


@dataclass(frozen=True)
class _Round:
    """One round, queries and range relative to the threshold.

    Attributes:
        s1: deviation of the threshold.
        s2: deviation of queries.
        move: how far one record moves a query.
        low: least query.
        high: largest query.
        blur: how far ideal noise may be from the noise that is drawn.
        monotone: whether all queries move in one direction.
    """

    s1: float
    s2: float
    move: float
    low: float
    high: float
    blur: float
    monotone: bool

    def log_ratio(self, below: int, above: int, shifts: tuple[float, float]) -> float:
        """Return a bound on log of the largest ratio of an outcome's probabilities.

        Args:
            below: number of answers below, at the top of the range.
            above: one if an answer above follows, at the bottom of the range.
            shifts: how far the threshold moves, and how far the query above moves against it.
        """
        threshold, last = shifts
        upper = self._log_probability(below, above, threshold, last, blur=self.blur)
        lower = self._log_probability(below, above, 0.0, 0.0, blur=-self.blur)
        return max(upper[1] - lower[0], 0.0)

    def _log_probability(
        self, below: int, above: int, mean: float, last: float, *, blur: float
    ) -> tuple[float, float]:
        """Return bounds on the logarithm of an outcome's probability, up to a constant."""
        mode = self._mode(below, above, mean, last)
        z = np.linspace(mode - _REACH * self.s1, mode + _REACH * self.s1, _CELLS + 1)
        square = 0.5 * ((z - mean) / self.s1) ** 2
        # Whole numbers of steps differ from ideal noise by a step at most: more of an upper bound.
        still = below * log_tail("gaussian", (self.high - z - blur) / self.s2) if below else 0 * z
        over = above * log_tail("gaussian", (z - self.low - last - blur) / self.s2)
        doubts = _ROUNDINGS * (square + np.abs(still) + np.abs(over) + 1)
        found = log_integrals((still + over - square)[None], float(z[1] - z[0]), doubts[None])
        return float(found.lower[0]), float(found.upper[0])

    def _mode(self, below: int, above: int, mean: float, last: float) -> float:
        """Return about where the integrand is largest: its logarithm bends by 1 / s1^2 at least."""

        def slope(z: float) -> float:
            places = np.array([(self.high - z) / self.s2, (z - self.low - last) / self.s2])
            rates = hazard("gaussian", places) / self.s2
            return float((mean - z) / self.s1**2 + below * rates[0] - above * rates[1])

        low = mean - self.s1
        while slope(low) < 0:
            low -= 2 * (mean - low)
        high = mean + self.s1
        while slope(high) > 0:
            high += 2 * (high - mean)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) > 0 else (low, middle)
        return low


@lru_cache(maxsize=4096)
def _above(here: _Round, questions: int) -> float:
    """Return the loss of an answer above at a question."""
    both = (here.move, 2 * here.move)
    if not here.monotone:
        return here.log_ratio(questions - 1, 1, both)
    # All queries fall, and the threshold with them; or all rise, and only the last one counts.
    falling, rising = (here.move, here.move), (0.0, here.move)
    return max(here.log_ratio(questions - 1, 1, shifts) for shifts in (falling, rising))


@lru_cache(maxsize=4096)
def _below(here: _Round, questions: int) -> float:
    """Return the loss of answers below alone."""
    return here.log_ratio(questions, 0, (here.move, 0.0))


def _lengths() -> list[int]:
    found = list(range(1, _SINGLY + 1))
    while found[-1] < _LONGEST:
        found.append(math.ceil(found[-1] * _GROWTH))
    return found


_LENGTHS = _lengths()


def _rounded_up(questions: int) -> int:
    """Return the next length with a bound of its own: longer rounds cost no less."""
    index = bisect_left(_LENGTHS, questions)
    if index == len(_LENGTHS):
        raise ValueError(f"questions must be at most 2^40, got questions={questions}")
    return _LENGTHS[index]
