"""docs/theory/filters.md: adaptive steps within a budget, by quadrature and by enumeration."""

import math

import numpy as np
import pytest
from oracles.divergences import divergence

import taut
from taut.accounting import PrivacyOdometer, budget_for
from taut.accounting._budgets.allowance import gaussian_mu, renyi_budgets
from taut.accounting._pairs.gaussian import GaussianPair

X = np.linspace(-12.0, 12.0, 24_001)
DENSITY = np.exp(-0.5 * X**2) / math.sqrt(2 * math.pi) * (X[1] - X[0])


def gaussian_delta(mu, epsilon):
    if mu == 0:
        return np.maximum(-np.expm1(epsilon), 0.0)
    return GaussianPair(mu).profile(np.asarray(epsilon, dtype=float))


def two_steps(first, rule, epsilon):
    """Return delta when the second mu is rule(output of the first), by quadrature over it.

    Under P the first output is N(first, 1), under Q it is N(0, 1).
    """
    outputs = X + first
    losses = first * outputs - first**2 / 2
    chosen = np.array([rule(y) for y in outputs])
    total = np.zeros(X.size)
    for mu in np.unique(chosen):
        here = chosen == mu
        total[here] = gaussian_delta(float(mu), epsilon - losses[here])
    return float(DENSITY @ total)


RULES = {
    "all that is left": lambda rest: lambda _: rest,
    "nothing after a large output": lambda rest: lambda y: rest if y < 0.7 else 0.0,
    "nothing after a small output": lambda rest: lambda y: 0.0 if y < 0.7 else rest,
    "less the larger it was": lambda rest: lambda y: rest * round(1 / (1 + math.exp(2 * y)), 2),
    "more in the middle": lambda rest: lambda y: rest if abs(y) < 0.5 else rest / 3,
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("mu", [0.3, 1.0, pytest.param(2.5, marks=pytest.mark.slow)])
def test_two_adaptive_gaussian_steps_stay_within_the_budget(rule, share, mu):
    first, rest = mu * math.sqrt(share), mu * math.sqrt(1 - share)
    for epsilon in (0.0, mu / 2, 2 * mu):
        delta = two_steps(first, rule(rest), epsilon)
        assert delta <= float(gaussian_delta(mu, np.array(epsilon))) * (1 + 1e-8)


def test_the_gaussian_budget_is_attained():
    first, rest = 0.6, 0.8
    delta = two_steps(first, RULES["all that is left"](rest), 1.5)
    assert delta == pytest.approx(float(gaussian_delta(1.0, np.array(1.5))), rel=1e-8)


def test_reporting_what_was_realised_is_no_guarantee():
    # Stop after an extreme output and report the epsilon of one step alone.
    first, second, delta = 0.8, 0.8, 1e-3

    def epsilon_of(mu):
        low, high = 0.0, 20.0
        for _ in range(80):
            middle = (low + high) / 2
            over = float(gaussian_delta(mu, np.array(middle))) > delta
            low, high = (middle, high) if over else (low, middle)
        return high

    reported = {True: epsilon_of(first), False: epsilon_of(math.hypot(first, second))}
    outputs = X + first
    losses = first * outputs - first**2 / 2
    stopped = losses > reported[True] * 0.8
    # Outputs at which the log ratio exceeds what is reported for them.
    excess = np.where(
        stopped,
        -np.expm1(np.minimum(reported[True] - losses, 0.0)),
        gaussian_delta(second, reported[False] - losses),
    )
    assert float(DENSITY @ excess) > 1.1 * delta


# --- finite adaptive trees -----------------------------------------------------------------------


def random_pair(rng, outcomes=3):
    return rng.dirichlet(4 * np.ones(outcomes), 2)


def transcripts(rng, orders, budgets, depth, spent=None, p=1.0, q=1.0):
    """Return the leaves (p, q) of a random adaptive run through a filter on ``orders``."""
    spent = np.zeros(len(orders)) if spent is None else spent
    if depth == 0:
        return [(p, q)]
    pair = random_pair(rng)
    costs = np.array(
        [max(divergence(*pair, order), divergence(*pair[::-1], order)) for order in orders]
    )
    if not (spent + costs <= budgets).any():
        return [(p, q)]
    leaves = []
    for a, b in pair.T:
        leaves += transcripts(rng, orders, budgets, depth - 1, spent + costs, p * a, q * b)
    return leaves


@pytest.mark.parametrize("order", [1.5, 4.0])
def test_one_order_bounds_the_divergence_of_adaptive_trees(order):
    rng = np.random.default_rng(21)
    fullest = 0.0
    for _ in range(40):
        leaves = np.array(transcripts(rng, [order], np.array([0.6]), 4))
        p, q = leaves.T
        assert p.sum() == pytest.approx(1)
        value = max(divergence(p, q, order), divergence(q, p, order))
        assert value <= 0.6 * (1 + 1e-12)
        fullest = max(fullest, value)
    assert fullest > 0.3  # the trees really use the budget


def test_several_orders_share_delta():
    rng = np.random.default_rng(22)
    epsilon, delta, orders = 1.2, 0.05, np.array([2.0, 6.0, 20.0])
    budgets = renyi_budgets(epsilon, delta / orders.size, orders)
    for _ in range(60):
        p, q = np.array(transcripts(rng, orders, budgets, 4)).T
        for first, second in ((p, q), (q, p)):
            assert np.maximum(first - math.exp(epsilon) * second, 0.0).sum() <= delta


def crossing(rng, odometer, depth, spent, p, q):
    """Return the P-probability that the log ratio ever exceeds the odometer's reading."""
    orders, room = odometer
    if p > 0 and math.log(p / q) > (spent + room).min():
        return p
    if depth == 0:
        return 0.0
    pair = random_pair(rng, 2)
    costs = np.array(
        [max(divergence(*pair, order), divergence(*pair[::-1], order)) for order in orders]
    )
    return sum(crossing(rng, odometer, depth - 1, spent + costs, p * a, q * b) for a, b in pair.T)


def test_the_odometer_is_rarely_overtaken():
    rng = np.random.default_rng(23)
    orders, delta = np.array([1.5, 2.0, 4.0]), 0.3
    room = math.log(orders.size / delta) / (orders - 1)
    seen = [crossing(rng, (orders, room), 7, np.zeros(3), 1.0, 1.0) for _ in range(30)]
    assert max(seen) <= delta
    assert max(seen) > 0  # and the event does happen


def test_one_order_of_the_odometer_is_nearly_attained_by_many_small_steps():
    # A Brownian motion crosses the line with probability exactly delta, reached from below.
    order, delta, step, count = 3.0, 0.2, 0.02, 4000
    rng = np.random.default_rng(24)
    walk = np.cumsum(
        step**2 / 2 + step * rng.standard_normal((2000, count), dtype=np.float32), axis=1
    )
    line = order * step**2 / 2 * np.arange(1, count + 1) + math.log(1 / delta) / (order - 1)
    crossed = float((walk > line).any(axis=1).mean())
    assert crossed <= delta
    assert crossed >= delta - 0.05


def test_the_class_reads_what_the_theorem_says():
    odometer = PrivacyOdometer(delta=1e-6, orders=[3.0, 9.0])
    for sigma in (5.0, 8.0, 13.0):
        odometer.spend(taut.gaussian(sigma))
    total = sum(sigma**-2 / 2 for sigma in (5.0, 8.0, 13.0))
    expected = min(a * total + math.log(2e6) / (a - 1) for a in (3.0, 9.0))
    assert odometer.epsilon == pytest.approx(expected, rel=1e-8)
    assert odometer.epsilon >= expected


def test_the_gaussian_budget_beats_the_other_conversions_by_what_the_page_says():
    for epsilon in (0.5, 1.0, 2.0):
        full = budget_for(epsilon, 1e-5)
        assert full == pytest.approx(gaussian_mu(epsilon, 1e-5) ** 2 / 2, rel=1e-12)
        assert 0.13 < 1 - budget_for(epsilon, 1e-5, method="improved") / full < 0.165
        assert 0.355 < 1 - budget_for(epsilon, 1e-5, method="classic") / full < 0.48
