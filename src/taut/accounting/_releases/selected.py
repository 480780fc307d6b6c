"""The best of a random number of runs, chosen by a score: one release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR, UP
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._engines.bounds import falls_below
from taut.accounting._engines.saddle_point import SHARP_NODES, Cumulants
from taut.accounting._pairs.best_of import BestOf, pure_cost, reached_pair
from taut.accounting._pairs.finite import FinitePair
from taut.accounting._pairs.pair import Pair
from taut.accounting._pairs.profile import Knots, convex_knots, pair_of_knots
from taut.accounting._releases.product import EnclosedPair, product_pair
from taut.accounting._releases.release import Release
from taut.accounting._releases.renyi_only import OneSided, RenyiOnly, divergences
from taut.accounting._releases.trials import Trials

__all__ = ["Route", "Selected", "routes"]

_OPPOSITE = {Half.ADD: Half.REMOVE, Half.REMOVE: Half.ADD, Half.REPLACE: Half.REPLACE}

_KNOTS = 2048  # of the profile: chords between them raise epsilon by some 1e-4 of it
_PROFILE_END = 1e-40  # where a profile may end: what is beyond counts as an infinite loss
_FARTHEST = 480.0  # log threshold: exponentials of knots, and of costs, stay within floats
_MIXED_KNOTS = 4096  # of the mean profile of several losses
_CURVE_KNOTS = 400  # of a profile from Renyi divergences, each of which takes a search
_FAILURE_SPLITS = 64  # of delta between failing runs and others, for the closed formula
_TILTS = np.geomspace(1e-3, 1e4, 200)  # orders less one that are tried; any of them is sound


class Route(StrEnum):
    """How a bound on the loss of a selection was proven."""

    PROFILE = "privacy profile of one run"
    FAILURES = "closed formula for runs that may fail"
    RENYI = "Renyi divergences of one run"


@dataclass(frozen=True)
class Selected(Release):
    """The output of the best of K runs, of which each draws one of ``bases`` by their weights."""

    kind = "selected"
    bases: tuple[Release, ...]
    weights: tuple[int, ...]
    law: str
    parameter: float
    shape: float
    cap: int | None = None

    def check_fields(self) -> None:
        """Check the parameters."""
        if not self.bases or len(self.bases) != len(self.weights):
            raise ValueError("a selection needs as many weights as releases, at least one")
        for base, weight in zip(self.bases, self.weights, strict=True):
            if not isinstance(base, Release):
                raise ValueError(f"bases must be releases, got base={base!r}")
            validate.positive_integer(weight=weight)
        _ = self.trials

    @property
    def trials(self) -> Trials:
        """The law of the number of runs."""
        return Trials(self.law, self.parameter, self.shape, self.cap)

    def check(self, adjacency: Adjacency) -> None:
        """Every run must be known under the relation."""
        for base in self.bases:
            base.check(adjacency)

    def pair(self, half: Half) -> Pair:
        """Return the pair of the least of all proven profiles, with one that is reached."""
        return _selected_pair(self, half)

    def known_divergences(self, half: Half, orders: Vector) -> Vector:
        """Return the divergences of one run, raised by what the choice adds."""
        return selected_divergences(self, half, orders)

    def __str__(self) -> str:
        """Return the call."""
        runs = [f"{n} x {base}" if n > 1 else str(base) for base, n in self._weighted]
        return f"best_of({', '.join(runs)}; {self.trials})"

    @property
    def _weighted(self) -> list[tuple[Release, int]]:
        return list(zip(self.bases, self.weights, strict=True))


def selected_divergences(selected: Selected, half: Half, orders: Vector) -> Vector:
    """Return bounds on the Renyi divergences of a selection, by the better of two theorems.

    Both are of the kind of Papernot and Steinke (2022, Lemma 7): the moment of a run times the
    largest f'(p)^a f'(q)^(1 - a), over what the profile allows, or what a divergence of another
    order allows (their Theorem 2). No run at all adds what it tells: nothing, with its probability.
    """
    trials = selected.trials
    one = _mean_divergences(selected, half, orders)
    best = _best_of(selected, half)
    moments = (orders - 1) * one + best.log_moments(orders)
    if trials.law == "negative_binomial" and trials.cap is None:
        added = (orders - 1) * _added(selected, half) + math.log(trials.expected)
        moments = np.minimum(moments, (orders - 1) * one + added)
    if trials.never:
        moments = np.logaddexp(moments, math.log(trials.never))
    raised = np.maximum(moments, 0.0) * (1 + 16 * RELATIVE_ERROR)
    value: Vector = raised / (orders - 1)
    return value


@lru_cache(maxsize=64)
def _added(selected: Selected, half: Half) -> float:
    """Return what a divergence of another order, the best of some, lets the choice add."""
    trials, b = selected.trials, 1 + _TILTS
    either = np.maximum(
        *(_mean_divergences(selected, direction, b) for direction in (half, _OPPOSITE[half]))
    )
    grown = (1 + trials.shape) * ((1 - 1 / b) * either - math.log(trials.parameter) / b)
    return float(grown.min()) * UP


@lru_cache(maxsize=64)
def _best_of(selected: Selected, half: Half) -> BestOf:
    """Return the selection in one direction, with what it has computed already."""
    return BestOf(_one_run(selected, half), selected.trials)


def _mean_divergences(selected: Selected, half: Half, orders: Vector) -> Vector:
    """Return the divergences of one run, with the release that was drawn in its output."""
    total = sum(selected.weights)
    logs = [
        (orders - 1) * divergences(base, half, orders) + math.log(weight / total)
        for base, weight in selected._weighted
    ]
    mean: Vector = np.logaddexp.reduce(logs, axis=0) / (orders - 1)
    return np.maximum(mean, 0.0) * (1 + 4 * RELATIVE_ERROR)


@lru_cache(maxsize=64)
def _one_run(selected: Selected, half: Half) -> FinitePair:
    """Return a finite pair that dominates one run."""
    pairs = [(_finite(base, half), weight) for base, weight in selected._weighted]
    if len(pairs) == 1:
        return pairs[0][0]
    nodes = np.unique(np.concatenate([pair.losses for pair, _ in pairs]))
    if nodes.size == 0:
        return pairs[0][0]
    nodes = nodes[np.linspace(0, nodes.size - 1, min(nodes.size, _MIXED_KNOTS)).astype(np.int64)]
    total = sum(selected.weights)
    deltas = sum(
        weight / total * pair.profile(nodes) * (1 + pair.profile_error) for pair, weight in pairs
    )
    near = nodes[np.abs(nodes) < _FARTHEST]
    knots = convex_knots(near, np.asarray(deltas)[np.abs(nodes) < _FARTHEST])
    return pair_of_knots(knots)


def _finite(base: Release, half: Half) -> FinitePair:
    """Return a finite pair that dominates a release."""
    if isinstance(base, RenyiOnly):
        return _of_divergences(base, half)
    pair = base.pair(half)
    return pair if isinstance(pair, FinitePair) else product_pair([(pair, 1)])


def _of_divergences(base: RenyiOnly, half: Half) -> FinitePair:
    """Return the pair of the profile that Renyi divergences prove."""
    points = []
    for sign, direction in ((1.0, half), (-1.0, _OPPOSITE[half])):
        cumulants = Cumulants((), 0.0, [(OneSided(base, direction), 1)], SHARP_NODES)

        def delta(epsilon: float, known: Cumulants = cumulants) -> float:
            return min(math.exp(min(known.at_epsilon(epsilon).log_delta, 0.0)), 1.0)

        top = 1.0
        while top < _FARTHEST and delta(top) > _PROFILE_END:
            top *= 2
        grid = np.linspace(0.0, min(top, _FARTHEST), _CURVE_KNOTS)
        deltas = np.array([delta(float(e)) for e in grid])
        if sign < 0:
            deltas = -np.expm1(-grid) + np.exp(-grid) * deltas
        points.append((sign * grid, deltas))
    at, deltas = (np.concatenate(part) for part in zip(*points, strict=True))
    return pair_of_knots(convex_knots(at, deltas))


@lru_cache(maxsize=64)
def _selected_pair(selected: Selected, half: Half) -> EnclosedPair:
    pair = pair_of_knots(_knots(selected, half))
    return EnclosedPair(
        pair.losses,
        pair.log_masses,
        pair.mass_inf,
        pair.mass_minus_inf,
        inside=_reached(selected, half),
    )


def _knots(selected: Selected, half: Half) -> Knots:
    """Return the least profile that the routes prove together, thresholds below one included."""
    at, deltas = [], []
    # Masses add up to one but for rounding, which the choice magnifies as often as it tries. Just
    # below one the bound of the other order must not undercut, by that, a far smaller delta.
    hair = 8 * RELATIVE_ERROR * (1 + selected.trials.steepness)
    for sign, direction in ((1.0, half), (-1.0, _OPPOSITE[half])):
        for epsilons, found in _routes(selected, direction).values():
            # The swap rule: H_t of a pair is 1 - t + t H_{1/t} of the other order.
            other = found if sign > 0 else hair - np.expm1(-epsilons) + np.exp(-epsilons) * found
            at.append(sign * epsilons)
            deltas.append(other)
    return convex_knots(np.concatenate(at), np.concatenate(deltas))


@lru_cache(maxsize=64)
def _routes(selected: Selected, half: Half) -> dict[Route, tuple[Vector, Vector]]:
    """Return points of every proven profile: epsilons >= 0 and bounds on delta there."""
    best = _best_of(selected, half)
    grid = _grid(best)
    found = {Route.PROFILE: (grid, best.profile(grid))}
    splits = _pure_points(selected, half)
    if splits[0].size:
        found[Route.FAILURES] = splits
    if any(isinstance(base, RenyiOnly) for base in selected.bases):
        orders = 1 + _TILTS
        values = selected_divergences(selected, half, orders)
        found[Route.RENYI] = grid, _converted(orders, values, grid)
    return found


def _grid(best: BestOf) -> Vector:
    """Return epsilons from zero to where hardly anything is left of the profile."""
    reach = math.log(best.largest_ratio) + max(best.pair.max_loss, 0.0)
    top = min(reach * UP + RELATIVE_ERROR, _FARTHEST) if math.isfinite(reach) else _FARTHEST
    least = best.profile(np.array([top]))[0] + _PROFILE_END
    low, high = 0.0, top
    while high - low > 1e-3 * high:  # where a grid ends is a matter of accuracy alone
        middle = (low + high) / 2
        low, high = (
            (low, middle) if best.profile(np.array([middle]))[0] <= least else (middle, high)
        )
    return np.unique(np.concatenate([np.linspace(0.0, high, _KNOTS), [top]]))


def _pure_points(selected: Selected, half: Half) -> tuple[Vector, Vector]:
    """Return what follows if a run fails with some delta, and is epsilon-DP else.

    Kairouz, Oh and Viswanath (2015) split a run so; that no run fails makes another law of the same
    family of their number, with fewer runs. Under a cap it is another family, so that only runs
    that never fail are covered.
    """
    trials = selected.trials
    pairs = [_one_run(selected, direction) for direction in (half, _OPPOSITE[half])]
    if any(isinstance(base, RenyiOnly) for base in selected.bases):
        return np.empty(0), np.empty(0)
    top = max(pair.max_loss for pair in pairs)
    if not 0 <= top < _FARTHEST:
        return np.empty(0), np.empty(0)
    shares = np.array([1.0]) if trials.cap is not None else np.linspace(1.0, 0.0, _FAILURE_SPLITS)
    epsilons, deltas = [], []
    for share in shares.tolist():
        at = share * top
        profiles = [float(pair.profile(np.array([at]))[0]) for pair in pairs]
        slack = 1 + max(pair.profile_error for pair in pairs)
        failing = min(max(profiles) * slack, 1.0)
        if share == 1.0:  # beyond the largest loss nothing but infinite losses is left
            failing = max(pair.mass_inf for pair in pairs)
        if trials.cap is None or failing == 0:
            epsilons.append((at + pure_cost(trials, at)) * UP)
            deltas.append(trials.failure(failing))
    return np.array(epsilons), np.array(deltas)


def _converted(orders: Vector, divergences_at: Vector, epsilons: Vector) -> Vector:
    """Return the delta that divergences prove (Canonne, Kamath and Steinke 2020, Prop. 12)."""
    tilts = orders - 1
    logs = tilts * (divergences_at - epsilons[:, None])
    logs += tilts * np.log1p(-1 / orders) - np.log(orders)
    with np.errstate(over="ignore"):
        value: Vector = np.minimum(np.exp(logs.min(axis=1)) * (1 + 1e-9), 1.0)  # of the exponents
    return value


def _reached(selected: Selected, half: Half) -> Pair:
    """Return a pair that some selection reaches: from runs that all draw the first release."""
    base, trials = selected.bases[0], selected.trials
    if isinstance(base, RenyiOnly) or len(selected.bases) > 1:
        return FinitePair((0.0,), (0.0,))
    inside = _finite(base, half).reached
    if not isinstance(inside, FinitePair) and not hasattr(inside, "q"):
        inside = product_pair([(inside, 1)]).reached
    return reached_pair(inside, trials, trials.never)


def routes(selected: Selected, half: Half, delta: float) -> dict[Route, float]:
    """Return the epsilon that every route proves at ``delta``, in one direction."""
    found = {}
    for route, points in _routes(selected, half).items():
        epsilons, deltas = points
        pair = pair_of_knots(convex_knots(epsilons, deltas))

        def left(epsilon: float, known: FinitePair = pair) -> float:
            return float(known.profile(np.array([epsilon]))[0]) * (1 + known.profile_error)

        if delta == 0:
            found[route] = float(epsilons[deltas == 0].min(initial=math.inf))
        else:
            enough = left(_FARTHEST) <= delta
            found[route] = falls_below(left, delta, 1.0).upper if enough else math.inf
    return found
