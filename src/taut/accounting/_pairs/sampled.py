"""Amplification by sampling: what a pair becomes when the mechanism sees a random sample.

Sampling acts on the loss by a monotone map and on the masses linearly, so it applies to every
family alike, and a narrow cell of the sampled loss is a well-conditioned cell of the base.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR, UP
from taut.accounting._adjacency import Half
from taut.accounting._pairs.discretisation import upper_masses
from taut.accounting._pairs.pair import Atoms, Cells, DerivedPair, Pair, Quadrature

__all__ = ["ReplaceSampledPair", "SampledPair"]

_INFINITE_LOSS = 1e300  # stands for infinity at an edge, and keeps differences of edges defined
_REPLACE_TAIL = 1e-60  # mass that moments under replace-one may miss: none of their digits
_REPLACE_NODES = 8192  # of those moments: cells of a 250th of a deviation, off by its square


@dataclass(frozen=True)
class SampledPair(DerivedPair):
    """A record takes part with probability ``rate``; one half of add/remove.

    With base pair (P, Q) of the same half, ``REMOVE`` becomes (rate P + (1 - rate) Q, Q) and
    ``ADD`` becomes (P, (1 - rate) P + rate Q) (Zhu, Dong and Wang 2022, Theorem 11, with the
    removal half corrected for asymmetric pairs; see docs/errata.md).

    **Guarantee**: Poisson sampling under add/remove or zero-out when ``base`` dominates under that
    relation; fixed-size subsets under add/remove when ``base`` dominates under replace-one.
    """

    rate: float
    half: Half
    stay: float | None = None
    """The probability of not taking part, where 1 - rate would lose its digits."""

    @property
    def _stay(self) -> float:
        return 1 - self.rate if self.stay is None else self.stay

    @property
    def _log_stay(self) -> float:
        return math.log1p(-self.rate) if self.stay is None else math.log(self.stay)

    @property
    def mass_inf(self) -> float:  # type: ignore[override]
        """Only the removal half keeps infinite losses: adding leaves the unsampled case."""
        return self.rate * self.base.mass_inf if self._removes else 0.0

    @property
    def mass_minus_inf(self) -> float:  # type: ignore[override]
        """The mirror image of ``mass_inf``."""
        return 0.0 if self._removes else self.rate * self.base.mass_minus_inf

    @property
    def profile_error(self) -> float:  # type: ignore[override]
        """The preimage of epsilon carries a rounding error of its own."""
        return 4 * self.base.profile_error

    @property
    def max_loss(self) -> float:
        """The image of the largest base loss, infinite ones included when adding."""
        if not self._removes and self.base.mass_inf:
            return -self._log_stay * UP
        most = self.base.max_loss
        if math.isinf(most):
            return most if self._removes else -self._log_stay * UP
        largest = float(self._forward(np.array(most)))
        return largest + RELATIVE_ERROR * abs(largest)

    def profile(self, epsilon: Vector) -> Vector:
        """Return the closed profile rule for one sampled release."""
        epsilon = np.asarray(epsilon, dtype=float)
        inner = self._backward(epsilon)
        with np.errstate(over="ignore", under="ignore"):
            value = self._surplus_factor(epsilon, inner) * self.base.profile(inner)
            return np.maximum(value, -np.expm1(epsilon))

    def grid(self, tail: float, size: int) -> Vector:
        """Return the image of the base grid, and of losses that were infinite."""
        inner = self._forward(self.base.grid(tail, size))
        if self._removes and self.base.mass_minus_inf:
            inner = np.append(inner, self._log_stay)
        if not self._removes and self.base.mass_inf:
            inner = np.append(inner, -self._log_stay)
        inner = np.unique(inner)
        if self.continuous:  # rounding must not push the ends of the support out of the grid
            inner[[0, -1]] += RELATIVE_ERROR * np.array([-1.0, 1.0]) * np.abs(inner[[0, -1]])
        return inner

    def atoms(self, tail: float) -> Atoms:
        """Return the images of the base atoms, and of the losses that were infinite."""
        losses, masses, q_masses = self.base.atoms(tail)
        rate, stay = self.rate, self._stay
        # (loss, P-mass, Q-mass) of outputs that only one of the base distributions produces.
        if self._removes:
            masses = rate * masses + stay * q_masses
            only = self.base.mass_minus_inf
            extra = self._log_stay, stay * only, only
        else:
            q_masses = stay * masses + rate * q_masses
            only = self.base.mass_inf
            extra = -self._log_stay, only, stay * only
        parts = [self._forward(losses), masses, q_masses]
        if only > 0:
            parts = [np.append(part, value) for part, value in zip(parts, extra, strict=True)]
            order = np.argsort(parts[0])
            parts = [part[order] for part in parts]
        return Atoms(*parts)

    def cells(self, edges: Vector) -> Cells:
        """Return the cells of the base at the preimages of ``edges``, mixed."""
        inner = self._backward(edges)
        mass, q_mass, surplus, error = self.base.cells(inner)
        with np.errstate(over="ignore", under="ignore"):
            factor = self._surplus_factor(edges[:-1], inner[:-1])
        surplus = factor * surplus
        if self._removes:
            # An edge below the smallest loss, log(1 - rate), has no preimage.
            below = np.maximum(-self._excess(np.minimum(edges[:-1], 0.0)), 0.0)
            surplus += below * q_mass
            mass = self.rate * mass + self._stay * q_mass
        else:
            q_mass = self._stay * mass + self.rate * q_mass
        return Cells(mass, q_mass, np.minimum(surplus, mass), factor * error)

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return the base nodes with mixed weights."""
        losses, log_weights = self.base.quadrature(tilt, frequency)
        if self._removes:
            log_weights = log_weights + np.logaddexp(math.log(self.rate), self._log_stay - losses)
            lost, at = self._stay * self.base.mass_minus_inf, self._log_stay
        else:
            lost, at = self.base.mass_inf, -self._log_stay
        losses = self._forward(losses)
        if lost > 0:
            return Quadrature(np.append(losses, at), np.append(log_weights, math.log(lost)))
        return Quadrature(losses, log_weights)

    def log_mgf(self, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the quadrature, infinite where an infinite moment of the base remains."""
        value = super().log_mgf(z)
        real = np.real(z)
        real = np.maximum(real, 0.0) if self._removes else np.minimum(real, 0.0)
        infinite = np.isinf(self.base.log_mgf(real.astype(np.complex128)).real)
        return np.where(infinite, complex(math.inf), value)

    @property
    def _removes(self) -> bool:
        return self.half is Half.REMOVE

    def _forward(self, losses: Vector) -> Vector:
        """Return the sampled loss of a base loss."""
        sign = 1.0 if self._removes else -1.0
        inner = sign * np.asarray(losses, dtype=float)
        moved = self.rate * np.expm1(np.minimum(inner, 700.0))
        result = np.log1p(np.maximum(moved, -0.5))
        # Near zero a plain logarithm would be off absolutely; far up this one overflows.
        low, far = moved <= -0.5, inner >= 700.0
        if low.any():
            down = np.exp(np.minimum(inner, 0.0))
            result = np.where(low, np.log(self._stay + self.rate * down), result)
        if far.any():
            result = np.where(
                far, np.logaddexp(self._log_stay, math.log(self.rate) + inner), result
            )
        return sign * result

    def _backward(self, losses: Vector) -> Vector:
        """Return the base loss of a sampled loss, far away where sampling bounds the loss."""
        sign = 1.0 if self._removes else -1.0
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            inner = np.log(np.maximum(self._excess(sign * losses), 0.0)) - math.log(self.rate)
        # Past the range of exp the map is a plain shift.
        inner = np.where(sign * losses > 700.0, sign * losses - math.log(self.rate), inner)
        return sign * np.maximum(inner, -_INFINITE_LOSS)

    def _excess(self, losses: Vector) -> Vector:
        """Return exp(loss) - (1 - rate), from whichever form keeps its digits."""
        return np.where(losses > -0.5, np.expm1(losses) + self.rate, np.exp(losses) - self._stay)

    def _surplus_factor(self, losses: Vector, inner: Vector) -> Vector:
        """Return the factor between the surplus of the base and of the sampled pair."""
        if self._removes:
            return np.full(losses.shape, self.rate)
        return self.rate * np.exp(np.minimum(losses - inner, 700.0))


@dataclass(frozen=True)
class ReplaceSampledPair(DerivedPair):
    """Fixed-size subsets under replace-one: profile rate h(1 + (t - 1)/rate) for t >= 1.

    Above zero the loss behaves like the removal half, below zero like the addition half, and what
    cannot matter collects in an atom at zero. ``base`` must be symmetric and dominate under
    replace-one (advanced joint convexity: Balle, Barthe and Gaboardi 2018, Theorem 10); the
    profile is extended below one by the swap rule, which makes it composable.
    """

    rate: float

    @property
    def _up(self) -> SampledPair:
        return SampledPair(self.base, self.rate, Half.REMOVE)

    @property
    def _down(self) -> SampledPair:
        return SampledPair(self.base, self.rate, Half.ADD)

    @property
    def mass_inf(self) -> float:  # type: ignore[override]
        """An infinite loss survives when the record is sampled."""
        return self.rate * self.base.mass_inf

    @property
    def mass_minus_inf(self) -> float:  # type: ignore[override]
        """Equal to ``mass_inf`` by symmetry."""
        return self.mass_inf

    @property
    def profile_error(self) -> float:  # type: ignore[override]
        """That of either half."""
        return self._up.profile_error

    @property
    def max_loss(self) -> float:
        """The image of the largest base loss."""
        return self._up.max_loss

    def profile(self, epsilon: Vector) -> Vector:
        """Return the amplified profile, by the swap rule for negative epsilon."""
        epsilon = np.asarray(epsilon, dtype=float)
        above = self._up.profile(np.abs(epsilon))
        with np.errstate(over="ignore"):
            swapped = -np.expm1(epsilon) + np.exp(np.minimum(epsilon, 0.0)) * above
        return np.where(epsilon >= 0, above, swapped)

    def grid(self, tail: float, size: int) -> Vector:
        """Return the positive part of one half, the negative part of the other, and zero."""
        up, down = self._up.grid(tail, size), self._down.grid(tail, size)
        return np.concatenate([down[down < 0], [0.0], up[up > 0]])

    def atoms(self, tail: float) -> Atoms:
        """Return the images of the base atoms and the atom at zero."""
        up, down = self._up.atoms(tail), self._down.atoms(tail)
        keep_up, keep_down = up.losses > 0, down.losses < 0
        rest = self.profile(np.zeros(1))[0] / self.rate * (1 - self.rate)
        base = self.base.atoms(tail)
        rest += base.masses[base.losses == 0].sum()
        middle = 0.0, rest, rest
        return Atoms(
            *(
                np.concatenate([low[keep_down], [value], high[keep_up]])
                for low, value, high in zip(down, middle, up, strict=True)
            )
        )

    def cells(self, edges: Vector) -> Cells:
        """Return the cells of one half above zero and of the other below."""
        cut = int(np.searchsorted(edges, 0.0))
        if cut in (0, edges.size) or edges[cut] == 0:
            return self._one_sided(edges, cut)
        # A cell that straddles zero is the union of its two sides.
        split = self._one_sided(np.insert(edges, cut, 0.0), cut)
        mass, q_mass = (np.delete(part, cut) for part in (split.mass, split.q_mass))
        mass[cut - 1] += split.mass[cut]
        q_mass[cut - 1] += split.q_mass[cut]
        surplus, error = (np.delete(part, cut) for part in (split.surplus, split.error))
        surplus[cut - 1] += split.surplus[cut] - np.expm1(edges[cut - 1]) * split.q_mass[cut]
        error[cut - 1] += split.error[cut]
        return Cells(mass, q_mass, np.minimum(surplus, mass), error)

    def _one_sided(self, edges: Vector, cut: int) -> Cells:
        parts = []
        if cut > 0:
            parts.append(self._down.cells(edges[: cut + 1]))
        if cut < edges.size - 1:
            parts.append(self._up.cells(edges[max(cut, 0) :]))
        return Cells(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return fine cells: the density jumps at zero, so no smooth rule fits."""
        edges = self.grid(_REPLACE_TAIL, _REPLACE_NODES)
        if edges.size == 1:  # a loss of one value: cells need two edges
            edges = np.append(edges, edges + 1.0)
        with np.errstate(divide="ignore"):
            return Quadrature(edges, np.log(upper_masses(self, edges, _REPLACE_TAIL)))

    def log_mgf(self, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the moment of the upper half, corrected below zero where losses are bounded.

        Large moments come from large losses, far beyond where masses underflow; there the loss is
        that of the upper half, which has a smooth rule. The pair is symmetric: K(z) = K(-1 - z).
        """
        z = np.asarray(z, dtype=np.complex128)
        z = np.where(z.real < -0.5, -1 - z, z)
        whole = self._up.log_mgf(z)
        edges = np.union1d(self.grid(_REPLACE_TAIL, _REPLACE_NODES), [0.0])
        below = edges[edges <= 0]
        correction = np.zeros(z.shape, dtype=np.complex128)
        for half, sign in ((self._down, 1.0), (self._up, -1.0)):
            correction += sign * _moment_below(half, below, z)
        at_zero = self.atoms(_REPLACE_TAIL)
        correction += at_zero.masses[at_zero.losses == 0].sum()
        with np.errstate(over="ignore", invalid="ignore"):
            value = whole + np.log1p(correction * np.exp(-whole))
        return np.where(np.isinf(whole.real), complex(math.inf), value)


def _moment_below(half: Pair, edges: Vector, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return E[exp(z L); L < 0] of ``half``, by the mean ratio in every cell."""
    total = np.zeros(z.shape, dtype=np.complex128)
    if edges.size > 1:
        mass, q_mass, _, _ = half.cells(edges)
        keep = (mass > 0) & (q_mass > 0)
        total += (mass[keep] * (mass[keep] / q_mass[keep]) ** z[..., None]).sum(axis=-1)
    atoms = half.atoms(_REPLACE_TAIL)
    keep = atoms.losses < 0
    total += (atoms.masses[keep] * np.exp(z[..., None] * atoms.losses[keep])).sum(axis=-1)
    return total
