"""Sensitivity sets hold what they say, clip into themselves and refuse what makes no sense."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut._base.arrays import orthonormal
from taut.accounting import Adjacency
from taut.errors import UnsoundConfiguration
from taut.noise._sets.balls import L1Ball, L2Ball, LInfBall, LpIntersection
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.boxes import Box
from taut.noise._sets.finite import FiniteSet, Polytope
from taut.noise._sets.sets import Source

INF = math.inf
TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
SETS = {
    "l1": L1Ball(5, 1.3),
    "l2": L2Ball(5, 0.7),
    "linf": LInfBall(5, 0.4),
    "l2 and linf": LpIntersection(5, {2: 1.0, INF: 0.6}),
    "l1 and linf": LpIntersection(5, {1: 1.5, INF: 0.6}),
    "three norms": LpIntersection(5, {0.7: 9.0, 1.5: 1.4, 4: 0.9}),
    "box": Box([3.0, 1.0, 0.5, 0.1, 2.0]),
    "turned box": Box([3.0, 1.0, 0.5, 0.1, 2.0], TURN),
    "coupled box": Box([3.0, 1.0, 0.5, 0.1, 2.0], l2=1.5, l1=2.5),
    "zero width": Box([3.0, 1.0, 0.0, 0.1, 2.0], TURN, allow_zero=True),
    "blocks": Blocks([2, 3], [1.0, 0.5]),
    "capped blocks": Blocks([2, 3], [1.0, 0.5], cap=1.05),
    "hybrid": Blocks([2, 3], [1.0, 0.5], linf=[0.9, 0.3], cap=1.05, basis=TURN),
    "complement": Blocks([2, 3], [1.0, 0.5], basis=TURN[:, :2]),
    "polytope": Polytope(np.vstack([np.eye(5), np.ones((1, 5)) / 2])),
    "flat polytope": Polytope([[1.0, 2, 0, 0, 0], [0, 1.0, 0, 0, 0]]),
}
each_set = pytest.mark.parametrize("one", SETS.values(), ids=SETS)


class TestL1Outline:
    @each_set
    @pytest.mark.parametrize("by_axis", [False, True])
    def test_bounds_hold_for_members_and_are_reached_if_exact(self, one, by_axis):
        if getattr(one, "basis", None) is not None:
            with pytest.raises(UnsoundConfiguration, match="release the coefficients"):
                one.l1_outline(by_axis=by_axis)
            return
        outline = one.l1_outline(by_axis=by_axis)
        bits = np.random.default_rng(4)
        rows = bits.normal(size=(200, 5)) * 10.0 ** bits.uniform(-3, 3, size=(200, 5))
        members = np.abs(one.clip(np.vstack([rows, 1e3 * np.eye(5), np.full((1, 5), 1e3)])))
        starts = np.concatenate([[0], np.cumsum(outline.ranks)[:-1]]).astype(int)
        blocks = np.add.reduceat(members, starts, axis=1)
        assert (blocks <= outline.radii * (1 + 1e-9)).all()
        assert members.sum(axis=1).max() <= outline.cap * (1 + 1e-9)
        if outline.exact:
            assert blocks.max(axis=0) == pytest.approx(outline.radii)
            assert members.sum(axis=1).max() == pytest.approx(outline.cap)


class TestClip:
    @each_set
    @pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e200])
    @pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
    def test_result_is_inside_in_its_own_type(self, one, size, kind):
        with np.errstate(over="ignore"):
            rows = (np.random.default_rng(1).normal(size=(20, 5)) * size).astype(kind)
        clipped = one.clip(rows)
        assert clipped.dtype == kind
        assert clipped.shape == rows.shape
        assert one.gauges(clipped.astype(np.float64)).max() <= 1
        assert all(one.contains(row) for row in clipped)

    @each_set
    def test_members_stay(self, one):
        rows = one.clip(np.random.default_rng(2).normal(size=(5, 5))) * 0.999
        assert one.clip(rows) == pytest.approx(rows, rel=1e-9, abs=1e-12)

    @each_set
    def test_broken_rows_and_zero_become_zero(self, one):
        rows = np.zeros((3, 5))
        rows[0, 1], rows[1, 2] = math.nan, -INF
        assert not one.clip(rows).any()

    @each_set
    def test_broken_rows_are_refused_on_request(self, one):
        with pytest.raises(ValueError, match="NaN or infinity"):
            one.clip([math.nan] * 5, non_finite="raise")

    @each_set
    def test_max_l2_bounds_members(self, one):
        rows = one.clip(np.random.default_rng(3).normal(size=(60, 5)) * 10)
        assert np.linalg.norm(rows, axis=1).max() <= one.max_l2 * (1 + 1e-12)

    @each_set
    def test_input_is_left_alone(self, one):
        rows = np.full((2, 5), 7.0)
        one.clip(rows)
        assert (rows == 7).all()

    def test_projection_of_the_capped_blocks_is_exact(self):
        # Against projections in turn (Dykstra), which converge to the same point.
        blocks = SETS["capped blocks"]
        point = np.array([2.0, -1.0, 0.3, 0.1, 0.9])
        x, p, q = point.copy(), np.zeros(5), np.zeros(5)
        for _ in range(2000):
            y = Blocks([2, 3], [1.0, 0.5]).clip(x + p)
            p = x + p - y
            x = L2Ball(5, 1.05).clip(y + q)
            q = y + q - x
        assert blocks.clip(point) == pytest.approx(x, abs=1e-9)


class TestContains:
    @each_set
    def test_boundary(self, one):
        row = one.clip(np.array([1e3, -2e3, 5e2, 1e3, 7e2]))
        assert one.contains(row)
        assert not one.contains(row * 1.001)
        assert one.contains(row * 1.001, tolerance=0.01)

    def test_zero_width_holds_nothing(self):
        box = Box([1.0, 0.0], allow_zero=True)
        assert box.contains([1.0, 0.0])
        assert not box.contains([0.5, 1e-6])


class TestMaxL2:
    def test_l1_and_linf(self):
        assert LpIntersection(10, {1: 3.0, INF: 0.8}).max_l2 == pytest.approx(1.5099668870541498)

    @given(
        st.dictionaries(
            st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, 6.0, INF]), st.floats(0.1, 3), min_size=1
        )
    )
    def test_is_an_upper_bound_for_every_mixture(self, radii):
        one = LpIntersection(4, radii)
        rng = np.random.default_rng(4)
        candidates = np.vstack([np.tril(np.ones((4, 4))), rng.exponential(size=(50, 4)) ** 3])
        longest = max(np.linalg.norm(row / one.gauges(row[None])[0]) for row in candidates)
        assert longest <= one.max_l2 * (1 + 1e-12)

    @pytest.mark.parametrize("p", [0.5, 1.0, 1.7, 2.0])
    @pytest.mark.parametrize("ratio", [0.8, 1.0, 1.5, 3.0, 50.0])
    def test_is_attained_where_it_is_called_exact(self, p, ratio):
        one = LpIntersection(6, {p: ratio, INF: 1.0})
        assert one.max_l2_is_exact
        longest = 0.0
        for full in range(6):
            for rest in np.linspace(0, 1, 301):
                row = np.array([1.0] * full + [rest] + [0.0] * (5 - full))
                if one.contains(row):
                    longest = max(longest, float(np.linalg.norm(row)))
                elif row.any():
                    row /= one.gauges(row[None])[0]
                    longest = max(longest, float(np.linalg.norm(row)))
        assert longest == pytest.approx(one.max_l2, rel=1e-2)
        assert longest <= one.max_l2 * (1 + 1e-12)

    def test_bounds_are_named(self):
        assert "upper bound" in LpIntersection(9, {1: 2.0, 3: 1.0}).notes[-1]

    @pytest.mark.parametrize("l1", [0.5, 3.0, 4.5, 6.0])
    def test_box_below_an_l1_bound(self, l1):
        box = Box([3.0, 1.0, 2.0], l1=l1)
        grid = np.stack(np.meshgrid(*[np.linspace(0, w, 41) for w in box.widths]), -1).reshape(
            -1, 3
        )
        inside = grid[grid.sum(axis=1) <= l1 * (1 + 1e-9)]
        longest = np.linalg.norm(inside, axis=1).max()
        assert longest <= box.max_l2 * (1 + 1e-9)
        assert longest == pytest.approx(box.max_l2, rel=0.05)


class TestDifferences:
    @pytest.mark.parametrize("name", [name for name in SETS if "polytope" not in name])
    def test_hold_every_difference_of_members(self, name):
        one = SETS[name]
        both = one.differences()
        assert both.adjacency is Adjacency.REPLACE
        rng = np.random.default_rng(5)
        left, right = (one.clip(rng.normal(size=(100, 5)) * 9) for _ in range(2))
        assert both.gauges(left - right).max() <= 1 + 1e-9
        assert np.linalg.norm(left - right, axis=1).max() <= both.max_l2 * (1 + 1e-9)

    def test_below_p_one_the_triangle_inequality_is_not_assumed(self):
        one = LpIntersection(2, {0.5: 1.0})
        both = one.differences()
        assert both.contains([1.0, -1.0])  # a norm of 4, not 2
        assert both.max_l2 == pytest.approx(2.0)

    def test_of_a_finite_set_are_pairs(self):
        both = FiniteSet(np.eye(3)).differences()
        assert len(both.vectors) == 3
        assert both.max_l2 == pytest.approx(math.sqrt(2))

    def test_rows_are_clipped_to_contributions(self):
        assert L2Ball(2, 1.0).differences().clip([3.0, 4.0]) == pytest.approx([0.6, 0.8])

    def test_declared_ones_cannot_be_clipped_to(self):
        with pytest.raises(UnsoundConfiguration, match="cannot be clipped"):
            L2Ball(2, 1.0, adjacency="replace").clip([3.0, 4.0])

    def test_of_differences_are_refused(self):
        with pytest.raises(UnsoundConfiguration, match="already one of replace-one"):
            L2Ball(2, 1.0).differences().differences()

    def test_too_many_pairs(self):
        with pytest.raises(ValueError, match=r"at most 632 .* got 700"):
            FiniteSet(np.ones((700, 1))).differences()


class TestFiniteSets:
    def test_rows_become_the_nearest_vector(self):
        one = FiniteSet([[1.0, 0.0], [0.0, 2.0]])
        clipped = one.clip([[0.2, 1.9], [1e300, 0.0], [math.nan, 5.0]])
        assert clipped.tolist() == [[0, 2], [1, 0], [1, 0]]
        assert one.contains([0.0, 2.0])
        assert not one.contains([0.0, 1.9])
        assert not one.contains([0.0, -2.0])

    def test_narrow_types_are_widened(self):
        clipped = FiniteSet([[0.1, 0.7]]).clip(np.array([[0.2, 0.1]], dtype=np.float32))
        assert clipped.dtype == np.float64
        assert clipped.tolist() == [[0.1, 0.7]]

    def test_gauge_is_not_below_the_truth(self):
        # In a diamond the gauge is known: the sum of |entries| over the vertices' lengths.
        rows = np.random.default_rng(0).normal(size=(50, 4))
        lengths = np.array([1.0, 3.0, 0.2, 5.0])
        gauges = Polytope(np.diag(lengths)).gauges(rows)
        assert (gauges >= np.abs(rows / lengths).sum(axis=1) * (1 - 1e-13)).all()
        assert gauges == pytest.approx(np.abs(rows / lengths).sum(axis=1), rel=1e-9)

    def test_hull_outside_its_span(self):
        one = SETS["flat polytope"]
        assert not one.contains([0, 0, 1.0, 0, 0])
        assert one.clip([0, 3.0, 9.0, 0, 0]) == pytest.approx([0, 1, 0, 0, 0])


class TestBadInput:
    @pytest.mark.parametrize("radius", [0.0, -1.0, math.nan, INF])
    @pytest.mark.parametrize("ball", [L1Ball, L2Ball, LInfBall])
    def test_radius(self, ball, radius):
        with pytest.raises(ValueError, match="radius must be finite and greater than 0"):
            ball(3, radius)

    @pytest.mark.parametrize("dimension", [0, -2])
    def test_dimension(self, dimension):
        with pytest.raises(ValueError, match="dimension must be at least 1"):
            L2Ball(dimension, 1.0)

    def test_no_norm(self):
        with pytest.raises(ValueError, match="at least one norm"):
            LpIntersection(3, {})

    def test_bad_exponent(self):
        with pytest.raises(ValueError, match="p must be finite and greater than 0"):
            LpIntersection(3, {-1.0: 2.0})

    @pytest.mark.parametrize("bad", [-1.0, math.nan, INF])
    def test_widths(self, bad):
        with pytest.raises(ValueError, match=r"widths must be finite and not negative.*\[1\]"):
            Box([1.0, bad])

    def test_empty_widths(self):
        with pytest.raises(ValueError, match="non-empty vector"):
            Box([])

    def test_zero_widths_need_a_word(self):
        with pytest.raises(ValueError, match="pass allow_zero=True"):
            Box([1.0, 0.0])

    def test_all_zero(self):
        with pytest.raises(ValueError, match="nothing to hide"):
            Box([0.0, 0.0], allow_zero=True)

    def test_defect_of_a_basis_is_measured(self):
        with pytest.raises(ValueError, match=r"defect .* of 0\.21 where 1e-06"):
            Box([1.0, 1.0], [[1.1, 0.0], [0.0, 1.0]])

    def test_single_precision_may_be_less_orthonormal(self):
        rough = (np.eye(3) * (1 + 2e-5)).astype(np.float32)
        polished = orthonormal(rough, 3)
        assert polished.T @ polished == pytest.approx(np.eye(3), abs=1e-15)
        with pytest.raises(ValueError, match="defect"):
            orthonormal(rough.astype(np.float64), 3)

    def test_shape_of_a_basis(self):
        with pytest.raises(ValueError, match="basis must be a matrix of 2 rows"):
            Box([1.0, 1.0], np.eye(3))
        with pytest.raises(ValueError, match="one column per width, got 1"):
            Box([1.0, 1.0], np.eye(2)[:, :1])

    def test_basis_with_holes(self):
        with pytest.raises(ValueError, match="basis must be finite"):
            Box([1.0, 1.0], [[math.nan, 0.0], [0.0, 1.0]])

    def test_ranks_must_sum(self):
        with pytest.raises(ValueError, match="ranks must sum to the dimension 6, got 5"):
            Blocks([2, 3], [1.0, 1.0], dimension=6)
        with pytest.raises(ValueError, match="ranks must sum to the dimension 5, got 4"):
            Blocks([2, 2], [1.0, 1.0], basis=np.eye(5))

    def test_columns_must_end_with_a_block(self):
        with pytest.raises(ValueError, match="5 columns, or 2 with the last block"):
            Blocks([2, 3], [1.0, 1.0], basis=np.eye(5)[:, :3])

    def test_one_radius_per_block(self):
        with pytest.raises(ValueError, match="l2 must hold one value per block"):
            Blocks([2, 3], [1.0])
        with pytest.raises(ValueError, match="linf must hold one value per block"):
            Blocks([2, 3], [1.0, 1.0], linf=[1.0])

    def test_entry_bounds(self):
        with pytest.raises(ValueError, match="linf must hold numbers that are not negative"):
            Blocks([2, 3], [1.0, 1.0], linf=[1.0, math.nan])
        with pytest.raises(ValueError, match="linf must be greater than 0"):
            Blocks([2, 3], [1.0, 1.0], linf=[1.0, 0.0])
        with pytest.raises(ValueError, match="linf must leave something to hide"):
            Blocks([2, 3], [1.0, 1.0], linf=[0.0, 0.0], allow_zero=True)
        with pytest.raises(ValueError, match="linf of the last block must be infinite"):
            Blocks([2, 3], [1.0, 1.0], linf=[1.0, 1.0], basis=np.eye(5)[:, :2])

    def test_adjacency_and_source(self):
        with pytest.raises(ValueError, match="adjacency must be one of"):
            L2Ball(2, 1.0, adjacency="neighbours")
        with pytest.raises(ValueError, match="source must be one of 'declared'"):
            Box([1.0], source="guess")

    @pytest.mark.parametrize("vectors", [[1.0, 2.0], np.zeros((0, 2)), 3.0])
    def test_vectors(self, vectors):
        with pytest.raises(ValueError, match="table with one vector per row"):
            FiniteSet(vectors)

    def test_vectors_with_holes_or_nothing(self):
        with pytest.raises(ValueError, match="vectors must be finite"):
            FiniteSet([[math.nan]])
        with pytest.raises(ValueError, match="nothing to hide"):
            Polytope([[0.0, 0.0]])


class TestTightening:
    def test_norms_that_cannot_be_reached(self):
        one = LpIntersection(4, {2: 1.0, INF: 3.0})
        assert one.radii == {2.0: 1.0, INF: 1.0}
        assert one.notes == ("the linf bound 3 cannot be reached and was tightened to 1",)
        assert LpIntersection(4, {1: 99.0, INF: 1.0}).radii[1.0] == pytest.approx(4.0)

    def test_box(self):
        box = Box([5.0, 1.0], l2=2.0, l1=50.0)
        assert box.widths.tolist() == [2.0, 1.0]
        assert box.l1 == pytest.approx(3.0)
        assert len(box.notes) == 2
        assert Box([3.0, 4.0], l2=9.0).l2 == pytest.approx(5.0)

    def test_blocks(self):
        one = Blocks([4, 1], [9.0, 1.0], linf=[1.0, 2.0], cap=50.0)
        assert one.l2.tolist() == [2.0, 1.0]
        assert one.linf.tolist() == [1.0, 1.0]
        assert one.cap == pytest.approx(math.sqrt(5))
        assert len(one.notes) == 3


class TestValues:
    @each_set
    def test_equal_sets_are_equal(self, one):
        assert one == one.__class__(**_arguments(one))
        assert hash(one) == hash(one.__class__(**_arguments(one)))
        assert one != one.differences()

    def test_frozen(self):
        box = Box([1.0, 2.0])
        with pytest.raises(AttributeError):
            box.l2 = 3.0
        with pytest.raises(ValueError, match="read-only"):
            box.widths[0] = 9.0

    def test_other_classes_differ(self):
        assert L1Ball(2, 1.0) != L2Ball(2, 1.0)

    def test_source_is_kept(self):
        assert Box([1.0], source="enforced_by_clipping").source is Source.CLIPPED


def _arguments(one):
    names = {
        LpIntersection: ("dimension", "radii"),
        Box: ("widths", "basis", "l2", "l1", "allow_zero"),
        Blocks: ("ranks", "l2", "linf", "cap", "basis"),
        Polytope: ("vectors",),
    }
    return {name: getattr(one, name) for name in names.get(type(one), ("dimension", "radius"))}


class TestRowsAreClippedAlone:
    """What becomes of one record must not depend on the others, not even in its last bit."""

    @staticmethod
    def assert_alone(sensitivity, rows):
        together = sensitivity.clip(rows)
        for count in (1, 3, 7, 8, len(rows) - 1):
            np.testing.assert_array_equal(sensitivity.clip(rows[:count]), together[:count])

    @given(seed=st.integers(0, 10**6))
    @settings(max_examples=15, deadline=None)
    def test_ties_of_finite_sets(self, seed):
        rng = np.random.default_rng(seed)
        vectors = rng.normal(size=(21, 20))
        pairs = rng.integers(21, size=(200, 2))
        self.assert_alone(FiniteSet(vectors), (vectors[pairs[:, 0]] + vectors[pairs[:, 1]]) / 2)

    def test_polytopes(self):
        rng = np.random.default_rng(1)
        self.assert_alone(Polytope(rng.normal(size=(7, 5))), 2 * rng.normal(size=(12, 5)))


class TestNarrowCoordinates:
    """A bound far below the longest vector is a bound all the same."""

    def test_type_of_few_digits(self):
        box = Box([1e6] + [3e-8] * 9)
        clipped = box.clip(np.full((1, 10), 1.0, dtype=np.float16)).astype(np.float64)
        assert (np.abs(clipped) <= box.widths).all()

    @pytest.mark.parametrize("make", [Box, lambda w: Blocks([1, 1], l2=w)])
    def test_nothing_outside_is_contained(self, make):
        assert not make([1.0, 1e-40]).contains([0.0, 9e-13])
        assert make([1.0, 1e-40]).contains([1.0, 1e-40])

    @pytest.mark.parametrize("make", [Box, lambda w, **k: Blocks([1, 1], l2=w, **k)])
    def test_refused_where_a_basis_would_lose_it(self, make):
        turn = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
        with pytest.raises(ValueError, match=r"at least 1e-12 of the longest"):
            make([1.0, 1e-40], basis=turn)


def test_contributions_cannot_be_claimed():
    with pytest.raises(TypeError, match="contributions"):
        Box([1.0], contributions=Box([100.0]))


def test_radii_cannot_be_changed():
    both = LpIntersection(3, {1: 1.0, 2: 0.8})
    with pytest.raises(TypeError):
        both.radii[1.0] = 100.0
    assert pickle.loads(pickle.dumps(both)) == both


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        (np.ma.masked_invalid([1.0, np.nan]), "must not have masked"),
        ([1.0, 2j], "must be (real )?numbers"),
        ([True, False], "must be (real )?numbers"),
        (["1", "2"], "must be (real )?numbers"),
        ([[1.0], [1.0, 2.0]], "rows of one length"),
    ],
)
def test_what_is_no_number_is_refused(widths, message):
    with pytest.raises(ValueError, match=message):
        Box(widths)
    with pytest.raises(ValueError, match=message):
        Box([1.0, 1.0]).clip(widths)


def test_one_vector_has_no_differences():
    with pytest.raises(ValueError, match="at least two"):
        FiniteSet([[1.0, 2.0]]).differences()
