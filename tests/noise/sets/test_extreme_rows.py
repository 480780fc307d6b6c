"""No row makes a clip or a release fail or warn, and every row is clipped well, by itself."""

import datetime
import math
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from taut.noise import (
    Blocks,
    Box,
    FiniteSet,
    Histogram,
    L1Ball,
    L2Ball,
    LInfBall,
    LpIntersection,
    Polytope,
    Product,
    Ranges,
    SeededForExperiments,
    clipping,
    gaussian_with_covariance,
    grouped_linf,
    optimal_gaussian,
    optimal_laplace,
    staircase,
)
from taut.noise._sets.projections import project_l2_box
from taut.noise.geometry import private_second_moment

INF = math.inf
LARGEST = float(np.finfo(np.float64).max)
TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
SETS = {
    "l1": L1Ball(3, 1.3),
    "l2": L2Ball(3, 0.7),
    "linf": LInfBall(3, 0.4),
    "large l2": L2Ball(3, 1e69),
    "l2 and linf": LpIntersection(3, {2: 1.0, INF: 0.6}),
    "l1 and linf": LpIntersection(3, {1: 1.5, INF: 0.6}),
    "three norms": LpIntersection(3, {0.7: 9.0, 1.5: 1.4, 4: 0.9}),
    "box": Box([3.0, 1.0, 0.5]),
    "turned box": Box([3.0, 1.0, 0.5], TURN),
    "coupled box": Box([3.0, 1.0, 0.5], l2=1.5, l1=2.5),
    "turned coupled box": Box([3.0, 1.0, 0.5], TURN, l2=1.5, l1=2.5),
    "zero width": Box([3.0, 1.0, 0.0], TURN, allow_zero=True),
    "blocks": Blocks([1, 2], [1.0, 0.5]),
    "capped blocks": Blocks([1, 2], [1.0, 0.5], cap=1.05),
    "turned blocks": Blocks([1, 2], [1.0, 2.0], basis=TURN),
    "hybrid": Blocks([1, 2], [1.0, 0.5], linf=[0.9, 0.3], cap=1.05, basis=TURN),
    "complement": Blocks([1, 2], [1.0, 0.5], basis=TURN[:, :1]),
    "finite": FiniteSet([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]]),
    "polytope": Polytope(np.vstack([np.eye(3), np.ones((1, 3)) / 2])),
    "flat polytope": Polytope([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]]),
    "histogram": Histogram(3),
    "histogram of two": Histogram(3, per_record=2),
    "ranges": Ranges([(18.0, 90.0), (-1.0, 0.5), (0.0, 1e5)]),
    "product": Product(L1Ball(2, 1.0), Box([2.0])),
}
each_set = pytest.mark.parametrize("one", SETS.values(), ids=SETS)
EXTREME = [0.0, -0.0, 5e-324, 1e-310, 1e-200, 1.0, -1.0, 1e16, 1e200, 1.3e308, LARGEST]
EXTREME += [-x for x in EXTREME] + [math.nan, INF, -INF]
doubles = st.one_of(st.sampled_from(EXTREME), st.floats())
tables = st.one_of(
    arrays(np.float64, (3, 3), elements=doubles),
    arrays(np.float32, (3, 3), elements=st.floats(width=32)),
    arrays(np.float16, (3, 3), elements=st.floats(width=16)),
    arrays(np.int64, (3, 3), elements=st.integers(-(2**63), 2**63 - 1)),
    arrays(np.uint8, (3, 3)),
)


def strictly(call):
    """Return what a call does where every warning and every flag of floats is an error."""
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        return call()


@each_set
@settings(max_examples=40, deadline=None)
@given(tables)
def test_clip(one, rows):
    clipped = strictly(lambda: one.clip(rows))
    assert np.isfinite(clipped).all()
    assert all(one.contains(row) for row in clipped)
    with np.errstate(all="ignore"):
        assert one.gauges(clipped.astype(np.float64)).max() <= 1
    for row, alone in zip(rows, clipped, strict=True):
        assert one.clip(row).tobytes() == alone.tobytes()


@each_set
@settings(max_examples=10, deadline=None)
@given(tables)
def test_release_sum(one, rows):
    noise = optimal_gaussian(one, multiplier=1.0)
    released = strictly(lambda: noise.release_sum(rows, SeededForExperiments(0)))
    assert np.isfinite(released).all()


@settings(max_examples=40, deadline=None)
@given(tables, st.sampled_from([optimal_laplace, grouped_linf]))
def test_release_sum_of_other_noise(rows, make):
    noise = make(Box([3.0, 1.0, 0.5]), epsilon=1.0)
    assert np.isfinite(strictly(lambda: noise.release_sum(rows, SeededForExperiments(0)))).all()
    one = staircase(Box([1.0]), epsilon=1.0)
    column = rows[:, :1]
    assert np.isfinite(strictly(lambda: one.release_sum(column, SeededForExperiments(0)))).all()


@settings(max_examples=20, deadline=None)
@given(tables)
def test_second_moment(rows):
    source = SeededForExperiments(0)
    moment = strictly(lambda: private_second_moment(rows, 1.0, 1.0, 1e-6, generator=source))
    assert np.isfinite(moment.matrix).all()


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, 3, elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_release(value):
    for one in (SETS["box"], SETS["turned box"], SETS["complement"], SETS["flat polytope"]):
        noise = optimal_gaussian(one, multiplier=1.0)
        assert np.isfinite(
            strictly(lambda n=noise: n.release(value, SeededForExperiments(0)))
        ).all()


class TestHugeRowsAreClippedWell:
    """The longest rows become as long as the set allows, in their own direction."""

    @pytest.mark.parametrize("size", [1e200, 1.3e308, LARGEST])
    def test_balls(self, size):
        row = [size, -size, 0.0]
        half = math.sqrt(0.5)
        assert L1Ball(3, 1.0).clip(row) == pytest.approx([0.5, -0.5, 0])
        assert L2Ball(3, 1.0).clip(row) == pytest.approx([half, -half, 0])
        assert LpIntersection(3, {3: 1.0}).clip(row) == pytest.approx(
            [2 ** (-1 / 3)] * 1 + [-(2 ** (-1 / 3)), 0]
        )
        both = LpIntersection(3, {2: 1.0, INF: 0.9})
        assert both.clip(row) == pytest.approx([half, -half, 0])
        assert clipping.clip_l2(row, 1.0) == pytest.approx([half, -half, 0])

    @pytest.mark.parametrize("size", [1e200, 1.3e308, LARGEST])
    def test_blocks(self, size):
        row = [size, size, -size]
        half = math.sqrt(0.5)
        assert Blocks([1, 2], [2.0, 1.0]).clip(row) == pytest.approx([2.0, half, -half])
        assert Blocks([1, 2], [2.0, 1.0]).clip([0.3, size, -size]) == pytest.approx(
            [0.3, half, -half]
        )
        turned = Blocks([1, 1], l2=[1.0, 2.0], basis=[[0.6, 0.8], [-0.8, 0.6]])
        clipped = turned.clip([size, -size])
        assert turned.basis.T @ clipped == pytest.approx([1.0, 2 * 0.2 / 0.2])
        assert turned.clip([size, size]) @ turned.basis[:, 0] == pytest.approx(-1.0)

    def test_l1_of_entries_that_differ_in_their_last_digits(self):
        row = np.array([1e16, 1e16 - 2, 3.0])
        assert L1Ball(3, 4.0).clip(row) == pytest.approx([3.0, 1.0, 0.0])

    @pytest.mark.parametrize("size", [1e3, 1e150, 1e308])
    def test_a_box_in_a_ball_keeps_what_small_entries_can_use(self, size):
        found = project_l2_box(np.array([[size, 5.0]]), [0.6, 1.0], 1.0)
        assert found[0] == pytest.approx([0.6, 0.8])
        found = project_l2_box(np.array([[size, size / 2, 1.0]]), [1.0, 1.0, 1.0], 1.0)
        assert found[0] == pytest.approx([2 / math.sqrt(5), 1 / math.sqrt(5), 0], abs=2e-3)

    def test_small_rows_stay(self):
        for row in ([5e-324, 0.0, -5e-324], [1e-310, 1e-300, 0.0]):
            for name in ("l1", "l2", "linf", "three norms", "box", "blocks", "capped blocks"):
                assert SETS[name].clip(row).tolist() == row


NUMBERS = [
    (["1", "2", "3"], "must be real numbers"),
    ([True, False, True], "must be real numbers"),
    (np.array([True, 1, 2], dtype=object), "must be real numbers"),
    ([1j, 2.0, 3.0], "must be real numbers"),
    ([datetime.date(2020, 1, 1)] * 3, "must be real numbers"),
    (np.array(["2020-01-01"] * 3, dtype="datetime64[D]"), "must be real numbers"),
    (np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False]), "masked"),
]


@pytest.mark.parametrize(("values", "message"), NUMBERS)
def test_one_rule_says_what_a_number_is(values, message):
    noise = optimal_gaussian(SETS["box"], multiplier=1.0)
    for take in (
        noise.release,
        noise.release_sum,
        lambda given: noise.release([1.0, 2.0, 3.0], public=given),
        noise.sensitivity.clip,
        noise.sensitivity.contains,
        lambda given: clipping.clip_l2(given, 1.0),
        lambda given: gaussian_with_covariance(L2Ball(1, 1.0), given),
        lambda given: Box(given),
        lambda given: Box([1.0, 1.0, 1.0], basis=given),
        lambda given: Blocks([1, 1, 1], [1.0, 1.0, 1.0], linf=given),
    ):
        with pytest.raises(ValueError, match=message):
            take(values)


@pytest.mark.parametrize(
    "huge", [10**400, -(10**400), Fraction(10**400, 3), Decimal("1e400"), Decimal("sNaN")]
)
def test_a_number_beyond_doubles_is_counted_as_infinity(huge):
    """One record with it must not stop a release, which would tell that it is there."""
    noise = optimal_gaussian(L2Ball(2, 1.0), multiplier=1.0)
    rows, others = [[huge, 1], [0, 1]], [[math.inf, 1], [0, 1]]
    assert (noise.sensitivity.clip(rows) == noise.sensitivity.clip(others)).all()
    released = noise.release_sum(rows, SeededForExperiments(1))
    assert (released == noise.release_sum(others, SeededForExperiments(1))).all()
    named = noise.release_sum({"a": [huge, 0], "b": [1, 1]}, SeededForExperiments(1))
    assert list(named.values()) == released.tolist()
    private_second_moment(rows, 1.0, epsilon=1.0, delta=1e-6)
    for refuse in (lambda: noise.release([huge, 1]), lambda: Box([huge, 1])):
        with pytest.raises(ValueError, match="finite"):
            refuse()


def test_messages_about_rows_do_not_show_them():
    ragged = [[123.25, 1.0], [1.0]]
    noise = optimal_gaussian(L2Ball(2, 1.0), multiplier=1.0)
    for take in (
        noise.release_sum,
        noise.sensitivity.clip,
        lambda rows: private_second_moment(rows, 1.0, epsilon=1.0, delta=1e-6),
    ):
        with pytest.raises(ValueError, match="rows must be numbers in rows of one length") as error:
            take(ragged)
        assert "123.25" not in str(error.value)
