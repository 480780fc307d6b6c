"""Many mixtures of Gaussians at once: their losses on shared grids, and their sum."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from taut._base.arrays import Matrix, Vector
from taut.accounting import PrivacyLoss, from_profile

__all__ = ["composed_profile"]

_OUTPUTS = 3000  # cells of the outputs of a row; the error falls with the square
_LOSS_NODES = 2**16  # of the lattice of losses
_REACH = 9.0  # deviations of the outputs that are looked at; 1e-19 lies beyond
_ROWS_AT_ONCE = 128  # 64 megabytes of transforms
_KNOTS = 3000  # of the profile
# Of one transform, in the l2-norm, for every level of it; eight units leave room.
_TRANSFORM_ERROR = 8 * float(np.finfo(np.float64).eps)
_CELL_ERROR = 1e-14  # of P- and Q-masses of a row, in all: some units for every cell
_WIDEST_SUM = 400.0  # half of the lattice: thresholds beyond would leave the floats


def composed_profile(
    law: Matrix, shifts: Vector, infinite: float, delta: float, direction: str
) -> PrivacyLoss:
    """Return the loss of independent mixtures N(shift, 1), one for every row of ``law``.

    Args:
        law: probabilities of the shifts, shape (rows, len(shifts)); they may sum to less than one.
        shifts: values in units of the noise, from zero upwards.
        infinite: mass that is counted as betrayed.
        delta: where the profile is to be sharp.
        direction: "remove" or "add".
    """
    law = law[(law[:, 1:] > 0).any(axis=1)]
    losses, masses, cut = _row_losses(law, shifts, direction)
    if infinite + cut >= 1 or not np.isfinite(losses).all():
        return from_profile({-1.0: 1.0, 1.0: 1.0}, adjacency=direction)
    mean = float((losses * masses).sum())
    spread = math.sqrt(float((losses**2 * masses).sum()))
    largest = float(losses.max())
    half = min(12 * spread + 2 * largest, _WIDEST_SUM) + abs(mean)
    for _ in range(6):
        top = mean + half
        tail = _chernoff(losses, masses, top)
        if tail <= 1e-6 * delta:
            break
        half *= 1.5
    step = 2 * half / _LOSS_NODES
    whole = _convolved(losses, masses, step)
    low = round((mean - half) / step)
    nodes: Vector = step * (low + np.arange(_LOSS_NODES, dtype=np.float64))
    summed = np.roll(whole, -low)[:_LOSS_NODES]
    noise = law.shape[0] * _TRANSFORM_ERROR * math.log2(_LOSS_NODES) * math.sqrt(_LOSS_NODES)
    lost = infinite + cut + tail + noise + law.shape[0] * _CELL_ERROR
    return _as_loss(nodes, np.maximum(summed, 0.0), lost, direction)


def _row_losses(law: Matrix, shifts: Vector, direction: str) -> tuple[Matrix, Matrix, float]:
    """Return losses and P-masses at the edges of cells, and the mass that is cut above.

    In a cell both masses are kept by two atoms at its ends: a mean-preserving spread of exp(-L).
    """
    x = np.linspace(-_REACH, _REACH + float(shifts[-1]), _OUTPUTS)
    with np.errstate(over="ignore", under="ignore"):
        log_kernel = shifts[:, None] * x - shifts[:, None] ** 2 / 2
        peak = log_kernel.max(axis=0)
        log_ratio = np.log(law @ np.exp(log_kernel - peak)) + peak
    plain = _between(x, np.zeros(1))[0]
    mixed = law @ _between(x, shifts)
    if direction == "remove":
        losses, p, q = log_ratio, mixed, np.broadcast_to(plain, mixed.shape)
        below = law @ ndtr(x[0] - shifts)
        above = law @ ndtr(shifts - x[-1])
    else:
        losses = -log_ratio[:, ::-1]
        p, q = np.broadcast_to(plain[::-1], mixed.shape), mixed[:, ::-1]
        below, above = np.full(len(law), ndtr(-x[-1])), np.full(len(law), ndtr(x[0]))
    width = np.diff(losses, axis=1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        raised = (p - np.exp(losses[:, :-1]) * q) / -np.expm1(-width)
    raised = np.where(width > 1e-13, np.clip(np.nan_to_num(raised, nan=np.inf), 0.0, p), p)
    masses = np.zeros_like(losses)
    masses[:, 1:] += raised
    masses[:, :-1] += p - raised
    masses[:, 0] += below
    return losses, masses, float(above.sum())


def _between(x: Vector, shifts: Vector) -> Matrix:
    """Return normal masses of the cells between ``x`` around every shift, from the small side."""
    left, right = x[:-1] - shifts[:, None], x[1:] - shifts[:, None]
    over = left > 0
    masses: Matrix = ndtr(np.where(over, -left, right)) - ndtr(np.where(over, -right, left))
    return np.maximum(masses, 0.0)


def _chernoff(losses: Matrix, masses: Matrix, top: float) -> float:
    """Return a bound on the mass of the sum above ``top``."""
    best = 1.0
    variance = max(float((losses**2 * masses).sum()), 1e-300)
    for tilt in np.geomspace(0.1, 10.0, 12) * top / variance:
        with np.errstate(over="ignore"):
            logs = np.log((np.exp(tilt * losses) * masses).sum(axis=1)).sum()
        if np.isfinite(logs):
            best = min(best, math.exp(min(float(logs) - tilt * top, 0.0)))
    return best


def _convolved(losses: Matrix, masses: Matrix, step: float) -> Vector:
    """Return the masses of the sum on a circle of nodes; every loss is split between two."""
    product = np.ones(_LOSS_NODES // 2 + 1, dtype=np.complex128)
    for start in range(0, len(losses), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        low = np.floor(losses[some] / step)
        share = np.clip(np.expm1(low * step - losses[some]) / math.expm1(-step), 0.0, 1.0)
        index = low.astype(np.int64) % _LOSS_NODES
        base = np.arange(len(low))[:, None] * _LOSS_NODES
        flat = np.zeros(len(low) * _LOSS_NODES)
        for at, weight in ((index, 1 - share), ((index + 1) % _LOSS_NODES, share)):
            flat += np.bincount((base + at).ravel(), (masses[some] * weight).ravel(), flat.size)
        product *= np.prod(np.fft.rfft(flat.reshape(len(low), _LOSS_NODES)), axis=0)
    return np.fft.irfft(product, _LOSS_NODES)


def _as_loss(nodes: Vector, masses: Vector, lost: float, direction: str) -> PrivacyLoss:
    """Return the profile of losses on nodes by some of its points, of which the hull is taken."""
    above = np.cumsum(masses[::-1])[::-1]
    decay = np.cumsum((masses * np.exp(nodes[0] - nodes))[::-1])[::-1]
    at = np.unique(np.linspace(0, nodes.size - 1, _KNOTS).astype(np.int64))
    deltas = above[at] - np.exp(nodes[at] - nodes[0]) * decay[at] + lost
    deltas = np.clip(deltas * (1 + 1e-9), np.maximum(-np.expm1(nodes[at]), 0.0) + lost, 1.0)
    points = dict(zip(nodes[at].tolist(), np.minimum(deltas, 1.0).tolist(), strict=True))
    return from_profile(points, adjacency=direction)
