"""Answers about sums of dominating pairs: which engine, with certified bounds.

The first engine that is exact or certified for the shape of the sum answers: a closed profile, the
shifted contour, the tilted lattice where it is quick, or doubling in convex order, which needs some
hundredths of a second but no luck; Chernoff's bound is always at hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from taut._base.floats import DOWN, RELATIVE_ERROR, UP
from taut.accounting._adjacency import Half
from taut.accounting._engines.bounds import Bounds, falls_below
from taut.accounting._engines.contour import Contour
from taut.accounting._engines.convex_order import ConvexOrder, OrderedSum
from taut.accounting._engines.half_sum import HalfSum
from taut.accounting._engines.lattice_engine import LatticeEngine
from taut.accounting._engines.saddle_point import UNCUT_TAIL, Cumulants, Saddle
from taut.accounting._engines.tilted import TiltedSum
from taut.accounting._pairs.discretisation import BeyondLattice
from taut.accounting._pairs.pair import Pair

__all__ = [
    "Answer",
    "Curve",
    "DeltaOfPairs",
    "Engine",
    "EpsilonOfPairs",
    "chernoff_bounds",
    "cut_tail",
    "upper_epsilons",
]

_LEAST_DELTA = 1e-300  # below it floating point loses relative precision
_LEAST_LOG_DELTA = -660.0  # exp(-660) = 2e-287: masses of a lattice for less would underflow
# Tolerance from which on a lattice is worth seconds: doubling takes as long to be so sharp, and is
# limited by rounding for millions of copies.
_SHARP = 1e-4
_FEW_TERMS = 8  # distinct: with more, a lattice that fits all of them costs more than doubling
_ROUGHEST_CUT = 1e-2  # tolerance: larger tails, cut for rougher answers, would save no time
_CURVE_SHARE = 1e-4  # of the tolerance: a curve is asked at other epsilons too, where delta is less
_FIRST_STEP_BACK = 1e-12  # relative, to a lower bound: doubled until there is one
_TAIL_SHARE = 1e-3  # of delta times the tolerance: what cut tails, counted as infinite, may add


class Engine(StrEnum):
    """How an answer was obtained."""

    EXACT = "closed-form profile"
    CONTOUR = "shifted contour"
    LATTICE = "tilted lattice"
    ORDER = "doubling in convex order"
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


class EpsilonOfPairs:
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
            self._tail = cut_tail(delta - part.mass_inf, tolerance, part.count)
            self._cumulants = Cumulants(part.terms, self._tail)
            self._saddle = self._cumulants.at_delta(delta - part.mass_inf)
            self.ceiling = min(self._saddle.epsilon, part.max_loss)

    def answer(self, tolerance: float) -> Answer:
        """Return certified bounds."""
        part = self._part
        if self._limit is not None:
            return Answer(self._limit, part.half, Engine.LIMIT)
        if part.single is not None:
            return Answer(_reached(_invert, part.single, self._delta), part.half, Engine.EXACT)
        if self.ceiling <= 0:
            return Answer(Bounds(0.0, 0.0), part.half, Engine.CHERNOFF)
        floor = part.near_top(self._delta)
        if floor >= (1 - tolerance) * part.max_loss and part.attained == part:
            return Answer(Bounds(floor, part.max_loss), part.half, Engine.LIMIT)
        (lower, upper), engine = self._compute(tolerance, floor)
        if upper >= self.ceiling:
            engine = Engine.CHERNOFF
        upper = min(upper, self.ceiling)
        return Answer(Bounds(min(lower, upper), upper), part.half, engine)

    def _compute(self, tolerance: float, floor: float) -> tuple[Bounds, Engine]:
        """Return bounds for the pairs as they are; ``floor`` is a lower bound already known."""
        tight = self._part.attained == self._part
        if tight and self._part.suits_contour:
            contour = _contour(self._part, self._saddle, self._cumulants)
            if contour is not None:
                bounds = _invert_contour(contour, self._delta, self.ceiling)
                if bounds.gap <= tolerance * bounds.upper:
                    return bounds, Engine.CONTOUR
        best, engine = Bounds(floor if tight else 0.0, self.ceiling), Engine.CHERNOFF
        for tried, found in self._candidates(tolerance, floor, tight=tight):
            engine = tried
            upper = min(best.upper, found.upper)
            best = Bounds(min(max(best.lower, found.lower), upper), upper)
            if best.gap <= tolerance * best.upper:
                break
        return best, engine

    def _candidates(
        self, tolerance: float, floor: float, *, tight: bool
    ) -> Iterator[tuple[Engine, Bounds]]:
        """Yield bounds of one engine after the other, quick ones first."""
        # A lattice has no lower bound for another pair than the one it looks at.
        if tight and len(self._part.terms) <= _FEW_TERMS:
            lattice = self._engine(quick=tolerance > _SHARP)
            yield Engine.LATTICE, lattice.epsilon(self._delta, tolerance, floor)
        try:
            order = ConvexOrder(self._part, self._tail)
            yield Engine.ORDER, order.epsilon(self._delta, tolerance, self.ceiling)
        except BeyondLattice:
            pass
        else:
            if tolerance > _SHARP:
                return
        if not tight:
            reached = EpsilonOfPairs(self._part.attained, self._delta, tolerance)
            floor = reached.answer(tolerance).bounds.lower
        lower, upper = self._engine().epsilon(self._delta, tolerance, floor)
        yield Engine.LATTICE, Bounds(min(lower if tight else floor, upper), upper)

    @property
    def quick(self) -> bool:
        """Whether a sharp answer takes next to nothing: a closed form or a contour is at hand."""
        return self._limit is not None or self._part.single is not None or self._part.suits_contour

    def stays_below(self, epsilon: float) -> bool:
        """Return whether little work proves that the answer is at most ``epsilon``."""
        if self.ceiling <= epsilon:
            return True
        if self.quick:
            return False
        few = len(self._part.terms) <= _FEW_TERMS
        if few and self._engine(quick=True).stays_below(self._delta, epsilon):
            return True
        return ConvexOrder(self._part, self._tail).stays_below(self._delta, epsilon)

    def adds_nothing_above(self, upper: float) -> bool:
        """Return False: a half of pairs can always raise the lower bound."""
        return False

    def _engine(self, *, quick: bool = False) -> LatticeEngine:
        return LatticeEngine(
            self._part.terms, self._cumulants, self._saddle, self._tail, quick=quick
        )


def upper_epsilons(part: HalfSum, deltas: Sequence[float], tolerance: float) -> list[float]:
    """Return upper bounds on epsilon at several ``deltas``, about ``tolerance`` above the least.

    One sum answers all of them, and no lower bound costs time.
    """
    questions = [EpsilonOfPairs(part, delta, tolerance) for delta in deltas]
    if all(question.quick for question in questions):
        return [question.answer(tolerance).bounds.upper for question in questions]
    ceilings = [question.ceiling for question in questions]
    tail = cut_tail(min(deltas) - part.mass_inf, tolerance, part.count)
    try:
        return ConvexOrder(part, tail).upper_epsilons(deltas, tolerance, ceilings)
    except BeyondLattice:
        return ceilings


def _limit_epsilon(part: HalfSum, delta: float) -> Bounds | None:
    """Return epsilon where no computation is needed."""
    if not part.terms:
        return Bounds(0.0, 0.0)
    if delta < part.mass_inf - part.mass_error:
        betrayed = part.attained.mass_inf
        return Bounds(math.inf if delta < betrayed - part.mass_error else 0.0, math.inf)
    if delta > part.mass_inf + part.mass_error:
        return None
    if part.mass_error:  # whether the infinite mass fits is a matter of rounding
        return Bounds(part.near_top(part.mass_inf + 2 * part.mass_error), math.inf)
    largest = max(part.max_loss, 0.0)
    return Bounds(max(largest * (1 - 64 * RELATIVE_ERROR) - 2 * part.loss_error, 0.0), largest)


def _reached(question: Callable[[Pair, float], Bounds], pair: Pair, at: float) -> Bounds:
    """Return the answer for a single loss, with a lower bound that some release reaches."""
    bounds = question(pair, at)
    if pair.tight:
        return bounds
    return Bounds(min(question(pair.reached, at).lower, bounds.upper), bounds.upper)


def _invert(pair: Pair, delta: float) -> Bounds:
    """Return the epsilon of a single loss from its exact profile."""

    def profile(epsilon: float) -> float:
        return float(pair.profile(np.array([epsilon]))[0])

    slack = pair.profile_error
    upper = falls_below(profile, delta / (1 + slack), 1.0).upper
    lower = falls_below(profile, delta * (1 + 2 * slack), upper).lower
    if upper == 0:
        return Bounds(0.0, 0.0)
    # The losses themselves are rounded.
    hair = RELATIVE_ERROR + pair.loss_error
    upper = min(upper * UP + hair, max(pair.max_loss + pair.loss_error, 0.0))
    return Bounds(min(max(lower * DOWN - hair, 0.0), upper), upper)


def _contour(part: HalfSum, saddle: Saddle, cumulants: Cumulants) -> Contour | None:
    """Return a certified contour, or None where there is none or arithmetic leaves its range."""
    try:
        with np.errstate(invalid="raise"):
            contour = Contour(part.terms, saddle, cumulants)
    except ArithmeticError:
        return None
    return contour if contour.certified else None


def _invert_contour(contour: Contour, delta: float, guess: float) -> Bounds:
    """Return the epsilon of a sum from its certified contour."""
    upper = falls_below(lambda epsilon: contour.delta(epsilon).upper, delta, guess).upper
    back = _FIRST_STEP_BACK * upper
    while back < upper and contour.delta(upper - back).lower <= delta:
        back *= 2
    return Bounds(max(upper - back, 0.0), upper)


Curve = Callable[[float], Bounds]
"""Certified bounds on delta as a function of epsilon."""


class DeltaOfPairs:
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
            self._log_delta = Cumulants(part.terms, UNCUT_TAIL).at_epsilon(epsilon).log_delta
            self.ceiling += math.exp(max(self._log_delta, -700.0))

    def curve(self, tolerance: float) -> tuple[Curve, Engine]:
        """Return certified bounds on delta as a function, sharp near epsilon."""
        part = self.part
        if self._limit:
            return partial(_limit_bounds, part), Engine.LIMIT
        if self._single is not None:
            return partial(_reached, _exact_bounds, self._single), Engine.EXACT
        if self._log_delta < _LEAST_LOG_DELTA:
            whole = Cumulants(part.terms, UNCUT_TAIL)
            return partial(chernoff_bounds, whole, part.mass_inf), Engine.CHERNOFF
        delta = math.exp(max(self._log_delta, -600.0))
        tail = cut_tail(delta, _CURVE_SHARE * tolerance, part.count)
        cumulants = Cumulants(part.terms, tail)
        saddle = cumulants.at_epsilon(self._epsilon)
        curve: Curve = partial(chernoff_bounds, cumulants, part.mass_inf)
        engine, narrowest = Engine.CHERNOFF, math.inf
        for tried, found in self._candidates(cumulants, saddle, tail, tolerance):
            bounds = found(self._epsilon)
            if bounds.gap < narrowest:
                engine, curve, narrowest = tried, found, bounds.gap
            if bounds.gap <= tolerance * bounds.upper:
                break
        return partial(_with_chernoff, curve, cumulants, part.mass_inf), engine

    def _candidates(
        self, cumulants: Cumulants, saddle: Saddle, tail: float, tolerance: float
    ) -> Iterator[tuple[Engine, Curve]]:
        """Yield bounds of one engine after the other, quick ones first, good ones last."""
        part = self.part
        tight = part.attained == part
        contour = _contour(part, saddle, cumulants) if tight and part.suits_contour else None
        if contour is not None:
            yield Engine.CONTOUR, contour.delta
        few = tight and len(part.terms) <= _FEW_TERMS
        if few:
            yield from self._lattice(cumulants, saddle, tail, tolerance, quick=tolerance > _SHARP)
        try:
            order = ConvexOrder(part, tail).curve(self._epsilon, tolerance)
            yield Engine.ORDER, partial(_order_bounds, order)
        except BeyondLattice:
            pass
        if few and tolerance > _SHARP:
            yield from self._lattice(cumulants, saddle, tail, tolerance, quick=False)

    def _lattice(
        self, cumulants: Cumulants, saddle: Saddle, tail: float, tolerance: float, *, quick: bool
    ) -> Iterator[tuple[Engine, Curve]]:
        """Yield the bounds of a lattice, if it fits."""
        lattice = LatticeEngine(self.part.terms, cumulants, saddle, tail, quick=quick)
        try:
            yield Engine.LATTICE, partial(_lattice_bounds, *lattice.curve(tolerance))
        except BeyondLattice:
            return


def _limit_bounds(part: HalfSum, at: float) -> Bounds:
    """Return the infinite mass, which is all of delta from the largest loss on."""
    lower = max(part.attained.mass_inf - part.mass_error, 0.0)
    beyond = not part.terms or at >= part.max_loss or part.mass_inf == 1
    upper = min(part.mass_inf + part.mass_error, 1.0) if beyond else 1.0
    return Bounds(min(lower, upper), upper)


def _lattice_bounds(lower: TiltedSum, upper: TiltedSum, at: float) -> Bounds:
    return Bounds(lower.delta_lower(at), upper.delta_upper(at))


def _order_bounds(order: OrderedSum, at: float) -> Bounds:
    return Bounds(order.delta_lower(at), order.delta_upper(at))


def chernoff_bounds(cumulants: Cumulants, mass_inf: float, at: float) -> Bounds:
    proven = math.exp(cumulants.at_epsilon(at).log_delta)
    return Bounds(mass_inf, min(mass_inf + proven, 1.0))


def _with_chernoff(curve: Curve, cumulants: Cumulants, mass_inf: float, at: float) -> Bounds:
    """Return bounds with the smaller of two upper ones."""
    lower, upper = curve(at)
    upper = min(upper, chernoff_bounds(cumulants, mass_inf, at).upper)
    return Bounds(min(lower, upper), upper)


def _exact_bounds(pair: Pair, at: float) -> Bounds:
    """Return the profile of a single loss with its rounding error; it may underflow."""
    hair = RELATIVE_ERROR * (1 + abs(at)) + pair.loss_error
    upper, lower = (float(value) for value in pair.profile(np.array([at - hair, at + hair])))
    if at < pair.max_loss and upper < _LEAST_DELTA:
        return Bounds(0.0, _LEAST_DELTA)
    slack = pair.profile_error
    return Bounds(abs(max(lower * (1 - slack), 0.0)), abs(min(upper * (1 + slack), 1.0)))


def cut_tail(delta: float, tolerance: float, count: int) -> float:
    """Return the mass that may be cut from each of ``count`` losses."""
    return max(_TAIL_SHARE * min(tolerance, _ROUGHEST_CUT) * delta / count, _LEAST_DELTA)
