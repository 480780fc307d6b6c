"""The numbers of a privacy report, all of them certified bounds from the accountant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from taut.accounting import (
    Adjacency,
    Bounds,
    Engine,
    Explanation,
    GaussianFit,
    PrivacyLoss,
    group_poisson,
)
from taut.errors import UnsoundConfiguration
from taut.report._privacy.evidence import Evidence

__all__ = ["ALARMS", "AttackPower", "CoursePoint", "Findings", "GroupCost", "ProfilePoint"]

ALARMS = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5)
"""Rates of false alarms at which an attacker is described in numbers."""

_SLOW = (Engine.RENYI, Engine.SPLIT, Engine.PAIRS)  # a point of their trade-off takes seconds
_PROFILE_POINTS = 25
_COURSE_POINTS = 25
_GROUPS = (2, 3, 5, 10)
_REACH = 1e-4  # the profile is drawn down to this share of delta
_LEAST_DELTA = 1e-12
_SHARPNESS = 1e-2  # of curves, where a per cent is thinner than the line


@dataclass(frozen=True)
class ProfilePoint:
    """Bounds on delta at an epsilon."""

    epsilon: float
    delta: Bounds


@dataclass(frozen=True)
class CoursePoint:
    """An upper bound on epsilon after so many steps."""

    steps: int
    epsilon: float


@dataclass(frozen=True)
class AttackPower:
    """The largest share of members that is found at a rate of false alarms."""

    false_alarms: float
    found: float


@dataclass(frozen=True)
class GroupCost:
    """Bounds on epsilon for whoever has so many examples."""

    size: int
    epsilon: Bounds


class Findings:
    """All numbers about one loss, each computed when it is first asked for.

    Args:
        evidence: what was spent.

    Raises:
        UnsoundConfiguration: if there is no finite epsilon at the delta of the evidence.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._loss = evidence.loss
        self.delta = evidence.delta
        """The delta of the promise."""
        self.adjacency: Adjacency = evidence.loss.adjacency
        """What the promise is about."""
        self.epsilon = self._loss.epsilon_bounds(self.delta)
        """Certified bounds at `delta`."""
        if not self.epsilon.upper < np.inf:
            raise UnsoundConfiguration(
                f"no finite epsilon is proved at delta={self.delta!r} for {self._loss!r}; report a "
                "larger delta"
            )

    @cached_property
    def explanation(self) -> Explanation:
        """How the bounds were obtained, and what they rest on beyond published proofs."""
        return self._loss.explain(self.delta)

    @cached_property
    def advantage(self) -> float:
        """An upper bound on members found minus others accused, for every attacker."""
        return self._loss.delta(0.0)

    @cached_property
    def gaussian(self) -> GaussianFit:
        """The loss in terms of Gaussian differential privacy, but for `delta`."""
        return self._loss.gdp(self.delta)

    @cached_property
    def attacks(self) -> tuple[AttackPower, ...]:
        """The best attacker at several rates of false alarms."""
        if self.explanation.engine in _SLOW:
            found = self.found_by_profile(np.array(ALARMS)).tolist()
            return tuple(AttackPower(*pair) for pair in zip(ALARMS, found, strict=True))
        return tuple(AttackPower(rate, 1 - self._loss.tradeoff(rate)) for rate in ALARMS)

    @cached_property
    def profile(self) -> tuple[ProfilePoint, ...]:
        """Delta against epsilon."""
        return _profile(self._loss, self.delta, self.epsilon.upper)

    @cached_property
    def other_deltas(self) -> tuple[tuple[float, Bounds], ...]:
        """Bounds on epsilon at other deltas."""
        return _other_deltas(self._loss, self.delta)

    @cached_property
    def course(self) -> tuple[CoursePoint, ...]:
        """Epsilon against steps; empty if the order of releases is not known."""
        return _course(self._evidence, self.epsilon.upper)

    @cached_property
    def groups(self) -> tuple[GroupCost, ...]:
        """What holds for people with several examples; empty if no theorem is at hand."""
        return _groups(self._evidence)

    def found_at(self, false_alarms: float) -> float:
        """Return the largest share of members found at one of the rates in `attacks`."""
        return next(a.found for a in self.attacks if a.false_alarms == false_alarms)

    def found_by_profile(self, false_alarms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a certified bound on members found at any rates, from the profile alone.

        Every point (epsilon, delta) bounds the curve by two lines (Dong, Roth and Su 2022,
        Proposition 2.5), so that their minimum holds between points too, unlike a line through
        values of the curve, which is concave.
        """
        factors = np.exp([min(point.epsilon, 700.0) for point in self.profile])[:, None]
        deltas = np.array([point.delta.upper for point in self.profile])[:, None]
        steep = deltas + factors * false_alarms
        flat = 1 - (1 - deltas - false_alarms) / factors
        found: NDArray[np.float64] = np.minimum(steep, flat).min(axis=0).clip(0.0, 1.0)
        return found


def _profile(loss: PrivacyLoss, delta: float, upper: float) -> tuple[ProfilePoint, ...]:
    reach = loss.epsilon(max(delta * _REACH, _LEAST_DELTA), tolerance=_SHARPNESS)
    end = reach if 0 < reach < np.inf else max(2 * upper, 1.0)
    spaced = end * np.linspace(0.0, 1.0, _PROFILE_POINTS) ** 1.5  # small epsilons bound attackers
    at = np.unique(np.append(spaced, upper)).tolist()
    return tuple(ProfilePoint(e, loss.delta_bounds(e)) for e in at)


def _other_deltas(loss: PrivacyLoss, delta: float) -> tuple[tuple[float, Bounds], ...]:
    """Return bounds at powers of ten around the delta of the promise."""
    middle = round(np.log10(delta)) if delta > 0 else -6
    powers = [float(f"1e{p}") for p in range(min(middle + 2, -2), middle - 4, -1)]
    found = [(level, loss.epsilon_bounds(level)) for level in powers]
    return tuple((level, bounds) for level, bounds in found if bounds.upper < np.inf)


def _course(evidence: Evidence, upper: float) -> tuple[CoursePoint, ...]:
    after, total = evidence.loss_after, evidence.releases
    if after is None or total < 2:
        return ()
    steps = np.unique(np.linspace(1, total, min(_COURSE_POINTS, total)).round().astype(int))
    epsilons = [after(n).epsilon(evidence.delta) for n in steps[:-1].tolist()]
    # More steps cost no less: a bound for more holds for fewer.
    capped = np.minimum.accumulate([*epsilons, upper][::-1])[::-1].tolist()
    return tuple(CoursePoint(n, e) for n, e in zip(steps.tolist(), capped, strict=True))


def _groups(evidence: Evidence) -> tuple[GroupCost, ...]:
    """Return what several examples of one person cost, where batches are Poisson samples."""
    plan = evidence.plan
    if plan is None or plan.unit is not None or not evidence.is_sampled_gaussian:
        return ()  # the promise to an owner is about all of its examples already
    steps = evidence.counted_steps or 0
    return tuple(
        GroupCost(size, _group_bounds(plan.noise_multiplier, plan.rate, size, steps, plan.delta))
        for size in _sizes(plan.examples)
    )


def _group_bounds(sigma: float, rate: float, size: int, steps: int, delta: float) -> Bounds:
    return (steps * group_poisson(sigma, rate, size)).epsilon_bounds(delta, tolerance=_SHARPNESS)


def _sizes(examples: int) -> Sequence[int]:
    return [size for size in _GROUPS if size <= examples]
