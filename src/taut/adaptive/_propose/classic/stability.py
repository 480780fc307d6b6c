"""Exact answers that no record changes: the most frequent value, and whatever else is stable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut.accounting import Adjacency, PrivacyLoss
from taut.adaptive._propose.boundary import asked
from taut.adaptive._propose.distance_test import DistanceTest
from taut.adaptive._propose.outcome import Outcome
from taut.adaptive._secret import Secret
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource

__all__ = ["StableMode", "StableRelease", "counted", "lead_of"]

_D = TypeVar("_D")
_T = TypeVar("_T")
_MOST_COUNT = 2**63 - 1  # the largest of 64 bits with a sign
_ONE_LOOK = (str, int, bool, bytes)  # types whose equal values look the same


@dataclass(frozen=True)
class StableRelease(Generic[_D, _T]):
    """An exact answer, if it takes several records to change it; else a refusal.

    Args:
        answer: function of the data: what is wanted.
        distance: function of the data: the number of records that must change before there is a
            neighbour with another answer; 0 if there is one now. Smaller distances are sound.
        test: what is spent to find out.

    **Guarantee**: `loss`, that of the test, for its adjacency, if distances of neighbours differ by
    at most one and data at distance 1 or more have the answer of all their neighbours (Thakurta
    and Smith 2013; docs/theory/propose-test-release.md). Functions that raise, or return a distance
    that is none, count as distance 0: nothing of what they raise is seen.

    Example:
        >>> from taut.adaptive import DistanceTest, StableRelease
        >>> test = DistanceTest(epsilon=1.0, delta=1e-6, adjacency="add_remove")
        >>> most = StableRelease(
        ...     answer=lambda votes: sum(votes) > 0,
        ...     distance=lambda votes: max(abs(sum(votes)) - 1, 0),
        ...     test=test,
        ... )
        >>> most.release([1] * 80 + [-1] * 20).value
        True
    """

    answer: Callable[[_D], _T]
    distance: Callable[[_D], int | float]
    test: DistanceTest

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name in ("answer", "distance"):
            if not callable(getattr(self, name)):
                raise validate.WrongType(f"{name} must be a function of the data")
        if not isinstance(self.test, DistanceTest):
            raise validate.WrongType(f"test must be a DistanceTest, got test={self.test!r}")

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release, refused or not."""
        return self.test.loss

    def release(self, data: _D, generator: RandomSource | None = None) -> Outcome[_T]:
        """Return the answer, or a refusal.

        Args:
            data: dataset that both functions are asked about.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class.
        """
        found = asked(lambda: (self.answer(data), asked(self.distance, data)))
        answer, distance = (None, 0) if found is None else found
        if not self.test.passes(Secret(distance), generator) or found is None:
            return Outcome(False, None, self.loss)
        return Outcome(True, answer, self.loss)


@dataclass(frozen=True)
class StableMode:
    """The most frequent value, exactly, if it leads by enough records; else a refusal.

    Args:
        test: what is spent to find out, for add/remove or replace-one neighbours.

    Values need not be known in advance; 1, 1.0 and True are three of them. One record that is added
    or removed moves the lead by at most one, one that is replaced by at most two.

    **Guarantee**: `loss`, that of the test, for its adjacency (Thakurta and Smith 2013).

    Raises:
        UnsoundConfiguration: for a test with another relation.

    Example:
        >>> from taut.adaptive import DistanceTest, StableMode
        >>> mode = StableMode(DistanceTest(epsilon=1.0, delta=1e-6, adjacency="replace"))
        >>> mode.release(["red"] * 90 + ["blue"] * 10).value
        'red'
    """

    test: DistanceTest

    def __post_init__(self) -> None:
        """Check the relation."""
        lead_of(self.test)

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release, refused or not."""
        return self.test.loss

    def distance(self, counts: ArrayLike) -> Secret[int]:
        """Return how many records must change before one more could change the winner.

        Args:
            counts: number of records for every value, one value at least.
        """
        return Secret(self._distance(_counts(counts)))

    def release(
        self, data: Iterable[Hashable], generator: RandomSource | None = None
    ) -> Outcome[Any]:
        """Return the most frequent value, or a refusal.

        Args:
            data: one value per record.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class.
        """
        found = counted(data)
        winner = max(found, key=found.__getitem__, default=(None,))[-1]
        steps = self._distance(np.array([*found.values()], dtype=np.int64))
        return self._outcome(winner, steps, generator)

    def release_counts(
        self, counts: ArrayLike, generator: RandomSource | None = None
    ) -> Outcome[int]:
        """Return the place of the largest count, or a refusal.

        Args:
            counts: number of records for every value of a public list; every record is in one.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class.

        Raises:
            ValueError: if ``counts`` is no vector of whole numbers of at least 0.
        """
        numbers = _counts(counts)
        return self._outcome(int(numbers.argmax()), self._distance(numbers), generator)

    def _distance(self, counts: np.ndarray[Any, np.dtype[np.int64]]) -> int:
        second, first = (
            int(count) for count in sorted([0, 0, *counts.tolist()])[-2:]
        )  # a value that nobody has counts as well
        return max(-(-(first - second) // lead_of(self.test)) - 1, 0)

    def _outcome(self, winner: Any, steps: int, generator: RandomSource | None) -> Outcome[Any]:
        if self.test.passes(Secret(steps), generator):
            return Outcome(True, winner, self.loss)
        return Outcome(False, None, self.loss)


def lead_of(test: DistanceTest) -> int:
    """Return by how much one record moves the difference of two counts."""
    if not isinstance(test, DistanceTest):
        raise validate.WrongType(f"test must be a DistanceTest, got test={test!r}")
    if test.adjacency is Adjacency.REPLACE:
        return 2
    if test.adjacency is Adjacency.ADD_REMOVE:
        return 1
    raise UnsoundConfiguration(
        f"test must be for adjacency='add_remove' or 'replace', got {str(test.adjacency)!r}"
    )


def counted(data: Iterable[Hashable]) -> Counter[tuple[type, str, Any]]:
    """Return how many records have every value; numbers of an array become those of Python.

    Values that are equal but do not look the same, as 1, 1.0 and True, count apart: of one that
    stands for all, the look would be that of a single record. Records that are no values, since
    they have no hash, count for none: an error would tell.

    Returns:
        Counts by type, look and value; what is released is the value.

    Raises:
        ValueError: for an array, tensor or table with rows.
    """
    axes = len(getattr(data, "shape", (0,)))
    if axes != 1:
        raise ValueError(f"data must have one value per record, got an array of {axes} axes")
    # Entries of a tensor are tensors, of which no two are equal to a counter.
    values = data.tolist() if hasattr(data, "tolist") else data
    found: Counter[tuple[type, str, Any]] = Counter()
    for value in values:
        with suppress(Exception):
            look = "" if type(value) in _ONE_LOOK else repr(value)
            found[type(value), look, value] += 1
    return found


def _counts(counts: ArrayLike) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers = np.asarray(counts)
    is_row = numbers.ndim == 1 and numbers.size > 0 and numbers.dtype.kind in "iu"
    if not is_row or (numbers < 0).any():
        raise ValueError(
            "counts must be a vector of whole numbers of at least 0, one for every value"
        )
    # Larger unsigned counts would turn negative; cut, none moves further than before.
    wide = np.minimum(numbers.astype(np.uint64), np.uint64(_MOST_COUNT))
    return wide.astype(np.int64)
