"""A pair of histograms whose bars are blurred into each other: what rounds down without waste.

Rounding a loss down to a lattice merges mass from both sides of a node, which works well for
densities and badly for atoms that fall anywhere between the nodes. Spreading every bar over the
gaps to its neighbours, by a triangular kernel, is a randomised post-processing of the output. So
the blurred pair is one that the release really reaches, and it has a density.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._pairs.pair import Atoms, Cells, Pair, Quadrature, gauss_rule

__all__ = ["SmoothPair"]

# In a gap the densities are lines, so moments of their ratio are smooth: 16 nodes are exact for
# polynomials of degree 31. Such pairs serve lower bounds by their cells, which need no quadrature.
_GAP_NODES, _GAP_WEIGHTS = gauss_rule(16)


Indices = NDArray[np.int64]


class _Gaps(NamedTuple):
    """Gaps between neighbouring bars, oriented so that the loss grows from a to b, shape (n,).

    Both densities are linear in between, from the height of one bar to that of the other.
    """

    p_a: Vector
    p_b: Vector
    loss_a: Vector
    loss_b: Vector


@dataclass(frozen=True)
class SmoothPair(Pair):
    """Bars of P-mass ``p`` and Q-mass ``q``, each spread evenly into the gaps beside it.

    Half of a bar stays an atom next to an empty bar, or next to one of the same loss.
    ``mass_minus_inf`` is the Q-mass outside of the bars.
    """

    p: tuple[float, ...]
    q: tuple[float, ...]
    mass_inf: float = 0.0
    mass_minus_inf: float = 0.0

    @cached_property
    def _bars(self) -> tuple[Vector, Vector]:
        p, q = np.array([0.0, *self.p, 0.0]), np.array([0.0, *self.q, 0.0])
        empty = (p <= 0) | (q <= 0)
        return np.where(empty, 0.0, p), np.where(empty, 0.0, q)

    @cached_property
    def _losses(self) -> Vector:
        p, q = self._bars
        return np.log(np.where(p > 0, p, 1.0) / np.where(p > 0, q, 1.0))

    @cached_property
    def _gaps(self) -> _Gaps:
        p, _ = self._bars
        differ = self._losses[:-1] != self._losses[1:]
        full = np.flatnonzero((p[:-1] > 0) & (p[1:] > 0) & differ)
        rises = self._losses[full] < self._losses[full + 1]
        a, b = np.where(rises, full, full + 1), np.where(rises, full + 1, full)
        return _Gaps(p[a], p[b], self._losses[a], self._losses[b])

    @cached_property
    def _atoms(self) -> Atoms:
        p, q = self._bars
        # Between equal losses, or next to nothing, blurring changes nothing.
        still = (self._losses[:-1] == self._losses[1:]) | (p[:-1] == 0) | (p[1:] == 0)
        beside = still[:-1].astype(float) + still[1:].astype(float)
        at = np.flatnonzero((p[1:-1] > 0) & (beside > 0)) + 1
        at = at[np.argsort(self._losses[at], kind="stable")]
        share = beside[at - 1] / 2
        return Atoms(self._losses[at], share * p[at], share * q[at])

    @property
    def max_loss(self) -> float:
        """The largest ratio of two bars."""
        p, _ = self._bars
        return float(np.max(self._losses[p > 0], initial=0.0))

    def profile(self, epsilon: Vector) -> Vector:
        """Return the integral of (p - exp(e) q)_+, which is piecewise quadratic."""
        epsilon = np.asarray(epsilon, dtype=float)
        at = epsilon[..., None]
        gaps, atoms = self._gaps, self._atoms
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            low = -gaps.p_a * np.expm1(np.minimum(at - gaps.loss_a, 700.0))
            high = -gaps.p_b * np.expm1(np.minimum(at - gaps.loss_b, 700.0))
            part = np.where(high > 0, high**2 / (2 * (high - np.minimum(low, 0.0))), 0.0)
            value = np.where(low > 0, (low + high) / 2, part).sum(axis=-1)
            value = value - (atoms.masses * np.expm1(np.minimum(at - atoms.losses, 0.0))).sum(-1)
            bounded: Vector = np.maximum(value + self.mass_inf, -np.expm1(epsilon))
        return bounded

    def grid(self, tail: float, size: int) -> Vector:
        """Return losses of the bars, thinned to about ``size``, without negligible ends."""
        p, q = self._bars
        order = np.argsort(self._losses[p > 0], kind="stable")
        losses, p, q = self._losses[p > 0][order], p[p > 0][order], q[q > 0][order]
        first = int(np.searchsorted(np.cumsum(np.maximum(p, q)), tail / 2))
        last = losses.size - int(np.searchsorted(np.cumsum(p[::-1]), tail / 2))
        kept = losses[max(first - 1, 0) : max(last + 1, first + 1)]
        return np.unique(kept[np.linspace(0, kept.size - 1, min(size, kept.size)).astype(int)])

    def atoms(self, tail: float) -> Atoms:
        """Return what blurring leaves where it is."""
        return self._atoms

    def cells(self, edges: Vector) -> Cells:
        """Return exact integrals of the linear densities over the pieces that edges cut."""
        gap, cell, low, high = self._pieces(edges)
        p_a, p_b, loss_a, loss_b = (part[gap] for part in self._gaps)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            start, stop = (_place(at, p_a, p_b, loss_a, loss_b) for at in (low, high))
            p_low, p_high = p_a + start * (p_b - p_a), p_a + stop * (p_b - p_a)
            width = np.maximum(stop - start, 0.0) / 2
            # p - exp(edge) q at either end, where q = p exp(-loss).
            edge = edges[cell]
            surplus = -(p_low * np.expm1(edge - low) + p_high * np.expm1(edge - high)) * width
            mass = (p_low + p_high) * width
            q_mass = (p_low * np.exp(-low) + p_high * np.exp(-high)) * width
        count = edges.size - 1
        total, q_total, excess = (
            np.bincount(cell, part, count).astype(np.float64) for part in (mass, q_mass, surplus)
        )
        error = 64 * RELATIVE_ERROR * (excess + total * np.diff(edges))
        return Cells(total, q_total, excess, error)

    def _pieces(self, edges: Vector) -> tuple[Indices, Indices, Vector, Vector]:
        """Return gap, cell, lowest and highest loss of every piece of a gap within one cell."""
        loss_a, loss_b = self._gaps.loss_a, self._gaps.loss_b
        first = np.searchsorted(edges, loss_a, side="right") - 1
        last = np.maximum(np.searchsorted(edges, loss_b, side="left") - 1, first)
        pieces = last - first + 1
        gap = np.repeat(np.arange(loss_a.size), pieces)
        cell = np.arange(gap.size) - np.repeat(np.cumsum(pieces) - pieces - first, pieces)
        inside = (cell >= 0) & (cell < edges.size - 1)
        gap, cell = gap[inside], cell[inside]
        low = np.maximum(edges[cell], loss_a[gap])
        return gap, cell, low, np.minimum(edges[cell + 1], loss_b[gap])

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return the atoms and Gauss-Legendre nodes in every gap."""
        gaps, atoms = self._gaps, self._atoms
        p = gaps.p_a[:, None] + _GAP_NODES * (gaps.p_b - gaps.p_a)[:, None]
        q_a, q_b = gaps.p_a * np.exp(-gaps.loss_a), gaps.p_b * np.exp(-gaps.loss_b)
        q = q_a[:, None] + _GAP_NODES * (q_b - q_a)[:, None]
        losses, weights = np.log(p / q).ravel(), (p * _GAP_WEIGHTS).ravel()
        return Quadrature(np.append(losses, atoms.losses), np.log(np.append(weights, atoms.masses)))


def _place(at: Vector, p_a: Vector, p_b: Vector, loss_a: Vector, loss_b: Vector) -> Vector:
    """Return where in a gap, from 0 to 1, the loss is ``at``: p = exp(at) q there."""
    above = p_a * np.expm1(np.maximum(at - loss_a, 0.0))
    below = -p_b * np.expm1(np.minimum(at - loss_b, 0.0))
    total = above + below
    share = np.where(total > 0, above / np.where(total > 0, total, 1.0), 0.0)
    return np.where(at >= loss_b, 1.0, share)
