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
from taut.accounting._finite import FinitePair
from taut.accounting._gaussian import GaussianPair
from taut.accounting._lattice import BeyondLattice
from taut.accounting._pair import ROUNDING, Pair
from taut.accounting._scout import Saddle, Scout
from taut.accounting._tilted import TiltedSum

__all__ = [
    "Answer",
    "Engine",
    "HalfSum",
    "delta_bounds",
    "delta_curve",
    "epsilon_bounds",
    "merge_gaussians",
]

_SMALLEST = 1e-300  # below it floating point loses relative precision
_TAIL = 1e-3  # share of delta, times the tolerance, that cut tails may add


class Engine(StrEnum):
    """How an answer was obtained."""

    EXACT = "closed-form profile"
    CONTOUR = "shifted contour"
    LATTICE = "tilted lattice"
    CHERNOFF = "Chernoff bound"
    LIMIT = "limit case"


@dataclass(frozen=True)
class Answer:
    """Certified bounds with the half and the engine that decided them."""

    bounds: Bounds
    half: Half
    engine: Engine


@dataclass(frozen=True)
class HalfSum:
    """A sum of losses in one direction, with Gaussians merged and null losses dropped."""

    half: Half
    terms: tuple[tuple[Pair, int], ...]

    @property
    def mass_inf(self) -> float:
        """Probability of an infinite loss."""
        logs = [n * math.log1p(-p.mass_inf) if p.mass_inf < 1 else -math.inf for p, n in self.terms]
        return -math.expm1(math.fsum(logs)) if logs else 0.0

    @property
    def max_loss(self) -> float:
        """The largest finite loss."""
        return math.fsum(n * pair.max_loss for pair, n in self.terms)

    def near_top(self, delta: float) -> float:
        """Return a lower bound on epsilon from the event that every loss is the largest."""
        if math.isinf(self.max_loss):
            return 0.0
        masses = [(pair.top_mass, n) for pair, n in self.terms]
        log_mass = math.fsum(n * math.log(mass) if mass > 0 else -math.inf for mass, n in masses)
        share = (delta - self.mass_inf) * math.exp(min(-log_mass, 700.0))
        if share >= 1:
            return 0.0
        # A loss is the logarithm of a rounded ratio: its error is absolute, not relative.
        least = self.max_loss * (1 - ROUNDING) - ROUNDING * self.count
        return max(least + math.log1p(-share), 0.0)

    @property
    def count(self) -> int:
        """How many losses are summed."""
        return sum(n for _, n in self.terms)

    @property
    def single(self) -> Pair | None:
        """The only loss, if there is but one."""
        return self.terms[0][0] if self.count == 1 else None

    @property
    def attained(self) -> HalfSum:
        """A sum that releases of these kinds really reach, for lower bounds."""
        return HalfSum(self.half, tuple((pair.attained, n) for pair, n in self.terms))

    @property
    def suits_contour(self) -> bool:
        """Whether all cumulants are closed formulas and a Gaussian makes the integrand decay."""
        return all(pair.closed_form for pair, _ in self.terms) and any(
            pair.gaussian_mu for pair, _ in self.terms
        )


def merge_gaussians(half: Half, terms: Sequence[tuple[Pair, int]]) -> HalfSum:
    """Return the sum with all Gaussian losses merged into one, and all constant ones, exactly."""
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
    return HalfSum(half, tuple(merged))


def _constant(pair: Pair) -> FinitePair | None:
    """Return a loss that has at most one finite value as a finite pair, else None."""
    if pair.continuous:
        return None
    losses, masses, _ = pair.atoms(_SMALLEST)
    if losses.size > 1:
        return None
    with np.errstate(divide="ignore"):
        values, logs = tuple(losses.tolist()), tuple(np.log(masses).tolist())
    return FinitePair(values, logs, pair.mass_inf, pair.mass_minus_inf)


def _sum_of_certain(terms: Sequence[tuple[FinitePair, int]]) -> FinitePair:
    """Return the sum of losses that have at most one finite value."""
    if any(not pair.losses for pair, _ in terms):
        return FinitePair((), (), 1.0, 1.0)
    return FinitePair(
        (math.fsum(n * pair.losses[0] for pair, n in terms),),
        (math.fsum(n * pair.log_masses[0] for pair, n in terms),),
        -math.expm1(math.fsum(n * math.log1p(-pair.mass_inf) for pair, n in terms)),
        -math.expm1(math.fsum(n * math.log1p(-pair.mass_minus_inf) for pair, n in terms)),
    )


def epsilon_bounds(sums: Sequence[HalfSum], delta: float, tolerance: float) -> Answer:
    """Return the epsilon at ``delta`` of the worse half."""
    questions = [_EpsilonAt(part, delta, tolerance) for part in dict.fromkeys(sums)]
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
    return Answer(Bounds(lower, upper), answer.half, answer.engine)


def delta_bounds(sums: Sequence[HalfSum], epsilon: float, tolerance: float) -> Answer:
    """Return the delta at ``epsilon`` of the worse half."""
    questions = [_DeltaNear(part, epsilon) for part in dict.fromkeys(sums)]
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
    return Answer(Bounds(lower, worst.bounds.upper), worst.half, worst.engine)


class _EpsilonAt:
    """epsilon(delta) of one half; ``ceiling`` is known before any engine runs."""

    def __init__(self, part: HalfSum, delta: float, tolerance: float) -> None:
        self._part = part
        self._delta = delta
        self._limit = _limit_epsilon(part, delta)
        if self._limit is not None:
            self.ceiling = self._limit
        elif part.single is not None:
            self.ceiling = math.inf
        else:
            self._tail = _tail(delta - part.mass_inf, tolerance, part.count)
            self._scout = Scout(part.terms, self._tail)
            self._saddle = self._scout.at_delta(delta - part.mass_inf)
            self.ceiling = min(
                self._saddle.epsilon, part.max_loss * (1 + ROUNDING) + ROUNDING * part.count
            )

    def answer(self, tolerance: float) -> Answer:
        """Return certified bounds."""
        part = self._part
        if self._limit is not None:
            return Answer(Bounds(self._limit, self._limit), part.half, Engine.LIMIT)
        if part.single is not None:
            return Answer(_invert(part.single, self._delta), part.half, Engine.EXACT)
        if self.ceiling <= 0:
            return Answer(Bounds(0.0, 0.0), part.half, Engine.CHERNOFF)
        floor = part.near_top(self._delta)
        if floor >= (1 - tolerance) * part.max_loss and part.attained == part:
            upper = part.max_loss * (1 + ROUNDING) + ROUNDING * part.count
            return Answer(Bounds(floor, upper), part.half, Engine.LIMIT)
        (lower, upper), engine = self._compute(tolerance)
        lower = max(lower, floor)
        if part.attained != part:
            lower = _EpsilonAt(part.attained, self._delta, tolerance).answer(tolerance).bounds.lower
        if upper >= self.ceiling:
            engine = Engine.CHERNOFF
        return Answer(Bounds(lower, min(upper, self.ceiling)), part.half, engine)

    def _compute(self, tolerance: float) -> tuple[Bounds, Engine]:
        """Return bounds for the pairs as they are."""
        if self._part.suits_contour:
            contour = Contour(self._part.terms, self._saddle, self._scout)
            if contour.certified:
                bounds = _invert_contour(contour, self._delta, self.ceiling)
                if bounds.gap <= tolerance * bounds.upper:
                    return bounds, Engine.CONTOUR
        return self._engine().epsilon(self._delta, tolerance), Engine.LATTICE

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


def _limit_epsilon(part: HalfSum, delta: float) -> float | None:
    """Return epsilon where no computation is needed."""
    if not part.terms:
        return 0.0
    if part.mass_inf > delta * (1 + ROUNDING):
        return math.inf
    if delta - part.mass_inf <= ROUNDING * delta:
        largest = max(part.max_loss, 0.0)
        return largest * (1 + ROUNDING) if part.count > 1 else largest
    return None


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
    return Bounds(max(lower * (1 - ROUNDING) - ROUNDING, 0.0), upper * (1 + ROUNDING) + ROUNDING)


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
            return lambda _: Bounds(part.mass_inf, part.mass_inf), Engine.LIMIT
        if self._single is not None:
            return partial(_exact_bounds, self._single), Engine.EXACT
        tail = _tail(math.exp(max(self._log_delta, -600.0)), 1e-4 * tolerance, part.count)
        scout = Scout(part.terms, tail)
        saddle = scout.at_epsilon(self._epsilon)
        curve, engine = self._compute(scout, saddle, tail, tolerance)
        if part.attained != part:
            floor = _DeltaNear(part.attained, self._epsilon).curve(tolerance)[0]
            curve = partial(_mixed_bounds, floor, curve, scout, part.mass_inf)
        return curve, engine

    def _compute(
        self, scout: Scout, saddle: Saddle, tail: float, tolerance: float
    ) -> tuple[Curve, Engine]:
        """Return bounds for the pairs as they are."""
        if self.part.suits_contour:
            contour = Contour(self.part.terms, saddle, scout)
            bounds = contour.delta(self._epsilon)
            if contour.certified and bounds.gap <= tolerance * bounds.upper:
                return contour.delta, Engine.CONTOUR
        try:
            sides = LatticeEngine(self.part.terms, scout, saddle, tail).curve(tolerance)
        except BeyondLattice:
            return partial(_chernoff_bounds, scout, self.part.mass_inf), Engine.CHERNOFF
        return partial(_lattice_bounds, *sides), Engine.LATTICE


def delta_curve(part: HalfSum, epsilon: float, tolerance: float) -> Curve:
    """Return certified bounds on delta of one half as a function, sharp near ``epsilon``."""
    return _DeltaNear(part, epsilon).curve(tolerance)[0]


def _lattice_bounds(lower: TiltedSum, upper: TiltedSum, at: float) -> Bounds:
    return Bounds(lower.delta_lower(at), upper.delta_upper(at))


def _chernoff_bounds(scout: Scout, mass_inf: float, at: float) -> Bounds:
    proven = math.exp(scout.at_epsilon(at).log_delta)
    return Bounds(mass_inf, min(mass_inf + proven, 1.0))


def _mixed_bounds(floor: Curve, curve: Curve, scout: Scout, mass_inf: float, at: float) -> Bounds:
    """Return the lower bound of what is attained, and the smaller of two upper bounds."""
    proven = _chernoff_bounds(scout, mass_inf, at).upper
    return Bounds(floor(at).lower, min(curve(at).upper, proven))


def _exact_bounds(pair: Pair, at: float) -> Bounds:
    """Return the profile of a single loss with its rounding error; it may underflow."""
    hair = ROUNDING * (1 + abs(at))
    upper, lower = (float(value) for value in pair.profile(np.array([at - hair, at + hair])))
    if at < pair.max_loss and upper < _SMALLEST:
        return Bounds(0.0, _SMALLEST)
    slack = pair.profile_error
    return Bounds(max(lower * (1 - slack), 0.0), min(upper * (1 + slack), 1.0))


def _tail(delta: float, tolerance: float, count: int) -> float:
    """Return the mass that may be cut from each of ``count`` losses."""
    return max(_TAIL * min(tolerance, 1e-2) * delta / count, 1e-300)


def _is_null(pair: Pair) -> bool:
    """Whether the loss is zero always."""
    return pair.max_loss <= 0 and pair.mass_inf == 0
