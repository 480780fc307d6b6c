"""Sums of releases: a multiset with its relation, a value that adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

from taut._base import validate
from taut.accounting._adjacency import Adjacency, Half, halves
from taut.accounting._engines.half_sum import HalfSum, merge_gaussians
from taut.accounting._releases.release import Release
from taut.accounting._releases.renyi_only import OneSided, RenyiOnly
from taut.accounting._releases.sampled import Joint
from taut.accounting._releases.sampled_renyi import JointRenyi
from taut.errors import AdjacencyMismatch

__all__ = ["ReleaseSum", "as_one"]

_SWAPPED = {Half.ADD: Half.REMOVE, Half.REMOVE: Half.ADD, Half.REPLACE: Half.REPLACE}


class ReleaseSum:
    """Releases with their counts, under one relation: an immutable, hashable value.

    What adds up here is what was released; what it costs is asked of a subclass.
    """

    __slots__ = ("_adjacency", "_collected", "_parts")

    _adjacency: Adjacency
    _collected: tuple[tuple[Release, int], ...]
    _parts: tuple[Self, Self] | None

    def __init__(
        self, terms: Iterable[tuple[Release, int]] = (), adjacency: Adjacency | str = "add_remove"
    ) -> None:
        """Collect ``terms``; the factories of the bank are the usual way to make a loss."""
        counts: Counter[Release] = Counter()
        relation = Adjacency(adjacency)
        for release, count in terms:
            release.check(relation)
            counts[release] += validate.integer(count=count)
        self._set(relation, _in_order(counts), None)

    def _set(
        self,
        adjacency: Adjacency,
        collected: tuple[tuple[Release, int], ...],
        parts: tuple[Self, Self] | None,
    ) -> None:
        object.__setattr__(self, "_adjacency", adjacency)
        object.__setattr__(self, "_collected", collected)
        object.__setattr__(self, "_parts", parts)

    @property
    def _terms(self) -> tuple[tuple[Release, int], ...]:
        """The distinct releases, collected when they are first asked for.

        Whoever adds up a thousand steps asks once, at the end: so that takes linear time. Only
        the left part of a sum is left uncollected, hence no loss is ever visited twice.
        """
        return self._gathered()._collected

    def _gathered(self) -> Self:
        """Return the sum itself, with its releases collected."""
        if self._parts is not None:
            counts: Counter[Release] = Counter()
            left: Self = self
            while (parts := left._parts) is not None:  # another thread may collect meanwhile
                left, right = parts
                counts.update(dict(right._collected))
            counts.update(dict(left._collected))
            self._set(self._adjacency, _in_order(counts), None)
        return self

    @property
    def _is_zero(self) -> bool:
        return self._parts is None and not self._collected

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: a loss is a value."""
        raise AttributeError(f"{type(self).__name__} is immutable; cannot set {name!r}")

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        """Let losses be copied and pickled."""
        return type(self), (self._terms, self._adjacency)

    # --- the algebra ---------------------------------------------------------------------------

    def __add__(self, other: object) -> Self:
        """Return the loss of both releases together; adaptive composition is allowed."""
        if not isinstance(other, type(self)):
            return NotImplemented
        if other._is_zero:
            return self
        if self._is_zero:
            return other
        if self._adjacency is not other._adjacency:
            raise AdjacencyMismatch(
                f"cannot add a loss for adjacency={str(self._adjacency)!r} to one for "
                f"{str(other._adjacency)!r}; make both for the same relation, "
                "for example with adjacency=... in the factory"
            )
        total = type(self).__new__(type(self))
        total._set(self._adjacency, (), (self, other._gathered()))
        return total

    def __radd__(self, other: object) -> Self:
        """Let ``sum`` start from the integer zero."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    __array_ufunc__ = None  # an array times a loss is refused here, not made an array of losses

    def __mul__(self, count: object) -> Self:
        """Return the loss of ``count`` repetitions."""
        repeats = validate.integer(count=count)
        return type(self)(((p, n * repeats) for p, n in self._terms), self._adjacency)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        """Compare the multisets; two zero losses are equal."""
        if not isinstance(other, ReleaseSum):
            return NotImplemented
        if not self._terms and not other._terms:
            return True
        return (self._adjacency, self._terms) == (other._adjacency, other._terms)

    def __hash__(self) -> int:
        """Hash the multiset."""
        return hash((self._adjacency, self._terms)) if self._terms else hash(())

    def __repr__(self) -> str:
        """Return the sum as one would write it."""
        parts = [f"{n} * {p}" if n > 1 else str(p) for p, n in self._terms]
        return f"<{type(self).__name__} {' + '.join(parts) or 'zero'}; adjacency={self._adjacency}>"

    # --- in one direction ----------------------------------------------------------------------

    def _sums(self, *, swap: bool = False) -> list[HalfSum]:
        """Return the sum in every direction of the relation (or in the opposite directions)."""
        directions = halves(self._adjacency)
        if swap:
            directions = tuple(_SWAPPED[half] for half in directions)
        return [self._sum(half) for half in directions]

    def _sum(self, half: Half) -> HalfSum:
        """Return the sum in one direction: pairs, and curves where there are none.

        Some releases have a pair that serves them alone and curves that serve sums.
        """
        alone = len(self._terms) == 1 and self._terms[0][1] == 1
        curves, pairs = [], []
        for release, count in self._terms:
            if isinstance(release, RenyiOnly) and not (alone and release.has_pair):
                curves.append((OneSided(release, half), count))
            else:
                pairs.append((release.pair(half), count))
        return merge_gaussians(half, pairs, curves)


def _in_order(counts: Counter[Release]) -> tuple[tuple[Release, int], ...]:
    """Return the releases that occur, in an order that does not depend on how they were added."""
    kept = ((release, validate.integer(count=n)) for release, n in counts.items() if n)
    return tuple(sorted(kept, key=lambda term: repr(term[0])))


def as_one(terms: Sequence[tuple[Release, int]]) -> Release | None:
    """Return the whole sum as one release that a sampler can act on, None if it is zero."""
    if not terms:
        return None
    if len(terms) == 1 and terms[0][1] == 1:
        return terms[0][0]
    releases, counts = zip(*terms, strict=True)
    if any(isinstance(release, RenyiOnly) for release in releases):
        return JointRenyi(releases, counts)
    return Joint(releases, counts)
