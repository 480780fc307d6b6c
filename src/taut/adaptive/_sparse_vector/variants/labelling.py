"""Labels for public points from an ensemble of models: only points without a consensus cost."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut.accounting import Adjacency, Ledger, PrivacyLoss, approximate, charge
from taut.adaptive._sparse_vector.design import SparseVectorDesign, check_noise
from taut.adaptive._sparse_vector.errors_at import false_below
from taut.adaptive._sparse_vector.mechanism import SparseVector
from taut.adaptive._sparse_vector.scalar_noise import ScalarNoise
from taut.noise import LInfBall, RandomSource
from taut.noise.recording import Release, released

__all__ = ["PrivateLabels"]

_ROUNDED_STEPS = 2  # by which rounding may move distance and threshold together
_HALVINGS = 80  # of an interval: to the last digits of a double
_SUM_ERROR = 2.0**-50  # relative: a margin that is added to a least value must reach the threshold
_ROUNDED_DOWN = 1 - 1e-9  # relative: scales that nearly agree cost a tail six of its digits


class PrivateLabels:
    """Releases the exact majority of models where it is stable, and nothing where it is not.

    Every record is seen by one model, so that it moves one vote. The distance of a vote to another
    majority is compared with a noisy threshold; only answers "unstable" cost.

    Args:
        teachers: number of models that vote.
        points: number of public points that are labelled, at most.
        unstable: number of points without a stable majority after which it ends.
        threshold_noise: noise on the threshold, in votes.
        query_noise: noise on the distance of every point, of the same kind.
        stability_delta: probability, over all points, that a label without stable majority is
            released.
        adjacency: relation under which one record changes one vote.
        budget: who keeps the budget, and is charged before anything else happens. It must take a
            chance of failure, which a `PrivacyFilter` does not: add `loss` to others by hand there.
        generator: source of randomness, by default the secure one.

    With normal noise the length needs no limit: distances are between 0 and half the teachers, so
    that the query, their negative, has a least value. The distances themselves are
    non-negative, but it is their negative that is asked about (docs/errata.md).

    **Guarantee**: the loss of the sparse vector, plus ``stability_delta`` (Bassily, Thakkar and
    Thakurta 2018; docs/sparse-vector.md).

    Raises:
        ValueError: for votes that do not add up to ``teachers``, and for noise of two kinds.
        BudgetExceeded: after the last unstable point, or the last point.

    Example:
        >>> from taut.adaptive import PrivateLabels, ScalarNoise
        >>> from taut.noise import SeededForExperiments
        >>> labels = PrivateLabels(
        ...     500, points=1000, unstable=5, threshold_noise=ScalarNoise("laplace", 4.0),
        ...     query_noise=ScalarNoise("laplace", 8.0), stability_delta=1e-6,
        ...     adjacency="replace", generator=SeededForExperiments(1),
        ... )
        >>> labels.label([480, 15, 5]), labels.label([170, 165, 165])
        (0, None)
    """

    def __init__(
        self,
        teachers: int,
        *,
        points: int,
        unstable: int,
        threshold_noise: ScalarNoise,
        query_noise: ScalarNoise,
        stability_delta: float,
        adjacency: Adjacency | str,
        budget: Ledger | None = None,
        generator: RandomSource | None = None,
    ) -> None:
        """Spend the loss, and draw the noise of the threshold."""
        self._teachers = validate.positive_integer(teachers=teachers)
        count = validate.positive_integer(points=points)
        chance = validate.below_one(stability_delta=stability_delta)
        if not chance > 0:
            raise ValueError("stability_delta must be greater than 0: no threshold is sure")
        check_noise(threshold_noise=threshold_noise, query_noise=query_noise)
        self.distance = _least_distance(threshold_noise, query_noise, chance / count)
        margin = None
        if threshold_noise.kind == query_noise.kind == "gaussian":
            half = self._teachers / 2
            margin = half - self.distance + (half + self.distance) * _SUM_ERROR
        self.design = SparseVectorDesign(
            threshold_noise, query_noise, 1.0, unstable, adjacency, count, margin=margin
        )
        self._source = generator
        self._each = chance / count
        relation = Adjacency(adjacency)
        self.loss: PrivacyLoss = self.design.loss + approximate(0.0, chance, adjacency=relation)
        charge(budget, self.loss)
        self._vector = SparseVector(
            self.design,
            threshold=-self.distance,
            least_value=None if margin is None else -self._teachers / 2,
            generator=generator,
        )

    @property
    def is_exhausted(self) -> bool:
        """Whether no further point is labelled."""
        return self._vector.is_exhausted

    def label(self, votes: ArrayLike) -> int | None:
        """Return the majority of the votes on a point, None if it is not stable.

        Args:
            votes: number of models for every class, at least two classes.
        """
        counts = self._checked(votes)
        first, second = np.sort(counts)[[-1, -2]]
        stable = max(0.0, math.ceil((first - second) / 2) - 1)
        if self._vector.ask(-stable):
            return None
        majority = int(counts.argmax())
        return released(lambda: majority, lambda: self._described(stable), self._source)

    def _described(self, stable: float) -> Release:
        relation = Adjacency(self.design.adjacency)
        # Beside the comparison, a label costs the chance that its distance is zero.
        costs = approximate(0.0, self._each, adjacency=relation)
        return Release(
            type(self).__name__,
            np.array([stable]),
            LInfBall(1, 1.0, adjacency=relation),
            {"distance": self.distance},
            loss=lambda: costs,
        )

    def _checked(self, votes: ArrayLike) -> Vector:
        counts = real_numbers(votes, "votes")
        whole = counts.ndim == 1 and counts.size >= 2
        if not (whole and (counts >= 0).all() and counts.sum() == self._teachers):
            raise ValueError(
                "votes must be a count for each of two or more classes, and add up to the number "
                f"of teachers, {self._teachers}"
            )
        return counts

    def __repr__(self) -> str:
        """Return what is public."""
        return f"<PrivateLabels of {self._teachers} teachers; {self._vector.tops_left} left>"


def _least_distance(threshold: ScalarNoise, query: ScalarNoise, chance: float) -> float:
    """Return the level that a distance of zero passes with at most a probability."""
    chance *= _ROUNDED_DOWN
    high = 1.0
    while false_below(threshold, query, high) > chance:
        high *= 2
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if false_below(threshold, query, middle) > chance else (low, middle)
        )
    # A grid step of a design of sensitivity one is 2^-10.
    return high + _ROUNDED_STEPS * 2.0**-10
