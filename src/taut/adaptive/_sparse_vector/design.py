"""What decides the privacy of a sparse vector, fixed before the first question."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting import Adjacency, Bounds, PrivacyLoss, from_rdp
from taut.adaptive._sparse_vector.attained.lower import certified_lower
from taut.adaptive._sparse_vector.bounds import MOST_PURE, ORDERS, Comparisons
from taut.adaptive._sparse_vector.grid import (
    MOST_STEPS,
    checked_sensitivity,
    grid_of,
    sensitivity_on_grid,
)
from taut.adaptive._sparse_vector.scalar_noise import ScalarNoise
from taut.errors import UnsoundConfiguration

__all__ = ["SparseVectorDesign", "check_noise"]

_LARGEST_SCALE = 2.0**18  # in sensitivities: the noise is then at most 2^30 grid steps
_SMALLEST_SCALE = 2.0**-8  # in sensitivities: below, there is nothing to hide behind
_METHODS = ("tight", "thesis")


@dataclass(frozen=True)
class SparseVectorDesign:
    """A sparse vector: noise, number of answers above, number of queries, and its privacy loss.

    The mechanism adds noise to a threshold once and to every query, and says of each query whether
    it is above. Answers below are free, up to what the length costs; it ends after ``tops`` answers
    above, or ``most_queries`` in all.

    Attributes:
        threshold_noise: noise on the threshold.
        query_noise: noise on every query.
        sensitivity: how far one record moves any query.
        tops: number of answers above after which it ends.
        adjacency: the relation for which the sensitivity holds.
        most_queries: number of queries after which it ends; None for any number, which needs
            Laplace or exponential noise on queries, or ``margin``.
        monotone: whether one record moves all queries in one direction, as it does counts if it
            is added or removed; one that is replaced may raise some counts and lower others.
            Where it holds, half the noise on queries will do.
        resample: whether the noise on the threshold is drawn again after every answer above.
        margin: largest distance of a threshold from the least value that a query can have, where
            there is one: for normal noise at any length.
        gap: whether answers above come with their noisy distance from the threshold.
        method: name of the bounds that count: ``"tight"`` for all proven ones, ``"thesis"`` for
            those of Zhu (2023), corrected.

    **Guarantee**: `loss` holds for queries and thresholds that are chosen by all answers before
    them, of any analyst, provided that thresholds look at no data and one record moves each query
    by at most ``sensitivity`` (Lyu, Su and Li 2017; Zhu and Wang 2020; docs/theory/sparse-vector.md
    for the tight bounds). Queries are rounded to `grid`, which is part of the loss.

    Raises:
        ValueError: for parameters out of range, and more answers above than queries.
        UnsoundConfiguration: if no bound is known: normal noise on queries at any length; by
            `loss`, if none is finite.

    Example:
        >>> from taut.adaptive import ScalarNoise, SparseVectorDesign
        >>> design = SparseVectorDesign(
        ...     ScalarNoise("gaussian", 50.0), ScalarNoise("gaussian", 100.0), sensitivity=1.0,
        ...     tops=20, most_queries=100_000, adjacency="replace",
        ... )
        >>> design.loss.epsilon(delta=1e-6) < 1.2
        True
    """

    threshold_noise: ScalarNoise
    query_noise: ScalarNoise
    sensitivity: float
    tops: int
    adjacency: Adjacency | str
    most_queries: int | None = None
    monotone: bool = False
    resample: bool = False
    margin: float | None = None
    gap: bool = False
    method: str = "tight"

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "sensitivity", checked_sensitivity(self.sensitivity))
        # Numbers of NumPy with fewer bits would round, or overflow, in what follows.
        object.__setattr__(self, "tops", validate.positive_integer(tops=self.tops))
        if self.most_queries is not None:
            most = validate.positive_integer(most_queries=self.most_queries)
            object.__setattr__(self, "most_queries", most)
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        for name in ("monotone", "resample", "gap"):
            object.__setattr__(self, name, validate.flag(**{name: getattr(self, name)}))
        for name in ("threshold_noise", "query_noise"):
            check_noise(self.sensitivity, **{name: getattr(self, name)})
        if self.method not in _METHODS:
            raise ValueError(f"method must be 'tight' or 'thesis', got method={self.method!r}")
        if self.most_queries is not None and self.tops > self.most_queries:
            raise ValueError(
                f"tops must not exceed most_queries, got tops={self.tops} and "
                f"most_queries={self.most_queries}; without a limit to answers above there is no "
                "need for a sparse vector: answer every query by itself"
            )
        if self.margin is not None:
            margin = validate.finite(margin=self.margin)
            widest = 2 * MOST_STEPS * self.grid
            if not abs(margin) <= widest:
                raise ValueError(
                    f"margin must lie within 2^53 grid steps of zero, {widest!r}, as queries and "
                    f"thresholds lie within 2^52, got margin={self.margin!r}"
                )
            object.__setattr__(self, "margin", margin)
        self._check_length()

    @property
    def grid(self) -> float:
        """The public power of two of which queries and thresholds are multiples."""
        return grid_of(self.sensitivity)

    @property
    def rounded_sensitivity(self) -> float:
        """How far one record moves a query after rounding: whole grid steps."""
        return sensitivity_on_grid(self.sensitivity)

    @property
    def pure_epsilon(self) -> float:
        """The epsilon of pure differential privacy, infinite if any noise is normal."""
        return self._parts * self._comparisons.pure_epsilon

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of all answers together, which is spent when the mechanism is made."""
        divergences = np.min(list(self.bounds(ORDERS).values()), axis=0)
        if not np.isfinite(divergences).any():
            raise UnsoundConfiguration(
                "no bound on the loss of this design is finite in doubles: its noise is far too "
                "small for its number of answers. Take more noise, or fewer answers"
            )
        pure = self._comparisons.pure_epsilon
        one = from_rdp(
            dict(zip(ORDERS.tolist(), divergences.tolist(), strict=True)),
            pure_epsilon=pure if pure <= MOST_PURE else None,
            adjacency=self.adjacency,
        )
        return self._parts * one

    def epsilon_bounds(self, delta: float) -> Bounds:
        """Return certified bounds on epsilon at ``delta``.

        The upper one is that of `loss`. The lower one is reached by an explicit pair of streams,
        the best of two families (docs/theory/sparse-vector.md), so that no proof can gain more
        than the gap. It takes a second or two.
        """
        level = validate.below_one(delta=delta)
        upper = self.loss.epsilon(level)
        return Bounds(min(self.lower_epsilon(level, 1), upper), upper)

    def lower_epsilon(self, delta: float, copies: int) -> float:
        """Return an epsilon that independent copies of this design have at least together.

        Args:
            delta: where epsilon holds.
            copies: how many there are.
        """
        comparisons, parts = self._comparisons, self._parts
        if parts > 1 and self.most_queries is not None:
            # Each part has its share of the questions, the last of which is above for certain.
            share = self.most_queries // parts - 1
            parts = parts if share > 0 else 1
            comparisons = replace(comparisons, queries=share if share > 0 else self.most_queries)
        moved = math.floor(Fraction(self.sensitivity) / Fraction(self.grid)) * self.grid
        return certified_lower(comparisons, moved, self.grid, copies * parts, delta)

    def bounds(self, orders: Vector) -> dict[str, Vector]:
        """Return upper bounds on the Renyi divergences by name, of one part if ``resample``.

        Args:
            orders: real orders above one, shape (m,).
        """
        return dict(_bounds(self._comparisons, tuple(orders.tolist()), self.method))

    def best_bound(self, delta: float) -> str:
        """Return the name of the bound that decides epsilon at ``delta``.

        ``"pure"`` stands for e1 + c e2; ``"pure_query"`` for Zhu (2023), equation 7.3;
        ``"counting"`` for Theorem 7.2.7, which for one answer is equation 7.1; ``"length"`` for
        equation 7.2. ``"game"``, ``"lasting"``, ``"tail_ratio"`` and ``"floored_game"`` are
        derived in docs/theory/sparse-vector.md.
        """
        level = validate.below_one(delta=delta)
        epsilon = self.loss.epsilon(level)
        if level == 0 or epsilon >= self.pure_epsilon * (1 - 1e-6):
            return "pure"
        bounds = self.bounds(ORDERS)
        excess = (math.log(1 / level) - np.log(ORDERS)) / (ORDERS - 1) + np.log1p(-1 / ORDERS)
        return min(bounds, key=lambda name: float((self._parts * bounds[name] + excess).min()))

    @property
    def _parts(self) -> int:
        return self.tops if self.resample else 1

    @property
    def _comparisons(self) -> Comparisons:
        reach = self.rounded_sensitivity
        return Comparisons(
            self.threshold_noise,
            self.query_noise,
            reach,
            reach if self.monotone else 2 * reach,
            1 if self.resample else self.tops,
            self.most_queries,
            # Rounding moves thresholds, queries and noise by half a grid step each.
            None if self.margin is None else self.margin + 2 * self.grid,
            self.gap,
        )

    def _check_length(self) -> None:
        if self.most_queries is not None or self.query_noise.kind != "gaussian":
            return
        if self.margin is None or self.threshold_noise.kind != "gaussian" or self.gap:
            raise UnsoundConfiguration(
                "normal noise on queries has no guarantee at any length: answers below are free "
                "only up to what their number costs. Give most_queries; or Laplace noise on "
                "queries; or, if queries have a least value and both noises are normal, margin"
            )


@lru_cache(maxsize=64)
def _bounds(
    comparisons: Comparisons, orders: tuple[float, ...], method: str
) -> tuple[tuple[str, Vector], ...]:
    """Return all bounds; some take a second, and designs are asked again and again."""
    return tuple(comparisons.bounds(np.array(orders), method).items())


def check_noise(sensitivity: float = 1.0, **noises: object) -> None:
    """Raise unless all noises are scalar, and neither too small to hide nor too large to hold."""
    for name, noise in noises.items():
        if not isinstance(noise, ScalarNoise):
            raise validate.WrongType(f"{name} must be a ScalarNoise, got {name}={noise!r}")
        if not _SMALLEST_SCALE <= noise.scale / sensitivity <= _LARGEST_SCALE:
            raise ValueError(
                f"{name} must have a scale between 2^-8 and 2^18 sensitivities, got "
                f"scale={noise.scale!r} and sensitivity={sensitivity!r}"
            )
