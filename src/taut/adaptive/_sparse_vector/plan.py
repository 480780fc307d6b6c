"""Which noise a sparse vector should have, and whether it is worth it at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import ndtr

from taut._base import validate
from taut._base.floats import UP
from taut.accounting import Adjacency, PrivacyLoss, calibrate, gaussian
from taut.adaptive._sparse_vector.design import SparseVectorDesign
from taut.adaptive._sparse_vector.errors_at import best_offset, false_above
from taut.adaptive._sparse_vector.ex_post.design import ExPostDesign
from taut.adaptive._sparse_vector.grid import checked_sensitivity
from taut.adaptive._sparse_vector.scalar_noise import ScalarNoise
from taut.errors import InfeasibleBudget

__all__ = ["SparseVectorOption", "SparseVectorPlan", "plan_svt"]

_ROUNDS = 8  # of a search in which epsilon is nearly inversely proportional to the noise
_CLOSE = 3e-3  # relative: an epsilon this little below the budget is near enough
_NUDGE = 1e-3  # relative: more noise, where the search ends just above the budget
_LARGEST_SCALE = 2.0**18  # in sensitivities, as of a design
_SMALLEST_SCALE = 2.0**-8  # in sensitivities, as of a design
_USUAL_RATIO = (
    2.0  # of the noise on queries to that on the threshold, where nothing better is known
)


@dataclass(frozen=True)
class SparseVectorOption:
    """One way to answer questions about a threshold, at the budget.

    Attributes:
        name: how queries are answered: a kind of noise, or ``"screening"``.
        epsilon: certified epsilon at the delta of the plan.
        error: probability that a query at the margin from the threshold is answered wrongly.
        scale: scale of the noise on queries.
        design: the design, None for screening; of ``"bounded gaussian"`` that of an
            `ExPostSparseVector` whose thresholds are zero.
        offset: number to add to thresholds, so that errors on both sides are equal.
        tops: number of answers above that the budget lasts for in any case.
    """

    name: str
    epsilon: float
    error: float
    scale: float
    design: SparseVectorDesign | ExPostDesign | None
    offset: float = 0.0
    tops: int = 1

    @property
    def expected_length(self) -> float:
        """Expected number of answers below at the margin until the last one above.

        Infinite for screening, which ends at its number of questions alone.
        """
        if self.design is None or self.error == 0:
            return math.inf
        return self.tops * (1 - self.error) / self.error


@dataclass(frozen=True)
class SparseVectorPlan:
    """Options at one budget, the best first.

    Attributes:
        options: ways to answer, by their error at the margin.
        epsilon: budget.
        delta: where epsilon holds.
        margin: distance from the threshold at which errors are compared.
        queries: number of questions that was planned for, if there is one.
    """

    options: tuple[SparseVectorOption, ...]
    epsilon: float
    delta: float
    margin: float
    queries: int | None

    @property
    def best(self) -> SparseVectorOption:
        """The option with the least error."""
        return self.options[0]

    @property
    def is_worth_it(self) -> bool:
        """Whether a sparse vector errs less than noise on every query by itself."""
        return self.best.design is not None

    def __str__(self) -> str:
        """Return a line per option, and the verdict."""
        lines = [
            f"{option.name}: error {option.error:.3g} at distance {self.margin:g}, "
            f"noise of scale {option.scale:.4g} on queries, epsilon {option.epsilon:.4g}"
            for option in self.options
        ]
        verdict = (
            "a sparse vector is worth it"
            if self.is_worth_it
            else "a sparse vector is not worth it: add noise to every query and compare"
        )
        return "\n".join([*lines, verdict])


def plan_svt(
    epsilon: float,
    delta: float,
    *,
    tops: int,
    margin: float,
    sensitivity: float = 1.0,
    most_queries: int | None = None,
    monotone: bool = False,
    query_range: tuple[float, float] | None = None,
    adjacency: Adjacency | str,
) -> SparseVectorPlan:
    """Return noise of every kind that fits a budget, ranked by how often it errs.

    Args:
        epsilon: budget, certified at ``delta``.
        delta: probability delta of the guarantee, zero for pure privacy.
        tops: number of answers above that are wanted.
        margin: distance from the threshold at which a query should be answered rightly.
        sensitivity: how far one record moves any query.
        most_queries: number of questions; without one, normal noise has no guarantee.
        monotone: whether one record moves all queries in one direction, in this adjacency.
        query_range: least and largest distance of a query from its threshold, the first usually
            negative, if they are known: for the row ``"bounded gaussian"``.
        adjacency: the relation for which the sensitivity holds.

    ``"bounded gaussian"`` is normal noise without a delta, a round for every answer above. Its row
    is for rounds as long as they can be, ``most_queries`` each, so that it is comparable with the
    others; what short rounds leave over buys more answers, which no row shows (`ExPostDesign`).

    **Guarantee**: every option has a certified epsilon of at most the budget. Screening, the
    alternative, adds noise to each of ``most_queries`` queries by itself and compares: normal
    noise, or Laplace noise if ``delta`` is zero.

    Raises:
        ValueError: for arguments out of range.
        InfeasibleBudget: if no noise within 2^18 sensitivities meets the budget.

    Example:
        >>> from taut.adaptive import plan_svt
        >>> plan = plan_svt(1.0, 0.0, tops=1, margin=40.0, adjacency="add_remove")
        >>> plan.best.name, plan.is_worth_it
        ('exponential', True)
    """
    budget, level = validate.positive(epsilon=epsilon), validate.below_one(delta=delta)
    count = validate.positive_integer(tops=tops)
    distance = validate.positive(margin=margin)
    step = checked_sensitivity(sensitivity)
    relation = Adjacency(adjacency)
    moves_one_way = validate.flag(monotone=monotone)
    reach = None if query_range is None else _range(query_range, most_queries)
    options: list[SparseVectorOption] = []
    for kind, ratio in _choices(
        count, moves_one_way, pure=level == 0, bounded=most_queries is not None
    ):

        def design(scale: float, kind: str = kind, ratio: float = ratio) -> SparseVectorDesign:
            return SparseVectorDesign(
                ScalarNoise(kind, scale),
                ScalarNoise(kind, scale * ratio),
                step,
                count,
                relation,
                most_queries,
                monotone=moves_one_way,
            )

        found = _fitted(design, budget, level, step, ratio)
        if found is not None:
            options.append(_judged(kind, found, level, distance))
    if reach is not None and most_queries is not None:
        options += _bounded(
            budget, count, most_queries, step, reach, distance, relation, moves_one_way
        )
    if most_queries is not None:
        options.append(_screening(budget, level, most_queries, step, distance, relation))
    if not options:
        raise InfeasibleBudget(
            f"no noise up to 2^18 sensitivities meets epsilon={epsilon!r} at delta={delta!r}; ask "
            "for fewer answers above, or for a larger epsilon"
        )
    ranked = sorted(options, key=lambda option: option.error)
    names = [option.name for option in ranked]
    ranked = [option for i, option in enumerate(ranked) if option.name not in names[:i]]
    return SparseVectorPlan(tuple(ranked), budget, level, distance, most_queries)


def _range(given: tuple[float, float], most_queries: int | None) -> tuple[float, float]:
    """Return the range of distances from thresholds, checked before anything is searched for."""
    if most_queries is None:
        raise ValueError("query_range needs most_queries: the longer a round, the dearer it is")
    try:
        low, high = (validate.finite(query_range=number) for number in given)
    except (TypeError, ValueError):
        low, high = 0.0, 0.0
    if not low < high:
        raise ValueError(
            "query_range must be two numbers, the least and the largest distance of a query from "
            f"its threshold, got query_range={validate.told(given)}"
        )
    return low, high


def _choices(tops: int, monotone: bool, *, pure: bool, bounded: bool) -> list[tuple[str, float]]:
    """Return kinds of noise with the ratio of the queries' scale to the threshold's.

    The variance of the difference is least at a pure epsilon for budgets in the ratio
    1 : (2 c)^(2/3), or 1 : c^(2/3) (Lyu, Su and Li 2017); twice the noise is usual.
    """
    shift = 1 if monotone else 2
    least = shift * tops / (shift * tops) ** (2 / 3)
    ratios = sorted({_USUAL_RATIO, least})
    kinds = ["laplace", "exponential"] + ([] if pure or not bounded else ["gaussian"])
    return [
        (kind, ratio)
        for kind in kinds
        for ratio in (ratios if kind != "gaussian" else [_USUAL_RATIO])
    ]


def _fitted(
    design: Callable[[float], SparseVectorDesign],
    epsilon: float,
    delta: float,
    sensitivity: float,
    ratio: float,
) -> SparseVectorDesign | None:
    """Return the design with the least noise that meets a budget, up to some thousandths."""
    least, most = _SMALLEST_SCALE * sensitivity, _LARGEST_SCALE * sensitivity / ratio
    scale = min(max(sensitivity / epsilon, least), most)
    best: SparseVectorDesign | None = None
    for _ in range(_ROUNDS):
        tried = design(scale)
        found = tried.loss.epsilon(delta)
        if found <= epsilon:
            best = tried if best is None else min(best, tried, key=_noise)
            if found >= epsilon * (1 - _CLOSE):
                return best
        following = min(max(scale * found / epsilon * (1 + _NUDGE), least), most)
        if following == scale:
            return best
        scale = following
    return best


def _noise(design: SparseVectorDesign) -> float:
    return design.threshold_noise.scale


def _judged(
    kind: str, design: SparseVectorDesign, delta: float, margin: float
) -> SparseVectorOption:
    noises = design.threshold_noise, design.query_noise
    offset = best_offset(*noises, margin)
    error = false_above(*noises, margin + offset)
    epsilon = design.loss.epsilon(delta)
    scale, tops = design.query_noise.scale, design.tops
    return SparseVectorOption(kind, epsilon, error, scale, design, offset, tops)


def _bounded(
    epsilon: float,
    tops: int,
    queries: int,
    sensitivity: float,
    distances: tuple[float, float],
    margin: float,
    relation: Adjacency,
    monotone: bool,
) -> list[SparseVectorOption]:
    """Return the option with the least normal noise of which all rounds fit, if there is one."""
    least, most = _SMALLEST_SCALE * sensitivity, _LARGEST_SCALE * sensitivity / _USUAL_RATIO

    def made(sigma: float) -> tuple[ExPostDesign, float]:
        design = ExPostDesign(
            sigma, _USUAL_RATIO * sigma, sensitivity, 0.0, *distances, relation, monotone
        )
        dearest = max(design.epsilon_above(queries), design.epsilon_below(queries))
        return design, tops * dearest * UP

    if made(most)[1] > epsilon:
        return []
    while most > least * (1 + _NUDGE):
        middle = math.sqrt(least * most)
        least, most = (least, middle) if made(middle)[1] <= epsilon else (middle, most)
    design, spent = made(most)
    on_threshold = ScalarNoise("gaussian", design.threshold_sigma)
    error = false_above(on_threshold, ScalarNoise("gaussian", design.query_sigma), margin)
    return [
        SparseVectorOption("bounded gaussian", spent, error, design.query_sigma, design, tops=tops)
    ]


def _screening(
    epsilon: float, delta: float, queries: int, sensitivity: float, margin: float, to: Adjacency
) -> SparseVectorOption:
    if delta == 0:
        scale = queries * sensitivity / epsilon
        error = 0.5 * math.exp(-margin / scale)
        return SparseVectorOption("screening", epsilon, error, scale, None)

    def loss(sigma: float) -> PrivacyLoss:
        return queries * gaussian(sigma, sensitivity, adjacency=to)

    found = calibrate(loss, epsilon=epsilon, delta=delta)
    sigma = found.value
    spent = loss(sigma).epsilon(delta)
    return SparseVectorOption("screening", spent, float(ndtr(-margin / sigma)), sigma, None)
