"""Any mechanism, if the data are far from those at which it would cost too much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Literal, TypeVar

from taut._base import validate
from taut.accounting import PrivacyLoss
from taut.adaptive._propose.boundary import asked, distance_of, loss_of
from taut.adaptive._propose.distance_test import DistanceTest
from taut.adaptive._propose.general.losses import behind_distance, checked_within, point_of
from taut.adaptive._propose.outcome import Outcome
from taut.adaptive._secret import Secret
from taut.noise import RandomSource

__all__ = ["ProposedRelease", "made"]

_D = TypeVar("_D")
_T = TypeVar("_T")


@dataclass(frozen=True)
class ProposedRelease(Generic[_D, _T]):
    """A mechanism, if the data are far from all at which its loss exceeds a bound; else a refusal.

    Args:
        mechanism: function of the data that draws its own noise and returns what is published.
        within: loss that it has at the data wherever the proposal holds.
        test: what is spent to find out.
        distance: function of the data: the number of records that must change before the proposal
            is violated, 0 if it is now. Give this or ``losses``.
        losses: function of the data and an integer d: a bound on the loss at all data within d
            records of these, so that losses(neighbour, d) <= losses(data, d + 1).
        limit: largest loss that ``losses`` may say; by default the epsilon of ``within``.
        direction: ``"forward"`` if the bound is only on the divergence from the data at hand to a
            neighbour, as many published ones are; ``"both"`` if on either.

    **Guarantee**: `loss`, for the adjacency of the test, if distances of neighbours differ by at
    most one and, at data of distance 1 or more, the mechanism by itself costs at most ``within``
    (docs/theory/propose-test-release.md, which also corrects and tightens Zhu 2023, Theorem 6.4.3).
    Functions that raise, or say what is neither a distance nor a loss, count as a violation: a
    refusal, at the same price, and nothing of what they raise is seen. `check_distance` and
    `check_losses` look at pairs that were made up.

    Raises:
        ValueError: if not exactly one of ``distance`` and ``losses`` is given, or no limit is.
        UnsoundConfiguration: for a bound in one direction that has no form which composes.

    Example:
        >>> import taut
        >>> from taut.adaptive import DistanceTest, ProposedRelease
        >>> from taut.noise import discrete_laplace_noise
        >>> proposal = ProposedRelease(
        ...     mechanism=lambda votes: int(sum(votes) + discrete_laplace_noise(2)[0] > 0),
        ...     within=taut.approximate(0.1, 1e-6),
        ...     test=DistanceTest(epsilon=0.5, delta=1e-6, adjacency="add_remove"),
        ...     losses=lambda votes, d: 0.0 if abs(sum(votes)) - d > 40 else float("inf"),
        ... )
        >>> proposal.release([1] * 300 + [-1] * 100).value
        1
        >>> round(proposal.loss.epsilon(delta=1e-6), 6)
        0.6
    """

    mechanism: Callable[[_D], _T]
    within: PrivacyLoss
    test: DistanceTest
    distance: Callable[[_D], int | float] | None = None
    losses: Callable[[_D, int], float] | None = None
    limit: float | None = None
    direction: Literal["both", "forward"] = "both"

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not isinstance(self.test, DistanceTest):
            raise validate.WrongType(f"test must be a DistanceTest, got test={self.test!r}")
        checked_within(self.within, self.test.adjacency, self.direction)
        if (self.distance is None) == (self.losses is None):
            raise ValueError("give exactly one of distance and losses, got both or none")
        if not callable(self.mechanism) or not callable(self.distance or self.losses):
            raise validate.WrongType("mechanism, distance and losses must be functions of the data")
        if self.distance is not None and self.limit is not None:
            raise ValueError("limit is what losses are compared with; leave it out with distance")
        if self.losses is not None:
            self._most  # noqa: B018  # refused here if there is none
        self.loss  # noqa: B018  # directions without a form that composes are refused here

    @cached_property
    def _most(self) -> float:
        if self.limit is not None:
            return validate.non_negative(limit=self.limit)
        point = point_of(self.within)
        if point is None:
            raise ValueError("limit must be given: within has no single epsilon to compare with")
        return point[0]

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release, refused or not."""
        return behind_distance(self.test, self.within, self.direction)

    def release(self, data: _D, generator: RandomSource | None = None) -> Outcome[_T]:
        """Return what the mechanism releases, or a refusal.

        Args:
            data: dataset that all functions are asked about.
            generator: source of the noise of the test, by default the secure generator.

        **Guarantee**: that of the class.
        """
        if not self.test.passes(Secret(self._distance(data)), generator):
            return Outcome(False, None, self.loss)
        return made(lambda: self.mechanism(data), self.loss)

    def _distance(self, data: _D) -> int:
        if self.distance is not None:
            return distance_of(asked(self.distance, data), self.test.cap)
        losses = self.losses
        assert losses is not None
        # One after the other: a search by halves would need losses that rise with the distance.
        for d in range(self.test.cap):
            if loss_of(asked(losses, data, d)) > self._most:
                return d
        return self.test.cap


def made(mechanism: Callable[[], _T], loss: PrivacyLoss) -> Outcome[_T]:
    """Return what a mechanism releases; that it raises tells about the data, and is a refusal."""
    found = asked(lambda: (mechanism(),))
    return Outcome(False, None, loss) if found is None else Outcome(True, found[0], loss)
