"""Filters: what they let through, what they refuse, and what they remember."""

import copy
import json
import math
import pickle
import threading
import time

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.accounting import gaussian_delta

import taut
from taut.accounting import (
    IndividualFilter,
    PrivacyFilter,
    PrivacyOdometer,
    budget_for,
    gaussian_mu,
)
from taut.errors import (
    AdjacencyMismatch,
    BudgetExceeded,
    InfeasibleBudget,
    UnsoundConfiguration,
)

# --- budgets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.01, 1.0, 12.0, 200.0])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-30])
def test_gaussian_budget_meets_the_promise_and_wastes_nothing(epsilon, delta):
    budget = budget_for(epsilon, delta)
    with mp.workdps(90):
        assert gaussian_delta(mp.sqrt(2 * mp.mpf(budget)), epsilon) <= delta
        assert gaussian_delta(mp.sqrt(2 * mp.mpf(budget) * (1 + 1e-7)), epsilon) > delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (1.0, 1e-9), (8.0, 1e-6)])
def test_renyi_budgets_meet_the_promise_in_their_own_conversion(epsilon, delta):
    orders = 1 + np.geomspace(1e-2, 1e4, 200_001)
    classic = np.log(1 / delta) / (orders - 1)
    improved = classic + np.log1p(-1 / orders) - np.log(orders) / (orders - 1)
    for method, extra in (("classic", classic), ("improved", improved)):
        budget = budget_for(epsilon, delta, method=method)
        assert (orders * budget + extra).min() == pytest.approx(epsilon, rel=1e-6)
    ordered = [budget_for(epsilon, delta, method=m) for m in ("classic", "improved", "gdp")]
    assert ordered == sorted(ordered)


def test_an_epsilon_that_no_order_proves():
    with pytest.raises(InfeasibleBudget, match="gdp"):
        budget_for(0.0, 1e-30, method="improved")
    assert budget_for(0.0, 1e-5, method="improved") > 0
    assert budget_for(0.0, 1e-5) > 0
    assert budget_for(0.0, 1e-5, method="classic") == 0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"method": "magic"}, "method"),
    ],
)
def test_bad_budgets(arguments, match):
    with pytest.raises(ValueError, match=match):
        budget_for(**({"epsilon": 1.0, "delta": 1e-5} | arguments))


# --- one budget ----------------------------------------------------------------------------------


def test_gaussian_filter_lets_through_exactly_what_fits():
    budget = PrivacyFilter(1.0, 1e-6)
    # 100 equal steps that fill the budget, and no 101st.
    mu = math.sqrt(2 * budget_for(1.0, 1e-6) / 100) * (1 - 1e-9)
    step = taut.gaussian(sigma=1 / mu)
    for _ in range(100):
        budget.spend(step)
    assert not budget.can_spend(step)
    assert budget.remaining.fraction < 1e-8
    assert (100 * step).epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)


def test_what_goes_through_is_within_the_promise():
    rng = np.random.default_rng(5)
    budget, total = PrivacyFilter(2.0, 1e-5), taut.zero()
    for sigma in rng.uniform(3.0, 30.0, 200).tolist():
        step = taut.gaussian(sigma=sigma, sensitivity=1.5)
        if budget.can_spend(step):
            budget.spend(step)
            total += step
    assert budget.remaining.fraction < 0.01
    assert total.epsilon(1e-5) <= 2.0


@pytest.mark.slow
def test_renyi_filter_takes_any_loss_and_stays_within_the_promise():
    budget, total = PrivacyFilter(2.0, 1e-5, kind="renyi"), taut.zero()
    menu = [
        taut.gaussian(10.0),
        taut.laplace(12.0),
        taut.gaussian(2.0).poisson(0.05),
        3 * taut.randomized_response(0.52),
    ]
    for i in range(400):
        if budget.can_spend(menu[i % 4]):
            budget.spend(menu[i % 4])
            total += menu[i % 4]
    assert budget.remaining.fraction < 0.05
    assert 1.0 < total.epsilon(1e-5) <= 2.0


@pytest.mark.parametrize("orders", [(4.0,), (2.0, 4.0, 8.0, 16.0, 32.0)])
def test_given_orders_stay_within_the_promise(orders):
    budget, total = PrivacyFilter(3.0, 1e-3, kind="renyi", orders=orders), taut.zero()
    while budget.can_spend(taut.laplace(3.0)):
        budget.spend(taut.laplace(3.0))
        total += taut.laplace(3.0)
    assert len(total.terms) == 1
    assert total.epsilon(1e-3) <= 3.0


def test_several_orders_adapt_where_one_would_not():
    # At order 400 Laplace noise costs nearly its pure epsilon; a low order allows many more.
    steps = taut.laplace(20.0)
    counts = []
    for orders in ([400.0], [10.0, 400.0]):
        budget = PrivacyFilter(1.0, 1e-6, kind="renyi", orders=orders)
        counts.append(next(n for n in range(1000) if not budget.can_spend((n + 1) * steps)))
    assert counts[1] >= counts[0]


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9, 1e-40])
@pytest.mark.parametrize("epsilons", [[1.0], [0.5, 0.5], [1.0, 0.5, 0.5, 0.25]])
def test_pure_losses_fit_whose_epsilons_add_up_to_the_budget(epsilons, delta):
    # At one order, for Gaussian releases, a budget of 1 refused a first release with epsilon 1.
    budget = PrivacyFilter(sum(epsilons) * (1 + 1e-12), delta, kind="renyi")
    for epsilon in epsilons:
        budget.spend(taut.pure(epsilon))
    assert budget.remaining.fraction < 2 * delta + 1e-11
    with pytest.raises(BudgetExceeded):
        budget.spend(taut.pure(3 * delta + 1e-10))


def test_the_smallest_delta_is_not_shared():
    budget = PrivacyFilter(1.0, 5e-324, kind="renyi")
    assert len(budget.to_dict()["orders"]) == 1
    assert budget.can_spend(taut.gaussian(sigma=100.0))


def test_refusal_leaves_the_budget_as_it_was():
    budget = PrivacyFilter(1.0, 1e-6)
    budget.spend(taut.gaussian(10.0))
    before = budget.to_dict()
    with pytest.raises(BudgetExceeded, match="left"):
        budget.spend(taut.gaussian(1.0))
    assert budget.to_dict() == before
    assert budget.spent == 1 - budget.remaining.fraction


@pytest.mark.parametrize("kind", ["gdp", "renyi"])
def test_remaining_tells_the_largest_gaussian_that_fits(kind):
    budget = PrivacyFilter(1.0, 1e-6, kind=kind)
    budget.spend(taut.gaussian(12.0))
    mu = budget.remaining.mu
    assert budget.can_spend(taut.gaussian(sigma=1 / (mu * (1 - 1e-6))))
    assert not budget.can_spend(taut.gaussian(sigma=1 / (mu * (1 + 1e-6))))


def test_a_zero_loss_is_free_even_when_nothing_is_left():
    budget = PrivacyFilter(1.0, 1e-6)
    budget.spend(taut.gaussian(sigma=1 / budget.remaining.mu / (1 - 1e-12)))
    before = budget.to_dict()
    budget.spend(taut.zero())
    assert budget.to_dict() == before


def test_an_infinite_divergence_never_fits():
    budget = PrivacyFilter(1.0, 1e-2, kind="renyi")
    with pytest.raises(BudgetExceeded):
        budget.spend(taut.approximate(0.01, 1e-9))


def test_gaussian_filter_refuses_other_losses_with_the_remedy():
    budget = PrivacyFilter(1.0, 1e-6)
    with pytest.raises(UnsoundConfiguration, match="kind='renyi'"):
        budget.spend(taut.laplace(10.0))
    with pytest.raises(UnsoundConfiguration, match="kind='renyi'"):
        budget.can_spend(taut.gaussian(10.0).poisson(0.1))


@pytest.mark.parametrize("make", [lambda: PrivacyFilter(1.0, 1e-6), lambda: PrivacyOdometer(1e-6)])
def test_relations_must_agree(make):
    with pytest.raises(AdjacencyMismatch, match="replace"):
        make().spend(taut.gaussian(10.0, adjacency="replace"))
    with pytest.raises(TypeError, match="PrivacyLoss"):
        make().spend(0.1)


def test_the_whole_filter_is_a_loss():
    assert PrivacyFilter(1.0, 1e-6).loss.epsilon(1e-6) == pytest.approx(1.0, rel=1e-8)
    assert PrivacyFilter(1.0, 1e-6, kind="renyi").loss == taut.approximate(1.0, 1e-6)


@pytest.mark.parametrize("kind", ["gdp", "renyi"])
def test_a_filter_resumes_from_json(kind):
    budget = PrivacyFilter(1.0, 1e-6, kind=kind, adjacency="replace")
    budget.spend(taut.gaussian(10.0, adjacency="replace"))
    resumed = PrivacyFilter.from_dict(json.loads(json.dumps(budget.to_dict())))
    assert resumed.to_dict() == budget.to_dict()
    assert resumed.remaining == budget.remaining
    assert (resumed.epsilon, resumed.delta) == (1.0, 1e-6)


@pytest.mark.parametrize(
    "broken",
    [
        None,
        {"schema": "other"},
        {"schema": "taut.privacy-filter/1"},
        PrivacyFilter(1.0, 1e-6).to_dict() | {"spent": [-1.0]},
        PrivacyFilter(1.0, 1e-6).to_dict() | {"spent": [0.0, 0.0]},
        PrivacyFilter(1.0, 1e-6).to_dict() | {"spent": [math.nan]},
    ],
)
def test_broken_descriptions(broken):
    with pytest.raises(ValueError, match="privacy filter"):
        PrivacyFilter.from_dict(broken)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"kind": "magic"}, "kind"),
        ({"orders": [2.0]}, "kind='renyi'"),
        ({"kind": "renyi", "orders": []}, "orders"),
        ({"kind": "renyi", "orders": [1.0]}, "orders"),
        ({"kind": "renyi", "orders": [math.inf]}, "orders"),
        ({"adjacency": "sibling"}, "adjacency"),
        ({"delta": 0.0}, "delta"),
    ],
)
def test_bad_filters(arguments, match):
    with pytest.raises(ValueError, match=match):
        PrivacyFilter(**({"epsilon": 1.0, "delta": 1e-6} | arguments))


def test_orders_that_prove_nothing_are_refused():
    with pytest.raises(InfeasibleBudget, match="larger orders"):
        PrivacyFilter(0.1, 1e-6, kind="renyi", orders=[2.0])


def test_threads_do_not_overspend():
    budget = PrivacyFilter(1.0, 1e-6)
    step = taut.gaussian(sigma=math.sqrt(50.5) / budget.remaining.mu)
    done = []

    def work():
        for _ in range(20):
            try:
                budget.spend(step)
                done.append(1)
            except BudgetExceeded:
                return

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 50


def test_repr_is_for_readers():
    assert "epsilon=1" in repr(PrivacyFilter(1.0, 1e-6))
    assert "100.0% left" in repr(PrivacyFilter(1.0, 1e-6))


# --- odometer ------------------------------------------------------------------------------------


def test_odometer_starts_at_zero_grows_and_covers_the_fixed_composition():
    odometer, last = PrivacyOdometer(1e-6), 0.0
    assert odometer.epsilon == 0
    for count in range(1, 30):
        odometer.spend(taut.gaussian(8.0))
        assert odometer.epsilon > last
        last = odometer.epsilon
        assert last >= (count * taut.gaussian(8.0)).epsilon(1e-6)
    assert last < 2 * (29 * taut.gaussian(8.0)).epsilon(1e-6)
    assert "so far" in repr(odometer)


def test_odometer_of_a_zero_loss_stays_at_zero():
    odometer = PrivacyOdometer(1e-6)
    odometer.spend(taut.zero())
    assert odometer.epsilon == 0


def test_odometer_without_divergence_reads_infinity():
    odometer = PrivacyOdometer(1e-6)
    odometer.spend(taut.approximate(0.1, 1e-9))
    assert odometer.epsilon == math.inf


@pytest.mark.parametrize("arguments", [{"delta": 0.0}, {"orders": [0.5]}, {"adjacency": "no"}])
def test_bad_odometers(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        PrivacyOdometer(**({"delta": 1e-6} | arguments))


# --- a budget per record -------------------------------------------------------------------------


def test_records_take_part_while_their_own_costs_fit():
    people = IndividualFilter(0.05, size=3)
    assert people.charge([0.02, 0.05, 0.06]).tolist() == [True, True, False]
    assert people.charge(0.03).tolist() == [True, False, True]
    np.testing.assert_allclose(people.private_remaining(), [0.0, 0.0, 0.02], atol=1e-16)


def test_counts_beyond_memory_are_refused_by_name():
    people = IndividualFilter(0.05, size=3)
    with pytest.raises(ValueError, match="size must be at most 1,000,000,000 records"):
        IndividualFilter(0.05, size=2**53 + 1)
    with pytest.raises(ValueError, match="count must be at most 1,000,000,000 records"):
        people.insert(2**53 + 1)


def test_a_budget_may_be_spent_to_the_last_unit_and_no_further():
    people = IndividualFilter(epsilon=1.0, delta=1e-5, size=1)
    budget = budget_for(1.0, 1e-5)
    assert people.charge(budget).all()
    assert not people.charge(5e-324).any()
    assert people.charge(0.0).all()


@given(
    st.floats(1e-6, 10.0),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60),
)
def test_charges_never_add_up_to_more_than_the_budget(budget, shares):
    people = IndividualFilter(budget, size=1)
    with mp.workdps(60):
        total = mp.mpf(0)
        for share in shares:
            cost = share * budget / 3
            if people.charge(cost).all():
                total += mp.mpf(cost)
        assert total <= mp.mpf(budget)
        left = mp.mpf(budget) - total
        assert float(left) >= people.private_remaining()[0]
        assert people.private_remaining()[0] >= float(left) - 1e-15 * len(shares) * budget


def test_tiny_costs_are_not_lost():
    people = IndividualFilter(1.0, size=1)
    for _ in range(10):
        people.charge(1e-30)
    assert people.private_remaining()[0] == pytest.approx(1.0 - 10 * math.ulp(1.0), abs=1e-16)
    assert people.private_remaining()[0] < 1.0


def test_infinite_costs_never_fit():
    people = IndividualFilter(1.0, size=2)
    assert people.charge([math.inf, 1e300]).tolist() == [False, False]
    assert people.charge([1.0, 1.0]).all()


def test_chosen_records_are_charged_alone():
    people = IndividualFilter(1.0, size=5)
    assert people.charge([0.5, 2.0], [3, 1]).tolist() == [True, False]
    np.testing.assert_allclose(people.private_remaining(), [1, 1, 1, 0.5, 1])
    assert people.charge(0.6, np.array([3, 0])).tolist() == [False, True]
    assert people.charge(0.6, []).size == 0


def test_large_populations_are_settled_block_by_block():
    size = 100_003
    costs = np.random.default_rng(1).uniform(0.0, 1.5, size)
    people = IndividualFilter(1.0, size=size)
    active = people.charge(costs)
    np.testing.assert_array_equal(active, costs <= 1.0)
    np.testing.assert_allclose(
        people.private_remaining(), np.where(active, 1.0 - costs, 1.0), atol=1e-15
    )


def test_a_million_charges_take_milliseconds():
    people = IndividualFilter(1.0, size=1_000_000)
    costs = np.full(1_000_000, 0.01)
    times = []
    for _ in range(7):
        start = time.process_time()
        people.charge(costs)
        times.append(time.process_time() - start)
    assert min(times) < 0.010


def test_insertions_are_fresh_and_deletions_final():
    people = IndividualFilter(1.0, size=2)
    people.charge(0.75)
    assert people.insert(2).tolist() == [2, 3]
    people.delete([0])
    assert people.charge(0.5).tolist() == [False, False, True, True]
    assert people.charge(0.0).tolist() == [False, True, True, True]
    np.testing.assert_allclose(people.private_remaining(), [0.0, 0.25, 0.5, 0.5])


def test_a_person_who_returns_resumes_the_balance():
    people = IndividualFilter(1.0, size=1)
    people.charge(0.75)
    balance = people.private_remaining()
    people.delete([0])
    (index,) = people.insert(1, balances=balance)
    assert people.charge(0.5).tolist() == [False, False]
    assert people.charge(0.25, [index]).all()


def test_the_promise_to_every_record_is_a_loss():
    people = IndividualFilter(epsilon=1.0, delta=1e-5)
    assert people.loss.epsilon(1e-5) == pytest.approx(1.0, rel=1e-8)
    assert people.mu == pytest.approx(math.sqrt(2 * budget_for(1.0, 1e-5)))


def test_no_print_shows_balances_or_how_many_records_there_are():
    people = IndividualFilter(0.125, size=4321)
    people.charge(0.1)
    assert repr(people) == "<IndividualFilter budget=0.125: balances are private>"
    public = [name for name in vars(people) if not name.startswith("_")]
    assert public == []


def test_threads_share_one_balance():
    people = IndividualFilter(1.0, size=1000)
    taken = []

    def work():
        for _ in range(50):
            taken.append(int(people.charge(0.01).sum()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) <= 100 * 1000
    assert sum(taken) >= 99 * 1000


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"budget": 1.0, "epsilon": 1.0, "delta": 1e-5},
        {"epsilon": 1.0},
        {"budget": 1.0, "delta": 1e-5},
        {"budget": 0.0},
        {"budget": math.nan},
        {"budget": 1.0, "size": -1},
    ],
)
def test_bad_individual_filters(arguments):
    with pytest.raises(ValueError, match=r"budget|size"):
        IndividualFilter(**arguments)


@pytest.mark.parametrize(
    ("attempt", "match"),
    [
        (lambda people: people.charge(-0.1), "costs"),
        (lambda people: people.charge([0.1, math.nan, 0.1]), "costs"),
        (lambda people: people.charge([0.1, 0.1]), "shape"),
        (lambda people: people.charge(0.1, [0, 0]), "once"),
        (lambda people: people.charge(0.1, [3]), "between 0"),
        (lambda people: people.charge(0.1, [-1]), "between 0"),
        (lambda people: people.charge(0.1, [0.5]), "integers"),
        (lambda people: people.charge(0.1, [[0]]), "integers"),
        (lambda people: people.charge([0.1, 0.2], [0]), "shape"),
        (lambda people: people.delete([7]), "between 0"),
        (lambda people: people.insert(0), "count"),
        (lambda people: people.insert(2, balances=[0.5]), "balances"),
        (lambda people: people.insert(1, balances=[1.5]), "balances"),
        (lambda people: people.insert(1, balances=[math.nan]), "balances"),
    ],
)
def test_bad_charges_change_nothing(attempt, match):
    people = IndividualFilter(1.0, size=3)
    with pytest.raises(ValueError, match=match):
        attempt(people)
    np.testing.assert_array_equal(people.private_remaining(), np.ones(3))


class TestGaussianMu:
    @pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-3), (1.0, 1e-5), (8.0, 1e-10)])
    def test_is_the_largest_mu_within_the_promise(self, epsilon, delta):
        mu = gaussian_mu(epsilon, delta)
        assert taut.gaussian(1 / mu).delta_bounds(epsilon).lower <= delta
        assert taut.gaussian(1 / (mu * (1 + 1e-9))).delta_bounds(epsilon).upper > delta

    @pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, float("nan")])
    def test_refuses_delta_outside_the_open_interval(self, delta):
        with pytest.raises(ValueError, match="delta"):
            gaussian_mu(1.0, delta)

    def test_refuses_negative_epsilon(self):
        with pytest.raises(ValueError, match="epsilon"):
            gaussian_mu(-1.0, 1e-5)


@pytest.mark.parametrize("budget", [PrivacyFilter(1.0, 1e-6), PrivacyOdometer(1e-6)])
@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_copies_that_would_spend_the_budget_again_are_refused(budget, copied):
    # A lock made pickles fail, with words about the lock; copies had the same room once more.
    with pytest.raises(TypeError, match=r"n_jobs=1.*BudgetFile.*ledger=None"):
        copied(budget)


def test_losses_that_no_room_is_enough_for_are_told_so():
    # More noise was the advice, for releases of which no noise makes the divergence finite.
    budget = PrivacyFilter(5.0, 1e-4, kind="renyi")
    with pytest.raises(BudgetExceeded, match="no finite Renyi divergence"):
        budget.spend(taut.approximate(1.0, 1e-6))
    assert budget.spent == 0
