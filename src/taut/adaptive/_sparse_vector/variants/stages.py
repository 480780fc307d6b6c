"""Sparse vectors one after the other: a fresh threshold for every few answers above."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut._base.arrays import numbers_or_missing, real_numbers
from taut.accounting import Bounds, PrivacyFilter, PrivacyLoss, approximate
from taut.adaptive._secret import Secret, SecretState
from taut.adaptive._sparse_vector.bounds import MOST_PURE
from taut.adaptive._sparse_vector.design import SparseVectorDesign
from taut.adaptive._sparse_vector.mechanism import SparseVector
from taut.errors import BudgetExceeded, InfeasibleBudget
from taut.noise import RandomSource

__all__ = ["SparseVectorStages", "StagedSparseVector"]

Answers = NDArray[np.bool_]

_MOST_TOPS = 2**20  # that a search for a budget looks at
_SHARES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9)  # of delta for the stages; any is sound


@dataclass(frozen=True)
class SparseVectorStages:
    """A number of equal sparse vectors in a row, each with noise of its own.

    Attributes:
        stage: design of one stage.
        stages: how many there are.
        last: design of one more stage, with fewer answers above than the others, if there is one.

    A stage ends at its answers above or at its length, whichever comes first, and the number of
    stages is fixed: there may be fewer answers above in the end than `tops`.

    **Guarantee**: `loss` for all stages together, by composition; `epsilon` besides converts every
    stage to (epsilon, delta) first where that is better (Zhu 2023, Theorem 7.2.9; optimal
    composition after Kairouz, Oh and Viswanath 2015).

    Example:
        >>> from taut.adaptive import ScalarNoise, SparseVectorDesign, SparseVectorStages
        >>> one = SparseVectorDesign(
        ...     ScalarNoise("laplace", 50.0), ScalarNoise("laplace", 100.0), 1.0, 1, "replace"
        ... )
        >>> stages = SparseVectorStages(one, stages=100)
        >>> stages.tops, stages.epsilon(delta=1e-6) < 100 * one.pure_epsilon
        (100, True)
    """

    stage: SparseVectorDesign
    stages: int
    last: SparseVectorDesign | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not isinstance(self.stage, SparseVectorDesign):
            raise TypeError(f"stage must be a SparseVectorDesign, got stage={self.stage!r}")
        object.__setattr__(self, "stages", validate.positive_integer(stages=self.stages))
        if self.last is None:
            return
        if not isinstance(self.last, SparseVectorDesign):
            raise TypeError(f"last must be a SparseVectorDesign, got last={self.last!r}")
        if self.last.tops >= self.stage.tops or replace(self.last, tops=self.stage.tops) != (
            self.stage
        ):
            raise ValueError(
                "last must be the design of a stage with fewer answers above, and no other "
                f"difference, got last={self.last!r}; for_tops and within make one"
            )

    @classmethod
    def for_tops(cls, stage: SparseVectorDesign, tops: int) -> SparseVectorStages:
        """Return stages with a given number of answers above in all; the last may have fewer.

        Args:
            stage: design of one stage.
            tops: how many answers above there may be.

        Example:
            >>> from taut.adaptive import ScalarNoise, SparseVectorDesign, SparseVectorStages
            >>> one = SparseVectorDesign(
            ...     ScalarNoise("laplace", 50.0), ScalarNoise("laplace", 100.0), 1.0, 4, "replace"
            ... )
            >>> stages = SparseVectorStages.for_tops(one, 10)
            >>> stages.stages, stages.last.tops, stages.tops
            (2, 2, 10)
        """
        count = validate.positive_integer(tops=tops)
        full, rest = divmod(count, stage.tops)
        last = replace(stage, tops=rest) if rest else None
        if full == 0 and last is not None:
            return cls(last, 1)
        return cls(stage, full, last)

    @classmethod
    def within(cls, stage: SparseVectorDesign, epsilon: float, delta: float) -> SparseVectorStages:
        """Return the stages with the most answers above that a budget pays for, at most 2^20.

        Args:
            stage: design of one stage.
            epsilon: budget for all stages.
            delta: where it holds.

        Raises:
            InfeasibleBudget: if it does not pay for one answer above.
        """
        budget, level = validate.positive(epsilon=epsilon), validate.below_one(delta=delta)

        def too_dear(tops: int) -> bool:
            return cls.for_tops(stage, tops).epsilon(level) > budget

        if too_dear(1):
            raise InfeasibleBudget(
                f"epsilon={epsilon!r} does not pay for one answer above, which costs "
                f"{cls.for_tops(stage, 1).epsilon(level):.4g} at delta={delta!r}; take more noise"
            )
        low, high = 1, 2
        while high < _MOST_TOPS and not too_dear(high):
            low, high = high, 2 * high
        # More answers cost more, but for roundings of bounds, of which any place is sound.
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if too_dear(middle) else (middle, high)
        return cls.for_tops(stage, low)

    @property
    def count(self) -> int:
        """How many stages there are, the last one included."""
        return self.stages + (self.last is not None)

    def design_of(self, number: int) -> SparseVectorDesign:
        """Return the design of a stage.

        Args:
            number: its place, from zero.
        """
        return self.stage if self.last is None or number < self.stages else self.last

    @property
    def tops(self) -> int:
        """The largest number of answers above."""
        return self.stages * self.stage.tops + (0 if self.last is None else self.last.tops)

    @property
    def most_queries(self) -> int | None:
        """The largest number of questions, None for any number."""
        each = self.stage.most_queries
        return None if each is None else self.count * each

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of all stages, which adds up with other losses."""
        whole = self.stages * self.stage.loss
        return whole if self.last is None else whole + self.last.loss

    def epsilon(self, delta: float) -> float:
        """Return a certified epsilon at ``delta``, by the better of two compositions."""
        level = validate.below_one(delta=delta)
        best = self.loss.epsilon(level)
        for share in _SHARES if level > 0 else ():
            each = share * level / self.count
            one = self.stage.loss.epsilon(each)
            if one > MOST_PURE:
                continue
            # What is left for the last stage is less than for the others.
            whole = self.stages * approximate(one, each, adjacency=self.stage.adjacency)
            if self.last is not None:
                least = min(self.last.loss.epsilon(each), one)
                whole = whole + approximate(least, each, adjacency=self.last.adjacency)
            best = min(best, whole.epsilon(level))
        return best

    def epsilon_bounds(self, delta: float) -> Bounds:
        """Return `epsilon` with a certified lower bound, as of `SparseVectorDesign`.

        The lower bound leaves the last stage out where that is smaller.
        """
        level = validate.below_one(delta=delta)
        upper = self.epsilon(level)
        return Bounds(min(self.stage.lower_epsilon(level, self.stages), upper), upper)


class StagedSparseVector(SecretState):
    """Sparse vectors one after the other, asked as one.

    Args:
        design: stages, whose loss is spent at once.
        threshold: public level that queries are compared with, unless a question names another.
        least_value: public value that no query is below, for designs with ``margin``.
        budget: filter from which the loss is taken before anything else happens.
        generator: source of randomness, by default the secure one.

    **Guarantee**: that of ``design``, as of `SparseVector` for every stage.

    Raises:
        BudgetExceeded: if ``budget`` has too little left, and for questions after the last stage.
    """

    def __init__(
        self,
        design: SparseVectorStages,
        *,
        threshold: float | None = None,
        least_value: float | None = None,
        budget: PrivacyFilter | None = None,
        generator: RandomSource | None = None,
    ) -> None:
        """Spend the loss, and draw the noise of the first threshold."""
        if not isinstance(design, SparseVectorStages):
            raise TypeError(f"design must be SparseVectorStages, got design={design!r}")
        super().__init__()
        self._design = design
        self._made = partial(
            SparseVector, threshold=threshold, least_value=least_value, generator=generator
        )
        self._lock = threading.Lock()
        self._standing = (0, self._made(design.design_of(0)))
        if budget is not None:
            budget.spend(design.loss)

    @property
    def design(self) -> SparseVectorStages:
        """The stages, whose loss was spent when the object was made."""
        return self._design

    @property
    def is_exhausted(self) -> bool:
        """Whether no further question is answered."""
        return self.stages_left == 0

    @property
    def stages_left(self) -> int:
        """How many stages are not at their end."""
        number, vector = self._standing
        return self.design.count - number - vector.is_exhausted

    def ask(self, value: float | Secret[float], threshold: float | None = None) -> bool:
        """Return whether a query is above its threshold, both with noise.

        Args:
            value: number that one record moves by at most the sensitivity.
            threshold: public level for this question; that of the object by default.
        """
        with self._lock:
            return self._stage().ask(value, threshold)

    def ask_many(self, values: ArrayLike, thresholds: ArrayLike | None = None) -> Answers:
        """Return the answers to many questions that were chosen before any of them.

        Args:
            values: queries, shape (n,).
            thresholds: public level for all of them, or one for each.

        Returns:
            Answers up to the one that ends the last stage, shape (m,) with m <= n.
        """
        with self._lock:
            vector = self._stage()
            queries = numbers_or_missing(values, "value")
            levels = None if thresholds is None else real_numbers(thresholds, "threshold")
            parts: list[Answers] = []
            while True:
                answers = vector.ask_many(queries, levels)
                parts.append(answers)
                queries = queries[answers.size :]
                levels = levels[answers.size :] if levels is not None and levels.ndim else levels
                if self.is_exhausted or not queries.size:
                    return np.concatenate(parts)
                vector = self._stage()

    def _stage(self) -> SparseVector:
        """Return the stage that is asked, which is the next one if the last has ended."""
        self._check_process()
        number, vector = self._standing
        if not vector.is_exhausted:
            return vector
        if number + 1 == self.design.count:
            raise BudgetExceeded(
                f"all {self.design.count} stages have ended; make another one, at its own price"
            )
        vector = self._made(self.design.design_of(number + 1))
        self._standing = (number + 1, vector)
        return vector

    def __repr__(self) -> str:
        """Return what is public."""
        left = f"{self.stages_left} of {self.design.count}"
        return f"<StagedSparseVector with {left} stages left>"
