"""Which examples belong to whom: what a step looks at of every owner that it draws.

Who owns what is as private as the examples: it is kept in this process, and gets into no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource
from taut.training._plan.owners import Owners
from taut.training._sampling.sampling import Indices
from taut.training._tensors.processes import Processes

__all__ = ["OwnedExamples", "WithOwners"]

_GAPS = frozenset({"nan", "None", "<NA>", "NaT"})
"""What gaps of a column are called once it was made strings: nobody's name."""

_ONE_OWNER = (
    "an example that belongs to several owners would be in the vectors of all of them, and the "
    "noise hides one: give it to one of them if it says nothing about the others, merge owners who "
    "share examples into one, or leave it out"
)


_WITHOUT = "examples without an owner are left out, or have a name of their own each"


class OwnedExamples:
    """The examples of every owner, from one name of an owner for each example.

    Args:
        owners: names, integers or strings, in the order of the dataset. Which numbers or words they
            are is of no matter; examples with the same one belong together.
        examples: number of examples in the dataset.
        each: how many examples of an owner a step looks at.

    Raises:
        ValueError: if there is not one name for each example.
        TypeError: if names are no integers or strings.
        UnsoundConfiguration: for examples with several owners.
    """

    def __init__(self, owners: Any, examples: int, each: int) -> None:
        names = _names(owners)
        if len(names) != examples:
            raise ValueError(
                f"owners must name one owner for each of {examples} examples, in their order, got "
                f"{len(names)} names; owners of a part of a dataset are those of its examples"
            )
        self.each = validate.positive_integer(examples_each=each)
        _, numbers = np.unique(names, return_inverse=True)
        sizes = np.bincount(numbers)
        self._order: Indices = np.argsort(numbers, kind="stable").astype(np.int64)
        self._ends = np.concatenate([[0], np.cumsum(sizes)])
        self.count = len(sizes)
        """How many owners there are."""
        self._numbers = numbers

    def check_same(self, processes: Processes) -> None:
        """Refuse processes that do not agree on which examples belong together.

        An owner would have several numbers, could be drawn by several processes in one step, and
        would add a vector in each.

        Raises:
            UnsoundConfiguration: if they do not.
        """
        own = sha256(self._numbers.astype("<i8").tobytes()).digest()
        if any(other != own for other in processes.gathered(own)):
            raise UnsoundConfiguration(
                "owners must be the same in all processes, which draw from one numbering of them; "
                "give every process all names, in the order of one dataset"
            )

    @classmethod
    def of(cls, unit: Owners | None, owners: Any, examples: int) -> OwnedExamples | None:
        """Return the examples by owner that a plan asks for, None if it is about examples.

        Raises:
            UnsoundConfiguration: if owners are given without need, or needed and not given.
        """
        if unit is None and owners is None:
            return None
        if unit is None:
            raise UnsoundConfiguration(
                "owners are given, but the plan samples, clips and protects single examples; make "
                "it with unit=Owners(count, examples_each=...)"
            )
        if owners is None:
            raise UnsoundConfiguration(
                f"the plan is for {unit.count} owners, and who owns which example was not said; "
                "give owners=, one name for each example, in the order of the dataset"
            )
        return cls(owners, examples, unit.examples_each)

    def rows(self, drawn: Indices, source: RandomSource) -> Indices:
        """Return the examples of some owners that a step looks at, of shape (owners, each).

        Args:
            drawn: numbers of the owners.
            source: where choices come from, anew in every call.

        With m examples and `each` = q m + r, an owner has all of them q times, and r different ones
        once more, which are drawn uniformly: each example has the same expected share.
        """
        found = np.empty((len(drawn), self.each), dtype=np.int64)
        for row, owner in zip(found, drawn, strict=True):
            own = self._order[self._ends[owner] : self._ends[owner + 1]]
            times, more = divmod(self.each, len(own))
            row[: times * len(own)] = np.tile(own, times)
            row[times * len(own) :] = own[_some(len(own), more, source)]
        return found

    def first_rows(self, owners: int) -> Indices:
        """Return examples of a few owners from all over, by which nothing is drawn."""
        numbers = np.linspace(0, self.count - 1, min(owners, self.count)).astype(np.int64)
        starts, sizes = self._ends[numbers], np.diff(self._ends)[numbers]
        places = starts[:, None] + np.arange(self.each) % sizes[:, None]
        return self._order[places]


class WithOwners:
    """A dataset with the names of owners beside its examples, for those who compare datasets.

    Args:
        dataset: dataset with `__len__` and `__getitem__`.
        owners: names of the owners, in its order.
    """

    def __init__(self, dataset: Any, owners: Any) -> None:
        self._dataset = dataset
        self._names = _names(owners)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, place: int) -> tuple[str, Any]:
        return str(self._names[place]), self._dataset[place]


def _some(count: int, wanted: int, source: RandomSource) -> NDArray[np.int64]:
    """Return so many different numbers below `count`, every set of them equally likely."""
    if wanted == 0:
        return np.empty(0, dtype=np.int64)
    # The first places of a shuffle by exact draws (Fisher and Yates): only what is moved is kept.
    moved: dict[int, int] = {}
    found = []
    for i in range(wanted):
        j = i + int(source.uniform_below(count - i, 1)[0])
        found.append(moved.get(j, j))
        moved[j] = moved.get(i, i)
    return np.array(found, dtype=np.int64)


def _names(owners: Any) -> NDArray[Any]:
    """Return names as an array of integers or of strings."""
    if isinstance(owners, Tensor):
        owners = owners.detach().cpu().numpy()
    if not isinstance(owners, np.ndarray) and hasattr(owners, "to_numpy"):
        owners = owners.to_numpy()  # a column of a table
    if isinstance(owners, str | bytes) or not isinstance(owners, np.ndarray | Sequence):
        raise validate.WrongType(
            f"owners must be an array or a list of names, got {type(owners).__name__}"
        )
    if isinstance(owners, np.ndarray) and owners.ndim != 1:
        raise UnsoundConfiguration(
            f"owners must have one axis, that of examples, got shape {owners.shape}; {_ONE_OWNER}"
        )
    if isinstance(owners, np.ma.MaskedArray) and np.ma.getmaskarray(owners).any():
        raise ValueError(f"owners hold gaps, by their mask; {_WITHOUT}")
    if not isinstance(owners, np.ndarray) or owners.dtype == object:
        return _of_objects(list(owners))
    if owners.dtype.kind in "iu":
        return owners
    if owners.dtype.kind == "U":
        return _without_gaps(owners)
    raise validate.WrongType(
        f"owners must be integers or strings, got an array of {owners.dtype}: numbers with a point "
        f"cannot be told from rounded ones, and stand for gaps as NaN; {_WITHOUT}"
    )


def _of_objects(items: list[Any]) -> NDArray[Any]:
    if any(isinstance(item, list | tuple | set | frozenset | np.ndarray) for item in items):
        raise UnsoundConfiguration(f"an example has several owners; {_ONE_OWNER}")
    names = np.empty(len(items), dtype=object)  # other types round large numbers, and cut strings
    if all(isinstance(item, str) for item in items):
        names[:] = [str(item) for item in items]
        return _without_gaps(names)
    if all(isinstance(item, int | np.integer) and not isinstance(item, bool) for item in items):
        names[:] = [int(item) for item in items]
        return names
    kinds = sorted({type(item).__name__ for item in items})
    raise validate.WrongType(
        f"owners must all be integers, or all strings, got {', '.join(kinds)}; {_WITHOUT}"
    )


def _without_gaps(names: NDArray[Any]) -> NDArray[Any]:
    if any(not name.strip() for name in names):
        raise ValueError(f"owners hold empty names; {_WITHOUT}")
    if gaps := _GAPS.intersection(np.unique(names).tolist()):
        raise ValueError(
            f"owners hold {sorted(gaps)}, which is what gaps become as strings, and would make one "
            f"owner of all who have none; {_WITHOUT}"
        )
    return names
