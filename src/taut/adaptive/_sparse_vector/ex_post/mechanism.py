"""A sparse vector that says what was spent, and ends before it could be too much."""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut._base.arrays import numbers_or_missing
from taut.accounting import Adjacency, PrivacyFilter, PrivacyLoss, pure, zero
from taut.adaptive._secret import Secret, SecretState, reveal
from taut.adaptive._sparse_vector.ex_post.design import ExPostDesign
from taut.errors import BudgetExceeded, InfeasibleBudget
from taut.noise import LInfBall, RandomSource, rounded_noise
from taut.noise.recording import Release, released

__all__ = ["ExPostSparseVector"]

_PORTION = 1 << 16  # queries compared at a time: one that ends a round draws no more noise

Answers = NDArray[np.bool_]
Integers = NDArray[np.int64]


class _Standing(NamedTuple):
    """How far rounds have come, replaced as a whole: an interrupt finds one or the other.

    Attributes:
        tops: number of rounds that have ended, each with an answer above.
        spent: what they cost.
        longest: how many questions the round that goes on may have.
        asked: how many it has had.
        level: its noisy threshold, in grid steps; None until its first question.
    """

    tops: int
    spent: float
    longest: int
    asked: int = 0
    level: Secret[int] | None = None


class ExPostSparseVector(SecretState):
    """Tells which queries are above a threshold until its answers have used up an epsilon.

    Args:
        design: noise, threshold and range of the queries.
        epsilon: what all answers together may cost.
        budget: filter from which `loss` is taken before anything else happens.
        generator: source of randomness, by default the secure one.

    Every answer above ends a round, and the next one has a fresh threshold. What a round cost is
    known when it has ended, and depends on its answers alone: an early answer above is cheaper than
    a late one. So there is no number of answers to fix beforehand. No question is asked of which
    any answer could cost more than what is left.

    **Guarantee**: `loss`, pure differential privacy with ``epsilon`` for everything together,
    whoever asks and whatever is asked next: the losses of rounds bound the logarithm of the ratio
    of probabilities outcome by outcome, so that they add up, and their sum never exceeds
    ``epsilon``. `realised_epsilon` is an *ex-post* guarantee: the ratio of the probabilities of
    the answers that were given is at most its exponential (docs/theory/ex-post.md; Lebensold,
    Precup and Balle 2024). It can be published, and is no `PrivacyLoss`: other mechanisms beside
    this one add to `loss`.

    Raises:
        InfeasibleBudget: if ``epsilon`` is too little for a single question.
        BudgetExceeded: if ``budget`` has too little left, and for questions after the end.

    Example:
        >>> from taut.adaptive import ExPostDesign, ExPostSparseVector
        >>> from taut.noise import SeededForExperiments
        >>> design = ExPostDesign(
        ...     8.0, 16.0, sensitivity=1.0, threshold=50.0, lowest=0.0, highest=100.0,
        ...     adjacency="add_remove",
        ... )
        >>> vector = ExPostSparseVector(design, epsilon=3.0, generator=SeededForExperiments(1))
        >>> vector.ask(3), vector.ask(12), vector.ask(100)
        (False, False, True)
        >>> vector.realised_epsilon < vector.epsilon
        True
    """

    def __init__(
        self,
        design: ExPostDesign,
        *,
        epsilon: float,
        budget: PrivacyFilter | None = None,
        generator: RandomSource | None = None,
    ) -> None:
        """Spend the loss."""
        if not isinstance(design, ExPostDesign):
            raise TypeError(f"design must be an ExPostDesign, got design={design!r}")
        super().__init__()
        self._design = design
        self._epsilon = validate.positive(epsilon=epsilon)
        self._standing = _Standing(0, 0.0, design.longest(self.epsilon))
        if self.is_exhausted:
            raise InfeasibleBudget(
                f"epsilon={epsilon!r} does not cover a single question, which costs up to "
                f"{design.epsilon_above(1):.4g}; take more noise, or a smaller range of queries"
            )
        spent = self.loss  # raises for an epsilon that hides nothing
        if budget is not None:
            budget.spend(spent)
        self._source = generator
        self._lock = threading.Lock()

    @property
    def design(self) -> ExPostDesign:
        """Noise, threshold and range of the queries."""
        return self._design

    @property
    def epsilon(self) -> float:
        """What all answers together may cost, spent when the object was made."""
        return self._epsilon

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of all answers together, spent when the object was made."""
        return pure(self.epsilon, adjacency=self.design.adjacency)

    @property
    def realised_epsilon(self) -> float:
        """What the answers so far have cost: a function of them alone."""
        _, spent, _, asked, _ = self._standing
        here = self.design.epsilon_below(asked) if asked else 0.0
        return math.nextafter(spent + here, math.inf) if here else spent

    @property
    def tops(self) -> int:
        """How many answers above there were."""
        return self._standing.tops

    @property
    def queries_left(self) -> int:
        """How many questions can be asked if all answers are below."""
        return max(self._standing.longest - self._standing.asked, 0)

    @property
    def is_exhausted(self) -> bool:
        """Whether no further question is answered."""
        return self.queries_left == 0

    def ask(self, value: float | Secret[float]) -> bool:
        """Return whether a query is above the threshold, both with noise.

        Args:
            value: number that one record moves by at most the sensitivity; NaN counts as the
                lowest.

        Raises:
            BudgetExceeded: if an answer could cost more than what is left.
        """
        return bool(self._answered(value if isinstance(value, Secret) else [value])[0])

    def ask_many(self, values: ArrayLike) -> Answers:
        """Return the answers to many questions that were chosen before any of them.

        Args:
            values: queries, shape (n,).

        Returns:
            Answers up to the one that ends it, shape (m,) with m <= n.
        """
        return self._answered(values)

    def __repr__(self) -> str:
        """Return what is public."""
        return (
            f"<ExPostSparseVector with {self.tops} answers above, "
            f"{self.realised_epsilon:.4g} of {self.epsilon:g} spent>"
        )

    # --- round after round -----------------------------------------------------------------------

    def _answered(self, values: ArrayLike | Secret[float]) -> Answers:
        self._check_process()
        with self._lock:
            if self.is_exhausted:
                raise BudgetExceeded(
                    f"the answers so far have cost {self.realised_epsilon:.4g} of "
                    f"{self.epsilon:g}, and the next could cost more than what is left; make "
                    "another one, at its own price"
                )
            steps = self._in_steps(values)
            given: list[Answers] = [np.empty(0, dtype=np.bool_)]
            while steps.size and (room := self.queries_left):
                answers = self._one_round(steps[: min(room, _PORTION)])
                steps = steps[answers.size :]
                given.append(answers)
            return np.concatenate(given)

    def _one_round(self, steps: Integers) -> Answers:
        """Return answers up to the first one above."""
        before = self._standing
        level = before.level

        def draw() -> Answers:
            nonlocal level
            level = self._drawn_level() if level is None else level
            return self._compared(steps, level)

        answers = released(draw, lambda: self._described(steps), self._source)
        # From what was released alone, so that a replay counts as the program did.
        asked = before.asked + answers.size
        if answers.any():
            self._standing = self._after(asked)
        else:
            self._standing = before._replace(asked=asked, level=level)
        return answers

    def _after(self, asked: int) -> _Standing:
        """Return where a round ends with an answer above at a question; no threshold lasts."""
        tops, spent, *_ = self._standing
        spent = math.nextafter(spent + self.design.epsilon_above(asked), math.inf)
        left = max(math.nextafter(self.epsilon - spent, -math.inf), 0.0)
        return _Standing(tops + 1, spent, self.design.longest(left))

    def _compared(self, steps: Integers, level: Secret[int]) -> Answers:
        design = self.design
        noise = rounded_noise(
            "gaussian", design.query_sigma / design.grid, steps.size, generator=self._source
        )
        above = steps + noise >= reveal(level)
        first = np.flatnonzero(above)[:1]
        return above[: int(first[0]) + 1] if first.size else above

    def _drawn_level(self) -> Secret[int]:
        """Return the threshold with noise, in grid steps."""
        design = self.design
        noise = rounded_noise(
            "gaussian", design.threshold_sigma / design.grid, 1, generator=self._source
        )
        return Secret(int(noise[0]) + _rounded(np.array(design.threshold), design.grid).item())

    def _described(self, steps: Integers) -> Release:
        design, relation = self.design, Adjacency(self.design.adjacency)
        # All answers share one loss: it is that of the first question.
        tops, asked = self._standing.tops, self._standing.asked
        spent = zero(adjacency=relation) if asked or tops else self.loss
        return Release(
            type(self).__name__,
            steps.astype(np.float64) * design.grid,
            LInfBall(steps.size, design.rounded_sensitivity, adjacency=relation),
            {
                "threshold": design.threshold,
                "threshold_sigma": design.threshold_sigma,
                "query_sigma": design.query_sigma,
                "rounds": tops,
                "asked": asked,
            },
            loss=lambda: spent,
        )

    def _in_steps(self, values: ArrayLike | Secret[float]) -> Integers:
        """Return queries in grid steps, cut to their range."""
        given = [reveal(values)] if isinstance(values, Secret) else values
        queries = numbers_or_missing(given, "value")
        if queries.ndim != 1:
            raise ValueError(f"values must be numbers in a row, got shape {queries.shape}")
        design = self.design
        known = np.where(np.isnan(queries), design.lowest, queries)
        return _rounded(np.clip(known, design.lowest, design.highest), design.grid)


def _rounded(numbers: NDArray[np.float64], grid: float) -> Integers:
    """Return the nearest multiples of the grid; halves go up, so that shifts stay shifts."""
    scaled = numbers / grid
    whole = np.floor(scaled)
    result: Integers = whole.astype(np.int64) + (scaled - whole >= 0.5)
    return result
