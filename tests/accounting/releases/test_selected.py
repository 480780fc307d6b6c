"""Private selection: bounds against every ranking of small mechanisms, and against theorems."""

import itertools
import math
import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taut
from taut.accounting import Half, PrivacyLoss, Trials, best_of, selection_routes
from taut.accounting._releases.selected import selected_divergences

LAWS = [
    Trials.geometric(5),
    Trials.logarithmic(5),
    Trials.negative_binomial(3, 2.0),
    Trials.poisson(4),
    Trials.geometric(5).capped(4),
]
RUN = 1_000 * taut.gaussian(sigma=1.0).poisson(rate=0.01)


@cache
def probabilities(trials):
    return np.array([trials.probability(k) for k in range((trials.cap or 400) + 1)])


def generating_function(trials, x):
    """Return the sum of probabilities times powers, term by term."""
    p = probabilities(trials)
    return float(p @ x ** np.arange(p.size))


def selection(p, ranking, trials):
    """Return the law of the best of K draws of p, outcome by outcome, and of no draw at all."""
    levels = np.append(0.0, np.cumsum(np.asarray(p)[list(ranking)]))
    values = np.array([generating_function(trials, x) for x in levels])
    law = np.empty(len(p))
    law[list(ranking)] = np.diff(values)
    return np.append(law, trials.probability(0))


def hockey_stick(p, q, epsilon):
    return np.maximum(p - math.exp(epsilon) * q, 0).sum()


def worst_delta(p, q, trials, epsilon):
    """Return the largest divergence over all rankings, in both directions."""
    deltas = []
    for ranking in itertools.permutations(range(len(p))):
        a, b = selection(p, ranking, trials), selection(q, ranking, trials)
        deltas += [hockey_stick(a, b, epsilon), hockey_stick(b, a, epsilon)]
    return max(deltas)


def simplex(weights):
    weights = np.array(weights)
    return weights / weights.sum()


weights = st.lists(st.floats(0.02, 1.0), min_size=4, max_size=4).map(simplex)


@settings(max_examples=15)
@given(weights, weights, st.sampled_from(LAWS), st.floats(0.0, 2.0))
def test_no_ranking_of_a_small_mechanism_exceeds_the_bound(p, q, trials, epsilon):
    bounds = best_of(taut.finite(p, q), trials).delta_bounds(epsilon)
    assert worst_delta(p, q, trials, epsilon) <= bounds.upper * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("trials", LAWS, ids=str)
@pytest.mark.parametrize("rare", [2.158060412409941e-12, 3.3e-13, 7.77e-15])
def test_rounding_of_masses_near_one_does_not_undercut_a_rare_outcome(trials, rare):
    """1 - rare is rounded, and says less of the rare outcome than its own mass."""
    bounds = best_of(taut.finite([rare, 1 - rare], [0.0, 1.0]), trials).delta_bounds(1.0)
    truth = trials.expected * rare * (1 - rare * 100)  # 1 - f(1 - rare), which is concave
    assert bounds.lower <= bounds.upper
    assert truth <= bounds.upper


@pytest.mark.parametrize("trials", LAWS, ids=str)
def test_bound_is_reached_by_many_small_outcomes(trials):
    """Slices of the worst ranking: what is certified from below is what a mechanism reaches."""
    loss = taut.gaussian(sigma=1.5)
    bounds = best_of(loss, trials).epsilon_bounds(1e-6)
    assert 0.95 * bounds.upper <= bounds.lower <= bounds.upper


@pytest.mark.parametrize("trials", [*LAWS, Trials.geometric(5).capped(40)], ids=str)
def test_lower_bound_is_that_of_a_mechanism(trials):
    """Rank randomized response by hand: what speaks for P lowest, in one or in many slices."""
    epsilon, slices = 1.0, 400
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    p = np.append(np.full(slices, truth / slices), 1 - truth)
    q = np.append(np.full(slices, (1 - truth) / slices), truth)
    a, b = (selection(law, range(slices + 1), trials) for law in (p, q))
    by_hand = np.log(a[:-1] / b[:-1]).max()
    bounds = best_of(taut.pure(epsilon), trials).epsilon_bounds(0.0)
    assert by_hand <= bounds.upper * (1 + 1e-9)
    assert by_hand >= bounds.upper - 0.05
    assert bounds.lower <= bounds.upper


@pytest.mark.parametrize("eta", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_pure_runs_have_the_exact_constant(eta, epsilon):
    trials = Trials.negative_binomial(10, eta)
    gamma = trials.parameter
    added = math.log((math.exp(epsilon) + gamma) / (1 + gamma * math.exp(epsilon)))
    expected = epsilon + (1 + eta) * added
    assert best_of(taut.pure(epsilon), trials).epsilon(0.0) == pytest.approx(expected, rel=1e-9)


def test_failing_runs_have_the_exact_delta():
    trials = Trials("negative_binomial", 0.05 / 30)
    assert trials.failure(1e-10) == pytest.approx(5.999999640600021e-08, rel=1e-9)
    loss = best_of(taut.approximate(1.0, 1e-10), trials)
    assert loss.delta(20.0) == pytest.approx(5.999999640600021e-08, rel=1e-5)
    # Liu and Talwar (2019, Theorem 3.4), as it is printed, says nothing at all here.
    printed = math.log(1 / 5e-7) / (0.05 / 30) * math.sqrt(2e-10) + 5e-7
    assert printed == pytest.approx(0.12311054327390186, rel=1e-9)


def test_capped_laws_are_near_or_above_the_uncapped():
    loss, whole = taut.pure(1.0), best_of(taut.pure(1.0), Trials.geometric(10)).epsilon(0.0)
    assert best_of(loss, Trials.geometric(10).capped(60)).epsilon(0.0) == pytest.approx(
        whole, abs=1e-3
    )
    # Few trials of a law that seldom stops are nearly a fixed number, which costs more.
    assert best_of(loss, Trials.geometric(10).capped(5)).epsilon(0.0) > whole + 0.4


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_profile_is_below_that_of_koskela_redberg_and_wang(eta):
    trials = Trials.negative_binomial(10, eta)
    gamma, delta = trials.parameter, 1e-6
    one = RUN.epsilon(delta / trials.expected)
    published = min(
        one + (1 + eta) * math.log(math.exp(e) + (1 - gamma) / gamma * RUN.delta(e))
        for e in np.linspace(0.1, 2.0, 20)
    )
    assert best_of(RUN, trials).epsilon(delta) < published


@pytest.mark.parametrize("trials", LAWS, ids=str)
def test_divergences_cover_every_ranking(trials):
    p, q = simplex([0.5, 0.2, 0.2, 0.1]), simplex([0.2, 0.3, 0.1, 0.4])
    release = best_of(taut.finite(p, q), trials).terms[0][0]
    orders = np.array([1.5, 2.0, 8.0])
    bounds = selected_divergences(release, Half.ADD, orders)
    for ranking in itertools.permutations(range(4)):
        a, b = selection(p, ranking, trials), selection(q, ranking, trials)
        a, b = a[b > 0], b[b > 0]
        for order, bound in zip(orders, bounds, strict=True):
            assert math.log((a**order * b ** (1 - order)).sum()) / (order - 1) <= bound + 1e-9


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_divergences_are_at_most_those_of_papernot_and_steinke(eta):
    trials = Trials.negative_binomial(10, eta)
    loss = best_of(taut.from_rdp(lambda order: order / 8), trials)
    b = 1 + np.geomspace(1e-3, 1e3, 400)
    extra = ((1 + eta) * ((1 - 1 / b) * b / 8 - math.log(trials.parameter) / b)).min()
    for order in (2.0, 10.0, 50.0):
        published = order / 8 + extra + math.log(trials.expected) / (order - 1)
        assert loss.rdp(order) <= published * (1 + 1e-3)


def test_every_ranking_of_runs_known_by_divergences_is_covered():
    """A Gaussian run, told by its divergences only, costs no less than the run itself."""
    trials = Trials.geometric(10)
    by_divergences = best_of(taut.from_rdp(lambda order: order / 2), trials).epsilon_bounds(1e-6)
    assert by_divergences.upper > best_of(taut.gaussian(1.0), trials).epsilon(1e-6)
    assert by_divergences.lower == 0


def test_monte_carlo_of_a_selection():
    """Play the game: the frequency of an event is what the generating function says."""
    trials, chances = Trials.geometric(4), random.Random(5)
    p, ranking = simplex([0.3, 0.5, 0.2]), (1, 0, 2)
    rank = {outcome: place for place, outcome in enumerate(ranking)}
    wins = np.zeros(3)
    for _ in range(20_000):
        runs = chances.choices(range(3), weights=p, k=trials.draw(chances.getrandbits))
        wins[max(runs, key=rank.__getitem__)] += 1
    assert wins / wins.sum() == pytest.approx(selection(p, ranking, trials)[:3], abs=0.015)


def test_settings_that_differ_are_averaged():
    cheap, dear = 500 * taut.gaussian(1.0).poisson(0.01), RUN
    trials = Trials.logarithmic(10)
    both = best_of([cheap, dear], trials).epsilon(1e-6)
    assert best_of(cheap, trials).epsilon(1e-6) < both < best_of(dear, trials).epsilon(1e-6)
    assert best_of([dear, dear], trials).epsilon(1e-6) == pytest.approx(
        best_of(dear, trials).epsilon(1e-6), rel=1e-3
    )


@pytest.mark.parametrize("adjacency", ["add_remove", "add", "remove", "replace", "zero_out"])
def test_every_relation_is_answered(adjacency):
    loss = taut.gaussian(1.0, adjacency=adjacency)
    total = best_of(loss, Trials.geometric(3))
    assert total.adjacency == adjacency
    assert loss.epsilon(1e-6) < total.epsilon(1e-6) < 3 * loss.epsilon(1e-6)


def test_one_trial_costs_what_it_costs():
    one = best_of(RUN, Trials.geometric(1))
    assert one.epsilon(1e-6) == pytest.approx(RUN.epsilon(1e-6), rel=2e-3)


def test_selections_compose_and_are_sampled():
    total = best_of(RUN, Trials.geometric(10))
    assert (total + taut.gaussian(2.0)).epsilon(1e-6) > total.epsilon(1e-6)
    assert total.poisson(0.1).epsilon(1e-6) < total.epsilon(1e-6)


def test_nothing_is_lost_in_json():
    total = best_of([RUN, taut.laplace(1.0)], Trials.poisson(3).capped(7))
    again = PrivacyLoss.from_json(total.to_json())
    assert again == total
    assert again.epsilon(1e-6) == total.epsilon(1e-6)


def test_damaged_json_is_refused():
    data = best_of(RUN, Trials.geometric(10)).to_dict()
    data["terms"][0]["release"]["parameter"] = -0.1
    with pytest.raises(ValueError, match="parameter must be a probability"):
        PrivacyLoss.from_dict(data)
    data["terms"][0]["release"] |= {"parameter": 0.1, "weights": [1, 2]}
    with pytest.raises(ValueError, match="as many weights"):
        PrivacyLoss.from_dict(data)


def test_choice_from_runs_that_reveal_nothing_reveals_nothing():
    assert best_of(taut.zero(), Trials.geometric(10)) == taut.zero()


def test_run_that_betrays_is_told():
    assert best_of(taut.randomized_response(1.0), Trials.geometric(10)).epsilon(1e-6) == math.inf


def test_routes_are_named_and_the_best_decides():
    total = best_of(RUN, Trials.geometric(10))
    found = selection_routes(total, 1e-6)
    assert next(iter(found)) == "privacy profile of one run"
    assert total.epsilon(1e-6) <= min(found.values()) * (1 + 1e-9)
    pure = selection_routes(best_of(taut.pure(1.0), Trials.geometric(10)), 0.0)
    assert next(iter(pure)) == "closed formula for runs that may fail"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: best_of([], Trials.geometric(3)), ValueError, "nothing to choose from"),
        (lambda: best_of(RUN, 10), TypeError, "trials must be a law"),
        (lambda: best_of([1.0], Trials.geometric(3)), TypeError, "runs must be losses"),
        (lambda: best_of(1.0, Trials.geometric(3)), TypeError, "runs must be losses, got 1.0"),
        (
            lambda: best_of([RUN, taut.gaussian(1.0, adjacency="replace")], Trials.geometric(3)),
            taut.errors.AdjacencyMismatch,
            "one relation",
        ),
        (lambda: selection_routes(RUN, 1e-6), ValueError, "made by best_of"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()
