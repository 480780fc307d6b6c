"""The game's value: an upper bound on what it is by brute force, and hardly above it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from taut.adaptive import ScalarNoise
from taut.adaptive._sparse_vector import game
from taut.adaptive._sparse_vector.game import (
    gains,
    gains_below,
    lasting_gain,
    saddle_values,
    step_values,
)

LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}


def weights(kind, order, u, shift):
    """Return t and f by SciPy, in logarithms."""
    law = LAWS[kind]
    t = order * law.logsf(u - shift) + (1 - order) * law.logsf(u)
    f = order * law.logcdf(u - shift) + (1 - order) * law.logcdf(u)
    return np.exp(t), np.exp(f)


def brute_value(kind, order, queries, tops, shift):
    """Return V by the recursion, with a dense grid over place and shift alike."""
    u = np.linspace(-8, order * shift + 10, 3001)[:, None]
    t, f = weights(kind, order, u, np.linspace(0, shift, 9)[None, :])
    values = np.ones((queries + 1, tops + 1))
    for k in range(1, queries + 1):
        for c in range(1, tops + 1):
            values[k, c] = (t * values[k - 1, c - 1] + f * values[k - 1, c]).max()
    return math.log(values[queries, tops])


def log_moment(kind, order, shift):
    return (order - 1) * float(ScalarNoise(kind, 1.0).rdp(np.array([order]), shift)[0])


def gains_of(kind, order, shift, queries):
    moments = np.array([log_moment(kind, order, shift)])
    return gains(kind, np.array([order]), shift, moments, queries)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize(
    ("order", "queries", "tops", "shift"),
    [(1.3, 4, 1, 0.5), (3.0, 5, 1, 0.5), (4.0, 6, 2, 1 / 3), (12.0, 7, 3, 0.2), (40.0, 5, 2, 0.1)],
)
def test_steps_bound_brute_force_and_stay_near(kind, order, queries, tops, shift):
    truth = brute_value(kind, order, queries, tops, shift)
    phi = gains_of(kind, order, shift, queries)
    (found,) = step_values(phi, queries, tops)
    assert truth * (1 - 1e-12) <= found <= truth * (1 + 1e-3)
    (saddle,) = saddle_values(phi, queries, tops)
    assert saddle >= truth * (1 - 1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_worst_shift_is_the_largest(kind):
    # By convexity in the tail of the shifted query: checked on a grid, with V of fewer answers low.
    u = np.linspace(-8, 12, 2001)[:, None]
    t, f = weights(kind, 6.0, u, np.linspace(0, 0.7, 50)[None, :])
    for fewer in (1.0, 0.8, 0.3, 0.01):
        values = fewer * t + f
        assert values.max() <= max(values[:, -1].max(), 1.0) * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(["gaussian", "laplace"]),
    order=st.floats(1.01, 60),
    shift=st.floats(0.005, 1.5),
    at=st.floats(-10, 40),
    depth=st.floats(0, 20),
    queries=st.sampled_from([1, 10, 10**6]),
)
def test_gain_is_above_the_function_everywhere(kind, order, shift, at, depth, queries):
    if log_moment(kind, order, shift) > 600:
        return
    phi = gains_of(kind, order, shift, queries)
    t, f = weights(kind, order, np.array(at), shift)
    found = phi.at(np.array([[-depth]]))[0, 0]
    # SciPy's own logarithms of tails err by some roundings each.
    blur = 1e-12 * order * (abs(stats.norm.logsf(at)) + 1)
    assert found >= (math.exp(-depth) * t * (1 - blur) - (1 - f)) - blur * f


@pytest.mark.parametrize(
    ("order", "shift", "expected"),
    [
        (2, 0.5, 0.25670359705954093),
        (5, 0.1, 0.13498882272491708),
        (20, 0.1, 1.3047894896686654),
        (3, 1.0, 1.537706813812627),
    ],
)
def test_lasting_gain_of_laplace_noise(order, shift, expected):
    found = lasting_gain(order, shift)
    assert expected <= found <= expected * (1 + 1e-6)
    u = np.linspace(-30, 40, 70_001)
    t, f = weights("laplace", order, u, shift)
    clear = 1 - f > 1e-9  # elsewhere the difference has no digits left
    assert np.log(t[clear] / (1 - f[clear])).max() <= found + 1e-6
    assert found <= (order - 1) * shift


@pytest.mark.parametrize(
    ("order", "queries", "tops", "deviation", "expected"),
    [(3, 5, 1, 4.0, 1.0052581634632587), (4, 6, 2, 6.0, 1.6395221340018438)],
)
def test_reference_values_with_fine_cells(monkeypatch, order, queries, tops, deviation, expected):
    for name, value in {"_STEP": 0.003, "_RATIOS": 1500, "_MOST_KNOTS": 40_000}.items():
        monkeypatch.setattr(game, name, value)
    phi = gains_of("gaussian", order, 2 / deviation, queries)
    (found,) = step_values(phi, queries, tops)
    assert found == pytest.approx(expected, rel=1e-5)
    assert found >= expected * (1 - 1e-9)


@pytest.mark.parametrize(("order", "shift"), [(1.2, 0.3), (4.0, 0.2), (30.0, 0.05), (8.0, 1.0)])
def test_gains_below_a_place_bound_the_ratio_up_to_it(order, shift):
    places = np.array([-20.0, -9.0, -1.0, 0.0, 2.5, 6.0])
    found = gains_below(order, shift, places)
    assert (np.diff(found) >= 0).all()
    for place, bound in zip(places[1:], found[1:], strict=True):
        u = np.linspace(-9, place, 4001)
        log_t = order * stats.norm.logsf(u - shift) + (1 - order) * stats.norm.logsf(u)
        log_f = order * stats.norm.logcdf(u - shift) + (1 - order) * stats.norm.logcdf(u)
        truth = max((log_t - np.log(-np.expm1(log_f))).max(), 0.0)
        assert truth - 1e-8 <= bound <= truth * 1.02 + 2e-3  # a cell further on
    ratio = stats.norm.logsf(places - shift) - stats.norm.logsf(places)
    assert (found[2:] <= (order - 1) * ratio[2:] * 1.02 + 2e-3).all()
    assert gains_below(order, shift, np.array([0.0, 50.0]))[1] == math.inf


def test_length_only_adds_up_to_the_lasting_gain():
    shift, order = 0.2, 8.0
    lasting = lasting_gain(order, shift)
    by_length = [
        float(step_values(gains_of("laplace", order, shift, k), k, 3)[0]) for k in (3, 30, 3000)
    ]
    assert by_length == sorted(by_length)
    assert 2.9 * lasting < by_length[-1] <= 3 * lasting * (1 + 5e-3)


def test_long_games_take_blocks_and_many_answers_the_closed_form():
    phi = gains_of("gaussian", 20.0, 0.02, 10**6)
    (stepped,), (saddle,) = step_values(phi, 10**6, 5), saddle_values(phi, 10**6, 5)
    assert stepped < saddle < stepped + 3
    assert step_values(phi, 10**6, 10**5) is None
    assert math.isfinite(saddle_values(phi, 10**6, 10**5)[0])


def test_blocks_are_above_single_steps(monkeypatch):
    phi = gains_of("gaussian", 12.0, 0.2, 900)
    blocks = step_values(phi, 900, 4)[0]
    monkeypatch.setattr(game, "_BLOCK", 0.0)
    single = step_values(phi, 900, 4)[0]
    assert single <= blocks <= single * 1.002


def test_more_answers_than_single_steps_stay_sound(monkeypatch):
    monkeypatch.setattr(game, "_BLOCK", 0.3)
    phi = gains_of("gaussian", 4.0, 0.3, 40)
    coarse = step_values(phi, 40, 25)[0]
    monkeypatch.setattr(game, "_BLOCK", 0.0)
    assert coarse >= step_values(phi, 40, 25)[0]
