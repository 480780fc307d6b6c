"""Three answers instead of two: only queries between two thresholds cost."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from taut._base import validate
from taut._base.arrays import numbers_or_missing
from taut._base.floats import UP
from taut.accounting import Adjacency, PrivacyLoss, approximate, zero
from taut.adaptive._secret import Secret, SecretState, reveal
from taut.adaptive._sparse_vector.grid import (
    MOST_STEPS,
    checked_sensitivity,
    grid_of,
    sensitivity_on_grid,
)
from taut.adaptive._sparse_vector.scalar_noise import ScalarNoise
from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import LInfBall, RandomSource
from taut.noise.recording import Release, released

__all__ = ["BetweenDesign", "BetweenThresholds"]

_ROUNDED_STEPS = 4  # by which rounding narrows the interval: thresholds, noise, and open ends


@dataclass(frozen=True)
class BetweenDesign:
    """Two thresholds, Laplace noise, and how many answers between them there may be.

    Attributes:
        low: public threshold below.
        high: public threshold above.
        threshold_scale: scale of the Laplace noise that moves both thresholds, in opposite ways.
        query_scale: scale of the Laplace noise on every query.
        sensitivity: how far one record moves any query.
        betweens: number of answers "between" after which it ends.
        delta: probability that thresholds come too close to each other.
        adjacency: the relation for which the sensitivity holds.

    **Guarantee**: (epsilon, delta)-DP at any length, for queries chosen by earlier answers
    (Bun, Steinke and Ullman 2017; constants of docs/theory/sparse-vector.md).

    Raises:
        UnsoundConfiguration: if thresholds are too close for their noise and ``delta``.

    Example:
        >>> from taut.adaptive import BetweenDesign
        >>> design = BetweenDesign(40.0, 160.0, 2.0, 4.0, 1.0, 1, 1e-6, "add_remove")
        >>> round(design.epsilon, 3)
        1.03
    """

    low: float
    high: float
    threshold_scale: float
    query_scale: float
    sensitivity: float
    betweens: int
    delta: float
    adjacency: Adjacency | str

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        for name in ("low", "high"):
            object.__setattr__(self, name, validate.finite(**{name: getattr(self, name)}))
        object.__setattr__(self, "sensitivity", checked_sensitivity(self.sensitivity))
        for name in ("threshold_scale", "query_scale"):
            object.__setattr__(self, name, validate.positive(**{name: getattr(self, name)}))
        object.__setattr__(self, "betweens", validate.positive_integer(betweens=self.betweens))
        object.__setattr__(self, "delta", validate.below_one(delta=self.delta))
        if not 0 < self.delta < 0.5:
            raise ValueError(f"delta must be above 0 and below 1/2, got delta={self.delta!r}")
        if not max(abs(self.low), abs(self.high)) <= MOST_STEPS * self.grid:
            raise ValueError(
                "low and high must lie within 2^52 grid steps of zero, where queries are cut: "
                f"{MOST_STEPS * self.grid!r}, got low={self.low!r} and high={self.high!r}. "
                "Subtract a public number from queries and thresholds"
            )
        if not self.least_width > 0:
            raise UnsoundConfiguration(
                f"thresholds {self.low!r} and {self.high!r} are too close: noise of scale "
                f"{self.threshold_scale!r} may cross them with more than delta={self.delta!r}. "
                "Move them apart, or take less noise on thresholds"
            )

    @property
    def grid(self) -> float:
        """The public power of two of which queries and thresholds are multiples."""
        return grid_of(self.sensitivity)

    @property
    def rounded_sensitivity(self) -> float:
        """How far one record moves a query after rounding."""
        return sensitivity_on_grid(self.sensitivity)

    @property
    def least_width(self) -> float:
        """The width of the interval between both noisy thresholds, but for ``delta``."""
        reach = self.threshold_scale * math.log(0.5 / self.delta) * UP
        apart = (self.high - self.low) - _ROUNDED_STEPS * self.grid
        return apart - 2 * self.rounded_sensitivity - 2 * reach

    @property
    def epsilon(self) -> float:
        """The epsilon of the guarantee."""
        moved = 2 * self.rounded_sensitivity
        each = moved / self.query_scale + math.log1p(moved / self.least_width)
        return (self.rounded_sensitivity / self.threshold_scale + self.betweens * each) * UP

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of all answers together."""
        return approximate(self.epsilon, self.delta, adjacency=self.adjacency)


class BetweenThresholds(SecretState):
    """Says of one query after the other whether it is low, high, or between two thresholds.

    Args:
        design: thresholds and noise, whose loss is spent at once.
        generator: source of randomness, by default the secure one.

    **Guarantee**: that of ``design``, for noise that is drawn exactly.
    """

    def __init__(self, design: BetweenDesign, *, generator: RandomSource | None = None) -> None:
        """Draw the noise of the thresholds."""
        if not isinstance(design, BetweenDesign):
            raise TypeError(f"design must be a BetweenDesign, got design={design!r}")
        super().__init__()
        self._design = design
        self._source = generator
        self._lock = threading.Lock()
        self._asked = self._between = 0
        noise = ScalarNoise("laplace", design.threshold_scale)
        self._level = Secret(int(noise.draw(design.grid, 1, generator)[0]))

    @property
    def design(self) -> BetweenDesign:
        """Thresholds and noise, whose loss is spent."""
        return self._design

    @property
    def is_exhausted(self) -> bool:
        """Whether no further question is answered."""
        return self._between >= self.design.betweens

    def ask(self, value: float | Secret[float]) -> str:
        """Return ``"low"``, ``"high"`` or ``"between"``.

        Args:
            value: number that one record moves by at most the sensitivity; NaN counts as the
                lowest.

        Raises:
            BudgetExceeded: after the last answer "between".
        """
        self._check_process()
        with self._lock:
            if self.is_exhausted:
                raise BudgetExceeded(
                    f"these thresholds have ended, after {self._between} answers between them"
                )
            steps = self._steps(_number(value))
            answer = released(
                lambda: self._answer(steps), lambda: self._described(steps), self._source
            )
            self._asked += 1
            self._between += answer == "between"
        return answer

    def _answer(self, steps: int) -> str:
        design = self.design
        noise = ScalarNoise("laplace", design.query_scale).draw(design.grid, 1, self._source)
        noisy, level = steps + int(noise[0]), reveal(self._level)
        if noisy <= self._steps(design.low) + level:
            return "low"
        return "high" if noisy >= self._steps(design.high) - level else "between"

    def _steps(self, number: float) -> int:
        limit = MOST_STEPS * self.design.grid
        cut = -limit if math.isnan(number) else min(max(number, -limit), limit)
        return math.floor(Fraction(cut) / Fraction(self.design.grid) + Fraction(1, 2))

    def _described(self, steps: int) -> Release:
        design, relation = self.design, Adjacency(self.design.adjacency)
        spent = design.loss if self._asked == 0 else zero(adjacency=relation)
        return Release(
            type(self).__name__,
            np.array([steps * design.grid]),
            LInfBall(1, design.rounded_sensitivity, adjacency=relation),
            {"low": design.low, "high": design.high, "asked": self._asked},
            loss=lambda: spent,
        )

    def __repr__(self) -> str:
        """Return what is public."""
        return (
            f"<BetweenThresholds {self.design.low:g} and {self.design.high:g}; {self._asked} asked>"
        )


def _number(value: float | Secret[float]) -> float:
    query = numbers_or_missing([reveal(value) if isinstance(value, Secret) else value], "value")
    if query.ndim != 1:
        raise ValueError(f"value must be one number, got shape {query.shape[1:]}")
    return float(query[0])
