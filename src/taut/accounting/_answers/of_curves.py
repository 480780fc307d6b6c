"""Answers about sums in which some releases are known by Renyi divergences only."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from taut._base.floats import RELATIVE_ERROR
from taut.accounting._answers.of_pairs import (
    Answer,
    Curve,
    DeltaOfPairs,
    Engine,
    EpsilonOfPairs,
    chernoff_bounds,
    cut_tail,
    upper_epsilons,
)
from taut.accounting._engines.bounds import Bounds
from taut.accounting._engines.half_sum import HalfSum
from taut.accounting._engines.saddle_point import SHARP_NODES, UNCUT_TAIL, Cumulants

__all__ = ["DeltaWithCurves", "EpsilonWithCurves"]

# Of delta, or of epsilon, for the pairs; each is sound. Epsilons go with the logarithm of delta, so
# a finer choice between these gains little.
_SPLIT_SHARES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)


class EpsilonWithCurves:
    """epsilon(delta) of a half in which some releases are known by Renyi divergences only.

    Three routes are sound, and the best one is taken: Renyi divergences of everything; delta split
    between the pairs and the rest, whose epsilons then add up; pairs alone, where every release is
    dominated by that of a simpler one, if loosely.
    """

    def __init__(self, part: HalfSum, delta: float, tolerance: float) -> None:
        self._part = part
        self._delta = delta
        room = delta - part.mass_inf
        self.ceiling = math.inf
        if room > RELATIVE_ERROR * delta:
            tail = cut_tail(room, tolerance, part.count)
            whole = Cumulants(part.terms, tail, part.curves, SHARP_NODES).at_delta(room)
            self.ceiling = max(whole.epsilon, 0.0)

    def answer(self, tolerance: float) -> Answer:
        """Return certified bounds; below, the releases without a pair may reveal nothing."""
        part, engine, upper = self._part, Engine.RENYI, self.ceiling
        lower = 0.0
        if part.terms:
            lower = (
                EpsilonOfPairs(part.pairs, self._delta, tolerance).answer(tolerance).bounds.lower
            )
        if part.terms and math.isfinite(lower):
            split = self._split(tolerance)
            if split < upper:
                engine, upper = Engine.SPLIT, split
        if part.dominating is not None:
            [above] = upper_epsilons(part.dominating, [self._delta], tolerance)
            if above < upper:
                engine, upper = Engine.PAIRS, above
        return Answer(Bounds(min(lower, upper), upper), part.half, engine)

    def stays_below(self, epsilon: float) -> bool:
        """Return whether the Renyi route alone proves an answer of at most ``epsilon``."""
        return self.ceiling <= epsilon

    def adds_nothing_above(self, upper: float) -> bool:
        """Return whether little work proves that ``upper`` is all that this half could change.

        Without pairs its lower bound is zero, so that only an upper bound above ``upper`` counts.
        """
        if self._part.terms:
            return False
        if self.ceiling <= upper:
            return True
        dominating = self._part.dominating
        return (
            dominating is not None and EpsilonOfPairs(dominating, self._delta, 1.0).ceiling <= upper
        )

    def _split(self, tolerance: float) -> float:
        """Return the best epsilon when the pairs get a share of delta, and the curves the rest."""
        curves = Cumulants((), 0.0, self._part.curves)
        deltas = [share * self._delta for share in _SPLIT_SHARES]
        rests = [max(curves.at_delta(self._delta - delta).epsilon, 0.0) for delta in deltas]
        if math.isinf(min(rests)):
            return math.inf
        pairs = upper_epsilons(self._part.pairs, deltas, tolerance)
        return min(pair + rest for pair, rest in zip(pairs, rests, strict=True))


class DeltaWithCurves:
    """delta(epsilon) of a half in which some releases are known by Renyi divergences only."""

    def __init__(self, part: HalfSum, epsilon: float) -> None:
        self.part = part
        self._epsilon = epsilon
        self._whole = Cumulants(part.terms, UNCUT_TAIL, part.curves, SHARP_NODES)
        self.ceiling = min(part.mass_inf + math.exp(self._whole.at_epsilon(epsilon).log_delta), 1.0)

    def curve(self, tolerance: float) -> tuple[Curve, Engine]:
        """Return certified bounds on delta as a function, by the best of the three routes."""
        routes = self._routes(tolerance)
        pairs = DeltaOfPairs(self.part.pairs, self._epsilon).curve(tolerance)[0]

        def bounds(at: float) -> Bounds:
            upper = min(route(at) for route in routes.values())
            return Bounds(min(pairs(at).lower, upper), upper)

        return bounds, min(routes, key=lambda engine: routes[engine](self._epsilon))

    def _routes(self, tolerance: float) -> dict[Engine, Callable[[float], float]]:
        """Return an upper bound on delta for every route."""
        part = self.part
        routes: dict[Engine, Callable[[float], float]] = {
            Engine.RENYI: lambda at: chernoff_bounds(self._whole, part.mass_inf, at).upper
        }
        if part.terms:
            pairs = DeltaOfPairs(part.pairs, self._epsilon / 2).curve(tolerance)[0]
            routes[Engine.SPLIT] = partial(_split_delta, pairs, Cumulants((), 0.0, part.curves))
        if part.dominating is not None:
            above = DeltaOfPairs(part.dominating, self._epsilon).curve(tolerance)[0]
            routes[Engine.PAIRS] = lambda at: above(at).upper
        return routes


def _split_delta(pairs: Curve, rest: Cumulants, at: float) -> float:
    """Return the delta when epsilon is split between the pairs and the rest."""
    parts = [(share * at, at - share * at) for share in _SPLIT_SHARES]
    return min(pairs(a).upper + math.exp(rest.at_epsilon(b).log_delta) for a, b in parts)
