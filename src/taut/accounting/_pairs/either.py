"""One of two pairs, chosen by a coin that is seen: what a case distinction amounts to."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut.accounting._pairs.pair import Atoms, Cells, Pair, Quadrature, taken_from

__all__ = ["EitherPair"]


@dataclass(frozen=True)
class EitherPair(Pair):
    """The pair ``usual`` with probability ``stay``, or ``other`` with probability ``share``.

    All that is known of a pair is linear in this mixture. The probabilities may add up to a little
    more than one, which raises the profile of every sum. ``inside`` is a pair that some release
    reaches.
    """

    usual: Pair
    other: Pair
    stay: float
    share: float
    inside: Pair
    tight = False
    attained = taken_from("inside")

    @property
    def _parts(self) -> tuple[tuple[Pair, float], tuple[Pair, float]]:
        return (self.usual, self.stay), (self.other, self.share)

    @property
    def mass_inf(self) -> float:  # type: ignore[override]
        """A mixture."""
        return min(sum(weight * pair.mass_inf for pair, weight in self._parts), 1.0)

    @property
    def mass_minus_inf(self) -> float:  # type: ignore[override]
        """A mixture."""
        return min(sum(weight * pair.mass_minus_inf for pair, weight in self._parts), 1.0)

    @property
    def continuous(self) -> bool:  # type: ignore[override]
        """Whether either is."""
        return self.usual.continuous or self.other.continuous

    @property
    def profile_error(self) -> float:  # type: ignore[override]
        """The larger of both, and one more operation."""
        return 2 * max(pair.profile_error for pair, _ in self._parts)

    @property
    def loss_error(self) -> float:  # type: ignore[override]
        """The larger of both."""
        return max(pair.loss_error for pair, _ in self._parts)

    @property
    def max_loss(self) -> float:
        """The larger of both."""
        return max(pair.max_loss for pair, _ in self._parts)

    def profile(self, epsilon: Vector) -> Vector:
        """Return the mixture of the profiles."""
        value: Vector = self.stay * self.usual.profile(epsilon)
        return np.minimum(value + self.share * self.other.profile(epsilon), 1.0)

    def grid(self, tail: float, size: int) -> Vector:
        """Return the nodes of both."""
        return np.union1d(self.usual.grid(tail, size), self.other.grid(tail, size))

    def atoms(self, tail: float) -> Atoms:
        """Return the atoms of both, in order."""
        found = [(pair.atoms(tail), weight) for pair, weight in self._parts]
        losses = np.concatenate([atoms.losses for atoms, _ in found])
        masses = np.concatenate([weight * atoms.masses for atoms, weight in found])
        q_masses = np.concatenate([weight * atoms.q_masses for atoms, weight in found])
        order = np.argsort(losses, kind="stable")
        return Atoms(losses[order], masses[order], q_masses[order])

    def cells(self, edges: Vector) -> Cells:
        """Return the mixture of the cells."""
        usual, other = self.usual.cells(edges), self.other.cells(edges)
        return Cells(*(self.stay * a + self.share * b for a, b in zip(usual, other, strict=True)))

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return the nodes of both."""
        rules = [(pair.quadrature(tilt, frequency), weight) for pair, weight in self._parts]
        return Quadrature(
            np.concatenate([rule.losses for rule, _ in rules]),
            np.concatenate([rule.log_weights + math.log(weight) for rule, weight in rules]),
        )

    def log_mgf(self, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the logarithm of the mixture of the moments."""
        usual, other = (pair.log_mgf(z) + math.log(weight) for pair, weight in self._parts)
        infinite = np.isinf(usual.real) & (usual.real > 0) | np.isinf(other.real) & (other.real > 0)
        with np.errstate(invalid="ignore", over="ignore"):
            swap = other.real > usual.real
            high, low = np.where(swap, other, usual), np.where(swap, usual, other)
            value = high + np.log1p(np.exp(low - high))
        return np.where(infinite, complex(math.inf), value)
