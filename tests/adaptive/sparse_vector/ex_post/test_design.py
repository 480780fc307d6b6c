"""What outcomes of a round cost: no neighbours within the range do worse, and some reach it."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import integrate, stats

from taut.adaptive import ExPostDesign


def design(s1=2.0, s2=3.0, low=-2.0, high=3.0, **more):
    fields = {"sensitivity": 1.0, "threshold": 0.0, "adjacency": "add_remove", **more}
    return ExPostDesign(s1, s2, lowest=low, highest=high, **fields)


NODES = np.linspace(-12, 12, 241)
WEIGHTS = stats.norm.pdf(NODES)


def log_probability(queries, above, s1, s2):
    """Return the logarithm of P(all below, but the last one if it is above), by quadrature."""
    u = (s1 * NODES[:, None] - np.asarray(queries)[None, :]) / s2
    logs = stats.norm.logcdf(u)
    if above:
        logs[:, -1] = stats.norm.logsf(u[:, -1])
    return math.log(integrate.trapezoid(WEIGHTS * np.exp(logs.sum(axis=1)), NODES))


def worst_of_all(length, above, low, high, s1, s2, moves):
    """Return the largest log ratio over a grid of all queries within the range and all moves."""
    places = np.linspace(low, high, 3)
    found = {q: log_probability(q, above, s1, s2) for q in product(places, repeat=length)}
    worst = 0.0
    for queries, here in found.items():
        for move in moves(length):
            other = np.clip(np.array(queries) + move, low, high)
            worst = max(worst, log_probability(other, above, s1, s2) - here)
    return worst


def any_move(length):
    return product((-1.0, 0.0, 1.0), repeat=length)


def one_way(length):
    yield from product((-1.0, 0.0), repeat=length)
    yield from product((0.0, 1.0), repeat=length)


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize(("s1", "s2"), [(2.0, 3.0), (1.0, 0.7), (4.0, 1.0)])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_brute_force_over_queries_reaches_the_bound_and_not_more(length, s1, s2, monotone):
    low, high = -1.5, 2.0
    here = design(s1, s2, low, high, monotone=monotone)
    moves = one_way if monotone else any_move
    for above, bound in ((True, here.epsilon_above(length)), (False, here.epsilon_below(length))):
        truth = worst_of_all(length, above, low, high, s1, s2, moves)
        assert truth <= bound
        assert bound <= truth * 1.01 + 1e-3  # ends of the range are on the grid of the search


def test_random_neighbours_of_long_rounds_stay_below():
    rng = np.random.default_rng(3)
    s1, s2, low, high, length = 2.0, 4.0, -3.0, 1.0, 40
    here = design(s1, s2, low, high)
    largest = 0.0
    for trial in range(60):
        queries = rng.uniform(low, high, length) if trial % 3 else np.full(length, high)
        queries[-1] = low if trial % 2 else queries[-1]
        move = rng.choice([-1.0, 1.0], length) if trial % 5 else np.r_[-np.ones(length - 1), 1.0]
        other = np.clip(queries + move, low, high)
        for above, bound in (
            (True, here.epsilon_above(length)),
            (False, here.epsilon_below(length)),
        ):
            ratio = log_probability(other, above, s1, s2) - log_probability(queries, above, s1, s2)
            assert abs(ratio) <= bound
            largest = max(largest, abs(ratio) / bound)
    assert largest > 0.97


def test_whole_steps_of_a_grid_are_within_the_bound():
    # Noise of the threshold on the grid, summed; the worst neighbours of the ideal mechanism.
    here = design(0.5, 0.75, -1.0, 1.0)
    grid = here.grid
    steps = np.arange(-6000, 6001)
    masses = stats.norm.cdf((steps + 0.5) * grid / 0.5) - stats.norm.cdf((steps - 0.5) * grid / 0.5)

    def probability(queries):
        logs = np.zeros(steps.size)
        for i, value in enumerate(queries):
            u = (steps * grid - grid / 2 - value) / 0.75
            logs += stats.norm.logsf(u) if i == len(queries) - 1 else stats.norm.logcdf(u)
        return math.log((masses * np.exp(logs)).sum())

    for length in (1, 4, 12):
        base = np.r_[np.ones(length - 1), -1.0]
        other = base + np.r_[-np.ones(length - 1), 1.0]
        truth = probability(other) - probability(base)
        assert truth <= here.epsilon_above(length) <= truth * 1.01


def test_longer_rounds_cost_more_and_longest_is_the_last_affordable():
    here = design(8.0, 16.0, 0.0, 100.0, threshold=50.0)
    lengths = [1, 2, 5, 64, 65, 100, 10_000, 10**9]
    for cost in (here.epsilon_above, here.epsilon_below):
        costs = [cost(length) for length in lengths]
        assert costs == sorted(costs)
    for epsilon in (0.3, 1.0, 3.0):
        room = here.longest(epsilon)
        assert max(here.epsilon_above(room), here.epsilon_below(room)) <= epsilon
        assert max(here.epsilon_above(room + 1), here.epsilon_below(room + 1)) > epsilon
    assert here.longest(0.0) == 0
    with pytest.raises(ValueError, match="2\\^40"):
        here.epsilon_above(2**41)


def test_range_that_is_unknown_costs_more():
    narrow, wide = design(low=-1.0, high=1.0), design(low=-4.0, high=4.0)
    assert narrow.epsilon_above(10) < wide.epsilon_above(10)
    assert design(monotone=True).epsilon_above(10) < design().epsilon_above(10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": 3.0}, "lowest must be below highest"),
        ({"s1": 0.0}, "threshold_sigma"),
        ({"s2": 2.0**20}, "2\\^18"),
        ({"threshold": math.nan}, "threshold"),
        ({"high": 1e300}, "2\\^52"),
        ({"sensitivity": -1.0}, "sensitivity"),
        ({"monotone": "no"}, "monotone must be True or False"),
    ],
)
def test_bad_designs(change, message):
    with pytest.raises(ValueError, match=message):
        design(**change)
