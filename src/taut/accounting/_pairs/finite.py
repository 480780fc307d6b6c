"""Pairs with countably many outcomes, and pairs with a chance of total failure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR, UP
from taut.accounting._pairs.pair import Atoms, Cells, DerivedPair, Pair, Quadrature, taken_from

__all__ = [
    "DiscreteGaussianPair",
    "FailingPair",
    "FinitePair",
    "any_of",
    "binary_pair",
    "discrete_laplace_pair",
    "finite_pair",
    "sum_of_finite",
]

Complex = NDArray[np.complex128]

_MOST_OUTCOMES = 2_000_000  # of integer noise: 16 megabytes a vector; coarser units need fewer
_ALL_OUTCOMES = 1e-320  # mass beyond which integers are left out: floats hold hardly less
_FEW_OUTCOMES = 64  # whose sum at thousands of contour nodes is as quick as a formula
_PROFILE_BLOCK = 64  # thresholds that share what lies above all of them
# Relative, of log1p((p - q) / q) for p >= q / 2: a subtraction, a quotient and a logarithm, each
# within a unit in the last place, and the logarithm magnifies the error of its argument by no more
# than 1 / log(2), as log(p / q) does for smaller p.
_LOSS_ERROR = 4 * float(np.finfo(np.float64).eps)
_MOST_SUM_OUTCOMES = 20_000  # of an exact sum: with more, a lattice answers sooner
_MOST_COPIES = 128  # of one loss; logarithms of larger factorials are too coarse


@dataclass(frozen=True)
class FinitePair(Pair):
    """Finitely many losses with P-masses exp(log_masses), and ``mass_inf`` at infinity.

    ``magnitude`` bounds the numbers that were added up to a loss, for its rounding error.
    """

    losses: tuple[float, ...]
    log_masses: tuple[float, ...]
    mass_inf: float = 0.0
    mass_minus_inf: float = 0.0
    magnitude: float = 0.0
    continuous = False

    def swapped(self) -> FinitePair:
        """Return the pair (Q, P)."""
        losses, log_masses = self._arrays
        return FinitePair(
            tuple((-losses[::-1]).tolist()),
            tuple((log_masses - losses)[::-1].tolist()),
            self.mass_minus_inf,
            self.mass_inf,
        )

    @property
    def closed_form(self) -> bool:  # type: ignore[override]
        """A sum over few outcomes counts as a closed form."""
        return len(self.losses) <= _FEW_OUTCOMES

    @property
    def loss_error(self) -> float:  # type: ignore[override]
        """Rounding of a sum is relative to its largest parts."""
        return RELATIVE_ERROR * self.magnitude

    @cached_property
    def _arrays(self) -> tuple[Vector, Vector]:
        return np.array(self.losses), np.array(self.log_masses)

    @property
    def max_loss(self) -> float:
        """The largest loss with positive mass."""
        return max(self.losses, default=0.0)

    def profile(self, epsilon: Vector) -> Vector:
        """Return the sum of p (1 - exp(e - loss)) over losses above e, plus the infinite mass."""
        losses, log_masses = self._arrays
        epsilon = np.asarray(epsilon, dtype=float)
        flat, masses = epsilon.ravel(), np.exp(log_masses)
        order = np.argsort(flat, kind="stable")
        above = np.empty(flat.size)
        with np.errstate(over="ignore", invalid="ignore"):
            for block in np.array_split(order, 1 + flat.size // _PROFILE_BLOCK):
                above[block] = _excess(losses, masses, flat[block])
            value = self.mass_inf + above.reshape(epsilon.shape)
            bounded: Vector = np.maximum(value, -np.expm1(epsilon))
        return bounded

    def grid(self, tail: float, size: int) -> Vector:
        """Return the losses themselves."""
        return np.array(self.losses) if self.losses else np.zeros(1)

    def atoms(self, tail: float) -> Atoms:
        """Return every finite outcome."""
        losses, log_masses = self._arrays
        return Atoms(losses, np.exp(log_masses), np.exp(log_masses - losses))

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return the outcomes."""
        return Quadrature(*self._arrays)


def finite_pair(p: Vector, q: Vector) -> FinitePair:
    """Return the pair of two probability vectors over the same outcomes."""
    shared = (p > 0) & (q > 0)
    p_shared, q_shared = p[shared], q[shared]
    # The difference of close numbers is exact, the logarithm of their ratio is not; where p is far
    # below q it is the difference that has lost p, and with it the Q-mass that the loss stands for.
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        losses = np.where(
            p_shared < q_shared / 2,
            np.log(p_shared / q_shared),
            np.log1p((p_shared - q_shared) / q_shared),
        )
    losses = np.where(np.isfinite(losses), losses, np.log(p_shared) - np.log(q_shared))
    losses = np.where(losses == 0, 0.0, losses + _LOSS_ERROR * np.abs(losses))  # to the safe side
    losses, logs = _distinct(losses, np.log(p_shared), 0.0)
    return FinitePair(
        tuple(losses.tolist()),
        tuple(logs.tolist()),
        float(p[q == 0].sum()),
        float(q[p == 0].sum()),
    )


def _distinct(losses: Vector, logs: Vector, error: float) -> tuple[Vector, Vector]:
    """Return sorted losses with log masses; those equal up to rounding merge at the largest."""
    order = np.argsort(losses, kind="stable")
    losses, logs = losses[order], logs[order]
    size = np.maximum(np.abs(losses[1:]), np.abs(losses[:-1]))
    apart = np.diff(losses) > np.maximum(8 * _LOSS_ERROR * size, error)
    first = np.append(0, np.flatnonzero(apart) + 1)[: losses.size]
    last = np.append(first[1:] - 1, losses.size - 1)[: first.size]
    return losses[last], np.logaddexp.reduceat(logs, first) if first.size else logs


def sum_of_finite(terms: Sequence[tuple[FinitePair | None, int]]) -> FinitePair | None:
    """Return the exact sum of losses with few outcomes, or None if not all have few.

    Copies of a loss with k values fall into the cells of a multinomial distribution, so that
    thousands of copies of a coin have thousands of outcomes only.
    """
    finite = [(pair, count) for pair, count in terms if pair is not None and pair.losses]
    sizes = [math.comb(n + len(pair.losses) - 1, n) for pair, n in finite if n <= _MOST_COPIES]
    if len(sizes) < len(terms) or math.prod(sizes) > _MOST_SUM_OUTCOMES:
        return None
    losses, logs, magnitude = np.zeros(1), np.zeros(1), 0.0
    for pair, count in finite:
        more, more_logs = _multinomial(np.array(pair.losses), np.array(pair.log_masses), count)
        losses = np.add.outer(losses, more).ravel()
        logs = np.add.outer(logs, more_logs).ravel()
        magnitude += count * max(map(abs, pair.losses))
    # Logarithms: masses may underflow, and the largest loss must not be lost with them.
    losses, logs = _distinct(losses, logs, RELATIVE_ERROR * magnitude)
    return FinitePair(
        tuple(losses.tolist()),
        tuple(logs.tolist()),
        any_of([(pair.mass_inf, n) for pair, n in finite]),
        any_of([(pair.mass_minus_inf, n) for pair, n in finite]),
        magnitude,
    )


def _excess(losses: Vector, masses: Vector, at: Vector) -> Vector:
    """Return the sum of p (1 - exp(e - loss)) over losses above e, for increasing e in ``at``.

    Beyond the largest threshold t, p (1 - exp(e - loss)) is p (1 - exp(t - loss)), which is common
    to all, and p exp(t - loss) (1 - exp(e - t)): none is negative, so that no digits cancel.
    """
    if at.size == 0:
        return np.zeros(0)
    low, top = at[0], at[-1]
    beyond, between = losses > top, (losses > low) & (losses <= top)
    rest = top - losses[beyond]
    below = np.where(at < top, at - top, 0.0)
    common = float((masses[beyond] * np.expm1(rest)).sum())
    share = float((masses[beyond] * np.exp(rest)).sum())
    inside = np.expm1(np.minimum(at[:, None] - losses[between], 0.0))
    excess: Vector = -(common + share * np.expm1(below) + inside @ masses[between])
    return excess


def any_of(masses: Sequence[tuple[float, int]]) -> float:
    """Return the probability that one of independent events, each with a count, happens."""
    if any(mass >= 1 for mass, _ in masses):
        return 1.0
    return -math.expm1(math.fsum(n * math.log1p(-mass) for mass, n in masses))


def _multinomial(losses: Vector, logs: Vector, count: int) -> tuple[Vector, Vector]:
    """Return losses and log masses of ``count`` independent copies, one value at a time."""
    total, weight, left = np.zeros(1), np.full(1, gammaln(count + 1.0)), np.full(1, count)
    for loss, log in zip(losses[:-1].tolist(), logs[:-1].tolist(), strict=True):
        index = np.repeat(np.arange(left.size), left + 1)
        taken = np.arange(index.size) - np.repeat(np.cumsum(left + 1) - left - 1, left + 1)
        total = total[index] + taken * loss
        weight = weight[index] + taken * log - gammaln(taken + 1.0)
        left = left[index] - taken
    return total + left * losses[-1], weight + left * logs[-1] - gammaln(left + 1.0)


def binary_pair(epsilon: float) -> FinitePair:
    """Return randomized response with loss +-epsilon, the pair that dominates epsilon-DP."""
    if epsilon == 0:
        return FinitePair((0.0,), (0.0,))
    log_truth = -math.log1p(math.exp(-epsilon))
    return FinitePair((-epsilon, epsilon), (log_truth - epsilon, log_truth))


def discrete_laplace_pair(scale: float, sensitivity: int) -> FinitePair:
    """Return the pair of integer noise with mass proportional to exp(-|x| / scale)."""
    if sensitivity > _MOST_OUTCOMES:
        raise ValueError(
            f"discrete_laplace has one outcome per unit of sensitivity={sensitivity}; divide scale "
            "and sensitivity by a common unit"
        )
    k = np.arange(sensitivity + 1)
    # All x <= 0 share the largest loss and all x >= sensitivity the smallest.
    log_masses = -k / scale - math.log1p(math.exp(-1 / scale))
    log_masses[1:-1] += math.log(-math.expm1(-1 / scale))
    losses = (sensitivity - 2 * k) / scale
    if Fraction(float(losses[0])) * Fraction(scale) < sensitivity:
        losses = losses * UP  # the largest must not be rounded down
    return FinitePair(tuple(losses[::-1].tolist()), tuple(log_masses[::-1].tolist()))


@dataclass(frozen=True)
class DiscreteGaussianPair(Pair):
    """Integer noise with mass proportional to exp(-x^2 / (2 sigma^2)), shifted by an integer.

    One-dimensional: the masses are log-concave, so (N_Z(0), N_Z(shift)) dominates. In several
    dimensions no dominating pair is known.
    """

    sigma: float
    shift: int
    continuous = False

    @property
    def max_loss(self) -> float:
        """The noise has unbounded support."""
        return math.inf

    def profile(self, epsilon: Vector) -> Vector:
        """Return the sum of p (1 - exp(e - loss)) over losses above e."""
        atoms = self._outcomes(_ALL_OUTCOMES)
        gap = np.minimum(np.asarray(epsilon, dtype=float)[..., None] - atoms.losses, 0.0)
        value: Vector = -(atoms.masses * np.expm1(gap)).sum(axis=-1)
        with np.errstate(over="ignore"):
            return np.maximum(value, -np.expm1(epsilon))

    def grid(self, tail: float, size: int) -> Vector:
        """Return the losses, thinned to about ``size``."""
        losses = self._outcomes(tail).losses
        chosen = np.linspace(0, losses.size - 1, min(size, losses.size)).astype(np.int64)
        return losses[chosen]

    def atoms(self, tail: float) -> Atoms:
        """Return the outcomes that both shifted distributions reach."""
        return self._outcomes(tail)

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return the outcomes."""
        atoms = self._outcomes(_ALL_OUTCOMES)
        with np.errstate(divide="ignore"):
            return Quadrature(atoms.losses, np.log(atoms.masses))

    def log_mgf(self, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the Gaussian value times a ratio of theta sums."""
        z = np.asarray(z, dtype=np.complex128)
        centre = z * self.shift
        nearest = np.round(centre.real)
        reach = math.ceil(40 * self.sigma + 2)
        self._check_outcomes(2 * reach)
        x = np.arange(-reach, reach + 1)
        offset = (centre - nearest)[..., None] + x
        log_ratio: Complex = np.log(np.exp(-0.5 * (offset / self.sigma) ** 2).sum(axis=-1))
        log_total = math.log(np.exp(-0.5 * (x / self.sigma) ** 2).sum())
        return 0.5 * (self.shift / self.sigma) ** 2 * z * (z + 1) + log_ratio - log_total

    def _check_outcomes(self, count: int) -> None:
        if count > _MOST_OUTCOMES:
            raise ValueError(
                f"discrete_gaussian needs {count:.0f} outcomes at sigma={self.sigma}; divide sigma "
                "and sensitivity by a common unit"
            )

    def _outcomes(self, tail: float) -> Atoms:
        # The discrete tail is below the continuous one for x >= 1 (Canonne et al. 2020, Prop. 25).
        reach = math.ceil(-float(ndtri(max(tail, 1e-320))) * self.sigma + 2)
        self._check_outcomes(2 * reach + self.shift)
        # Both distributions, centred at 0 and at the shift, with their tails.
        x = np.arange(reach + self.shift, -reach - 1, -1)
        weight, q_weight = (
            np.exp(-0.5 * ((x - centre) / self.sigma) ** 2) for centre in (0, self.shift)
        )
        losses = self.shift * (self.shift - 2 * x) / (2 * self.sigma**2)
        return Atoms(losses, weight / weight.sum(), q_weight / q_weight.sum())


@dataclass(frozen=True)
class FailingPair(DerivedPair):
    """With probability ``mass_inf`` the record is betrayed; else the loss is that of ``base``."""

    mass_inf: float
    mass_minus_inf = taken_from("mass_inf")  # mirrored: failure betrays it under Q as well
    closed_form = taken_from("base.closed_form")
    max_loss = taken_from("base.max_loss")

    def profile(self, epsilon: Vector) -> Vector:
        """Return the mixture of the base profile and total failure."""
        return self.mass_inf + (1 - self.mass_inf) * self.base.profile(epsilon)

    def grid(self, tail: float, size: int) -> Vector:
        """Return the grid of the base."""
        return self.base.grid(tail, size)

    def atoms(self, tail: float) -> Atoms:
        """Return the atoms of the base, scaled."""
        losses, masses, q_masses = self.base.atoms(tail)
        return Atoms(losses, (1 - self.mass_inf) * masses, (1 - self.mass_inf) * q_masses)

    def cells(self, edges: Vector) -> Cells:
        """Return the cells of the base, scaled."""
        return Cells(*((1 - self.mass_inf) * part for part in self.base.cells(edges)))

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return the nodes of the base, scaled."""
        losses, log_weights = self.base.quadrature(tilt, frequency)
        return Quadrature(losses, log_weights + math.log1p(-self.mass_inf))

    def log_mgf(self, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return that of the base, scaled by the finite mass."""
        return math.log1p(-self.mass_inf) + self.base.log_mgf(z)
