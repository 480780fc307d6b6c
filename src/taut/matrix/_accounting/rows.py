"""Many mixtures of Gaussians at once: their losses on shared grids, and their sum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from taut._base.arrays import Matrix, Vector
from taut.accounting import PrivacyLoss, from_profile

__all__ = ["composed_profile"]

_OUTPUTS = 2000  # cells of the outputs of a row; the error falls with the square
# Of the lattice of losses: m rows on N nodes raise the variance of their sum by 150 m / N^2.
_FEW_NODES, _MANY_NODES, _FEW_ROWS = 2**14, 2**16, 512
_REACH = 9.0  # deviations of the outputs that are looked at, at least; 1e-19 lies beyond
_CUT_TAILS = 1e-6  # of delta: tails that are cut and counted as betrayed
_ROWS_AT_ONCE = 64  # 64 megabytes of transforms
_ROW_KNOTS = 1200  # of the profile: chords between them cost 2e-5 of epsilon
_TWO_ROUNDINGS = float(np.finfo(np.float64).eps)  # twice the relative error of one operation
# Of one transform, relative, in the l2-norm, for every level of it. Each level adds less than 4
# units to radix-two transforms (Higham 2002, Theorem 24.2); eight leave room.
_TRANSFORM_ERROR = 8 * _TWO_ROUNDINGS
# Of the masses of a cell and of a node of the lattice, relative: tails of the normal law are known
# to 4e-13 as far out as floats reach, and cells are no narrower than 0.009, so that differences of
# tails lose three digits at most.
_CELL_ERROR = 1e-11
_WIDEST_SUM = 600.0  # between ends of the lattice: exp of it must not leave the floats
# Of sums over the lattice, relative: every one of 2^16 positive terms is rounded once or twice.
_RISEN_FACTOR = 1 + 1e-10
_LARGEST_KNOT = 499.0  # epsilon of a profile that may still be given


@dataclass(frozen=True)
class _Atoms:
    """Losses of rows on atoms, each row several times, and what was cut.

    Attributes:
        losses: shape (rows, atoms).
        masses: P-masses, shape (rows, atoms).
        counts: how often a row is there, shape (rows,).
        cut: mass of outputs above all atoms, over all rows.
    """

    losses: Matrix
    masses: Matrix
    counts: Vector
    cut: float

    def moments(self) -> tuple[float, float]:
        """Return mean and standard deviation of the sum."""
        mean = (self.losses * self.masses).sum(axis=1)
        variance = (self.losses**2 * self.masses).sum(axis=1) - mean**2
        return float(self.counts @ mean), math.sqrt(
            max(float(self.counts @ np.maximum(variance, 0.0)), _LEAST_VARIANCE)
        )

    def cumulant(self, tilt: float) -> float:
        """Return the logarithm of E exp(tilt L) of the sum, as good as floats have it."""
        with np.errstate(over="ignore"):
            rows = np.einsum("ij,ij->i", np.exp(tilt * self.losses), self.masses)
        return float(self.counts @ np.log(rows))


_LEAST_VARIANCE = 1e-200  # of a sum that is next to nothing: its root must not be zero


def composed_profile(
    law: Matrix, counts: Vector, shifts: Vector, infinite: float, delta: float, direction: str
) -> PrivacyLoss:
    """Return the loss of independent mixtures N(shift, 1), ``counts`` of every row of ``law``.

    Every step is a mean-preserving spread of exp(-L), or is paid for: masses that are cut count as
    betrayed, relative errors of densities move epsilon (docs/theory/amplified.md, arithmetic).

    Args:
        law: probabilities of the shifts, shape (rows, len(shifts)); they may sum to less than one.
        counts: how often each row is there, shape (rows,).
        shifts: values in units of the noise, from zero upwards.
        infinite: mass that is counted as betrayed.
        delta: where the profile is to be sharp.
        direction: "remove" or "add".
    """
    some = (law[:, 1:] > 0).any(axis=1)
    seen = np.append(True, (law[:, 1:] > 0).any(axis=0))
    law, shifts = law[:, seen], shifts[seen]
    total = float(counts[some].sum())
    atoms = _row_atoms(law[some], counts[some], shifts, delta / max(total, 1.0), direction)
    lost = infinite + atoms.cut
    if lost >= 1 or not np.isfinite(atoms.losses).all():
        return _nothing(direction)
    if total == 0:
        return from_profile({-1.0: 1.0, 0.0: min(lost, 1.0)}, adjacency=direction)
    mean, spread = atoms.moments()
    tilt, cumulant = _best_tilt(atoms, spread, delta)
    top = (cumulant - math.log(_CUT_TAILS * delta)) / tilt
    bottom = mean - 8 * spread
    top = min(max(top, bottom + spread), bottom + _WIDEST_SUM)
    size = _FEW_NODES if total <= _FEW_ROWS else _MANY_NODES
    step = (top - bottom) / (size - 2)
    nodes: Vector = step * (math.floor(bottom / step) + np.arange(size, dtype=np.float64))
    slack = _CELL_ERROR * total
    deltas = np.minimum(_deltas(atoms, nodes, step, tilt), 1.0)
    deltas = np.clip(deltas * (1 + slack) + lost, np.maximum(-np.expm1(nodes), 0.0) + lost, 1.0)
    return _as_loss(nodes + slack, deltas, direction)


_LARGEST_EXPONENT = 600.0  # of one tilted atom: exp of it must not leave the floats
_LEAST_TILT = 20.0  # 1 / delta from which masses are tilted as for it; every tilt is sound


def _best_tilt(atoms: _Atoms, spread: float, delta: float) -> tuple[float, float]:
    """Return a tilt near the one that makes Chernoff's epsilon the least, and its cumulant.

    It is that of a normal law, or less where losses have a long tail.
    """
    tilt = math.sqrt(2 * math.log(max(1 / delta, _LEAST_TILT))) / spread
    tilt = min(tilt, _LARGEST_EXPONENT / max(float(atoms.losses.max()), _LEAST_VARIANCE))
    best, found = math.inf, (tilt, 0.0)
    while True:
        cumulant = atoms.cumulant(tilt)
        value = (cumulant - math.log(delta)) / tilt
        if value >= best:
            return found
        best, found = value, (tilt, cumulant)
        tilt /= 1.5


def _nothing(direction: str) -> PrivacyLoss:
    """Return the loss of which nothing is known."""
    return from_profile({-1.0: 1.0, 1.0: 1.0}, adjacency=direction)


def _row_atoms(law: Matrix, counts: Vector, shifts: Vector, share: float, direction: str) -> _Atoms:
    """Return two atoms for every cell of outputs, at its ends, that keep both of its masses.

    The ends are moved apart by what the computed losses may be off.
    """
    reach = max(_REACH, -float(ndtri(_CUT_TAILS * share)))
    x = np.linspace(-reach, reach + float(shifts[-1]), _OUTPUTS)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        log_kernel = shifts[:, None] * x - shifts[:, None] ** 2 / 2
        peak = log_kernel.max(axis=0)
        log_ratio = np.log(law @ np.exp(log_kernel - peak)) + peak
    off = _TWO_ROUNDINGS * (8 * np.abs(log_kernel).max(axis=0) + shifts.size + 16)
    plain = _between(x, np.zeros(1))[0]
    mixed = law @ _between(x, shifts)
    if direction == "remove":
        losses, p, q = log_ratio, mixed, np.broadcast_to(plain, mixed.shape)
        below = law @ ndtr(x[0] - shifts)
        above = law @ ndtr(shifts - x[-1])
    else:
        losses, off = -log_ratio[:, ::-1], off[::-1]
        p, q = np.broadcast_to(plain[::-1], mixed.shape), mixed[:, ::-1]
        below, above = np.full(len(law), ndtr(-x[-1])), np.full(len(law), ndtr(x[0]))
    low, high = losses[:, :-1] - off[:-1], losses[:, 1:] + off[1:]
    with np.errstate(over="ignore", invalid="ignore"):
        raised = (p - np.exp(low) * q) / -np.expm1(-np.maximum(high - low, _TWO_ROUNDINGS))
    raised = np.clip(np.nan_to_num(raised, nan=np.inf), 0.0, p)
    kept = p - raised
    kept[:, 0] += below
    cut = float(counts @ above) * (1 + 1e-9)
    return _Atoms(np.hstack([low, high]), np.hstack([kept, raised]), counts, cut)


def _between(x: Vector, shifts: Vector) -> Matrix:
    """Return normal masses of the cells between ``x`` around every shift, from the small side."""
    at = x - shifts[:, None]
    over = at[:, :-1] > 0
    # One tail of every edge, and the other one where a cell has its edges on both sides of zero.
    tail = ndtr(-np.abs(at))
    lower, upper = tail[:, :-1], tail[:, 1:]
    across = ~over & (at[:, 1:] > 0)
    masses: Matrix = np.where(
        over, lower - upper, np.where(across, 1 - lower - upper, upper - lower)
    )
    return np.maximum(masses, 0.0)


def _deltas(atoms: _Atoms, nodes: Vector, step: float, tilt: float) -> Vector:
    """Return bounds on delta at all nodes, from masses that were tilted by exp(tilt L).

    What lies above the lattice is bounded by Chernoff's inequality, on the lattice itself, and
    counted as betrayed; what lies below it comes back at its top, which only costs.
    """
    size = nodes.size
    product = np.ones(size // 2 + 1, dtype=np.complex128)
    scale = 0.0
    for start in range(0, len(atoms.losses), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        flat, logs = _on_lattice(atoms.losses[some], atoms.masses[some], step, tilt, size)
        scale += float(atoms.counts[some] @ logs)
        for row, count in zip(np.fft.rfft(flat), atoms.counts[some].tolist(), strict=True):
            product *= row if count == 1 else row**count
    low = round(float(nodes[0]) / step)
    tilted = np.maximum(np.roll(np.fft.irfft(product, size), -low), 0.0)
    lost = math.exp(min(scale - tilt * float(nodes[-1]), 0.0)) * (1 + 1e-9)
    copies = float(atoms.counts.sum()) + 1
    noise = copies * _TRANSFORM_ERROR * math.log2(size)
    # By the inequality of Cauchy and Schwarz: the l2-norm of what the error is multiplied by.
    norm = min(1 / math.sqrt(-math.expm1(-2 * tilt * step)), math.sqrt(size))
    # delta(L_k) = delta(L_{k+1}) + (1 - exp(-step)) sum of m_i exp(L_{k+1} - L_i): no differences.
    with np.errstate(over="ignore", invalid="ignore"):
        weight = np.exp(np.minimum(scale - tilt * nodes, _LARGEST_EXPONENT))
        decaying = tilted * weight * np.exp(nodes[0] - nodes)
        decayed = np.cumsum(decaying[::-1])[::-1] * np.exp(nodes - nodes[0])
        risen = np.append(decayed[1:], 0.0) * -math.expm1(-step)
        summed = np.cumsum(risen[::-1])[::-1] * _RISEN_FACTOR
    missed = noise * weight * norm
    return np.nan_to_num(summed, nan=math.inf) + missed + lost


def _on_lattice(
    losses: Matrix, masses: Matrix, step: float, tilt: float, size: int
) -> tuple[Matrix, Vector]:
    """Return tilted masses on a circle of nodes, with sum one, and logarithms of their scales.

    Every loss is split between two nodes, such that both masses are kept.
    """
    rows = len(losses)
    low = np.floor(losses / step)
    share = np.clip(np.expm1(low * step - losses) / math.expm1(-step), 0.0, 1.0)
    weighted = masses * np.exp(tilt * low * step)
    upper, lower = weighted * share * math.exp(tilt * step), weighted * (1 - share)
    total = lower.sum(axis=1) + upper.sum(axis=1)
    index = low.astype(np.int64) % size
    base = np.arange(rows)[:, None] * size
    flat = np.zeros(rows * size)
    for at, part in ((index, lower), ((index + 1) % size, upper)):
        flat += np.bincount((base + at).ravel(), (part / total[:, None]).ravel(), flat.size)
    return flat.reshape(rows, size), np.log(total)


def _as_loss(epsilons: Vector, deltas: Vector, direction: str) -> PrivacyLoss:
    """Return a profile by some of its points, of which the hull is taken."""
    at = np.unique(np.linspace(0, epsilons.size - 1, _ROW_KNOTS).astype(np.int64))
    at = at[np.abs(epsilons[at]) <= _LARGEST_KNOT]
    points = dict(zip(epsilons[at].tolist(), deltas[at].tolist(), strict=True))
    points[-_LARGEST_KNOT] = 1.0
    return from_profile(points, adjacency=direction)
