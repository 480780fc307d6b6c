"""Two thresholds: a guarantee that no small adversary breaks, and three answers."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from taut.adaptive import BetweenDesign, BetweenThresholds, Secret
from taut.audit import replay
from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import SeededForExperiments


def made(seed=0, **change):
    fields = {
        "low": -20.0,
        "high": 20.0,
        "threshold_scale": 1.0,
        "query_scale": 2.0,
        "sensitivity": 1.0,
        "betweens": 1,
        "delta": 1e-3,
        "adjacency": "add_remove",
        **change,
    }
    return BetweenThresholds(BetweenDesign(**fields), generator=SeededForExperiments(seed))


def test_three_answers():
    vector = made(betweens=2)
    assert vector.ask(-1e6) == "low"
    assert vector.ask(1e6) == "high"
    assert vector.ask(math.nan) == "low"
    assert vector.ask(Secret(0.0)) == "between"
    assert vector.ask(0.0) == "between"
    assert vector.is_exhausted
    with pytest.raises(BudgetExceeded, match="ended"):
        vector.ask(0.0)


def outcomes(values, design, questions):
    """Return the probability of every sequence of answers, by quadrature over the thresholds."""
    z = np.linspace(-40, 40, 8001)
    weights = stats.laplace.pdf(z)
    weights /= weights.sum()
    level = z * design.threshold_scale
    result = {}
    for answers in product(("low", "between", "high"), repeat=questions):
        if "between" in answers[:-1]:
            continue
        mass = weights.copy()
        for value, answer in zip(values, answers, strict=True):
            below = stats.laplace.cdf((design.low + level - value) / design.query_scale)
            high = stats.laplace.sf((design.high - level - value) / design.query_scale)
            high = np.minimum(high, 1 - below)
            mass = mass * {"low": below, "high": high, "between": 1 - below - high}[answer]
        result[answers] = mass.sum()
    return np.array(list(result.values()))


def test_no_small_adversary_exceeds_the_guarantee():
    design = made(low=-6.0, high=6.0, delta=0.05).design
    rng = np.random.default_rng(0)
    for _ in range(200):
        values = rng.uniform(-9, 9, size=2)
        moved = values + rng.choice([-1.0, 1.0], size=2)
        p, q = outcomes(values, design, 2), outcomes(moved, design, 2)
        for one, other in ((p, q), (q, p)):
            spent = np.maximum(one - math.exp(design.epsilon) * other, 0).sum()
            assert spent <= design.delta


def test_loss_and_width():
    design = made().design
    width = 40.0 - 4 * design.grid - 2.0 - 2 * math.log(500)
    assert design.least_width == pytest.approx(width)
    expected = 1.0 + 1.0 + math.log1p(2 / width)
    assert design.epsilon == pytest.approx(expected)
    assert design.loss.epsilon(1e-3) == pytest.approx(expected)


def test_thresholds_must_be_apart():
    with pytest.raises(UnsoundConfiguration, match="too close"):
        made(low=0.0, high=5.0)
    for change in ({"delta": 0.0}, {"delta": 0.6}, {"betweens": 0}, {"low": math.nan}):
        with pytest.raises(ValueError, match=next(iter(change))):
            made(**change)
    with pytest.raises(TypeError, match="design"):
        BetweenThresholds("laplace")


def test_thresholds_where_numbers_are_cut_are_refused():
    # Cut, both would be one, and every answer "between" outside of what was proven.
    for low, high in ((1e30, 2e30), (-1e20, 0.0), (0.0, 2.0**42 + 1)):
        with pytest.raises(ValueError, match=r"2\^52 grid steps"):
            made(low=low, high=high)


def test_values_that_are_no_doubles_tell_nothing():
    assert made().ask(10**400) == "high"
    assert made().ask(Secret(-(10**400))) == "low"
    for bad in ("12.75", 1275j, [12.75, 3.0]):
        with pytest.raises((TypeError, ValueError)) as error:
            made().ask(Secret(bad))
        assert "1275" not in str(error.value).replace(".", "")


def test_replay_and_silence():
    def program(rows, step):
        vector = made(low=-15.0, betweens=3)
        answers = []
        for column in rows.T:
            if not vector.is_exhausted:
                answers.append(vector.ask(step * column.sum()))
        return answers

    rows = np.random.default_rng(3).integers(-1, 2, size=(50, 10)).astype(float)
    assert replay(lambda data: program(data, 1.0), rows, rows[:-1]).passed
    assert not replay(lambda data: program(data, 5.0), rows, rows[:-1]).passed
    assert "Secret" not in repr(made())
    with pytest.raises(UnsoundConfiguration, match="stored"):
        made().__reduce__()
