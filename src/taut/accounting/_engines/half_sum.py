"""A sum of losses in one direction: what the engines are asked about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR, UP
from taut.accounting._adjacency import Half
from taut.accounting._pairs.exponential import ExponentialPair
from taut.accounting._pairs.finite import FailingPair, FinitePair, any_of, sum_of_finite
from taut.accounting._pairs.gaussian import GaussianPair
from taut.accounting._pairs.pair import ATOMS_TAIL, Pair

__all__ = ["HalfSum", "RenyiTerm", "merge_gaussians"]

_FEW_ATOMS = 64  # values of a loss that is worth an exact sum; `sum_of_finite` limits the outcomes
_DUST_SHARE = 1e-2  # of the tolerance: what a neglected term may use; all together have half of it


class RenyiTerm(Protocol):
    """A release in one direction of which only Renyi divergences are known; hashable."""

    def cumulants(self, tilts: Vector) -> Vector:
        """Return upper bounds on log E exp(tilt L) at ``tilts`` > 0, infinite where unknown."""

    def corners(self) -> Vector:
        """Return tilts at which the bounds may bend or end."""

    def dominating_pair(self) -> Pair | None:
        """Return a pair that dominates the release after all, loosely, if there is one."""


@dataclass(frozen=True)
class HalfSum:
    """A sum of losses in one direction, with Gaussians merged and null losses dropped.

    Attributes:
        half: the direction.
        terms: dominating pairs with counts.
        curves: releases without a pair, with counts.
    """

    half: Half
    terms: tuple[tuple[Pair, int], ...]
    curves: tuple[tuple[RenyiTerm, int], ...] = ()

    @property
    def dominating(self) -> HalfSum | None:
        """The sum with a dominating pair for every release, if all have one."""
        found = [(curve.dominating_pair(), n) for curve, n in self.curves]
        pairs = [(pair, n) for pair, n in found if pair is not None]
        if len(pairs) < len(found):
            return None
        return merge_gaussians(self.half, [*self.terms, *pairs])

    @property
    def pairs(self) -> HalfSum:
        """The sum without the releases that have no pair."""
        return HalfSum(self.half, self.terms)

    @property
    def mass_inf(self) -> float:
        """Probability of an infinite loss."""
        return any_of([(pair.mass_inf, n) for pair, n in self.terms])

    @property
    def max_loss(self) -> float:
        """The largest finite loss, infinite if a release has no pair."""
        if self.curves:
            return math.inf
        if self.single is not None:
            return self.single.max_loss + self.single.loss_error
        if all(isinstance(pair, ExponentialPair) for pair, _ in self.terms):
            return _rounded_up(sum(n * Fraction(pair.max_loss) for pair, n in self.terms))
        largest = math.fsum(n * pair.max_loss for pair, n in self.terms)
        return largest + RELATIVE_ERROR * abs(largest)

    @property
    def mass_error(self) -> float:
        """Bound on the rounding error of ``mass_inf``; that of a single release is given."""
        pair = self.single
        given = isinstance(pair, FinitePair | FailingPair) and pair.loss_error == 0
        return 0.0 if given else RELATIVE_ERROR * self.mass_inf

    @property
    def loss_error(self) -> float:
        """Absolute rounding error of a single loss."""
        return self.single.loss_error if self.single is not None else 0.0

    def near_top(self, delta: float) -> float:
        """Return a lower bound on epsilon from the event that every loss is the largest."""
        if math.isinf(self.max_loss):
            return 0.0
        masses = [(pair.top_mass, n) for pair, n in self.terms]
        log_mass = math.fsum(n * math.log(mass) if mass > 0 else -math.inf for mass, n in masses)
        share = (delta - self.mass_inf) * math.exp(min(-log_mass, 700.0))
        if share >= 1:
            return 0.0
        return max(self.max_loss * (1 - 8 * RELATIVE_ERROR) + math.log1p(-share), 0.0)

    @property
    def count(self) -> int:
        """How many losses are summed."""
        return sum(n for _, n in self.terms) + sum(n for _, n in self.curves)

    @property
    def single(self) -> Pair | None:
        """The only loss, if there is but one."""
        return self.terms[0][0] if self.terms and self.count == 1 else None

    def _dusty(self, tolerance: float) -> list[tuple[Pair, int]]:
        """Return terms so small, all copies together, that a bound on them is as good."""
        reach = [(n * pair.max_loss, pair, n) for pair, n in self.terms if not pair.mass_inf]
        largest = max((n * pair.max_loss for pair, n in self.terms), default=0.0)
        limit = min(_DUST_SHARE * tolerance, _DUST_SHARE) * min(largest, 1.0)
        return [(pair, n) for total, pair, n in reach if total < limit]

    def dust(self, tolerance: float) -> float:
        """Return a bound on the part of the loss that is lost in the tolerance."""
        return math.fsum(n * pair.max_loss for pair, n in self._dusty(tolerance)) * UP

    def without_dust(self, tolerance: float) -> HalfSum:
        """Return the sum without the terms that ``dust`` bounds."""
        dusty = self._dusty(tolerance)
        kept = tuple(term for term in self.terms if term not in dusty)
        return HalfSum(self.half, kept, self.curves)

    @property
    def attained(self) -> HalfSum:
        """A sum that releases of these kinds really reach, for lower bounds."""
        return HalfSum(self.half, tuple((pair.reached, n) for pair, n in self.terms))

    @property
    def suits_contour(self) -> bool:
        """Whether all cumulants are closed formulas and a Gaussian makes the integrand decay."""
        return all(pair.closed_form for pair, _ in self.terms) and any(
            pair.gaussian_mu for pair, _ in self.terms
        )


def merge_gaussians(
    half: Half,
    terms: Sequence[tuple[Pair, int]],
    curves: Sequence[tuple[RenyiTerm, int]] = (),
) -> HalfSum:
    """Return the sum with what merges exactly merged: Gaussians, constants, and few outcomes."""
    mu = math.sqrt(math.fsum(n * pair.gaussian_mu**2 for pair, n in terms))
    merged: list[tuple[Pair, int]] = [(GaussianPair(mu), 1)] if mu else []
    certain: list[tuple[FinitePair, int]] = []
    for pair, n in terms:
        constant = _constant(pair)
        if constant is not None:
            certain.append((constant, n))
        elif not pair.gaussian_mu and not _is_null(pair):
            merged.append((pair, n))
    if any(not _is_null(pair) for pair, _ in certain):
        merged.append((_sum_of_certain(certain), 1))
    whole = None
    if sum(n for _, n in merged) > 1:
        whole = sum_of_finite([(_as_finite(pair), n) for pair, n in merged])
    return HalfSum(half, ((whole, 1),) if whole else tuple(merged), tuple(curves))


def _constant(pair: Pair) -> FinitePair | None:
    """Return a loss that has at most one finite value as a finite pair, else None."""
    finite = _as_finite(pair)
    return finite if finite is not None and len(finite.losses) <= 1 else None


def _as_finite(pair: Pair) -> FinitePair | None:
    """Return a bounded loss with few values, sampled or not, as a finite pair, else None."""
    if type(pair) is FinitePair:
        return pair
    if pair.continuous or not pair.tight or math.isinf(pair.max_loss):
        return None
    losses, masses, _ = pair.atoms(ATOMS_TAIL)
    if losses.size > _FEW_ATOMS or not (masses > 0).all():
        return None
    return FinitePair(
        tuple(losses.tolist()),
        tuple(np.log(masses).tolist()),
        pair.mass_inf,
        pair.mass_minus_inf,
        float(np.abs(losses).max(initial=0.0)),
    )


def _sum_of_certain(terms: Sequence[tuple[FinitePair, int]]) -> FinitePair:
    """Return the sum of losses that have at most one finite value."""
    if any(not pair.losses for pair, _ in terms):
        return FinitePair((), (), 1.0, 1.0)
    return FinitePair(
        (math.fsum(n * pair.losses[0] for pair, n in terms),),
        (math.fsum(n * pair.log_masses[0] for pair, n in terms),),
        any_of([(pair.mass_inf, n) for pair, n in terms]),
        any_of([(pair.mass_minus_inf, n) for pair, n in terms]),
    )


def _is_null(pair: Pair) -> bool:
    """Whether the loss is zero always."""
    return pair.max_loss <= 0 and pair.mass_inf == 0


def _rounded_up(exact: Fraction | int) -> float:
    """Return the least float that is no less: Laplace noise has no other rounding to cover."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)
