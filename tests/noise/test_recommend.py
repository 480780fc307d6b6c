"""Recommendations: valid options, ranked by an error that is predicted in one way for all."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.noise import (
    Blocks,
    Box,
    FiniteSet,
    Histogram,
    L1Ball,
    L2Ball,
    LInfBall,
    LpIntersection,
    NoiseMechanism,
    NoiseOption,
    Product,
    Ranges,
    SeededForExperiments,
    grouped_linf,
    recommend,
)
from taut.noise._optimal import gaussian as _optimal_gaussian
from taut.noise._recommend import rank

SETS = [
    Box([1.0, 4.0, 9.0, 16.0]),
    Box([1.0] * 5, l2=1.0),
    Box([1.0, 2.0, 3.0], l1=2.0),
    L1Ball(3, 1.0),
    L2Ball(3, 2.0),
    LInfBall(4, 0.5),
    LpIntersection(5, {1: 2.0, math.inf: 0.8}),
    Blocks([3, 2], l2=[1.0, 0.5]),
    FiniteSet([[1.0, 0.0, 0.5], [0.0, 2.0, 0.0]]),
    Box([0.85, 0.15]),
    Histogram(4, 2),
    Ranges([(18, 90), (0, 5)]).differences(),
    Product(L1Ball(2, 1.0), Histogram(3)),
]
PARTS = st.lists(st.floats(0.05, 20.0), min_size=1, max_size=8)


def errors(found):
    return {option.name: option.error for option in found.options}


@pytest.mark.parametrize("sensitivity", SETS, ids=lambda s: type(s).__name__)
def test_every_option_keeps_the_promise(sensitivity):
    found = recommend(sensitivity, 0.7, 1e-6)
    assert len(found.options) >= 5
    for option in found.options:
        if option.is_pure:
            assert option.mechanism.loss.delta(0.7 * (1 + 1e-12)) == 0
        assert option.mechanism.loss.epsilon(delta=1e-6) <= 0.7


@pytest.mark.parametrize("sensitivity", SETS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize(
    ("objective", "power"),
    [
        ("total", 2.0),
        pytest.param("total", 1.0, marks=pytest.mark.slow),
        pytest.param("worst", 2.0, marks=pytest.mark.slow),
    ],
)
def test_predicted_errors_are_those_of_the_noise(sensitivity, objective, power):
    found = recommend(sensitivity, 1.0, 1e-5, objective=objective, power=power)
    source = SeededForExperiments(seed=5)
    for option in (found.best, found.options[-1]):
        noise = np.array([option.mechanism.sample(source) for _ in range(4000)])
        moments = (np.abs(noise) ** power).mean(axis=0)
        measured = moments.max() if objective == "worst" else moments.sum()
        assert measured == pytest.approx(option.error, rel=0.12)


@settings(max_examples=20, deadline=None)
@given(PARTS, st.sampled_from(["total", "worst", "relative"]))
def test_ranked_and_never_worse_than_what_is_usual(widths, objective):
    found = recommend(Box(widths), 0.5, 1e-5, objective=objective)
    ranked = [option.error for option in found.options]
    assert all(one <= 1.001 * other for one, other in pairwise(ranked))
    assert ranked[0] <= 1.001 * min(ranked)
    by_name = errors(found)
    for family in ("Gaussian", "Laplace"):
        for usual in ("i.i.d.", "equal shares"):
            assert by_name[family] <= by_name[f"{family}, {usual}"] * (1 + 1e-6)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(PARTS, st.sampled_from([1e-3, 1e-6, 1e-10]), st.sampled_from([0.1, 0.5, 2.0]))
def test_the_rule_says_which_of_two_wins(widths, delta, epsilon):
    found = recommend(Box(widths), epsilon, delta)
    by_name = errors(found)
    (rule,) = [reason for reason in found.reasons if "K_eff" in reason]
    gap = by_name["Laplace, pure"] / by_name["Gaussian"]
    if abs(gap - 1) > 1e-6:
        assert ("noise Laplace has" in rule) == (gap < 1)


def test_errors_of_the_papers_profile():
    """Quadratic profile of 20 coordinates: groups gain 3.60 over Laplace noise."""
    by_name = errors(recommend(Box(np.arange(1, 21) ** 2.0), 0.5, 1e-6))
    assert by_name["Laplace, pure"] / by_name["grouped l_inf"] == pytest.approx(3.60, abs=0.005)
    assert by_name["Gaussian, i.i.d."] / by_name["Gaussian"] == pytest.approx(1.7547, abs=5e-5)
    assert by_name["Laplace, i.i.d."] / by_name["Laplace, pure"] == pytest.approx(1.3771, abs=5e-5)


def test_weights_count_in_the_error_and_not_in_the_promise():
    plain, weighted = (
        recommend(Box([1.0, 2.0, 3.0]), 1.0, 1e-5, weights=w) for w in (None, [5.0, 1.0, 0.1])
    )
    for option in weighted.options:
        assert option.mechanism.loss.epsilon(1e-5) <= 1.0
    assert errors(weighted)["Gaussian"] < np.dot(
        [5.0, 1.0, 0.1],
        next(o.mechanism.scales for o in plain.options if o.name == "Gaussian") ** 2,
    )


def test_pure_privacy_leaves_gaussian_noise_out():
    found = recommend(Box([1.0, 2.0]), 1.0)
    assert all(option.is_pure for option in found.options)
    assert {"staircase", "grouped l_inf", "Laplace, pure"} <= set(errors(found))


def test_what_does_not_apply_is_left_out_with_its_reason():
    rotated = Box([1.0, 2.0], basis=np.linalg.qr(np.array([[1.0, 1.0], [1.0, -1.0]]))[0])
    found = recommend(rotated, 1.0, 1e-5)
    assert all(option.name.startswith("Gaussian") for option in found.options)
    assert "basis" in found.left_out["Laplace, pure"]


def test_many_coordinates_leave_slow_calibration_out():
    found = recommend(Box(np.linspace(1.0, 2.0, 100_000)), 1.0, 1e-6)
    assert "optimal_laplace" in found.left_out["Laplace"]
    assert found.best.name == "Gaussian"


@pytest.mark.parametrize("objective", ["worst", "relative"])
def test_noise_with_two_names_is_searched_once(objective, monkeypatch):
    searched = []
    name = {"worst": "least_worst", "relative": "least_trace"}[objective]
    search = getattr(_optimal_gaussian, name)
    monkeypatch.setattr(_optimal_gaussian, name, lambda *a: searched.append(a) or search(*a))
    vectors = [[1.0, 0.3], [0.2, {"worst": 2.0, "relative": 3.0}[objective]]]
    recommend(FiniteSet(vectors), 1.0, 1e-6, objective=objective)
    # The total and the relative error are both traces.
    assert len(searched) == {"worst": 1, "relative": 2}[objective]


def test_a_pure_promise_is_preferred_among_equals():
    errors = {"worst": 2.0, "approximate": 1.0, "pure, as good": 1.0005, "pure, worse": 1.5}
    options = [
        NoiseOption(name, None, error, name if "pure" in name else "(1, 1e-6)")
        for name, error in errors.items()
    ]
    rank(options)
    names = [option.name for option in options]
    assert names == ["pure, as good", "approximate", "pure, worse", "worst"]


def test_json_and_table():
    found = recommend(Box([1.0, 4.0, 9.0]), 0.5, 1e-6)
    data = json.loads(json.dumps(found.to_dict()))
    assert data["options"][0]["name"] == found.best.name
    assert data["epsilon"] == 0.5
    assert data["adjacency"] == "add_remove"
    table = str(found)
    for option in found.options:
        assert option.name in table
    assert found.reasons[0] in table


def test_the_best_is_ready_to_release():
    best = recommend(Box([1.0, 4.0]), 0.5, 1e-6).best
    assert isinstance(best.mechanism, NoiseMechanism)
    assert best.mechanism.release([10.0, 20.0]).shape == (2,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must"),
        ({"epsilon": math.nan}, "epsilon must"),
        ({"epsilon": 1.0, "delta": 1.0}, r"delta must lie in \[0, 1\)"),
        ({"epsilon": 1.0, "delta": -0.1}, r"delta must lie in \[0, 1\)"),
        ({"epsilon": 1.0, "objective": "best"}, "objective must be one of"),
        ({"epsilon": 1.0, "weights": [1.0]}, "weights must hold 2"),
        ({"epsilon": 1.0, "weights": [1.0, -1.0]}, "weights must be finite"),
        ({"epsilon": 1.0, "power": 0.0}, "power must"),
        ({"epsilon": 1.0, "power": 1.0, "objective": "worst"}, "power belongs to"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        recommend(Box([1.0, 2.0]), **arguments)


def test_groups_are_tried_for_an_l_inf_ball():
    found = recommend(LInfBall(20, 1.0), 0.5, 1e-6)
    expected = grouped_linf(LInfBall(20, 1.0), epsilon=0.5).error
    assert errors(found)["grouped l_inf"] == pytest.approx(expected)
    assert found.best.error <= expected


def test_relative_error_of_groups_and_stairs_is_what_they_are_fitted_to():
    widths = np.geomspace(1, 1e3, 20)
    found = errors(recommend(Box(widths), 0.5, objective="relative"))
    fitted = grouped_linf(Box(widths), epsilon=0.5, weights=widths**-2.0)
    assert found["grouped l_inf"] == pytest.approx(fitted.error)
    assert found["grouped l_inf"] < found["Laplace, pure"] / 2
    stairs = errors(recommend(Box([1.0, 100.0]), 3.0, objective="relative"))
    assert stairs["staircase"] < stairs["Laplace, pure"]


def test_weights_reach_the_staircase():
    weighted = errors(recommend(Box([1.0, 1.0]), 3.0, weights=[1.0, 1e4]))
    assert weighted["staircase"] < weighted["Laplace, pure"]


@pytest.mark.parametrize("sensitivity", SETS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_nothing_is_missing_without_a_word(sensitivity, delta):
    found = recommend(sensitivity, 0.7, delta)
    names = set(errors(found)) | set(found.left_out)
    assert {"Gaussian", "Laplace", "Laplace, pure", "grouped l_inf", "staircase"} <= names
    assert all(found.left_out.values())


def test_reasons_for_leaving_out_speak_of_the_mechanism_left_out():
    rotated = Box([1.0, 2.0], basis=np.linalg.qr(np.array([[1.0, 1.0], [1.0, -1.0]]))[0])
    left_out = recommend(rotated, 1.0, 1e-5).left_out
    assert "Laplace" not in left_out["grouped l_inf"] + left_out["staircase"]


@pytest.mark.parametrize(
    ("sensitivity", "arguments"),
    [
        (Box([1.0] * 99 + [100.0], l2=100.0), {}),
        (Box([1.0, 2.0, 3.0], l1=4.0), {}),
        (Box([1.0, 2.0, 3.0, 4.0]), {"weights": [1.0, 1.0, 1.0, 1e6]}),
        (Box([1.0] * 8), {"power": 6.0}),
        (Box([1.0, 2.0]), {"objective": "worst"}),
    ],
)
def test_rules_for_plain_boxes_are_kept_for_them(sensitivity, arguments):
    reasons = " ".join(recommend(sensitivity, 0.5, 1e-2, **arguments).reasons)
    assert "K_eff" not in reasons
    assert "Gini" not in reasons


def test_weights_of_blocks():
    blocks = Blocks([3, 2], l2=[1.0, 0.5])
    one = recommend(blocks, 1.0, 1e-6, weights=[4.0, 1.0])
    other = recommend(blocks, 1.0, 1e-6, weights=[4.0, 4.0, 4.0, 1.0, 1.0])
    assert errors(one) == pytest.approx(errors(other))
    with pytest.raises(ValueError, match="5 numbers, one per coordinate, or 2, one per block"):
        recommend(blocks, 1.0, weights=[1.0, 2.0, 3.0])
    turned = Blocks([3, 2], l2=[1.0, 0.5], basis=np.eye(5))
    with pytest.raises(ValueError, match="one per coordinate, as blocks in a basis"):
        recommend(turned, 1.0, 1e-6, weights=[4.0, 1.0])
