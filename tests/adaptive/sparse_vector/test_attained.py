"""Lower bounds: below what explicit streams reach by enumeration, and below every upper bound."""

import math

import numpy as np
import pytest
from adaptive.sparse_vector.adversaries import probabilities, sequences
from mpmath import mp
from scipy import stats

from taut.adaptive import ScalarNoise, SparseVectorDesign, SparseVectorStages
from taut.adaptive._sparse_vector.attained.coins import CoinAttack, _of_coins
from taut.adaptive._sparse_vector.attained.lower import certified_lower
from taut.adaptive._sparse_vector.attained.streams import Attack, Streams, epsilons

KINDS = ("gaussian", "laplace", "exponential")


def design(kind, tops, queries, scale=2.0, **more):
    noises = ScalarNoise(kind, scale), ScalarNoise(kind, 2 * scale)
    return SparseVectorDesign(*noises, 1.0, tops, "replace", queries, **more)


def streams(kind, tops, scale=2.0):
    return Streams(ScalarNoise(kind, scale), ScalarNoise(kind, 2 * scale), tops, 2.0**-10)


def epsilon_of(p, q, delta):
    return float(epsilons(p, q, delta))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("first", "second"), [(0, 2), (2, 2), (1, 4), (3, 3)])
@pytest.mark.parametrize("moves", [(-1.0, 1.0), (0.0, -1.0)])
def test_enumeration_of_all_answers_tells_at_least_as_much(kind, first, second, moves):
    tops, scale, levels = 2, 2.0, (1.0, -1.5)
    attack = Attack(first, levels[0], second, levels[1], *moves)
    answers = sequences(first + second, tops)
    tree = {}
    for sequence in answers:
        for i in range(len(sequence)):
            phase = int(i >= first)
            level = levels[phase]
            tree[sequence[:i]] = (level, level + moves[phase])
    q, p = (probabilities(tree, side, answers, (kind, scale), (kind, 2 * scale)) for side in (0, 1))
    loss = streams(kind, tops).loss(attack)
    for delta in (1e-3, 1e-2, 0.05):
        truth, found = epsilon_of(p, q, delta), loss.epsilon_bounds(delta).lower
        assert found <= truth + 1e-6
        # Answers above in the first phase are one outcome here: with none of it, nothing is lost.
        assert first > 0 or found >= 0.98 * truth - 3e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tops", [1, 3])
def test_coins_by_a_simulation(kind, tops):
    # The lower bound lies below a curve estimated from half a million plays, with their error.
    scale, queries, level = 2.0, 12, -1.0
    attack = CoinAttack(streams(kind, tops), queries, level, 1.0, 1.0)
    rng = np.random.default_rng(5)
    size = 200_000
    draw = {
        "gaussian": rng.normal,
        "laplace": rng.laplace,
        "exponential": lambda _, s, shape: rng.exponential(s, shape),
    }[kind]
    coins = rng.integers(0, 2, (size, queries)).astype(bool)
    values = np.where(coins, level + 1, level - 1)
    noise = draw(0.0, 2 * scale, (size, queries))
    above = values + noise >= draw(0.0, scale, (size, 1))
    used = np.cumsum(above, axis=1) <= tops
    ended = above.sum(axis=1) >= tops
    of_first = (above & used & coins).sum(axis=1)
    p, q = attack.masses()
    for i, count in enumerate(range(tops, -1, -1)):
        found = np.mean(ended & (of_first >= count))
        error = 4 * math.sqrt(found * (1 - found) / size) + 1e-9
        assert p[: i + 1].sum() <= found + error
        assert p[: i + 1].sum() >= 0.9 * found - error
        assert q[i] == pytest.approx(stats.binom.pmf(count, tops, 0.5))
    assert attack.loss.epsilon_bounds(1e-3).lower > 0


CASES = {
    "game": (design("gaussian", 3, 100, 5.0), 1e-6, 0.6),
    "one": (design("gaussian", 1, 1000, 50.0), 1e-6, 0.75),
    "many": (design("laplace", 60, None, 50.0), 1e-6, 0.3),
    "pure": (design("laplace", 5, 1000, 8.0), 0.0, 0.99),
    "any length": (design("laplace", 2, None, 8.0), 1e-6, 0.9),
    "exponential": (design("exponential", 2, None, 8.0), 1e-9, 0.95),
    "monotone": (design("laplace", 2, None, 8.0, monotone=True), 0.0, 0.99),
    "resampled": (design("laplace", 3, 200, 8.0, resample=True), 1e-6, 0.4),
    "floored": (design("gaussian", 2, None, 5.0, margin=8.0), 1e-6, 0.5),
    "little noise": (design("gaussian", 400, 10**10, 0.2), 1e-9, 0.0),
    "no room": (design("laplace", 2, 2, 8.0), 1e-6, 0.2),
}


@pytest.mark.parametrize("name", CASES)
def test_bounds_have_two_sides(name):
    case, delta, share = CASES[name]
    bounds = case.epsilon_bounds(delta)
    assert bounds.upper == case.loss.epsilon(delta)
    assert share * bounds.upper <= bounds.lower <= bounds.upper
    # Unclipped, it does not contradict the upper bound either.
    assert case.lower_epsilon(delta, 1) <= bounds.upper


def test_bounds_of_stages_have_two_sides():
    stages = SparseVectorStages(design("laplace", 1, 100, 20.0), 20)
    bounds = stages.epsilon_bounds(1e-6)
    assert bounds.upper == stages.epsilon(1e-6)
    assert 0.2 * bounds.upper <= bounds.lower <= bounds.upper
    assert bounds.lower > stages.stage.epsilon_bounds(1e-6).lower


@pytest.mark.parametrize("kind", KINDS)
def test_rounded_noise_is_no_worse_than_the_bound_says(kind):
    # On a coarse grid, an eighth of the sensitivity, the enumeration uses the noise as it is drawn.
    grid, scale = 1 / 8, 2.0
    law = {"gaussian": stats.norm, "laplace": stats.laplace, "exponential": stats.expon}[kind]
    attack = Attack(2, 1.0, 2, -1.5, -1.0, 1.0)
    found = Streams(ScalarNoise(kind, scale), ScalarNoise(kind, 2 * scale), 1, grid).loss(attack)
    steps = np.arange(-500, 700) * grid
    masses = law.cdf((steps + grid / 2) / scale) - law.cdf((steps - grid / 2) / scale)

    def outcomes(one, other):
        first = law.cdf((steps - grid / 2 - one) / (2 * scale)) ** 2
        still = law.cdf((steps - grid / 2 - other) / (2 * scale)) ** 2
        told = [masses @ (first * still), masses @ (first * (1 - still))]
        return np.array([*told, 1 - sum(told)])

    q, p = outcomes(1.0, -1.5), outcomes(0.0, -0.5)
    for delta in (1e-3, 1e-2):
        truth = epsilon_of(p, q, delta)
        assert 0.3 * truth <= found.epsilon_bounds(delta).lower <= truth


def log_ended(tops, queries, chance):
    """Return log P(Bin(queries, chance) >= tops) to forty digits."""
    with mp.workdps(60):
        share, term, below = mp.mpf(chance), (1 - mp.mpf(chance)) ** queries, mp.mpf(0)
        for j in range(tops):
            below += term
            term *= mp.mpf(queries - j) / (j + 1) * share / (1 - share)
        return float(mp.log(1 - below))


@pytest.mark.parametrize(
    ("tops", "queries", "chance"),
    [(7, 487117886, 1.624417396210053e-08), (15, 89776048, 1.8086382390142447e-07), (3, 99, 0.02)],
)
def test_binomials_of_many_are_as_near_as_they_claim(tops, queries, chance):
    """SciPy loses digits in proportion to the number of questions."""
    logs, doubts = streams("laplace", tops)._ended(queries, np.array([math.log(chance)]))
    assert logs[0] == pytest.approx(log_ended(tops, queries, chance), abs=doubts[0])


@pytest.mark.parametrize("tops", [1, 20, 10**5])
def test_coins_of_many_are_no_rarer_than_they_claim(tops):
    found = _of_coins(tops)
    with mp.workdps(40):
        for count in {0, tops // 3, tops // 2, tops}:
            ways = mp.loggamma(tops + 1) - mp.loggamma(count + 1) - mp.loggamma(tops - count + 1)
            assert found[count] >= mp.exp(ways - tops * mp.log(2)) * (1 - 1e-15)


def test_many_coins_are_told_apart_in_groups():
    """Every number by itself took minutes, and half a gigabyte, for as many answers above."""
    few, many = (CoinAttack(streams("laplace", n), 2 * n, 0.0, 1.0, 1.0) for n in (8, 10**5))
    assert few.masses()[0].size == 9
    p, q = many.masses()
    assert p.size <= 500
    assert p.sum() <= 1
    assert 0.99 <= q.sum() <= 1.01


def test_searches_are_remembered():
    case = design("laplace", 2, None, 8.0)
    certified_lower.cache_clear()
    assert case.epsilon_bounds(0.0) == case.epsilon_bounds(0.0)
    assert certified_lower.cache_info().hits == 1
