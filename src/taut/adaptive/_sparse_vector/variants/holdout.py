"""A holdout set that can be asked again and again: guesses are checked, wrong ones are answered."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from taut._base import validate
from taut._base.arrays import numbers_or_missing
from taut.accounting import Adjacency, PrivacyFilter, PrivacyLoss
from taut.adaptive._sparse_vector.design import SparseVectorDesign
from taut.adaptive._sparse_vector.mechanism import SparseVector
from taut.adaptive._sparse_vector.scalar_noise import ScalarNoise
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource, grid_gaussian

__all__ = ["CheckedGuess", "ReusableHoldout"]

# Absolute: two means below one, each summed, divided and subtracted from with one rounding.
_MEAN_ERROR = 2.0**-50
_SPLITS = np.geomspace(1e-5, 0.5, 12)  # what parts of a failure may cost in accuracy; any is sound


class CheckedGuess(NamedTuple):
    """An answer of a holdout set: the guess itself if it was near, else a noisy mean."""

    answer: float
    was_near: bool


class ReusableHoldout:
    """Checks guesses about means over a holdout set, and answers the wrong ones.

    An analyst who knows the training set guesses; only wrong guesses cost. So a few answers last
    for very many questions, whatever is asked next.

    Args:
        size: number of records of the holdout set, public.
        threshold: distance beyond which a guess is wrong, with noise.
        noise: scale of the Laplace noise on the threshold, in the units of the mean; queries
            have twice as much.
        answer_sigma: standard deviation of the normal noise on answers.
        tops: number of wrong guesses that are answered.
        adjacency: relation under which the number of records stays as it is: ``"replace"`` or
            ``"zero_out"``.
        most_queries: number of questions after which it ends, None for any number.
        budget: filter from which the loss is taken before anything else happens.
        generator: source of randomness, by default the secure one.

    **Guarantee**: `loss` for all answers together: a sparse vector on the distance of guesses, and
    ``tops`` means with normal noise on a grid (Zhu 2023, section 7.3.1).

    Example:
        >>> import numpy as np
        >>> from taut.adaptive import ReusableHoldout
        >>> from taut.noise import SeededForExperiments
        >>> holdout = ReusableHoldout(
        ...     10_000, threshold=0.05, noise=0.005, answer_sigma=0.005, tops=10,
        ...     adjacency="replace", generator=SeededForExperiments(1),
        ... )
        >>> correct = np.arange(10_000) % 4 > 0  # of a classifier, on every record
        >>> holdout.check(0.74, correct).was_near, holdout.check(0.4, correct).was_near
        (True, False)
    """

    def __init__(
        self,
        size: int,
        *,
        threshold: float,
        noise: float,
        answer_sigma: float,
        tops: int,
        adjacency: Adjacency | str,
        most_queries: int | None = None,
        budget: PrivacyFilter | None = None,
        generator: RandomSource | None = None,
    ) -> None:
        """Spend the loss, and draw the noise of the threshold."""
        self._size = validate.positive_integer(size=size)
        relation = Adjacency(adjacency)
        if relation not in (Adjacency.REPLACE, Adjacency.ZERO_OUT):
            raise UnsoundConfiguration(
                "a mean divides by the number of records, which must not change: use "
                f"adjacency='replace' or 'zero_out', got {str(relation)!r}"
            )
        self.threshold = validate.positive(threshold=threshold)
        moved = 1 / self._size + _MEAN_ERROR
        scale = validate.positive(noise=noise)
        self.design = SparseVectorDesign(
            ScalarNoise("laplace", scale),
            ScalarNoise("laplace", 2 * scale),
            moved,
            tops,
            relation,
            most_queries,
        )
        self._answers = grid_gaussian(answer_sigma, moved, adjacency=relation, generator=generator)
        self.loss: PrivacyLoss = self.design.loss + self.design.tops * self._answers.loss
        if budget is not None:
            budget.spend(self.loss)
        self._vector = SparseVector(self.design, threshold=self.threshold, generator=generator)

    @property
    def is_exhausted(self) -> bool:
        """Whether no further guess is checked."""
        return self._vector.is_exhausted

    def check(self, guess: float, statistics: ArrayLike) -> CheckedGuess:
        """Return the guess if it is near the mean of the holdout set, else a noisy mean.

        Args:
            guess: number in [0, 1], made without the holdout set.
            statistics: one number in [0, 1] for every record; others are cut, NaN and missing
                ones count as 0.

        Raises:
            ValueError: for a guess outside of [0, 1], or another number of records.
            BudgetExceeded: after the last wrong guess, or the last question.
        """
        near = validate.probability(guess=guess)
        mean = self._mean(statistics)
        if not self._vector.ask(abs(mean - near)):
            return CheckedGuess(near, was_near=True)
        noisy = float(self._answers.release([mean])[0])
        return CheckedGuess(min(max(noisy, 0.0), 1.0), was_near=False)

    def accuracy(self, queries: int, failure: float) -> float:
        """Return how far answers are from means over the *population*, at most.

        Args:
            queries: number of questions.
            failure: probability that one of the answers is further away.

        **Guarantee**: for records drawn independently, by transfer from the holdout set to the
        population: error alpha + exp(epsilon) - 1 + c + 2 d with probability 1 - beta/c -
        delta/d (Jung et al. 2020). Infinite or above one where nothing is promised.
        """
        asked = validate.positive_integer(queries=queries)
        chance = validate.probability(failure=failure)
        if not chance > 0:
            raise ValueError(f"failure must be greater than 0, got failure={failure!r}")
        of_sample = min(
            (self._sample_error(asked, c * chance / 2) + c for c in _SPLITS), default=math.inf
        )
        of_transfer = min(
            math.expm1(self.loss.epsilon(float(d * chance / 2))) + 2 * d for d in _SPLITS
        )
        return float(of_sample + of_transfer)

    def _sample_error(self, queries: int, failure: float) -> float:
        """Return how far answers are from means over the holdout set, but for a probability."""
        part, scale = failure / 3, self.design.threshold_noise.scale
        far = self.threshold + scale * math.log(0.5 / part)
        far += 2 * scale * math.log(max(0.5 * queries / part, 1.0))
        answered = -self._answers.sigma * float(ndtri(0.5 * part / self.design.tops))
        return max(far, answered) + 2 * self._answers.grid

    def _mean(self, statistics: ArrayLike) -> float:
        rows: ArrayLike = statistics
        if not isinstance(statistics, list | tuple):
            array = np.asanyarray(statistics)  # masks stay
            rows = array.astype(float) if array.dtype.kind == "b" else array
        numbers = numbers_or_missing(rows, "statistics")
        if numbers.shape != (self._size,):
            raise ValueError(
                f"statistics must have one number for each of {self._size} records, got shape "
                f"{numbers.shape}"
            )
        # NaN fails both comparisons, and becomes 0.
        cut = np.where(numbers >= 1, 1.0, np.where(numbers > 0, numbers, 0.0))
        return math.fsum(cut) / self._size

    def __repr__(self) -> str:
        """Return what is public."""
        return f"<ReusableHoldout of {self._size} records; {self._vector.tops_left} answers left>"
