"""Participation: in which steps one example may take part, when the order hides nothing."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from taut._base import validate
from taut._base.validate import PositiveInteger

__all__ = ["ONCE", "FixedOrder", "MinimumSeparation", "Participation", "SingleParticipation"]


@dataclass(frozen=True)
class Participation(ABC):
    """A public rule about the steps that one example takes part in.

    Rules are not samplers: who knows the steps of an example learns nothing that the loss does not
    cover. Samplers that hide them are `PoissonRounds`, `CyclicPoisson` and `BallsInBins`.
    """

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.fields(self)

    @abstractmethod
    def most(self, steps: int) -> int:
        """Return the largest number of steps, out of ``steps``, that one example can be in."""

    @abstractmethod
    def least_gap(self, steps: int) -> int:
        """Return the least distance of two steps of one example."""


@dataclass(frozen=True)
class SingleParticipation(Participation):
    """Every example takes part in at most one step: one pass over the data, or a stream."""

    def most(self, steps: int) -> int:
        """Return one."""
        return 1

    def least_gap(self, steps: int) -> int:
        """Return the number of steps: there is no second one."""
        return steps


@dataclass(frozen=True)
class _Apart(Participation):
    """Participations of an example are some number of steps apart."""

    separation: PositiveInteger

    def least_gap(self, steps: int) -> int:
        """Return the separation, which is the length of an epoch if the order is fixed."""
        return self.separation

    def _held(self, steps: int, most: int | None) -> int:
        held = -(-steps // self.separation)
        return held if most is None else min(most, held)


@dataclass(frozen=True)
class FixedOrder(_Apart):
    """Epochs in one fixed order: an example of step i takes part in i, i + b, i + 2 b, ... too.

    Attributes:
        separation: number of steps of an epoch, b.
        epochs: number of epochs, k; None for as many as the steps hold.
    """

    epochs: PositiveInteger | None = None

    def most(self, steps: int) -> int:
        """Return the number of epochs, begun ones included."""
        return self._held(steps, self.epochs)


@dataclass(frozen=True)
class MinimumSeparation(_Apart):
    """At least ``separation`` steps from one participation of an example to its next.

    Attributes:
        separation: least distance, b; 1 allows consecutive steps.
        participations: largest number of participations, k; None for as many as the steps hold.
    """

    participations: PositiveInteger | None = None

    def most(self, steps: int) -> int:
        """Return the largest number of participations that fit."""
        return self._held(steps, self.participations)


ONCE = SingleParticipation()
"""The rule unless another is given."""
