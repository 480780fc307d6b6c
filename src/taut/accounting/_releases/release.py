"""What a release is: a frozen description that knows its mathematics and no engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._pairs.pair import Pair
from taut.errors import UnsoundConfiguration

__all__ = [
    "Base",
    "FixedSizeSample",
    "PoissonSample",
    "Release",
    "Several",
    "refuse_batches",
    "refuse_sampled_exchange",
]


@dataclass(frozen=True)
class Release(ABC):
    """One release, described by its parameters.

    Every class that sets `kind` is found again by it, so that JSON needs no list of classes.
    """

    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Release]]] = {}

    caveat: ClassVar[str] = ""
    """What the guarantee rests on beyond published proofs, if anything."""

    no_exchange: ClassVar[str] = ""
    """Why {kind} has no pair under replace-one, and the way out; empty where it has one."""

    draws_batches: ClassVar[bool] = False
    """Whether the release draws a batch of fixed size from the records it is given."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "kind" in vars(cls):
            Release._kinds[cls.kind] = cls

    def __post_init__(self) -> None:
        """Check every parameter against the domain that its annotation names, then all of them."""
        validate.fields(self)
        self.check_fields()

    def check_fields(self) -> None:
        """Raise for parameters that do not fit together."""
        return

    @staticmethod
    def kinds() -> Mapping[str, type[Release]]:
        """Return the class of every kind of release."""
        return Release._kinds

    @abstractmethod
    def pair(self, half: Half) -> Pair:
        """Return the pair that dominates this release in the direction ``half``."""

    def check(self, adjacency: Adjacency) -> None:
        """Raise ``UnsoundConfiguration`` if no pair is known under ``adjacency``."""
        if self.no_exchange and adjacency is Adjacency.REPLACE:
            raise UnsoundConfiguration(self.no_exchange.format(kind=self.kind))

    @property
    def contains_batches(self) -> bool:
        """Whether the release, or one inside of it, draws a batch of fixed size."""
        values = [getattr(self, field.name) for field in fields(self)]
        items = [item for v in values for item in (v if isinstance(v, tuple) else (v,))]
        inside = [item for item in items if isinstance(item, Release)]
        return self.draws_batches or any(release.contains_batches for release in inside)

    def known_divergences(self, half: Half, orders: Vector) -> Vector | None:
        """Return bounds on Renyi divergences that are better than those of the pair, if any."""
        return None

    def sampled(self, rate: float) -> Release | None:
        """Return this release on a Poisson sample, if it knows better than the general theorem."""
        return None

    def __str__(self) -> str:
        """Return the call that makes this release."""
        inside = ", ".join(f"{field.name}={getattr(self, field.name):g}" for field in fields(self))
        return f"{self.kind}({inside})"


def _release(**argument: object) -> None:
    ((name, value),) = argument.items()
    if not isinstance(value, Release):
        raise ValueError(f"{name} must be a release, got {name}={value!r}")


Base = Annotated[Release, _release]
"""The domain of a field that holds another release."""


def refuse_batches(release: Release) -> None:
    """Refuse to sample what draws batches of fixed size itself: no theorem covers it."""
    if release.contains_batches:
        raise UnsoundConfiguration(
            "sampling of fixed_size has no theorem: the population of the batch is random then. "
            f"In {release}: use one sampler, poisson(rate) or fixed_size(batch_size, population)"
        )


def refuse_sampled_exchange(release: Release, rate: float, adjacency: Adjacency) -> None:
    """Refuse replace-one where a record may not be in the sample; without one it is covered."""
    if adjacency is Adjacency.REPLACE and rate < 1:
        raise UnsoundConfiguration(
            f"{release.kind} with rate < 1 is proven for add/remove and zero-out, this loss is "
            "for adjacency='replace'. Declare it with adjacency='add_remove', or use rate=1"
        )


class PoissonSample(Release):
    """``base`` on a sample of each record by itself: how it is called, whatever is known of it."""

    base: Release
    rate: float

    def __str__(self) -> str:
        """Return the call chain."""
        return f"{self.base}.poisson(rate={self.rate:g})"


class FixedSizeSample(Release):
    """``base`` on a uniformly random subset: how it is called, whatever is known of it."""

    draws_batches = True
    base: Release
    batch_size: int
    population: int

    def check_fields(self) -> None:
        """Check that a batch fits into the population."""
        validate.positive_integer(batch_size=self.batch_size)
        validate.positive_integer(population=self.population)
        if self.batch_size > self.population:
            raise ValueError(
                f"batch_size must not exceed population, got batch_size={self.batch_size}, "
                f"population={self.population}"
            )

    def __str__(self) -> str:
        """Return the call chain."""
        return f"{self.base}.fixed_size({self.batch_size}, {self.population})"


class Several(Release):
    """Several releases that look at one sample of the records: one release for a sampler."""

    releases: tuple[Release, ...]
    counts: tuple[int, ...]

    def check_fields(self) -> None:
        """Check the parameters."""
        if not self.releases or len(self.releases) != len(self.counts):
            raise ValueError("a joint release needs as many counts as releases, at least one")
        for release, count in zip(self.releases, self.counts, strict=True):
            if not isinstance(release, Release):
                raise ValueError(f"releases must be releases, got release={release!r}")
            validate.positive_integer(count=count)

    def check(self, adjacency: Adjacency) -> None:
        """Every release must be known under the relation."""
        for release in self.releases:
            release.check(adjacency)

    def __str__(self) -> str:
        """Return the sum in parentheses."""
        terms = zip(self.releases, self.counts, strict=True)
        return "(" + " + ".join(f"{n} * {r}" if n > 1 else str(r) for r, n in terms) + ")"
