"""Sparse vectors one after the other: a fresh threshold for every few answers above."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from taut._base import validate
from taut.accounting import PrivacyFilter, PrivacyLoss, approximate
from taut.adaptive._secret import Secret
from taut.adaptive._sparse_vector.design import SparseVectorDesign
from taut.adaptive._sparse_vector.mechanism import SparseVector
from taut.errors import BudgetExceeded
from taut.noise import RandomSource

__all__ = ["SparseVectorStages", "StagedSparseVector"]

_SHARES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9)  # of delta for the stages; any is sound


@dataclass(frozen=True)
class SparseVectorStages:
    """A number of equal sparse vectors in a row, each with noise of its own.

    Attributes:
        stage: design of one stage.
        stages: how many there are.

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

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not isinstance(self.stage, SparseVectorDesign):
            raise TypeError(f"stage must be a SparseVectorDesign, got stage={self.stage!r}")
        object.__setattr__(self, "stages", validate.positive_integer(stages=self.stages))

    @property
    def tops(self) -> int:
        """The largest number of answers above."""
        return self.stages * self.stage.tops

    @property
    def most_queries(self) -> int | None:
        """The largest number of questions, None for any number."""
        each = self.stage.most_queries
        return None if each is None else self.stages * each

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of all stages, which adds up with other losses."""
        return self.stages * self.stage.loss

    def epsilon(self, delta: float) -> float:
        """Return a certified epsilon at ``delta``, by the better of two compositions."""
        level = validate.below_one(delta=delta)
        best = self.loss.epsilon(level)
        for share in _SHARES if level > 0 else ():
            each = share * level / self.stages
            stage = approximate(self.stage.loss.epsilon(each), each, adjacency=self.stage.adjacency)
            best = min(best, (self.stages * stage).epsilon(level))
        return best


class StagedSparseVector:
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
        """Spend the loss, and draw the noise of all thresholds."""
        if not isinstance(design, SparseVectorStages):
            raise TypeError(f"design must be SparseVectorStages, got design={design!r}")
        self.design = design
        vectors = [
            SparseVector(
                design.stage, threshold=threshold, least_value=least_value, generator=generator
            )
            for _ in range(design.stages)
        ]
        if budget is not None:
            budget.spend(design.loss)
        self._vectors: Sequence[SparseVector] = vectors
        self._lock = threading.Lock()

    @property
    def is_exhausted(self) -> bool:
        """Whether no further question is answered."""
        return self._vectors[-1].is_exhausted

    @property
    def stages_left(self) -> int:
        """How many stages are not at their end."""
        return sum(not vector.is_exhausted for vector in self._vectors)

    def ask(self, value: float | Secret[float], threshold: float | None = None) -> bool:
        """Return whether a query is above its threshold, both with noise.

        Args:
            value: number that one record moves by at most the sensitivity.
            threshold: public level for this question; that of the object by default.
        """
        with self._lock:
            for vector in self._vectors:
                if not vector.is_exhausted:
                    return vector.ask(value, threshold)
        raise BudgetExceeded(
            f"all {self.design.stages} stages have ended; make another one, at its own price"
        )

    def __repr__(self) -> str:
        """Return what is public."""
        return f"<StagedSparseVector with {self.stages_left} of {self.design.stages} stages left>"
