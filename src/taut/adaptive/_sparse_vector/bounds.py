"""Every proven bound on the Renyi divergences of a sparse vector, by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from taut._base.arrays import Vector
from taut._base.floats import UP
from taut.accounting import pure
from taut.adaptive._sparse_vector.floored import Floored
from taut.adaptive._sparse_vector.game import (
    gains,
    gains_below,
    lasting_gain,
    saddle_values,
    step_values,
)
from taut.adaptive._sparse_vector.scalar_noise import ScalarNoise

__all__ = ["MOST_PURE", "ORDERS", "THESIS", "Comparisons", "log_count"]

ORDERS = 1 + np.geomspace(1e-2, 1e6, 140)
"""Real orders at which divergences are bounded: neighbours differ by 14 % in the excess over one,
which costs less than 0.3 % of an epsilon."""
MOST_PURE = 1e6
"""Largest epsilon that accountants take as one: a design beyond it has its divergences alone."""
THESIS = ("pure", "pure_query", "counting", "length")
"""Bounds that are published; the others are derived in docs/theory/sparse-vector.md."""

# Of the moment of one answer, and of an order: within cells of a game it then grows by a factor of
# exp(100) at most, and stays within doubles.
_LARGEST_EXPONENT = 500.0
_LARGEST_ORDER = 1.1e6
_SHORT = 20  # questions per answer above: beyond, a length saves Laplace noise less than 1e-3
_SUMMED = 10**6  # terms of a sum of binomial coefficients; beyond, a closed form is above it
_GAMMAS = np.geomspace(1.01, 50.0, 40)  # powers that Hoelder's inequality may split with
_SUM_ERROR = 1 + 2.0**-48  # a bound is a few sums, products and quotients, each rounded
_COUNTED = 1e-13  # relative error of a long sum of logarithms


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of queries with one noisy threshold, until enough were above.

    Attributes:
        threshold: noise on the threshold, drawn once.
        query: noise on every query.
        sensitivity: how far one record moves a query.
        shift: largest shift that a comparison may hide, one or two sensitivities.
        tops: number of answers above after which it ends.
        queries: number of queries after which it ends, if there is one.
        margin: largest distance of a threshold from the least value of a query, if there is one.
        gap: whether answers above come with their distance from the threshold.
    """

    threshold: ScalarNoise
    query: ScalarNoise
    sensitivity: float
    shift: float
    tops: int
    queries: int | None
    margin: float | None
    gap: bool

    @property
    def pure_epsilon(self) -> float:
        """The epsilon of pure differential privacy, infinite with normal noise."""
        whole = self.threshold.pure(self.sensitivity) + self.tops * self.query.pure(self.shift)
        return whole * UP

    def bounds(self, orders: Vector, method: str) -> dict[str, Vector]:
        """Return every bound that applies, at real orders above one, infinite where unknown.

        Args:
            orders: real orders above one, shape (m,).
            method: name of the bounds that count: ``"thesis"`` for published ones,
                ``"tight"`` for all.
        """
        ways: dict[str, Callable[[Vector], Vector | None]] = {
            "pure": self._pure,
            "pure_query": self._pure_query,
            "counting": self._counting,
            "length": self._length,
            "game": self._game,
            "lasting": self._lasting,
            "tail_ratio": self._tail_ratio,
            "floored_game": self._floored_game,
        }
        names = THESIS if method == "thesis" else tuple(ways)
        found = {name: ways[name](orders) for name in names}
        return {name: value * _SUM_ERROR for name, value in found.items() if value is not None}

    # --- published -----------------------------------------------------------------------------

    def _pure(self, orders: Vector) -> Vector | None:
        """Randomized response, the worst of what is pure (Bun and Steinke 2016)."""
        epsilon = self.pure_epsilon
        if math.isinf(epsilon):
            return None
        if epsilon > MOST_PURE:
            return np.full(orders.shape, epsilon)
        loss = pure(epsilon)
        return np.array([min(loss.rdp(float(order)) * UP, epsilon) for order in orders])

    def _pure_query(self, orders: Vector) -> Vector | None:
        """Zhu (2023), equation 7.3, with its condition on the noise of queries."""
        epsilon = self.query.pure(self.shift)
        return None if math.isinf(epsilon) else self._of_threshold(orders) + self.tops * epsilon

    def _counting(self, orders: Vector) -> Vector | None:
        """Zhu (2023), Theorem 7.2.7, which for one answer is equation 7.1."""
        if self.queries is None:
            return None
        each = self.tops * self.query.rdp(orders, self.shift)
        return self._of_threshold(orders) + each + log_count(self.queries, self.tops) / (orders - 1)

    def _length(self, orders: Vector) -> Vector | None:
        """Zhu (2023), equation 7.2, with the moment of the length by quadrature."""
        if self.margin is None or self.tops > 1 or not self._is_normal or self.gap:
            return None
        floored, s1 = self._floored, self.threshold.scale
        limit = (self.query.scale / s1) ** 2
        best = np.full(orders.shape, math.inf)
        for gamma in _GAMMAS[limit > _GAMMAS]:
            log_moment = floored.log_length_moment(float(gamma))
            dual = gamma / (gamma - 1)
            head = (orders - 1 / dual) / (orders - 1)
            of_threshold = self.threshold.rdp(dual * orders, self.sensitivity)
            best = np.minimum(best, head * of_threshold + log_moment / (gamma * (orders - 1)))
        return best + self.query.rdp(orders, self.shift)

    # --- docs/theory/sparse-vector.md ------------------------------------------------------------

    def _game(self, orders: Vector) -> Vector | None:
        """The value of the game, at a bounded length; long ones of Laplace noise are lasting."""
        if self.queries is None or self.query.kind == "exponential" or self.gap:
            return None
        if self.query.kind == "laplace" and self.queries > _SHORT * self.tops:
            return None
        log_moments = (orders - 1) * self.query.rdp(orders, self.shift)
        near = (log_moments < _LARGEST_EXPONENT) & (orders < _LARGEST_ORDER)
        best = np.full(orders.shape, math.inf)
        if near.any():
            shift = self.shift / self.query.scale
            phi = gains(self.query.kind, orders[near], shift, log_moments[near], self.queries)
            values = saddle_values(phi, self.queries, self.tops)
            stepped = step_values(phi, self.queries, self.tops)
            best[near] = values if stepped is None else np.minimum(values, stepped)
        result: Vector = self._of_threshold(orders) + best / (orders - 1)
        return result

    def _lasting(self, orders: Vector) -> Vector | None:
        """The value of the game at any length, for Laplace noise on queries."""
        if self.query.kind != "laplace" or self.gap:
            return None
        shift = self.shift / self.query.scale
        near = ((orders - 1) * shift < _LARGEST_EXPONENT) & (orders < _LARGEST_ORDER)
        each = np.full(orders.shape, math.inf)
        each[near] = [lasting_gain(float(a), shift) for a in orders[near]]
        return self._of_threshold(orders) + self.tops * each / (orders - 1)

    def _tail_ratio(self, orders: Vector) -> Vector | None:
        """What an answer above can tell at most, where queries have a least value."""
        if self.margin is None or not self._is_normal or self.gap:
            return None
        shift = self.shift / self.query.scale
        moments = [
            self._floored.log_ratio_moment(float(a) * self.sensitivity, shift, self.tops * (a - 1))
            for a in orders
        ]
        told: Vector = np.maximum(np.array(moments), 0.0) / (orders - 1)
        return self._of_threshold(orders) + told

    def _floored_game(self, orders: Vector) -> Vector | None:
        """The value of the game at any length, where queries have a least value."""
        if self.margin is None or not self._is_normal or self.gap:
            return None
        shift = self.shift / self.query.scale
        moments = np.full(orders.shape, math.inf)
        log_moments = (orders - 1) * self.query.rdp(orders, self.shift)
        near = (log_moments < _LARGEST_EXPONENT) & (orders < _LARGEST_ORDER)
        for i in np.flatnonzero(near):
            order = float(orders[i])

            def caps(u: Vector, order: float = order) -> Vector:
                return self.tops * gains_below(order, shift, u)

            mean, power = order * self.sensitivity, self.tops * (order - 1)
            moments[i] = self._floored.log_ratio_moment(mean, shift, power, caps)
        told: Vector = np.maximum(moments, 0.0) / (orders - 1)
        return self._of_threshold(orders) + told

    # --- parts -----------------------------------------------------------------------------------

    @property
    def _is_normal(self) -> bool:
        return self.threshold.kind == self.query.kind == "gaussian"

    @property
    def _floored(self) -> Floored:
        assert self.margin is not None
        return Floored(self.threshold.scale, self.query.scale, self.margin)

    def _of_threshold(self, orders: Vector) -> Vector:
        return self.threshold.rdp(orders, self.sensitivity)


def log_count(queries: int, tops: int) -> float:
    """Return the logarithm of how many sequences of answers there are, not too small.

    They are sum of C(queries, j) for j up to ``tops``.
    """
    most = min(tops, queries)
    if most > _SUMMED:
        # Of all subsets, and of those of at most `most` elements.
        return min(queries * math.log(2), most * (1 + math.log(queries / most)))
    j = np.arange(most, dtype=np.float64)
    logs = np.concatenate([[0.0], np.cumsum(np.log((queries - j) / (j + 1)))])
    return float(logsumexp(logs)) * (1 + _COUNTED)
