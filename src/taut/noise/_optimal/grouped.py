"""Pure privacy from a box: independent groups of coordinates, each with noise of its own box.

Noise with the density exp(-epsilon max_i |t_i| / width_i) hides a box (Hardt and Talwar 2010, the
K-norm mechanism). It has less error than independent Laplace noise if widths are alike, and more if
they differ much; so coordinates of similar width are grouped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting import PrivacyLoss, pure, zero
from taut.errors import UnsoundConfiguration
from taut.noise._exact.grouped import grouped_release
from taut.noise._exact.release import GridRelease
from taut.noise._fitting.objectives import coordinate_weights
from taut.noise._fitting.water_filling import PURE_FACTOR
from taut.noise._mechanisms.float_range import within_floats
from taut.noise._mechanisms.mechanism import Certificate, NoiseMechanism
from taut.noise._random.sources import RandomSource, default_generator
from taut.noise._sets.balls import LInfBall
from taut.noise._sets.boxes import Box
from taut.noise._sets.sets import refuse_basis

__all__ = ["GroupedNoise", "best_groups", "grouped_linf"]

_LEAST_PART = 1e-140  # of the largest part: smaller ones count as this, whose square is a float
_MOST_PLACES = 2000  # where a group may end: the dynamic programme has their square of steps
_MOST_COMPOSED = 32  # groups whose losses are composed one by one, in a moment


@dataclass(frozen=True, eq=False)
class GroupedNoise(NoiseMechanism):
    """Noise in groups of coordinates, uniform in a randomly scaled box in each.

    Attributes:
        sensitivity: the box that it hides.
        objective: the quantity that was minimised.
        certificate: what is proven about it; its radius is the sum of the budgets.
        groups: the coordinates of every group.
        budgets: the epsilon of every group.

    **Guarantee**: epsilon-DP with the sum of the budgets, for the adjacency of the box. `release`
    rounds to a public grid, exactly, so that no low bits tell more; `sample` draws in floating
    point: what it is added to is for experiments.
    """

    groups: tuple[NDArray[np.int64], ...] = field(repr=False)
    budgets: Vector = field(repr=False)

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release: every group is pure."""
        adjacency = self.sensitivity.adjacency
        if len(self.groups) > _MOST_COMPOSED:
            return pure(self.certificate.radius * PURE_FACTOR, adjacency=adjacency)
        parts = (pure(float(budget) * PURE_FACTOR, adjacency=adjacency) for budget in self.budgets)
        return sum(parts, zero(adjacency=adjacency))

    @property
    def total_variance(self) -> float:
        """The expected squared length of the noise."""
        widths = _widths(self.sensitivity)
        return math.fsum(
            _load(group.size) * float(np.sum((widths[group] / budget) ** 2))
            for group, budget in zip(self.groups, self.budgets, strict=True)
        )

    def coordinate_errors(self, power: float = 2.0) -> Vector:
        """Return E|noise_i|^power for every coordinate: that of a length times a uniform number."""
        errors = np.zeros(self.sensitivity.dimension)
        widths = _widths(self.sensitivity)
        for group, budget in zip(self.groups, self.budgets, strict=True):
            shape = group.size + 1
            length = math.exp(math.lgamma(shape + power) - math.lgamma(shape))
            errors[group] = length * (widths[group] / budget) ** power / (power + 1)
        return errors

    def sample(self, generator: RandomSource | None = None) -> Vector:
        """Draw the noise of one release, from the secure generator unless another is given."""
        generator = default_generator() if generator is None else generator
        widths = _widths(self.sensitivity)
        noise = np.zeros(self.sensitivity.dimension)
        for group, budget in zip(self.groups, self.budgets, strict=True):
            # A Gamma number of integer shape is a sum of exponential ones.
            length = float(generator.standard_exponential(group.size + 1).sum()) / budget
            noise[group] = length * widths[group] * (2 * generator.uniform(group.size) - 1)
        return noise

    @cached_property
    def _rounded(self) -> GridRelease:
        return grouped_release(_widths(self.sensitivity), self.groups, self.budgets)

    def _hidden(self, vector: Vector) -> Vector:
        return np.where(_widths(self.sensitivity) > 0, vector, 0.0)


@within_floats
def grouped_linf(
    sensitivity: Box | LInfBall, *, epsilon: float, weights: ArrayLike | None = None
) -> GroupedNoise:
    """Return pure noise for a box: the best partition into groups, and split of the budget.

    Args:
        sensitivity: a box without a basis, or an l_inf ball. Bounds on norms are not used.
        epsilon: the promise to keep, above 0.
        weights: positive importance of every coordinate in the squared error.

    **Guarantee**: epsilon-DP. The weighted squared error is the least of all partitions of the
    coordinates (for more than 2000 coordinates, of those that end groups at 2000 places), and never
    above that of `optimal_laplace`, whose noise has groups of one (docs/theory/laplace-noise.md).

    Raises:
        ValueError: for other sets, and for weights of the wrong shape.
        UnsoundConfiguration: for a box with a basis.
        InfeasibleBudget: if no noise within floating point keeps the promise.

    Example:
        >>> from taut.noise import Box, grouped_linf, optimal_laplace
        >>> box = Box([1.0] * 20)
        >>> noise = grouped_linf(box, epsilon=0.5)
        >>> round(optimal_laplace(box, epsilon=0.5).error / noise.error, 3)
        5.195
    """
    if not isinstance(sensitivity, Box | LInfBall):
        raise ValueError(
            "sensitivity must be a Box or an LInfBall, got "
            f"{type(sensitivity).__name__}; use optimal_laplace, or a box around the set"
        )
    refuse_basis(sensitivity)
    target = validate.positive(epsilon=epsilon)
    widths = _widths(sensitivity)
    # A part below 1e-140 of the largest counts as that much, where squares are within floats.
    roots = widths * np.sqrt(coordinate_weights(weights, widths.size))
    unit = float(roots.max())
    values = np.where(widths > 0, np.maximum(roots / unit, _LEAST_PART), 0.0) ** 2
    groups, loads, exact = best_groups(values)
    shares = np.cbrt(loads)
    budgets = shares * (target / math.fsum(shares) / PURE_FACTOR**2)
    budgets.setflags(write=False)
    radius = math.fsum(budgets)
    if not radius * PURE_FACTOR <= target:
        raise UnsoundConfiguration(f"the budgets sum to {radius!r}, above epsilon={target!r}")
    slack = 2.0**-51 * values.size**2  # what rounding can hide in a comparison of partitions
    error = float((loads * (unit / budgets) ** 2).sum())
    bound = (unit / target) ** 2 * math.fsum(shares) ** 3 * (1 - slack)
    statement = "least among all partitions" if exact else "least among 2000 places to end groups"
    proof = Certificate(radius, error, bound if exact else 0.0, statement)
    return GroupedNoise(sensitivity, "total", proof, groups, budgets)


def best_groups(values: Vector) -> tuple[tuple[NDArray[np.int64], ...], Vector, bool]:
    """Return the partition of least sum of cube roots of loads, the loads, and if it is certain.

    The load of a group of n coordinates is (n + 1)(n + 2) / 3 times the sum of its values. The best
    groups are runs of the sorted values: for given sizes the sum of cube roots is concave in the
    sums of the groups, so least at a corner of what they can be, and corners are runs.

    Args:
        values: weight times squared width of every coordinate; zeros belong to no group.
    """
    order = np.argsort(-values, kind="stable")[: int(np.count_nonzero(values))]
    # Sums from the small end: a group is never small beside what it is the difference of.
    rest = np.concatenate([np.cumsum(values[order][::-1])[::-1], [0.0]])
    exact = order.size <= _MOST_PLACES
    places = np.arange(order.size + 1)
    if not exact:
        spread = np.linspace(_MOST_PLACES // 2, order.size, _MOST_PLACES // 2 + 1).astype(np.int64)
        places = np.unique(np.concatenate([places[: _MOST_PLACES // 2], spread]))
    best, before = np.zeros(places.size), np.zeros(places.size, dtype=np.int64)
    for k in range(1, places.size):
        sizes = places[k] - places[:k]
        totals = best[:k] + np.cbrt(_load(sizes) * (rest[places[:k]] - rest[places[k]]))
        before[k] = int(np.argmin(totals))
        best[k] = totals[before[k]]
    if not exact and float(np.cbrt(_load(1) * values[order]).sum()) < best[-1]:
        places = np.arange(order.size + 1)
        before = np.maximum(places - 1, 0)
    groups, k = [], places.size - 1
    while k > 0:
        groups.append(np.sort(order[places[before[k]] : places[k]]).astype(np.int64))
        k = int(before[k])
    loads = np.array([_load(group.size) * math.fsum(values[group]) for group in groups])
    return tuple(groups[::-1]), loads[::-1].copy(), exact


def _load(size: ArrayLike) -> Vector:
    """Return the expected squared entry, for widths and epsilon of one, times the size."""
    n = np.asarray(size, dtype=np.float64)
    return np.asarray((n + 1) * (n + 2) / 3)


def _widths(sensitivity: object) -> Vector:
    if isinstance(sensitivity, Box):
        return sensitivity.widths
    assert isinstance(sensitivity, LInfBall)
    return np.full(sensitivity.dimension, sensitivity.radius)
