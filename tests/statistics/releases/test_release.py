"""Releases of several statistics: promises, errors, and what they refuse."""

import math
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

import taut
from taut import statistics
from taut.accounting import Adjacency
from taut.audit import verify_statement
from taut.errors import AdjacencyMismatch, BudgetExceeded
from taut.noise import SeededForExperiments
from taut.statistics import (
    Categories,
    CellCounts,
    Count,
    Covariance,
    GroupMeans,
    Intervals,
    Mean,
    Quantiles,
    Total,
    Variance,
    release,
)
from taut.statistics._tables.batch import ArrayColumn

AGE, INCOME = (18, 90), (0, 150)
REGIONS = Categories("region", ["north", "south", "west"])
ALL = [
    Count(),
    Mean("age", AGE),
    Total("income", INCOME),
    Variance("income", INCOME),
    Covariance({"age": AGE, "income": INCOME}),
    CellCounts(REGIONS),
    CellCounts([REGIONS, Intervals("age", [0, 40, 100])], name="both"),
    Quantiles("age", [0.25, 0.5, 0.75], AGE),
]


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.uniform(18, 90, n)
    return {
        "age": age,
        "income": rng.lognormal(3.5, 0.4, n) + age / 4,
        "region": rng.choice(["north", "south", "west"], n, p=[0.5, 0.3, 0.2]),
    }


def truth(table):
    age, income = (np.clip(table[name], *b) for name, b in (("age", AGE), ("income", INCOME)))
    cells = [[np.sum((table["region"] == r) & (age < 40)) for r in REGIONS.labels]]
    cells += [[np.sum((table["region"] == r) & (age >= 40)) for r in REGIONS.labels]]
    return {
        "count": len(age),
        "mean of age": age.mean(),
        "total of income": income.sum(),
        "variance of income": income.var(),
        "covariance of age, income": np.cov(age, income, ddof=0),
        "counts by region": np.sum(cells, axis=0),
        "both": np.transpose(cells),
        "quantiles of age": np.quantile(age, [0.25, 0.5, 0.75]),
    }


SETTINGS = [
    {"epsilon": 2.0},
    {"epsilon": 2.0, "delta": 1e-6},
    {"epsilon": 2.0, "adjacency": "replace", "records": 3000},
    {"epsilon": 2.0, "delta": 1e-6, "adjacency": "replace", "records": 3000},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_everything_at_once(settings):
    table = people(3000)
    found = release(table, ALL, **settings, generator=SeededForExperiments(seed=1))
    assert found.loss.epsilon(delta=settings.get("delta", 0.0)) <= 2.0
    assert found.loss.adjacency is Adjacency(settings.get("adjacency", "add_remove"))
    for name, value in truth(table).items():
        estimate = found[name]
        assert np.shape(estimate.value) == np.shape(value) == np.shape(estimate.standard_error)
        assert (np.abs(estimate.value - value) <= 6 * np.asarray(estimate.standard_error)).all()
        lower, upper = estimate.interval(0.999_999)
        assert (np.asarray(lower) <= value).all()
        assert (value <= np.asarray(upper)).all()
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert str(found.promise) in str(found)
    assert pickle.loads(pickle.dumps(found)).to_dict() == found.to_dict()


def test_the_statement_is_recomputed():
    found = release(people(50), ALL[:3], epsilon=1.0)
    assert verify_statement(found.statement).holds
    assert found["count"].statement == found.statement
    assert found["count"].loss == found.loss
    seeded = release(people(50), ALL[:3], epsilon=1.0, generator=SeededForExperiments(0))
    assert seeded.statement["is_secure"] is False


@pytest.mark.parametrize(
    "settings",
    [pytest.param(one, marks=[pytest.mark.slow] if "delta" in one else []) for one in SETTINGS],
)
def test_standard_errors_are_those_of_many_releases(settings):
    settings = {**settings, **({"records": 1000} if "records" in settings else {})}
    table, source = people(1000), SeededForExperiments(seed=3)
    wanted = [one for one in ALL if not isinstance(one, Quantiles)]
    drawn = [release(table, wanted, **settings, generator=source) for _ in range(40)]
    for name, value in truth(table).items():
        if name == "quantiles of age":
            continue
        values = np.array([one[name].value for one in drawn])
        if not np.asarray(drawn[0][name].standard_error).any():
            assert (values == value).all()  # the count, where it is public
            continue
        errors = np.array([one[name].standard_error for one in drawn])
        ratio = np.sqrt(((values - value) ** 2 / errors**2).mean())
        assert ratio == pytest.approx(1.0, abs=0.35)


def test_a_joint_design_errs_less_than_releases_one_by_one():
    wanted = [Count(), Mean("age", AGE), Mean("income", INCOME), Variance("age", AGE)]
    table = people(100)
    together = release(table, wanted, epsilon=1.0)
    alone = [release(table, [one], epsilon=0.25) for one in wanted]
    for one, estimate in zip(alone, together.estimates, strict=True):
        assert estimate.standard_error < one.estimates[0].standard_error


def test_the_order_of_columns_is_that_of_the_call():
    """Designs are kept: one for the same columns in another order must not be taken."""
    table, wide = people(400), {"age": AGE, "income": (0, 1e6)}
    for names in (["age", "income"], ["income", "age"]):
        bounds = {name: wide[name] for name in names}
        wanted = [Covariance(bounds, name="matrix"), CellCounts(REGIONS)]
        found = release(table, wanted, epsilon=1e3, generator=SeededForExperiments(seed=0))
        ages = names.index("age")
        assert found["matrix"].value[ages, ages] == pytest.approx(np.var(table["age"]), rel=0.1)


def test_weights_move_the_budget():
    table = people(100)

    def error(weight):
        wanted = [Count(weight=weight), CellCounts(REGIONS)]
        return release(table, wanted, epsilon=1.0)["count"].standard_error

    assert error(100.0) < error(1.0) < error(0.01)


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_tables_with_few_records_or_none(n, adjacency):
    settings = {"records": n} if adjacency == "replace" else {}
    found = release(people(n), ALL, epsilon=0.5, adjacency=adjacency, **settings)
    mean = found["mean of age"]
    assert AGE[0] <= mean.value <= AGE[1]
    assert math.isfinite(mean.standard_error)
    assert 0 <= found["variance of income"].value <= 75**2 * (1 + 1e-12)
    assert (np.linalg.eigvalsh(found["covariance of age, income"].value) >= -1e-6).all()


BROKEN = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, None, "text", True, 10**400]


def test_broken_records_count_like_others(recwarn):
    ages = [*BROKEN, 40.0]
    table = {"age": ages, "income": ages, "region": [*BROKEN, "north"]}
    found = release(table, ALL, epsilon=40.0, generator=SeededForExperiments(seed=0))
    assert found["count"].value == pytest.approx(len(ages), abs=2.5)
    assert found["counts by region"].value == pytest.approx([1, 0, 0], abs=2.5)
    assert AGE[0] <= found["mean of age"].value <= AGE[1]
    assert not recwarn


def test_a_constant_column():
    table = {"age": np.full(500, 40.0), "income": np.full(500, 7.0)}
    wanted = [Variance("age", AGE), Quantiles("age", [0.1, 0.5, 0.9], AGE)]
    found = release(table, wanted, epsilon=5.0, generator=SeededForExperiments(seed=0))
    assert found["variance of age"].value < 40
    assert found["quantiles of age"].value == pytest.approx([40.0] * 3, abs=1e-6)


def test_a_budget_is_charged_first():
    budget = taut.PrivacyFilter(epsilon=1.0, delta=1e-6, kind="renyi")
    release(people(20), [Mean("age", AGE)], epsilon=0.1, delta=1e-7, ledger=budget)
    assert budget.remaining.fraction < 1
    with pytest.raises(BudgetExceeded):
        release(people(20), [Mean("age", AGE)], epsilon=50.0, ledger=budget)
    with pytest.raises(TypeError, match="ledger must have a method spend"):
        release(people(20), [Count()], epsilon=1.0, ledger="purse")


@pytest.mark.parametrize(
    ("wanted", "settings", "error", "match"),
    [
        ([], {}, TypeError, "statistics must be a list"),
        ([Count(), "count"], {}, TypeError, "statistics must be a list"),
        ([Count(), Count()], {}, ValueError, "different names, got 'count' twice"),
        ([Count()], {"epsilon": math.nan}, ValueError, "epsilon must be finite"),
        ([Count()], {"delta": 1.0}, ValueError, "delta must be in"),
        ([Count()], {"adjacency": "replace"}, ValueError, "records must be given"),
        ([Mean("age", AGE)], {"adjacency": "replace", "records": 9}, ValueError, "another number"),
        ([Count()], {"adjacency": "replace", "records": 10}, ValueError, "more than a count"),
        ([Count()], {"records": 10}, ValueError, "records must be left out"),
        ([Count()], {"adjacency": "zero_out"}, AdjacencyMismatch, "'add_remove' or 'replace'"),
        ([Mean("agee", AGE)], {}, ValueError, "no column 'agee'"),
        ([Quantiles("region", [0.5], AGE)], {}, ValueError, "must hold numbers"),
        ([Count()], {"generator": 7}, TypeError, "generator must be a RandomSource"),
    ],
)
def test_what_is_refused(wanted, settings, error, match):
    with pytest.raises(error, match=match):
        release(people(10), wanted, **{"epsilon": 1.0, **settings})


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Mean("age", (90, 18)), "lower"),
        (lambda: Mean("age", (18, math.inf)), "finite"),
        (lambda: Mean("age", 5), "pair"),
        (lambda: Mean("age", AGE, weight=0), "weight must be"),
        (lambda: Count(weight=1e308), r"weight must lie between 1e-09 and 1e\+09"),
        (lambda: Quantiles("age", [0.5], AGE, weight=1e-10), "weight must lie between"),
        (lambda: Covariance({}), "mapping"),
        (lambda: CellCounts([]), "got none"),
        (lambda: Quantiles("age", [], AGE), "between 0 and 1"),
        (lambda: Quantiles("age", [0.5, 1.0], AGE), "between 0 and 1"),
        (lambda: Quantiles("age", [0.5, math.nan], AGE), "finite"),
        (lambda: Quantiles("age", [0.5, 0.25], AGE), "increase"),
        (lambda: Quantiles("age", [1e-9], AGE), "lie between 0.001 and 0.999 and increase"),
        (lambda: Quantiles("age", [0.5], AGE, step=0.1), "power of two"),
    ],
)
def test_statistics_that_make_no_sense(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_a_name_that_is_no_text_is_refused_before_anything_is_released():
    with pytest.raises(TypeError, match="name must be of class str"):
        Count(name=7)


def test_levels_of_intervals():
    found = release(people(10), [Count()], epsilon=1.0)["count"]
    narrow, wide = found.interval(0.5), found.interval(0.99)
    assert wide.lower < narrow.lower <= found.value <= narrow.upper < wide.upper
    for level in (0, 1, math.nan, 2):
        with pytest.raises(ValueError, match="level must"):
            found.interval(level)


def test_unknown_names_are_key_errors():
    with pytest.raises(KeyError, match="mode"):
        release(people(10), [Count()], epsilon=1.0)["mode"]


class Refuses:
    """A ledger that takes nothing."""

    def spend(self, loss):
        raise BudgetExceeded("nothing is left")


@pytest.mark.parametrize("promise", [{}, {"adjacency": "replace", "records": 20}])
def test_a_ledger_is_asked_before_a_record_is_read(promise, monkeypatch):
    read = []
    numbers = ArrayColumn.numbers
    monkeypatch.setattr(ArrayColumn, "numbers", lambda self: read.append(1) or numbers(self))
    with pytest.raises(BudgetExceeded):
        release(people(20), [Mean("age", AGE)], epsilon=0.5, ledger=Refuses(), **promise)
    assert not read
    release(people(20), [Mean("age", AGE)], epsilon=0.5, **promise)
    assert read


def test_a_wrong_public_number_of_records_costs_nothing():
    budget = taut.PrivacyFilter(epsilon=1.0, delta=1e-6)
    public = {"adjacency": "replace", "records": 19}
    with pytest.raises(ValueError, match="got records=19 for another number"):
        release(people(20), [Mean("age", AGE)], epsilon=0.5, ledger=budget, **public)
    assert budget.remaining.fraction == 1


def test_more_cells_than_fit_into_memory_are_refused_before_noise_is_planned():
    labels = [str(i) for i in range(1000)]
    cells = [Categories(name, labels) for name in "abc"]
    with pytest.raises(ValueError, match="must be at most 16777216"):
        CellCounts(cells)
    with pytest.raises(ValueError, match="must be at most 16777216"):
        GroupMeans("age", AGE, by=cells)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-200, 5e-324])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_promises_too_small_for_quantiles_are_refused_before_anybody_pays(epsilon, delta):
    wanted = [Quantiles("age", [0.1, 0.3], AGE)]
    with pytest.raises(ValueError, match="epsilon must be larger for quantiles, got a share of"):
        release(people(5), wanted, epsilon=epsilon, delta=delta, ledger=Refuses())


@pytest.mark.parametrize("weights", [(1e9, 1e-9), (1e-9, 1.0)])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_weights_share_a_budget_however_far_apart(weights, delta):
    wanted = [Count(weight=weights[0]), Quantiles("age", [0.5], AGE, weight=weights[1])]
    found = release(people(5), wanted, epsilon=1.0, delta=delta)
    assert found.loss.epsilon(delta=delta) <= 1.0
    assert sum(found.shares.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-9])
def test_tiny_promises_are_kept(epsilon):
    found = release(people(5), [Count()], epsilon=epsilon, delta=1e-6)
    assert found.loss.epsilon(delta=1e-6) <= epsilon


def test_a_covariance_of_many_columns_is_that_of_numpy():
    rng = np.random.default_rng(0)
    mixed = np.clip(rng.normal(size=(500, 80)) @ rng.normal(size=(80, 80)) / 9, -3, 3)
    table = {f"x{i}": column for i, column in enumerate(mixed.T)}
    wanted = [Covariance(dict.fromkeys(table, (-3, 4))), Variance("x7", (-3, 4))]
    found = release(table, wanted, epsilon=1e5)
    matrix = np.cov(mixed.T, bias=True)
    whole, one = found.values()
    errors = np.asarray(whole.standard_error)
    assert np.abs(whole.value - matrix).max() < 10 * errors.max()
    assert one.value == pytest.approx(matrix[7, 7], abs=10 * errors[7, 7])


@pytest.mark.parametrize("bounds", [(-1e30, 1e30), (0.0, 1e-30)])
def test_extreme_bounds_have_variances(bounds):
    found = release({"x": [0.0] * 9}, [Variance("x", bounds)], epsilon=1.0)
    assert 0 <= found["variance of x"].value <= ((bounds[1] - bounds[0]) / 2) ** 2 * 1.001


@pytest.mark.parametrize(
    "swapped",
    [
        lambda data: release([Mean("age", (18, 90))], data, epsilon=1.0),
        lambda data: statistics.mean("age", data, bounds=(18, 90), epsilon=1.0),
        lambda data: statistics.mean(data, "age", bounds=data, epsilon=1.0),
        lambda data: statistics.mean([1.0], bounds=(18, 90), epsilon=data),
        lambda data: release([1.0], [Count()], epsilon=1.0, records=data, adjacency="replace"),
        lambda data: release([1.0], [Count()], epsilon=1.0, adjacency=data),
        lambda data: release({"age": [1.0]}, [Count()], epsilon=1.0, generator=data),
    ],
)
@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, dict, lambda d: np.array(d["age"])])
def test_data_in_place_of_an_argument_are_not_in_the_message(swapped, kind):
    with pytest.raises((TypeError, ValueError)) as refusal:
        swapped(kind({"age": [987654.0] * 3}))
    assert "98765" not in str(refusal.value)
