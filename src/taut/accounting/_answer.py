"""Which engine answers which question about a sum of losses.

A question travels one way: the sum is split into halves, Gaussians are merged, and the first
engine that is exact or certified for the shape of the sum answers. The guarantee is the maximum
over the halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from taut.accounting._adjacency import Half
from taut.accounting._bounds import Bounds, falls_below
from taut.accounting._composer import LatticeEngine
from taut.accounting._contour import Contour
from taut.accounting._half_sum import HalfSum
from taut.accounting._lattice import BeyondLattice
from taut.accounting._pair import ROUNDING, Pair
from taut.accounting._scout import SHARP, Saddle, Scout
from taut.accounting._tilted import TiltedSum

__all__ = [
    "Answer",
    "Engine",
    "delta_bounds",
    "delta_curve",
    "epsilon_bounds",
]

_SMALLEST = 1e-300  # below it floating point loses relative precision
_SHARES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)  # of delta, or of epsilon, tried in a split
_TAIL = 1e-3  # share of delta, times the tolerance, that cut tails may add


class Engine(StrEnum):
    """How an answer was obtained."""

    EXACT = "closed-form profile"
    CONTOUR = "shifted contour"
    LATTICE = "tilted lattice"
    CHERNOFF = "Chernoff bound"
    RENYI = "Renyi divergences of the whole sum"
    PAIRS = "pairs of releases that reveal more"
    SPLIT = "delta split between dominating pairs and Renyi divergences"
    LIMIT = "limit case"


@dataclass(frozen=True)
class Answer:
    """Certified bounds with the half and the engine that decided them."""

    bounds: Bounds
    half: Half
    engine: Engine


def epsilon_bounds(sums: Sequence[HalfSum], delta: float, tolerance: float) -> Answer:
    """Return the epsilon at ``delta`` of the worse half."""
    main = [part.without_dust(tolerance) for part in sums]
    dust = max(part.dust(tolerance) for part in sums)
    if dust:
        # Dropping a release is post-processing, and no loss is larger than its largest value.
        rest = epsilon_bounds(main, delta, tolerance / 2)
        lower, upper = rest.bounds
        if dust <= tolerance / 2 * upper:
            return Answer(Bounds(lower, upper + dust), rest.half, rest.engine)
    return _epsilon_bounds(sums, delta, tolerance)


def _epsilon_bounds(sums: Sequence[HalfSum], delta: float, tolerance: float) -> Answer:
    questions = [_epsilon_question(part, delta, tolerance) for part in dict.fromkeys(sums)]
    questions.sort(key=lambda question: -question.ceiling)
    answers = [questions[0].answer(tolerance)]
    for question in questions[1:]:
        # A rough look settles most races; only a close one is run to the end.
        floor = max(answer.bounds.lower for answer in answers)
        if not question.stays_below(floor):
            answers.append(question.answer(tolerance))
    answer = _worst(answers)
    lower, upper = answer.bounds
    # A loss that is zero but for rounding proves nothing.
    noise = ROUNDING * max(part.count + 1 for part in sums)
    if answer.engine not in (Engine.LIMIT, Engine.EXACT):
        upper = upper * (1 + ROUNDING) + noise if upper > 0 else 0.0
        lower = lower * (1 - ROUNDING) - noise
    lower = lower if lower > noise else 0.0
    return Answer(Bounds(lower, max(upper, 0.0)), answer.half, answer.engine)


def delta_bounds(sums: Sequence[HalfSum], epsilon: float, tolerance: float) -> Answer:
    """Return the delta at ``epsilon`` of the worse half."""
    main = [part.without_dust(tolerance) for part in sums]
    dust = max(part.dust(tolerance) for part in sums)
    if dust:
        rest = delta_bounds(main, epsilon, tolerance / 2)
        lower = rest.bounds.lower
        # delta(e) of the sum is at most that of the rest at e - dust; below zero profiles rise by
        # no more than the shift.
        shifted = delta_bounds(main, max(epsilon - dust, 0.0), tolerance / 2).bounds.upper
        above = min(shifted + max(dust - epsilon, 0.0), 1.0)
        if above - lower <= tolerance * above:
            return Answer(Bounds(lower, above), rest.half, rest.engine)
    return _delta_bounds(sums, epsilon, tolerance)


def _delta_bounds(sums: Sequence[HalfSum], epsilon: float, tolerance: float) -> Answer:
    questions = [_delta_question(part, epsilon) for part in dict.fromkeys(sums)]
    questions.sort(key=lambda question: -question.ceiling)
    answers: list[Answer] = []
    for question in questions:
        if not answers or question.ceiling > max(answer.bounds.lower for answer in answers):
            curve, engine = question.curve(tolerance)
            answers.append(Answer(curve(epsilon), question.part.half, engine))
    return _worst(answers)


def _worst(answers: Sequence[Answer]) -> Answer:
    worst = max(answers, key=lambda answer: answer.bounds.upper)
    lower = max(answer.bounds.lower for answer in answers)
    # Adding zero turns a negative zero into a plain one.
    return Answer(Bounds(lower + 0.0, worst.bounds.upper + 0.0), worst.half, worst.engine)


def _epsilon_question(
    part: HalfSum, delta: float, tolerance: float
) -> _EpsilonAt | _EpsilonWithCurves:
    question = _EpsilonWithCurves if part.curves else _EpsilonAt
    return question(part, delta, tolerance)


def _delta_question(part: HalfSum, epsilon: float) -> _DeltaNear | _DeltaWithCurves:
    return _DeltaWithCurves(part, epsilon) if part.curves else _DeltaNear(part, epsilon)


class _EpsilonAt:
    """epsilon(delta) of one half; ``ceiling`` is known before any engine runs."""

    def __init__(self, part: HalfSum, delta: float, tolerance: float) -> None:
        self._part = part
        self._delta = delta
        self._limit = _limit_epsilon(part, delta)
        if self._limit is not None:
            self.ceiling = self._limit.upper
        elif part.single is not None:
            self.ceiling = math.inf
        else:
            self._tail = _tail(delta - part.mass_inf, tolerance, part.count)
            self._scout = Scout(part.terms, self._tail)
            self._saddle = self._scout.at_delta(delta - part.mass_inf)
            self.ceiling = min(self._saddle.epsilon, part.max_loss)

    def answer(self, tolerance: float) -> Answer:
        """Return certified bounds."""
        part = self._part
        if self._limit is not None:
            return Answer(self._limit, part.half, Engine.LIMIT)
        if part.single is not None:
            return Answer(_invert_single(part.single, self._delta), part.half, Engine.EXACT)
        if self.ceiling <= 0:
            return Answer(Bounds(0.0, 0.0), part.half, Engine.CHERNOFF)
        floor = part.near_top(self._delta)
        if floor >= (1 - tolerance) * part.max_loss and part.attained == part:
            return Answer(Bounds(floor, part.max_loss), part.half, Engine.LIMIT)
        if part.attained != part:
            reached = _EpsilonAt(part.attained, self._delta, tolerance).answer(tolerance)
            floor = reached.bounds.lower
        (lower, upper), engine = self._compute(tolerance, floor)
        lower = max(lower, floor) if part.attained == part else floor
        if upper >= self.ceiling:
            engine = Engine.CHERNOFF
        upper = min(upper, self.ceiling)
        return Answer(Bounds(min(lower, upper), upper), part.half, engine)

    def _compute(self, tolerance: float, floor: float) -> tuple[Bounds, Engine]:
        """Return bounds for the pairs as they are; ``floor`` is a lower bound already known."""
        if self._part.suits_contour:
            contour = Contour(self._part.terms, self._saddle, self._scout)
            if contour.certified:
                bounds = _invert_contour(contour, self._delta, self.ceiling)
                if bounds.gap <= tolerance * bounds.upper:
                    return bounds, Engine.CONTOUR
        return self._engine().epsilon(self._delta, tolerance, floor), Engine.LATTICE

    def stays_below(self, epsilon: float) -> bool:
        """Return whether little work proves that the answer is at most ``epsilon``."""
        if self.ceiling <= epsilon:
            return True
        decided = self._limit is not None or self._part.single is not None
        if decided or self._part.suits_contour:
            return False
        return self._engine().stays_below(self._delta, epsilon)

    def _engine(self) -> LatticeEngine:
        return LatticeEngine(self._part.terms, self._scout, self._saddle, self._tail)


def _limit_epsilon(part: HalfSum, delta: float) -> Bounds | None:
    """Return epsilon where no computation is needed."""
    if not part.terms:
        return Bounds(0.0, 0.0)
    if delta < part.mass_inf - part.mass_error:
        return Bounds(math.inf, math.inf)
    if delta > part.mass_inf + part.mass_error:
        return None
    if part.mass_error:  # whether the infinite mass fits is a matter of rounding
        return Bounds(part.near_top(part.mass_inf + 2 * part.mass_error), math.inf)
    largest = max(part.max_loss, 0.0)
    return Bounds(max(largest * (1 - 8 * ROUNDING), 0.0), largest)


def _invert_single(pair: Pair, delta: float) -> Bounds:
    """Return the epsilon of a single loss, with a lower bound that some release reaches."""
    bounds = _invert(pair, delta)
    if pair.tight:
        return bounds
    return Bounds(min(_invert(pair.attained, delta).lower, bounds.upper), bounds.upper)


def _invert(pair: Pair, delta: float) -> Bounds:
    """Return the epsilon of a single loss from its exact profile."""

    def profile(epsilon: float) -> float:
        return float(pair.profile(np.array([epsilon]))[0])

    slack = pair.profile_error
    upper = falls_below(profile, delta / (1 + slack), 1.0).upper
    lower = falls_below(profile, delta * (1 + 2 * slack), max(upper, 1e-6)).lower
    if upper == 0:
        return Bounds(0.0, 0.0)
    # The losses themselves are rounded.
    hair = ROUNDING + pair.loss_error
    upper = min(upper * (1 + ROUNDING) + hair, max(pair.max_loss + pair.loss_error, 0.0))
    return Bounds(min(max(lower * (1 - ROUNDING) - hair, 0.0), upper), upper)


def _invert_contour(contour: Contour, delta: float, guess: float) -> Bounds:
    """Return the epsilon of a sum from its certified contour."""
    upper = falls_below(lambda epsilon: contour.delta(epsilon).upper, delta, guess).upper
    back = 1e-12 * upper
    while back < upper and contour.delta(upper - back).lower <= delta:
        back *= 2
    return Bounds(max(upper - back, 0.0), upper)


Curve = Callable[[float], Bounds]
"""Certified bounds on delta as a function of epsilon."""


class _DeltaNear:
    """delta(epsilon) of one half; ``ceiling`` is known before any engine runs."""

    def __init__(self, part: HalfSum, epsilon: float) -> None:
        self.part = part
        self._epsilon = epsilon
        self._limit = not part.terms or epsilon >= part.max_loss or part.mass_inf == 1
        self._single = part.single
        self.ceiling = part.mass_inf
        if self._single is not None:
            self.ceiling = 1.0
        elif not self._limit:
            self._log_delta = Scout(part.terms, 1e-290).at_epsilon(epsilon).log_delta
            self.ceiling += math.exp(max(self._log_delta, -700.0))

    def curve(self, tolerance: float) -> tuple[Curve, Engine]:
        """Return certified bounds on delta as a function, sharp near epsilon."""
        part = self.part
        if self._limit:
            return partial(_limit_bounds, part), Engine.LIMIT
        if self._single is not None:
            return partial(_single_bounds, self._single), Engine.EXACT
        tail = _tail(math.exp(max(self._log_delta, -600.0)), 1e-4 * tolerance, part.count)
        scout = Scout(part.terms, tail)
        saddle = scout.at_epsilon(self._epsilon)
        if part.attained == part:
            return self._compute(scout, saddle, tail, tolerance, 0.0)
        reached = _DeltaNear(part.attained, self._epsilon).curve(tolerance)[0]
        floor = reached(self._epsilon).lower
        curve, engine = self._compute(scout, saddle, tail, tolerance, floor)
        return partial(_mixed_bounds, reached, curve, scout, part.mass_inf), engine

    def _compute(
        self, scout: Scout, saddle: Saddle, tail: float, tolerance: float, floor: float
    ) -> tuple[Curve, Engine]:
        """Return bounds for the pairs as they are; ``floor`` is a lower bound already known."""
        if self.part.suits_contour:
            contour = Contour(self.part.terms, saddle, scout)
            bounds = contour.delta(self._epsilon)
            if contour.certified and bounds.gap <= tolerance * bounds.upper:
                return contour.delta, Engine.CONTOUR
        try:
            sides = LatticeEngine(self.part.terms, scout, saddle, tail).curve(tolerance, floor)
        except BeyondLattice:
            return partial(_chernoff_bounds, scout, self.part.mass_inf), Engine.CHERNOFF
        return partial(_lattice_bounds, *sides), Engine.LATTICE


def delta_curve(part: HalfSum, epsilon: float, tolerance: float) -> Curve:
    """Return certified bounds on delta of one half as a function, sharp near ``epsilon``."""
    return _delta_question(part, epsilon).curve(tolerance)[0]


class _EpsilonWithCurves:
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
        if room > ROUNDING * delta:
            tail = _tail(room, tolerance, part.count)
            whole = Scout(part.terms, tail, part.curves, SHARP).at_delta(room)
            self.ceiling = max(whole.epsilon, 0.0)

    def answer(self, tolerance: float) -> Answer:
        """Return certified bounds; below, the releases without a pair may reveal nothing."""
        part, engine, upper = self._part, Engine.RENYI, self.ceiling
        lower = 0.0
        if part.terms:
            lower = _EpsilonAt(part.pairs, self._delta, tolerance).answer(tolerance).bounds.lower
        if part.terms and math.isfinite(lower):
            split = min(self._split(share, tolerance) for share in _SHARES)
            if split < upper:
                engine, upper = Engine.SPLIT, split
        dominating = part.dominating
        if dominating is not None:
            above = _EpsilonAt(dominating, self._delta, tolerance).answer(tolerance).bounds.upper
            if above < upper:
                engine, upper = Engine.PAIRS, above
        return Answer(Bounds(min(lower, upper), upper), part.half, engine)

    def stays_below(self, epsilon: float) -> bool:
        """Return whether the Renyi route alone proves an answer of at most ``epsilon``."""
        return self.ceiling <= epsilon

    def _split(self, share: float, tolerance: float) -> float:
        """Return the epsilon when the pairs get ``share`` of delta."""
        pairs = _EpsilonAt(self._part.pairs, share * self._delta, tolerance).answer(tolerance)
        rest = Scout((), 0.0, self._part.curves).at_delta((1 - share) * self._delta)
        return pairs.bounds.upper + max(rest.epsilon, 0.0)


class _DeltaWithCurves:
    """delta(epsilon) of a half in which some releases are known by Renyi divergences only."""

    def __init__(self, part: HalfSum, epsilon: float) -> None:
        self.part = part
        self._epsilon = epsilon
        self._whole = Scout(part.terms, 1e-290, part.curves, SHARP)
        self.ceiling = min(part.mass_inf + math.exp(self._whole.at_epsilon(epsilon).log_delta), 1.0)

    def curve(self, tolerance: float) -> tuple[Curve, Engine]:
        """Return certified bounds on delta as a function, by the best of the three routes."""
        routes = self._routes(tolerance)
        pairs = _DeltaNear(self.part.pairs, self._epsilon).curve(tolerance)[0]

        def bounds(at: float) -> Bounds:
            upper = min(route(at) for route in routes.values())
            return Bounds(min(pairs(at).lower, upper), upper)

        return bounds, min(routes, key=lambda engine: routes[engine](self._epsilon))

    def _routes(self, tolerance: float) -> dict[Engine, Callable[[float], float]]:
        """Return an upper bound on delta for every route."""
        part = self.part
        routes: dict[Engine, Callable[[float], float]] = {
            Engine.RENYI: lambda at: _chernoff_bounds(self._whole, part.mass_inf, at).upper
        }
        if part.terms:
            pairs = _DeltaNear(part.pairs, self._epsilon / 2).curve(tolerance)[0]
            routes[Engine.SPLIT] = partial(_split_delta, pairs, Scout((), 0.0, part.curves))
        if part.dominating is not None:
            above = _DeltaNear(part.dominating, self._epsilon).curve(tolerance)[0]
            routes[Engine.PAIRS] = lambda at: above(at).upper
        return routes


def _split_delta(pairs: Curve, rest: Scout, at: float) -> float:
    """Return the delta when epsilon is split between the pairs and the rest."""
    parts = [(share * at, at - share * at) for share in _SHARES]
    return min(pairs(a).upper + math.exp(rest.at_epsilon(b).log_delta) for a, b in parts)


def _limit_bounds(part: HalfSum, at: float) -> Bounds:
    """Return the infinite mass, which is all of delta from the largest loss on."""
    lower = max(part.mass_inf - part.mass_error, 0.0)
    beyond = not part.terms or at >= part.max_loss or part.mass_inf == 1
    return Bounds(lower, min(part.mass_inf + part.mass_error, 1.0) if beyond else 1.0)


def _lattice_bounds(lower: TiltedSum, upper: TiltedSum, at: float) -> Bounds:
    return Bounds(lower.delta_lower(at), upper.delta_upper(at))


def _chernoff_bounds(scout: Scout, mass_inf: float, at: float) -> Bounds:
    proven = math.exp(scout.at_epsilon(at).log_delta)
    return Bounds(mass_inf, min(mass_inf + proven, 1.0))


def _mixed_bounds(floor: Curve, curve: Curve, scout: Scout, mass_inf: float, at: float) -> Bounds:
    """Return the lower bound of what is attained, and the smaller of two upper bounds."""
    upper = min(curve(at).upper, _chernoff_bounds(scout, mass_inf, at).upper)
    return Bounds(min(floor(at).lower, upper), upper)


def _single_bounds(pair: Pair, at: float) -> Bounds:
    """Return the delta of a single loss, with a lower bound that some release reaches."""
    bounds = _exact_bounds(pair, at)
    if pair.tight:
        return bounds
    return Bounds(min(_exact_bounds(pair.attained, at).lower, bounds.upper), bounds.upper)


def _exact_bounds(pair: Pair, at: float) -> Bounds:
    """Return the profile of a single loss with its rounding error; it may underflow."""
    hair = ROUNDING * (1 + abs(at)) + pair.loss_error
    upper, lower = (float(value) for value in pair.profile(np.array([at - hair, at + hair])))
    if at < pair.max_loss and upper < _SMALLEST:
        return Bounds(0.0, _SMALLEST)
    slack = pair.profile_error
    return Bounds(abs(max(lower * (1 - slack), 0.0)), abs(min(upper * (1 + slack), 1.0)))


def _tail(delta: float, tolerance: float, count: int) -> float:
    """Return the mass that may be cut from each of ``count`` losses."""
    return max(_TAIL * min(tolerance, 1e-2) * delta / count, 1e-300)
