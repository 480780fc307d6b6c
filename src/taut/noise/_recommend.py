"""One call that compares every valid mechanism for a set, and says which to use and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector
from taut.errors import TautError
from taut.noise._disparity import Disparity, disparity, laplace_threshold
from taut.noise._fitting.objectives import (
    block_weights,
    checked_power,
    coordinate_weights,
    relative_weights,
)
from taut.noise._mechanisms.float_range import check_size
from taut.noise._mechanisms.mechanism import NoiseMechanism
from taut.noise._optimal.baselines import iid_gaussian, iid_laplace, spr_gaussian, spr_laplace
from taut.noise._optimal.gaussian import optimal_gaussian
from taut.noise._optimal.grouped import GroupedNoise, grouped_linf
from taut.noise._optimal.integer_laplace import integer_laplace
from taut.noise._optimal.laplace import optimal_laplace
from taut.noise._optimal.staircase import StaircaseNoise, staircase
from taut.noise._sets.balls import L1Ball, LInfBall
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.boxes import Box
from taut.noise._sets.histogram import Histogram
from taut.noise._sets.one_cell import one_cell_set
from taut.noise._sets.products import Product
from taut.noise._sets.sets import SensitivitySet

__all__ = ["NoiseOption", "Recommendation", "rank", "recommend"]

_TOTAL = "Gaussian, least total"
_MOST_WRITTEN = 1000  # coordinates, in data for JSON
_AS_GOOD_FACTOR = 1.001  # of the least error: what a pure promise may cost, and the words say 0.1 %
_WORTH_SAYING_FACTOR = 1.05  # times less error, for which a reader should look at the records again
_MOST_CALIBRATED = 500  # coordinates, for which it takes two seconds


@dataclass(frozen=True)
class NoiseOption:
    """One way to add noise, what it promises, and the error it makes.

    Attributes:
        name: what it is called in tables.
        mechanism: ready to release.
        error: the predicted value of the objective that all options are ranked by.
        guarantee: the promise in words.
    """

    name: str
    mechanism: NoiseMechanism
    error: float
    guarantee: str

    @property
    def is_pure(self) -> bool:
        """Whether the promise holds without a delta."""
        return self.guarantee.startswith("pure")


@dataclass(frozen=True)
class Recommendation:
    """Every valid way to release within a budget, the best first.

    Attributes:
        sensitivity: what one record can change.
        epsilon: the promise that every option keeps.
        delta: its delta; options with a pure guarantee do not use it.
        objective: what is made small.
        options: the options, by error.
        reasons: why the first of them wins, in sentences.
        left_out: what does not apply and why, by name.
    """

    sensitivity: SensitivitySet
    epsilon: float
    delta: float
    objective: str
    options: tuple[NoiseOption, ...]
    reasons: tuple[str, ...]
    left_out: dict[str, str]

    @property
    def best(self) -> NoiseOption:
        """The option of least error."""
        return self.options[0]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as data for JSON; scales are left out above a thousand coordinates."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "objective": self.objective,
            "adjacency": str(self.sensitivity.adjacency),
            "source": str(self.sensitivity.source),
            "dimension": self.sensitivity.dimension,
            "notes": list(self.sensitivity.notes),
            "options": [_option_to_dict(option) for option in self.options],
            "reasons": list(self.reasons),
            "left_out": dict(self.left_out),
            **({} if (names := self.sensitivity.columns) is None else {"columns": list(names)}),
        }

    def __str__(self) -> str:
        """Return a table for people."""
        width = max(len(option.name) for option in self.options)
        lines = [f"{'mechanism':{width}}  {'error':>12}  {'x best':>8}  guarantee"]
        for option in self.options:
            ratio = option.error / self.best.error
            lines.append(
                f"{option.name:{width}}  {option.error:12.6g}  {ratio:8.3f}  {option.guarantee}"
            )
        return "\n".join([*lines, "", *self.reasons])


def recommend(
    sensitivity: SensitivitySet,
    epsilon: float,
    delta: float = 0.0,
    *,
    objective: str = "total",
    weights: ArrayLike | None = None,
    power: float = 2.0,
) -> Recommendation:
    """Return every valid mechanism for a set, ranked by its predicted error.

    Of those within 0.1 % of the least error, one with a pure promise comes first.

    Args:
        sensitivity: what one record can change; for replace-one, a set of ``differences()``.
        epsilon: the promise, above 0.
        delta: probability delta of the guarantee, in [0, 1); with 0 only pure mechanisms are
            compared.
        objective: ``"total"``, the sum of E|noise_i|^power; ``"worst"``, the largest variance;
            ``"relative"``, the sum of variances over squared sensitivities.
        weights: positive importance of every coordinate (or block, if there is no basis).
        power: exponent of the error, for ``"total"``.

    **Guarantee**: every option is (epsilon, delta)-private for the adjacency of the set, by its own
    certificate; the ranking uses no data. Picking an option after seeing the noise of another is a
    second release.

    Raises:
        ValueError: for arguments out of range, or if no mechanism applies.

    Example:
        >>> from taut.noise import Box, recommend
        >>> found = recommend(Box([1, 4, 9, 16]), epsilon=0.5, delta=1e-6)
        >>> found.best.name
        'grouped l_inf'
        >>> bool(found.best.error < found.options[-1].error / 2)
        True
    """
    check_size(sensitivity)
    epsilon = validate.positive(epsilon=epsilon)
    if not 0 <= validate.finite(delta=delta) < 1:
        raise ValueError(f"delta must lie in [0, 1), got delta={delta!r}")
    p = checked_power(objective, power)
    aim = _Aim(objective, weights, _by_coordinate(weights, sensitivity), p, sensitivity)
    options, left_out = [], _without_delta(delta)
    for name, guarantee, make in _candidates(sensitivity, epsilon, delta, aim):
        try:
            mechanism = make()
        except (TautError, ValueError) as refusal:
            left_out[name] = str(refusal)
            continue
        with np.errstate(all="ignore"):
            error = aim.error(mechanism)
        if math.isfinite(error):
            options.append(NoiseOption(name, mechanism, error, guarantee))
        else:
            left_out[name] = "its error is beyond floating point; count in other units"
    if not options:
        listed = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise ValueError(f"no mechanism applies to this set and budget ({listed})")
    rank(options)
    reasons = (*_reasons(aim, epsilon, delta, options), *_smaller(aim, epsilon, delta, options[0]))
    return Recommendation(
        sensitivity, epsilon, float(delta), objective, tuple(options), reasons, left_out
    )


@dataclass(frozen=True)
class _Aim:
    """What is made small, evaluated in one way for all mechanisms."""

    objective: str
    given: ArrayLike | None
    weights: Vector | None
    power: float
    sensitivity: SensitivitySet

    def error(self, mechanism: NoiseMechanism) -> float:
        try:
            errors = mechanism.coordinate_errors(self.power)
        except ArithmeticError:  # moments of high powers
            return math.inf
        if self.weights is not None:
            errors = errors * self.weights
        if self.objective == "worst":
            return float(errors.max())
        if self.objective == "relative":
            errors = relative_weights(errors, self.sensitivity.reach())
        return float(errors.sum())

    @property
    def is_plain(self) -> bool:
        """Whether it is the total variance."""
        return self.objective == "total" and self.weights is None and self.power == 2

    def arguments(self) -> dict[str, Any]:
        return {"objective": self.objective, "weights": self.given, "power": self.power}

    def summed(self) -> Vector | None:
        """Return the weights with which it is a sum over coordinates, for what knows sums only."""
        if self.objective != "relative":
            return self.weights
        d = self.sensitivity.dimension
        return relative_weights(coordinate_weights(self.weights, d), self.sensitivity.reach())


def _candidates(
    sensitivity: SensitivitySet, epsilon: float, delta: float, aim: _Aim
) -> Iterator[tuple[str, str, Callable[[], NoiseMechanism]]]:
    """Yield the name, the promise and the maker of everything that could apply."""
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
    both = f"({epsilon:g}, {delta:g})"
    pure = f"pure, epsilon = {epsilon:g}"
    fitted = aim.arguments()
    if delta > 0:
        yield "Gaussian", both, lambda: optimal_gaussian(sensitivity, **budget, **fitted)
        if not aim.is_plain:
            yield _TOTAL, both, lambda: optimal_gaussian(sensitivity, **budget)
        yield "Gaussian, i.i.d.", both, lambda: iid_gaussian(sensitivity, **budget)
        yield "Gaussian, equal shares", both, lambda: spr_gaussian(sensitivity, **budget)
        yield "Laplace", both, lambda: _calibrated_laplace(sensitivity, **budget, **fitted)
    yield "Laplace, pure", pure, lambda: optimal_laplace(sensitivity, epsilon=epsilon, **fitted)
    if isinstance(sensitivity, Histogram):
        yield (
            "integer Laplace",
            pure,
            lambda: integer_laplace(sensitivity, epsilon=epsilon, **fitted),
        )
    yield "Laplace, i.i.d.", pure, lambda: iid_laplace(sensitivity, epsilon=epsilon)
    yield "Laplace, equal shares", pure, lambda: spr_laplace(sensitivity, epsilon=epsilon)
    summed = aim.summed()
    yield "grouped l_inf", pure, lambda: _grouped(sensitivity, epsilon, summed)
    yield (
        "staircase",
        pure,
        lambda: staircase(sensitivity, epsilon=epsilon, power=aim.power, weights=summed),
    )


def _without_delta(delta: float) -> dict[str, str]:
    """Return why there is no approximate promise, if there is none."""
    if delta > 0:
        return {}
    return dict.fromkeys(("Gaussian", "Laplace"), "needs a delta above 0")


def _grouped(sensitivity: SensitivitySet, epsilon: float, weights: Vector | None) -> GroupedNoise:
    if not isinstance(sensitivity, Box | LInfBall):
        raise ValueError(f"is for boxes, and the set is of the kind {type(sensitivity).__name__}")
    return grouped_linf(sensitivity, epsilon=epsilon, weights=weights)


def _calibrated_laplace(sensitivity: SensitivitySet, **arguments: Any) -> NoiseMechanism:
    if sensitivity.dimension > _MOST_CALIBRATED:
        raise ValueError(
            f"left out above {_MOST_CALIBRATED} coordinates, where it takes long to calibrate and "
            "has nearly twice the variance of Gaussian noise; optimal_laplace finds it all the same"
        )
    return optimal_laplace(sensitivity, **arguments)


def rank(options: list[NoiseOption]) -> None:
    """Sort by error; of those that are as good as the best, a pure promise comes first."""
    limit = _AS_GOOD_FACTOR * min(option.error for option in options)
    options.sort(key=lambda option: (option.error > limit, option.error))
    options.sort(key=lambda option: option.error > limit or not option.is_pure)


def _reasons(aim: _Aim, epsilon: float, delta: float, options: list[NoiseOption]) -> Iterator[str]:
    best = options[0]
    errors = {option.name: option.error for option in options}
    close = "" if best.error == min(errors.values()) else ", up to 0.1 %, and a pure promise"
    yield f"{best.name} has the least error{close}: {best.error:.6g}, with {best.guarantee}."
    family = "Gaussian" if best.name.startswith("Gaussian") else "Laplace"
    usual = errors.get(f"{family}, i.i.d.")
    if usual is not None and usual > best.error * (1 + 1e-9):  # more than rounding
        yield (
            f"Independent noise of one size ({family}, i.i.d.) has {usual / best.error:.4g} times "
            "that error."
        )
    if aim.is_plain and isinstance(aim.sensitivity, Box) and _is_free(aim.sensitivity):
        yield from _box_reasons(aim.sensitivity, epsilon, delta, errors)
    if "grouped l_inf" in errors and "Laplace, pure" in errors:
        gain = errors["Laplace, pure"] / errors["grouped l_inf"]
        if gain > 1 + 1e-9:  # more than rounding: a gain that can be told of
            yield f"Noise that is uniform in boxes of coordinates gains {gain:.4g}x over Laplace."
    for note in aim.sensitivity.notes:
        yield f"Note: {note}."


def _smaller(aim: _Aim, epsilon: float, delta: float, best: NoiseOption) -> Iterator[str]:
    """Say what records that are in one cell each would need, if the set looks like theirs."""
    smaller = one_cell_set(aim.sensitivity)
    if smaller is None:
        return
    other = recommend(smaller, epsilon, delta, **aim.arguments()).best
    gain = best.error / other.error
    if gain < _WORTH_SAYING_FACTOR:
        return
    yield (
        f"If every record changes one of these {smaller.dimension} coordinates only, as in a "
        f"histogram, {_written(smaller)} is the set that it has, and the best noise for it "
        f"({other.name}) has {gain:.3g} times less error."
    )


def _written(one: Histogram | L1Ball) -> str:
    """Return the call that makes the set."""
    if one.contributions is not None:
        assert isinstance(one.contributions, Histogram | L1Ball)
        return f"{_written(one.contributions)}.differences()"
    radius = f", {one.radius:g}" if isinstance(one, L1Ball) else ""
    return f"{type(one).__name__}({one.dimension}{radius})"


def _is_free(box: Box) -> bool:
    """Say whether the widths are all there is to a box: what K_eff and Gini speak of."""
    return box.basis is None and box.l1 is None and box.l2 is None


def _box_reasons(box: Box, epsilon: float, delta: float, errors: dict[str, float]) -> Iterator[str]:
    found = disparity(box.widths)
    yield (
        f"The widths have a Gini coefficient of {found.gini:.3g}: noise that is fitted to them "
        f"gains {found.gain_gaussian:.4g}x (Gaussian) or {found.gain_laplace:.4g}x (Laplace) over "
        "noise of one size."
    )
    if delta > 0 and "Laplace, pure" in errors:
        yield _rule(found, laplace_threshold(epsilon, delta))


def _rule(found: Disparity, threshold: float) -> str:
    side, winner = ("below", "Laplace") if found.k_eff < threshold else ("not below", "Gaussian")
    return (
        f"K_eff = {found.k_eff:.4g} is {side} epsilon^2 / (2 mu^2) = {threshold:.4g}, so that of "
        f"pure Laplace and Gaussian noise {winner} has the smaller squared error."
    )


def _by_coordinate(weights: ArrayLike | None, sensitivity: SensitivitySet) -> Vector | None:
    """Return one weight per coordinate, those of blocks spread over their coordinates."""
    if weights is None:
        return None
    if isinstance(sensitivity, Blocks | Product) and np.shape(weights) != (sensitivity.dimension,):
        ranks = sensitivity.outline().ranks.astype(np.int64)
        per_block = block_weights(sensitivity, weights, ranks.size)
        assert per_block is not None
        if isinstance(sensitivity, Blocks) and sensitivity.basis is not None:
            raise ValueError(
                f"weights must hold {sensitivity.dimension} numbers, one per coordinate, as blocks "
                f"in a basis mix them, got {per_block.size}; optimal_gaussian takes those of blocks"
            )
        return np.repeat(per_block, ranks)
    return coordinate_weights(weights, sensitivity.dimension)


def _option_to_dict(option: NoiseOption) -> dict[str, Any]:
    mechanism = option.mechanism
    scales = getattr(mechanism, "scales", None)
    few = mechanism.sensitivity.dimension <= _MOST_WRITTEN
    lower = mechanism.certificate.lower_bound
    data: dict[str, Any] = {
        "name": option.name,
        "error": option.error,
        "guarantee": option.guarantee,
        "argument": mechanism.certificate.statement,
        "lower_bound": lower if math.isfinite(lower) else None,
        "scales": np.asarray(scales).tolist() if few and scales is not None else None,
    }
    if isinstance(mechanism, GroupedNoise) and few:
        data["groups"] = [group.tolist() for group in mechanism.groups]
        data["budgets"] = mechanism.budgets.tolist()
    if isinstance(mechanism, StaircaseNoise):
        data["gamma"] = mechanism.gamma
    return data
