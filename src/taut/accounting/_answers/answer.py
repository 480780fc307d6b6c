"""Which engine answers which question about a sum of losses.

A question travels one way: the sum is split into halves, Gaussians are merged, and the first
engine that is exact or certified for the shape of the sum answers. The guarantee is the maximum
over the halves.
"""

from __future__ import annotations

from collections.abc import Sequence

from taut._base.floats import DOWN, RELATIVE_ERROR, UP
from taut.accounting._answers.of_curves import DeltaWithCurves, EpsilonWithCurves
from taut.accounting._answers.of_pairs import Answer, Curve, DeltaOfPairs, Engine, EpsilonOfPairs
from taut.accounting._engines.bounds import Bounds
from taut.accounting._engines.half_sum import HalfSum

__all__ = ["Answer", "Engine", "delta_bounds", "delta_curve", "epsilon_bounds"]


def epsilon_bounds(sums: Sequence[HalfSum], delta: float, tolerance: float) -> Answer:
    """Return the epsilon at ``delta`` of the worse half."""
    main = [part.without_dust(tolerance) for part in sums]
    dust = max(part.dust(tolerance) for part in sums)
    if dust:
        # Dropping a release is post-processing, and no loss is larger than its largest value.
        rest = epsilon_bounds(main, delta, tolerance / 2)
        lower, upper = rest.bounds
        if dust <= tolerance / 2 * upper:
            return Answer(Bounds(lower, (upper + dust) * UP), rest.half, rest.engine)
    return _epsilon_bounds(sums, delta, tolerance)


def _epsilon_bounds(sums: Sequence[HalfSum], delta: float, tolerance: float) -> Answer:
    questions = [_epsilon_question(part, delta, tolerance) for part in dict.fromkeys(sums)]
    questions.sort(key=lambda question: -question.ceiling)
    answers = [questions[0].answer(tolerance)]
    for question in questions[1:]:
        # A rough look settles most races; only a close one is run to the end.
        floor = max(answer.bounds.lower for answer in answers)
        above = max(answer.bounds.upper for answer in answers)
        if not (question.stays_below(floor) or question.adds_nothing_above(above)):
            answers.append(question.answer(tolerance))
    answer = _worst(answers)
    lower, upper = answer.bounds
    # A loss that is zero but for rounding proves nothing.
    noise = RELATIVE_ERROR * max(part.count + 1 for part in sums)
    if answer.engine not in (Engine.LIMIT, Engine.EXACT):
        upper = upper * UP + noise if upper > 0 else 0.0
        lower = lower * DOWN - noise
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
            found = curve(epsilon)
            # Rounding may raise a lower bound on a probability above one.
            bounds = Bounds(min(found.lower, 1.0), found.upper)
            answers.append(Answer(bounds, question.part.half, engine))
    return _worst(answers)


def _worst(answers: Sequence[Answer]) -> Answer:
    worst = max(answers, key=lambda answer: answer.bounds.upper)
    lower = max(answer.bounds.lower for answer in answers)
    # Adding zero turns a negative zero into a plain one.
    return Answer(Bounds(lower + 0.0, worst.bounds.upper + 0.0), worst.half, worst.engine)


def _epsilon_question(
    part: HalfSum, delta: float, tolerance: float
) -> EpsilonOfPairs | EpsilonWithCurves:
    question = EpsilonWithCurves if part.curves else EpsilonOfPairs
    return question(part, delta, tolerance)


def _delta_question(part: HalfSum, epsilon: float) -> DeltaOfPairs | DeltaWithCurves:
    return DeltaWithCurves(part, epsilon) if part.curves else DeltaOfPairs(part, epsilon)


def delta_curve(part: HalfSum, epsilon: float, tolerance: float) -> Curve:
    """Return certified bounds on delta of one half as a function, sharp near ``epsilon``."""
    return _delta_question(part, epsilon).curve(tolerance)[0]
