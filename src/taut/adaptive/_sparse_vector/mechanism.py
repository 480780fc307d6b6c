"""The sparse vector at work: a noisy threshold that is kept, and comparisons with it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut._base.arrays import Vector, numbers_or_missing, real_numbers
from taut.accounting import Adjacency, PrivacyFilter, PrivacyLoss, zero
from taut.adaptive._secret import Secret, SecretState, reveal
from taut.adaptive._sparse_vector.design import SparseVectorDesign
from taut.adaptive._sparse_vector.grid import MOST_STEPS
from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import LInfBall, RandomSource
from taut.noise.recording import Release, released

__all__ = ["SparseVector"]

_PORTION = 1 << 16  # queries compared at a time: one that ends it early draws no more noise

Answers = NDArray[np.bool_]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class _Outcome:
    """Answers up to the one that ended it, and how far they were above; zero below."""

    above: Answers
    gaps: Vector


class _Standing(NamedTuple):
    """How far a sparse vector has come, replaced as a whole: an interrupt finds one or the other.

    Attributes:
        asked: number of answers.
        above: number of answers above.
        level: noise on the threshold, in grid steps.
    """

    asked: int
    above: int
    level: Secret[int]


class SparseVector(SecretState):
    """Tells of one query after the other whether it is above a threshold, until enough were.

    Args:
        design: noise, lengths and sensitivity, whose loss is spent at once.
        threshold: public level that queries are compared with, unless a question names another.
        least_value: public value that no query is below, for designs with ``margin``.
        budget: filter from which the loss is taken before anything else happens.
        generator: source of randomness, by default the secure one.

    Queries are numbers, or a `Secret` that holds one. They are cut at 2^52 grid steps and rounded
    to the grid of the design. A query that is NaN, or missing, counts as the lowest: an
    error would tell about the data. Threads may share the object; a copy or a forked process may
    not, because answers of both would cost twice.

    **Guarantee**: all answers together have the loss of ``design``, whoever asks and whatever is
    asked next, for noise that is drawn exactly (docs/theory/rounding.md). Losses of releases that
    are made between questions add to it (Vadhan and Zhang 2023).

    Raises:
        ValueError: if a threshold is NaN or infinite, or further above ``least_value`` than the
            margin.
        UnsoundConfiguration: if the design has no finite loss.
        BudgetExceeded: if ``budget`` has too little left, and for questions after the end.

    Example:
        >>> from taut.adaptive import ScalarNoise, SparseVector, SparseVectorDesign
        >>> from taut.noise import SeededForExperiments
        >>> design = SparseVectorDesign(
        ...     ScalarNoise("laplace", 4.0), ScalarNoise("laplace", 8.0), sensitivity=1.0, tops=1,
        ...     adjacency="add_remove",
        ... )
        >>> vector = SparseVector(design, threshold=100.0, generator=SeededForExperiments(1))
        >>> vector.ask(3), vector.ask(12), vector.ask(250)
        (False, False, True)
        >>> vector.is_exhausted, round(design.loss.epsilon(delta=0), 9)
        (True, 0.5)
    """

    def __init__(
        self,
        design: SparseVectorDesign,
        *,
        threshold: float | None = None,
        least_value: float | None = None,
        budget: PrivacyFilter | None = None,
        generator: RandomSource | None = None,
    ) -> None:
        """Spend the loss, and draw the noise of the threshold."""
        if not isinstance(design, SparseVectorDesign):
            raise TypeError(f"design must be a SparseVectorDesign, got design={design!r}")
        super().__init__()
        self._design = design
        self._least = self._checked_floor(least_value)
        self._threshold = None if threshold is None else self._checked_threshold(threshold)
        spent = design.loss  # raises where no bound is known: nothing is answered without one
        if budget is not None:
            budget.spend(spent)
        self._source = generator
        self._lock = threading.Lock()
        self._standing = _Standing(0, 0, self._drawn_level())

    @property
    def design(self) -> SparseVectorDesign:
        """The design, whose loss was spent when the object was made."""
        return self._design

    @property
    def loss(self) -> PrivacyLoss:
        """The loss of all answers together, spent when the object was made."""
        return self.design.loss

    @property
    def tops_left(self) -> int:
        """How many answers above are left."""
        return self.design.tops - self._standing.above

    @property
    def queries_left(self) -> int | None:
        """How many questions are left, None for any number."""
        most = self.design.most_queries
        return None if most is None else most - self._standing.asked

    @property
    def is_exhausted(self) -> bool:
        """Whether no further question is answered."""
        return self.tops_left == 0 or self.queries_left == 0

    def ask(self, value: float | Secret[float], threshold: float | None = None) -> bool:
        """Return whether a query is above its threshold, both with noise.

        Args:
            value: number that one record moves by at most the sensitivity.
            threshold: public level for this question; that of the object by default.

        Raises:
            BudgetExceeded: after the last answer above, or the last question.
        """
        return bool(self._outcome(_one(value), threshold).above[0])

    def ask_gap(self, value: float | Secret[float], threshold: float | None = None) -> float | None:
        """Return by how much a query is above its threshold, both with noise, None if it is not.

        The distance costs nothing beyond the loss of a design with ``gap=True`` (Ding, Wang,
        Zhang and Kifer 2019).

        Args:
            value: number that one record moves by at most the sensitivity.
            threshold: public level for this question; that of the object by default.
        """
        if not self.design.gap:
            raise UnsoundConfiguration(
                "the distance from the threshold is not part of this design's loss; make one with "
                "gap=True"
            )
        outcome = self._outcome(_one(value), threshold)
        return float(outcome.gaps[0]) if outcome.above[0] else None

    def ask_many(self, values: ArrayLike, thresholds: ArrayLike | None = None) -> Answers:
        """Return the answers to many questions that were chosen before any of them.

        Args:
            values: queries, shape (n,).
            thresholds: public level for all of them, or one for each.

        Returns:
            Answers up to the one that ends it, shape (m,) with m <= n: later queries are not
            looked at.
        """
        return self._outcome(values, thresholds).above

    def __repr__(self) -> str:
        """Return what is public: the design, and how far it has come."""
        return (
            f"<SparseVector with {self.design.threshold_noise} and {self.design.query_noise}; "
            f"{self._standing.asked} asked, {self.tops_left} answers above left>"
        )

    # --- one question after the other ------------------------------------------------------------

    def _outcome(self, values: ArrayLike | Secret[float], thresholds: ArrayLike | None) -> _Outcome:
        self._check_process()
        with self._lock:
            if self.is_exhausted:
                raise BudgetExceeded(
                    f"this sparse vector has ended, after {self._standing.above} answers above in "
                    f"{self._standing.asked}; make another one, at its own price"
                )
            steps, levels = self._in_steps(values, thresholds)
            given, levels = steps[: self.queries_left], levels[: self.queries_left]
            if given.size == 0:
                return _Outcome(np.empty(0, dtype=np.bool_), np.empty(0))

            before = self._standing
            level = before.level

            def draw() -> _Outcome:
                nonlocal level
                outcome, level = self._compared(given, levels)
                return outcome

            def described() -> Release:
                return self._described(given, levels)

            outcome = released(draw, described, self._source)
            # From what was released alone, so that a replay counts as the program did.
            above = before.above + int(np.count_nonzero(outcome.above))
            self._standing = _Standing(before.asked + outcome.above.size, above, level)
            return outcome

    def _compared(self, steps: Integers, levels: Integers) -> tuple[_Outcome, Secret[int]]:
        """Return the answers and what the threshold's noise is afterwards.

        Noise is drawn for as many queries as are looked at.
        """
        parts: list[_Outcome] = []
        left, level = self.tops_left, self._standing.level
        start = 0
        while start < steps.size and left:
            here = slice(start, start + _PORTION)
            noise = self.design.query_noise.draw(self.design.grid, steps[here].size, self._source)
            part, level = self._one_portion(steps[here] + noise - levels[here], left, level)
            left -= int(np.count_nonzero(part.above))
            start += _PORTION
            parts.append(part)
        above = np.concatenate([np.empty(0, dtype=np.bool_), *(part.above for part in parts)])
        return _Outcome(above, np.concatenate([np.empty(0), *(part.gaps for part in parts)])), level

    def _one_portion(
        self, noisy: Integers, left: int, hidden: Secret[int]
    ) -> tuple[_Outcome, Secret[int]]:
        """Compare noisy differences with the noise of the threshold, which may be drawn again."""
        above = np.zeros(noisy.size, dtype=np.bool_)
        gaps = np.zeros(noisy.size)
        done = 0
        while done < noisy.size and left:
            level = reveal(hidden)
            over = np.flatnonzero(noisy[done:] >= level)
            over = over[: 1 if self.design.resample else left] + done
            above[over] = True
            gaps[over] = (noisy[over] - level) * self.design.grid
            left -= over.size
            ended = left == 0 or (self.design.resample and over.size > 0)
            done = int(over[-1]) + 1 if ended else noisy.size
            if self.design.resample and over.size:
                hidden = self._drawn_level()
        return _Outcome(above[:done], gaps[:done]), hidden

    def _drawn_level(self) -> Secret[int]:
        noise = self.design.threshold_noise
        return Secret(int(noise.draw(self.design.grid, 1, self._source)[0]))

    def _described(self, steps: Integers, levels: Integers) -> Release:
        design = self.design
        # All answers share one loss: it is that of the first question.
        spent = design.loss if self._standing.asked == 0 else zero(adjacency=design.adjacency)
        return Release(
            type(self).__name__,
            steps.astype(np.float64) * design.grid,
            LInfBall(steps.size, design.rounded_sensitivity, adjacency=Adjacency(design.adjacency)),
            {
                "thresholds": levels * design.grid,
                "threshold_noise": str(design.threshold_noise),
                "query_noise": str(design.query_noise),
                "tops": design.tops,
                "asked": self._standing.asked,
            },
            loss=lambda: spent,
        )

    # --- numbers ---------------------------------------------------------------------------------

    def _in_steps(
        self, values: ArrayLike | Secret[float], thresholds: ArrayLike | None
    ) -> tuple[Integers, Integers]:
        """Return queries and thresholds in grid steps, both of shape (n,)."""
        # A secret is opened last: tools that print the variables of a traceback see none before.
        if thresholds is None:
            if self._threshold is None:
                raise ValueError("threshold must be given, here or when the object is made")
            levels = np.array(self._threshold)
        else:
            levels = self._checked_threshold(thresholds)
        given = [reveal(values)] if isinstance(values, Secret) else values
        queries = numbers_or_missing(given, "value")
        if queries.ndim != 1:
            raise ValueError(f"values must be numbers in a row, got shape {queries.shape}")
        if levels.shape not in ((), queries.shape):
            raise ValueError(
                f"thresholds must be one number or one for each of {queries.size} queries, got "
                f"shape {levels.shape}"
            )
        lowest = -MOST_STEPS * self.design.grid if self._least is None else self._least
        floored = np.maximum(np.where(np.isnan(queries), lowest, queries), lowest)
        return self._rounded(floored), np.broadcast_to(self._rounded(levels), queries.shape)

    def _rounded(self, numbers: Vector) -> Integers:
        """Return the nearest multiples of the grid; halves go up, so that shifts stay shifts."""
        with np.errstate(over="ignore"):
            scaled = np.clip(numbers / self.design.grid, -MOST_STEPS, MOST_STEPS)
        whole = np.floor(scaled)
        result: Integers = whole.astype(np.int64) + (scaled - whole >= 0.5)
        return result

    def _checked_threshold(self, threshold: ArrayLike) -> Vector:
        levels = real_numbers(threshold, "threshold")
        if not np.isfinite(levels).all():
            raise ValueError("threshold must be finite, got NaN or infinity; it is public")
        if self._least is not None and self.design.margin is not None:
            most = self._least + self.design.margin
            if (levels > most).any():
                raise ValueError(
                    f"threshold must be at most least_value plus the margin of the design, {most!r}"
                )
        return levels

    def _checked_floor(self, least_value: float | None) -> float | None:
        if (least_value is None) != (self.design.margin is None):
            raise ValueError(
                "least_value belongs to designs with margin, and they need it: give both, or none"
            )
        if least_value is None or self.design.margin is None:
            return None
        least = validate.finite(least_value=least_value)
        # Cutting would bring a threshold nearer to queries, or further up, than the margin says.
        most = MOST_STEPS * self.design.grid
        if not (abs(least) <= most and abs(least + self.design.margin) <= most):
            raise ValueError(
                "least_value, and least_value plus the margin of the design, must lie within 2^52 "
                f"grid steps of zero, {most!r}; got least_value={least_value!r}. Subtract a public "
                "number from queries and thresholds"
            )
        return least


def _one(value: float | Secret[float]) -> list[float] | Secret[float]:
    return value if isinstance(value, Secret) else [value]
