"""Intervals, tuning, differences and what is recommended."""

import json
import math

import numpy as np
import pytest
from comparison.tasks import SETTINGS, TASK_SIZES, run
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from taut.comparison import Comparison, predict
from taut.comparison._intervals import mean_interval
from taut.comparison._summary import best_learning_rate

PREDICTION = predict(SETTINGS, TASK_SIZES, arms=["plain", "group", "normalised"])


def comparison(
    values,
    *,
    rates=(0.5,),
    chosen=None,
    confidence=0.95,
    tuned_on_test=True,
    examples=10**9,
    **more,
):
    """Return what was found if every arm had these accuracies, by seed."""
    tried = [run(arm, -1.0, -1, rate, **more) for arm in values for rate in rates]
    runs = tried + [
        run(arm, value, seed, (chosen or {}).get(arm, 0.5), **more)
        for arm, row in values.items()
        for seed, value in enumerate(row)
    ]
    return Comparison(
        PREDICTION,
        tuple(runs),
        tuple(range(len(next(iter(values.values()))))),
        tuple(rates),
        chosen or dict.fromkeys(values, 0.5),
        confidence,
        tuned_on_test,
        examples,
    )


@given(
    st.lists(st.floats(-10, 10), min_size=2, max_size=12).filter(lambda x: np.std(x) > 1e-3),
    st.floats(0.5, 0.999),
)
def test_interval_is_that_of_student(values, confidence):
    found = mean_interval(values, confidence)
    scale = stats.sem(values)
    low, high = stats.t.interval(confidence, len(values) - 1, loc=np.mean(values), scale=scale)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-8, abs=1e-8)


def test_one_value_has_no_interval():
    found = mean_interval([0.7], 0.95)
    assert (found.mean, found.low, found.high) == (0.7, -math.inf, math.inf)
    assert str(found) == "0.7000"
    assert found.to_dict()["low"] is None


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
def test_confidence_that_makes_no_sense(confidence):
    with pytest.raises(ValueError, match="confidence"):
        mean_interval([1.0, 2.0], confidence)


def test_learning_rate_is_chosen_by_the_examples_that_choose():
    runs = [
        run("plain", 0.9, 0, 0.1, choice=0.5),
        run("plain", 0.5, 0, 0.2, choice=0.7),
        run("plain", 0.9, 1, 0.1, choice=0.6),
        run("plain", 0.5, 1, 0.2, choice=0.7),
    ]
    assert best_learning_rate(runs) == 0.2


def test_smaller_learning_rate_wins_a_draw():
    assert best_learning_rate([run("plain", 0.5, 0, rate) for rate in (1.0, 0.1)]) == 0.1


def test_learning_rate_by_loss_where_there_are_no_classes():
    runs = [
        run("plain", None, 0, rate, loss) for rate, loss in ((0.1, 2.0), (0.2, 1.0), (0.3, None))
    ]
    assert best_learning_rate(runs) == 0.2


def test_differences_are_paired_and_hold_together():
    rows = {"plain": [0.5, 0.7, 0.9], "group": [0.51, 0.72, 0.91], "normalised": [0.5, 0.6, 0.9]}
    results = {row.arm: row for row in comparison(rows).results}
    expected = stats.ttest_rel(rows["group"], rows["plain"]).confidence_interval(0.975)
    found = results["group"].difference
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert results["plain"].difference is None


def test_better_arm_is_recommended():
    rows = {"plain": [0.5, 0.7, 0.9], "group": [0.6, 0.801, 1.0], "normalised": [0.3, 0.501, 0.7]}
    found = comparison(rows)
    assert [row.verdict for row in found.results] == ["reference", "better", "worse"]
    assert found.best.arm == "group"
    assert found.recommendation.startswith("Take group: its accuracy differs from that of plain by")
    assert "A run takes 1.0 times the CPU time of plain." in found.recommendation
    assert "Worse than plain beyond the interval: normalised." in found.recommendation


def test_best_of_several_better_arms():
    rows = {"plain": [0.5, 0.7, 0.6], "group": [0.6, 0.8, 0.7], "normalised": [0.7, 0.9, 0.8]}
    assert comparison(rows).best.arm == "normalised"


def test_plain_is_recommended_where_differences_may_be_chance():
    found = comparison({"plain": [0.5, 0.7, 0.9], "group": [0.6, 0.72, 0.91]})
    assert found.best.arm == "plain"
    assert found.recommendation.startswith("No arm beats plain beyond the 95% intervals")


def test_one_more_arm_needs_more_evidence():
    rows = {"plain": [0.5, 0.7, 0.9], "group": [0.52, 0.73, 0.93]}
    assert comparison(rows, confidence=0.98).results[1].verdict == "better"
    rows["normalised"] = [0.5, 0.7, 0.9]
    assert comparison(rows, confidence=0.98).results[1].verdict == "undecided"


def test_lower_losses_are_better():
    runs = [
        run(arm, None, seed, loss=loss + 0.001 * seed)
        for arm, loss in (("plain", 1.0), ("group", 0.5), ("normalised", 2.0))
        for seed in range(3)
    ]
    found = comparison({"plain": [1, 1, 1], "group": [1, 1, 1], "normalised": [1, 1, 1]})
    found = Comparison(PREDICTION, tuple(runs), (0, 1, 2), (0.5,), found.chosen, 0.95, True, 100)
    assert found.metric == "loss"
    assert found.best.arm == "group"
    assert [row.verdict for row in found.results] == ["reference", "better", "worse"]


def test_losses_that_are_not_finite_decide_nothing():
    rows = {"plain": [None, None], "group": [None, None]}
    found = comparison(rows, loss=None)
    assert [row.verdict for row in found.results] == ["reference", "undecided"]
    assert "Infinity" not in json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("seeds", [1, 2])
def test_few_seeds_decide_nothing(seeds):
    rows = {"plain": [0.5] * seeds, "group": [0.9] * seeds, "normalised": [0.1] * seeds}
    found = comparison(rows)
    assert [row.verdict for row in found.results] == ["reference", "undecided", "undecided"]
    assert found.results[1].reason == f"a verdict takes 3 seeds, got {seeds}"
    assert found.best.arm == "plain"
    assert f"Undecided: a verdict takes 3 seeds at least, got {seeds}" in found.recommendation
    assert "Worse" not in found.recommendation
    assert "No arm beats" not in found.recommendation


@pytest.mark.parametrize("seeds", [2, 3, 8, 40])
def test_one_test_example_decides_nothing(seeds):
    rows = {"plain": [0.987] * seeds, "group": [0.986] * seeds}
    row = comparison(rows, examples=1000).results[1]
    assert row.verdict == "undecided"
    assert row.difference.low <= -0.002
    assert row.difference.high >= 0


def test_seeds_that_agree_are_as_uncertain_as_counts_of_examples():
    # 16 of 1000 examples in every one of 4 seeds: as if each count had a deviation of almost 4.
    rows = {"plain": [0.5] * 4, "group": [0.516] * 4}
    found = comparison(rows, examples=1000).results[1].difference
    reach = stats.t.ppf(0.975, 3) * math.sqrt(0.016 * 0.984 / 1000) / 2
    assert (found.low, found.high) == pytest.approx((0.016 - reach, 0.016 + reach))


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=3, max_size=8),
    st.floats(0.5, 0.999),
)
def test_floor_never_narrows_an_interval(counts, confidence):
    rows = {"plain": [a / 50 for a, _ in counts], "group": [b / 50 for _, b in counts]}
    floored = comparison(rows, confidence=confidence, examples=50).results[1].difference
    differences = np.subtract(rows["group"], rows["plain"])
    student = mean_interval(differences, confidence)
    assert floored.high - floored.mean >= student.high - student.mean
    assert floored.high - floored.mean >= 1 / 50


def test_test_examples_that_disagree_by_chance_are_seldom_told_apart():
    """Two models that are equally good: verdicts are as rare as promised, for small test sets."""
    draw = np.random.default_rng(0)
    wrong = 0
    for _ in range(2000):
        counts = draw.binomial(200, 0.99, size=(2, 3)) / 200
        rows = {"plain": list(counts[0]), "group": list(counts[1])}
        wrong += comparison(rows, examples=200).results[1].verdict != "undecided"
    assert wrong <= 0.05 * 2000 + 3 * math.sqrt(2000 * 0.05 * 0.95)


def test_interval_of_a_mean_reaches_one_example():
    found = comparison({"plain": [0.9] * 3}, examples=50).results[0].value
    assert (found.low, found.high) == pytest.approx((0.88, 0.92))


def test_edge_of_learning_rates_is_named():
    rows = {"plain": [0.5, 0.7], "group": [0.6, 0.7]}
    chosen = {"plain": 0.2, "group": 0.4}
    text = comparison(rows, rates=(0.1, 0.2, 0.4), chosen=chosen).recommendation
    assert "edge of those tried for group:" in text
    assert "flatters all arms" in text
    assert "flatters" not in comparison(
        rows, rates=(0.1, 0.2, 0.4), chosen=chosen, tuned_on_test=False
    ).recommendation  # fmt: skip


def test_table_has_warning_and_csv_all_runs():
    found = comparison({"plain": [0.5, 0.7], "group": [0.6, 0.7], "normalised": [0.5, 0.7]})
    text = str(found)
    assert "These are experiments" in text
    assert text.count("\n| ") == 5
    assert len(found.to_csv().splitlines()) == 1 + len(found.runs)
    data = found.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["warning"] == found.experiment


def test_all_runs_together_cost_more():
    found = comparison({"plain": [0.5, 0.7], "group": [0.6, 0.7], "normalised": [0.5, 0.7]})
    (_, count), *rest = found.loss.terms
    assert count == len(found.runs) * SETTINGS.steps
    assert not rest
    assert found.loss.epsilon(1e-3) > 3
