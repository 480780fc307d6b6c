"""How a budget is shared so that the total error is least, before any data are looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from taut._base.arrays import Vector
from taut.accounting import PrivacyLoss, gaussian_mu, zero
from taut.errors import TautError
from taut.noise import NoiseMechanism, Product, SensitivitySet, optimal_gaussian, recommend
from taut.statistics._mechanisms.quantile_tree import QuantileTree
from taut.statistics._releases.parts import Drawn, NoisyPart, Part, QuantilesPart

__all__ = ["Design", "design_for"]

_ROOM = 1 - 1e-12  # of epsilons that are summed: covers the rounding of shares and of their sum
_MOST_STRETCH = 4.0  # by which an accountant may find more room than a sum of epsilons has
_STRETCH_STEPS = 12  # of a bisection: the last moves noise by less than one part in 10^3


@dataclass(frozen=True)
class Design:
    """Which mechanism releases which parts, and what that costs and promises to err.

    Attributes:
        groups: parts that are released together, each group by one mechanism.
        drawn: the mechanism of every group.
        error: sum of the weighted squared errors of all statistics, in records.
        shares: share of the budget that every part has: of epsilon for pure promises, of the sum
            of squares of Gaussian lengths otherwise.
        rule: what the budget is, and why it is shared like that.
    """

    groups: tuple[tuple[Part, ...], ...]
    drawn: tuple[Drawn, ...]
    error: float
    shares: dict[str, float]
    rule: str

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of the whole release."""
        adjacency = self.groups[0][0].adjacency
        return sum((one.loss for one in self.drawn), start=zero(adjacency=adjacency))

    @property
    def trees(self) -> dict[QuantilesPart, QuantileTree]:
        """The mechanism of every part that is quantiles."""
        return {
            part: one
            for group, one in zip(self.groups, self.drawn, strict=True)
            for part in group
            if isinstance(part, QuantilesPart) and isinstance(one, QuantileTree)
        }


@lru_cache(maxsize=64)
def design_for(parts: tuple[Part, ...], epsilon: float, delta: float) -> Design:
    """Return the design of least error that keeps a promise.

    Args:
        parts: what shares the budget.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise; with 0 it is pure.

    **Guarantee**: the certified epsilon of `Design.loss` at ``delta`` is at most ``epsilon``. No
    data are looked at.
    """
    found = [_pure(parts, epsilon, delta)]
    if delta > 0:
        for make in (_concentrated, _joint):
            try:
                found.append(make(parts, epsilon, delta))
            except (TautError, ValueError):  # no noise of that kind fits
                continue
    # Noise for tiny promises may miss them by the rounding of its accountant; pure noise does not.
    for design in sorted(found, key=lambda design: design.error):
        if design.loss.epsilon(delta=delta) <= epsilon:
            return design
    raise AssertionError("all designs cost more than the budget")


def _pure(parts: Sequence[Part], epsilon: float, delta: float) -> Design:
    """Share epsilon: an error a / epsilon² each, least in total for shares like a^(1/3)."""
    even = epsilon / len(parts)
    costs = np.array([part.error(part.pure(even)) for part in parts]) * even**2
    shares = np.cbrt(costs) / np.cbrt(costs).sum()

    def make(stretch: float) -> Design:
        epsilons = shares * (epsilon * stretch * _ROOM)
        drawn = tuple(
            part.pure(float(own)) for part, own in zip(parts, epsilons.tolist(), strict=True)
        )
        rule = "epsilon, shared so that the sum of squared errors is least (cube roots of costs)"
        return Design(tuple((part,) for part in parts), drawn, *_judged(parts, drawn, shares), rule)

    return make(1.0) if delta == 0 or len(parts) == 1 else _stretched(make, 1.0, epsilon, delta)


def _concentrated(parts: Sequence[Part], epsilon: float, delta: float) -> Design:
    """Share squares of lengths: an error a / rho each, least in total for shares like a^(1/2).

    Sums and histograms get Gaussian noise in one design; a quantile with epsilon counts like
    Gaussian noise of length epsilon / 2, by the bound on its Renyi divergences.
    """
    noisy = [part for part in parts if isinstance(part, NoisyPart)]
    ranked = [part for part in parts if isinstance(part, QuantilesPart)]
    costs = [part.error(part.concentrated(1.0)) / 4 for part in ranked]
    joint = _gaussian(noisy, 1.0) if noisy else None
    if joint is not None:
        costs = [_error_of(noisy, joint), *costs]
    shares = np.sqrt(costs) / np.sqrt(costs).sum()
    base = gaussian_mu(epsilon, delta)

    def make(stretch: float) -> Design:
        lengths = np.sqrt(shares) * (base * stretch * _ROOM)
        drawn: list[Drawn] = [] if joint is None else [_gaussian(noisy, 1 / float(lengths[0]))]
        of_ranked = lengths[len(drawn) :].tolist()
        for part, length in zip(ranked, of_ranked, strict=True):
            drawn.append(part.concentrated(2 * length))
        groups = ([tuple(noisy)] if noisy else []) + [(part,) for part in ranked]
        rule = "squared lengths, shared so that the sum of squared errors is least (square roots)"
        return Design(tuple(groups), tuple(drawn), *_judged_groups(groups, drawn, shares), rule)

    if not ranked:
        return make(1.0)
    return _stretched(make, 0.5, epsilon, delta)


def _joint(parts: Sequence[Part], epsilon: float, delta: float) -> Design:
    """Take the best of all mechanisms for sums and histograms as one set, if there is no other."""
    noisy = [part for part in parts if isinstance(part, NoisyPart)]
    if len(noisy) < len(parts):
        raise ValueError("quantiles have no sensitivity set")
    found = recommend(_set_of(noisy), epsilon, delta, weights=_weights_of(noisy)).best
    groups = [tuple(noisy)]
    rule = f"one design for all of it: {found.name}"
    judged = _judged_groups(groups, [found.mechanism], np.ones(1))
    return Design(tuple(groups), (found.mechanism,), *judged, rule)


def _stretched(make: Callable[[float], Design], low: float, epsilon: float, delta: float) -> Design:
    """Return the design with the largest budget that the accountant still allows."""
    best, high = make(low), _MOST_STRETCH
    for _ in range(_STRETCH_STEPS):
        middle = math.sqrt(low * high)
        tried = make(middle)
        if tried.loss.epsilon(delta=delta) <= epsilon:
            best, low = tried, middle
        else:
            high = middle
    return best


def _gaussian(parts: Sequence[NoisyPart], multiplier: float) -> NoiseMechanism:
    return optimal_gaussian(_set_of(parts), multiplier=multiplier, weights=_weights_of(parts))


def _set_of(parts: Sequence[NoisyPart]) -> SensitivitySet:
    if len(parts) == 1:  # for which more mechanisms are known than for a product
        return parts[0].sensitivity
    return Product(*(part.sensitivity for part in parts))


def _weights_of(parts: Sequence[NoisyPart]) -> Vector:
    return np.concatenate([part.weights for part in parts])


def _error_of(parts: Sequence[NoisyPart], mechanism: NoiseMechanism) -> float:
    return float(np.dot(mechanism.coordinate_errors(), _weights_of(parts)))


def _judged(
    parts: Sequence[Part], drawn: Sequence[Drawn], shares: Vector
) -> tuple[float, dict[str, float]]:
    """Return the total error, and the shares by name."""
    error = sum(part.error(one) for part, one in zip(parts, drawn, strict=True))
    return error, _named([part.label for part in parts], shares)


def _judged_groups(
    groups: Sequence[Sequence[Part]], drawn: Sequence[Drawn], shares: Vector
) -> tuple[float, dict[str, float]]:
    error = 0.0
    for group, one in zip(groups, drawn, strict=True):
        if isinstance(one, QuantileTree):
            error += group[0].error(one)
        else:
            error += _error_of([part for part in group if isinstance(part, NoisyPart)], one)
    return error, _named([", ".join(part.label for part in group) for group in groups], shares)


def _named(labels: Sequence[str], shares: Vector) -> dict[str, float]:
    return dict(zip(labels, shares.tolist(), strict=True))
