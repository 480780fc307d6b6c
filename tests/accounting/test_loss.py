"""PrivacyLoss as a value: the algebra, its laws, and a test per refusal of its methods."""

import copy
import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taut
from taut.accounting import stability_release, variance_pair
from taut.errors import AdjacencyMismatch, UnsoundConfiguration

RELEASES = [
    taut.gaussian(1.5),
    taut.gaussian(2.0, 0.5),
    taut.laplace(3.0),
    taut.randomized_response(0.7),
    taut.pure(0.2),
    taut.approximate(0.1, 1e-8),
    taut.discrete_gaussian(4.0),
    taut.discrete_laplace(2.0, 2),
    taut.exponential(0.4),
    variance_pair(1.0, 1.1),
    taut.finite([0.4, 0.6], [0.5, 0.5]),
    stability_release(0.5, 1e-7),
    taut.from_profile({0.0: 0.1, 1.0: 1e-6}),
    taut.gaussian(1.0).poisson(0.01),
    taut.laplace(1.0).poisson(0.1),
    taut.gaussian(2.0, 2.0, adjacency="replace").fixed_size(10, 1000),
]

sums = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(RELEASES)), max_size=4).map(
    lambda terms: sum((n * loss for n, loss in terms), taut.zero())
)


class TestAlgebra:
    @given(a=sums, b=sums)
    def test_addition_commutes(self, a, b):
        assert a + b == b + a
        assert hash(a + b) == hash(b + a)

    @given(a=sums, b=sums, c=sums)
    def test_addition_associates(self, a, b, c):
        assert (a + b) + c == a + (b + c)

    @given(a=sums, n=st.integers(0, 5))
    def test_a_multiple_is_a_repeated_sum(self, a, n):
        assert n * a == sum([a] * n, taut.zero()) == a * n

    @given(a=sums, m=st.integers(0, 1000), n=st.integers(0, 1000))
    def test_multiples_distribute(self, a, m, n):
        assert m * a + n * a == (m + n) * a
        assert m * (n * a) == (m * n) * a

    @given(a=sums, b=sums, n=st.integers(0, 1000))
    def test_multiples_of_sums(self, a, b, n):
        assert n * (a + b) == n * a + n * b

    @given(a=sums)
    def test_zero_is_the_identity(self, a):
        assert a + taut.zero() == taut.zero() + a == a
        assert 0 * a == taut.zero()

    @given(a=sums, b=sums)
    def test_equality_is_that_of_descriptions(self, a, b):
        assert (a == b) == (a.to_dict() == b.to_dict())

    def test_different_adjacencies_differ(self):
        assert taut.gaussian(1.0) != taut.gaussian(1.0, adjacency="replace")

    def test_zero_is_zero_under_every_adjacency(self):
        assert taut.zero(adjacency="replace") == taut.zero()
        assert hash(taut.zero(adjacency="replace")) == hash(taut.zero())
        assert (taut.zero() + taut.gaussian(1.0, adjacency="replace")).adjacency == "replace"
        assert (taut.gaussian(1.0, adjacency="replace") + taut.zero()).adjacency == "replace"

    def test_integer_and_float_parameters_are_equal(self):
        assert taut.gaussian(2) + taut.laplace(3) == taut.gaussian(2.0) + taut.laplace(3.0)

    def test_sum_starts_from_the_integer_zero(self):
        assert sum([taut.pure(0.1), taut.pure(0.2)]) == taut.pure(0.1) + taut.pure(0.2)

    def test_a_loss_is_no_number(self):
        assert taut.zero() != 0
        with pytest.raises(TypeError):
            taut.pure(0.1) + 1
        with pytest.raises(TypeError):
            1 + taut.pure(0.1)

    def test_terms_are_collected(self):
        assert [n for _, n in (3 * taut.pure(0.1) + 4 * taut.pure(0.1)).terms] == [7]


class TestValue:
    def test_immutable(self):
        loss = taut.gaussian(1.0)
        with pytest.raises(AttributeError, match="immutable"):
            loss.adjacency = "replace"
        with pytest.raises(AttributeError, match="immutable"):
            loss.extra = 1

    @pytest.mark.parametrize("loss", RELEASES, ids=repr)
    def test_copies_and_pickles(self, loss):
        assert copy.copy(loss) == loss
        assert copy.deepcopy(loss) == loss
        assert pickle.loads(pickle.dumps(loss)) == loss

    @pytest.mark.parametrize(
        ("loss", "text"),
        [
            (taut.zero(), "<PrivacyLoss zero; adjacency=add_remove>"),
            (
                3 * taut.gaussian(2.0).poisson(0.5) + taut.laplace(1.0),
                "<PrivacyLoss laplace(scale=1, sensitivity=1) + "
                "3 * gaussian(sigma=2, sensitivity=1).poisson(rate=0.5); adjacency=add_remove>",
            ),
            (
                taut.pure(0.5, adjacency="replace").fixed_size(10, 100, adjacency="replace"),
                "<PrivacyLoss pure(epsilon=0.5).fixed_size(10, 100); adjacency=replace>",
            ),
            (
                taut.finite([0.5, 0.5], [0.25, 0.75]),
                "<PrivacyLoss finite(2 outcomes); adjacency=add_remove>",
            ),
        ],
    )
    def test_repr_reads_like_the_sum(self, loss, text):
        parts = text.split("; ")[0].removeprefix("<PrivacyLoss ").split(" + ")
        assert all(part in repr(loss) for part in parts)
        assert repr(loss).endswith(text.split("; ")[1])

    @pytest.mark.parametrize("loss", RELEASES, ids=repr)
    def test_a_billion_copies_are_no_bigger(self, loss):
        assert len((10**9 * loss).to_json()) < len(loss.to_json()) + 12


class TestMonotone:
    """Up to the width of the brackets, which the comparison of opposite ends takes care of."""

    @settings(max_examples=30)
    @given(a=sums, first=st.floats(1e-12, 0.5), second=st.floats(1e-12, 0.5))
    def test_epsilon_falls_with_delta(self, a, first, second):
        small, large = sorted((first, second))
        assert a.epsilon_bounds(large).lower <= a.epsilon_bounds(small).upper

    @settings(max_examples=30)
    @given(a=sums, b=sums, delta=st.floats(1e-12, 0.5))
    def test_epsilon_rises_with_every_release(self, a, b, delta):
        assert a.epsilon_bounds(delta).lower <= (a + b).epsilon_bounds(delta).upper

    @settings(max_examples=30)
    @given(
        sigma=st.floats(0.5, 20),
        factor=st.floats(1.001, 2),
        rate=st.floats(0.001, 0.9),
        steps=st.integers(1, 10_000),
        delta=st.floats(math.log(1e-15), math.log(0.1)).map(math.exp),
    )
    def test_sampled_gaussian(self, sigma, factor, rate, steps, delta):
        here = (steps * taut.gaussian(sigma).poisson(rate)).epsilon_bounds(delta)
        quieter = (steps * taut.gaussian(sigma * factor).poisson(rate)).epsilon_bounds(delta)
        rarer = (steps * taut.gaussian(sigma).poisson(rate / factor)).epsilon_bounds(delta)
        longer = (2 * steps * taut.gaussian(sigma).poisson(rate)).epsilon_bounds(delta)
        assert quieter.lower <= here.upper
        assert rarer.lower <= here.upper
        assert here.lower <= longer.upper

    @settings(max_examples=40)
    @given(a=sums, delta=st.floats(1e-10, 0.5))
    def test_delta_undoes_epsilon(self, a, delta):
        lower, upper = a.epsilon_bounds(delta)
        if math.isfinite(upper):
            assert a.delta_bounds(upper).lower <= delta
            if lower > 0:
                assert a.delta_bounds(lower).upper >= delta

    @pytest.mark.parametrize(
        "a",
        [
            2 * taut.gaussian(1.0).poisson(0.1),
            taut.laplace(1.0).poisson(0.2) + taut.gaussian(2.0),
            3 * taut.randomized_response(0.7).poisson(0.3),
        ],
    )
    def test_halves_of_a_sum_make_the_whole(self, a):
        self.check_halves(a, 1e-3)

    @pytest.mark.slow
    @settings(max_examples=40)
    @given(a=sums, delta=st.floats(1e-10, 0.5))
    def test_halves_make_the_whole(self, a, delta):
        self.check_halves(a, delta)

    @staticmethod
    def check_halves(a, delta):
        def relabelled(adjacency):
            return taut.PrivacyLoss(a.terms, adjacency).epsilon_bounds(delta)

        add, remove, both = (relabelled(name) for name in ("add", "remove", "add_remove"))
        assert both.lower <= max(add.upper, remove.upper)
        assert both.upper >= max(add.lower, remove.lower)
        if "fixed_size" not in repr(a):
            assert both == relabelled("zero_out")


class TestProfile:
    @settings(max_examples=40)
    @given(a=sums, threshold=st.floats(0.01, 0.99))
    def test_swap_rule(self, a, threshold):
        # H_t(Q || P) = 1 - t + t H_{1/t}(P || Q): add_remove contains both orders.
        expected = 1 - threshold + threshold * a.profile(1 / threshold)
        assert a.profile(threshold) == pytest.approx(expected, rel=2e-3, abs=1e-12)

    @settings(max_examples=20)
    @given(a=sums, threshold=st.floats(0.01, 0.99))
    def test_swap_rule_of_the_halves(self, a, threshold):
        add, remove = (taut.PrivacyLoss(a.terms, half) for half in ("add", "remove"))
        expected = 1 - threshold + threshold * remove.profile(1 / threshold)
        assert add.profile(threshold) == pytest.approx(expected, rel=2e-3)

    @given(a=sums)
    def test_ends(self, a):
        assert a.profile(0) == 1
        assert 0 <= a.profile(1e6) <= a.profile(1.0) <= 1

    @settings(max_examples=40)
    @given(a=sums, epsilon=st.floats(0, 5))
    def test_above_one_it_is_delta(self, a, epsilon):
        assert a.profile(math.exp(epsilon)) == pytest.approx(a.delta(epsilon), rel=2e-3, abs=1e-300)


QUESTIONS = {
    "epsilon": lambda loss, x: loss.epsilon(x),
    "epsilon_bounds": lambda loss, x: loss.epsilon_bounds(x),
    "explain": lambda loss, x: loss.explain(x),
    "estimate_epsilon": lambda loss, x: loss.estimate_epsilon(x),
}
LEVELS = {
    "delta": lambda loss, x: loss.delta(x),
    "delta_bounds": lambda loss, x: loss.delta_bounds(x),
    "estimate_delta": lambda loss, x: loss.estimate_delta(x),
}
LOSS = 2 * taut.gaussian(1.0)


def refuses(call, value, error, *words):
    with pytest.raises(error) as caught:
        call(value)
    for word in (repr(value), *words):
        assert word in str(caught.value)


class TestRefusals:
    @pytest.mark.parametrize("value", [-1e-9, 1.0, 2.0, math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("question", QUESTIONS)
    def test_delta_out_of_range(self, question, value):
        words = "delta must be in [0, 1)", "1 / (number of records)"
        refuses(lambda x: QUESTIONS[question](LOSS, x), value, ValueError, *words)

    @pytest.mark.parametrize("value", [True, "1e-5", None])
    @pytest.mark.parametrize("question", QUESTIONS)
    def test_delta_is_no_number(self, question, value):
        refuses(lambda x: QUESTIONS[question](LOSS, x), value, TypeError, "delta must be a real")

    def test_estimates_need_a_positive_delta(self):
        refuses(LOSS.estimate_epsilon, 0, ValueError, "delta must be")

    @pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
    @pytest.mark.parametrize("question", LEVELS)
    def test_epsilon_out_of_range(self, question, value):
        words = ("epsilon must be finite and at least 0",)
        refuses(lambda x: LEVELS[question](LOSS, x), value, ValueError, *words)

    @pytest.mark.parametrize("value", [True, "1", None])
    @pytest.mark.parametrize("question", LEVELS)
    def test_epsilon_is_no_number(self, question, value):
        refuses(lambda x: LEVELS[question](LOSS, x), value, TypeError, "epsilon must be a real")

    @pytest.mark.parametrize("value", [0, -1e-3, math.nan, math.inf])
    def test_tolerance_not_positive(self, value):
        refuses(lambda x: LOSS.epsilon(1e-5, x), value, ValueError, "tolerance must be")
        refuses(lambda x: LOSS.delta(1.0, x), value, ValueError, "tolerance must be")

    def test_tolerance_too_small(self):
        refuses(
            lambda x: LOSS.epsilon(1e-5, x), 1e-12, ValueError, "tolerance must be at least 1e-9"
        )

    def test_tolerance_is_no_number(self):
        refuses(lambda x: LOSS.epsilon(1e-5, x), "fine", TypeError, "tolerance must be a real")

    @pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
    def test_threshold_out_of_range(self, value):
        refuses(LOSS.profile, value, ValueError, "threshold must be finite and at least 0")

    @pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
    def test_false_positive_rate_out_of_range(self, value):
        refuses(LOSS.tradeoff, value, ValueError, "fpr must be a probability")

    @pytest.mark.parametrize("value", [0.5, 0, -2, math.nan, -math.inf])
    def test_order_below_one(self, value):
        refuses(LOSS.rdp, value, ValueError, "order must be")

    @pytest.mark.parametrize("value", [True, "2", None])
    def test_order_is_no_number(self, value):
        refuses(LOSS.rdp, value, TypeError, "order must be a real number")

    @pytest.mark.parametrize("value", ["sideways", "replace"])
    def test_unknown_half(self, value):
        words = "half must be one of", "'add'", "'remove'"
        refuses(lambda x: LOSS.log_mgf(1.0, half=x), value, ValueError, *words)

    def test_half_must_be_named_where_they_differ(self):
        loss = taut.gaussian(1.0).poisson(0.1)
        refuses(lambda x: loss.log_mgf(1.0, half=x), None, ValueError, "half must be one of")

    def test_unknown_method(self):
        words = ("method must be 'contour' or 'afa'",)
        refuses(lambda x: LOSS.estimate_epsilon(1e-5, method=x), "magic", ValueError, *words)
        refuses(lambda x: LOSS.estimate_delta(1.0, method=x), "magic", ValueError, *words)

    @pytest.mark.parametrize("value", [-1, -(10**9)])
    def test_negative_count(self, value):
        refuses(lambda x: x * LOSS, value, ValueError, "count must be at least 0")

    @pytest.mark.parametrize("value", [True, False, 1.0, 0.5, "3", math.nan])
    def test_count_is_no_integer(self, value):
        refuses(lambda x: LOSS * x, value, TypeError, "count must be an integer", "int(...)")
        if not isinstance(value, str):
            refuses(lambda x: x * LOSS, value, TypeError, "count must be an integer")

    def test_adjacency_mismatch(self):
        with pytest.raises(AdjacencyMismatch) as caught:
            taut.gaussian(1.0) + taut.gaussian(1.0, adjacency="replace")
        for word in ("'add_remove'", "'replace'", "adjacency=..."):
            assert word in str(caught.value)

    @pytest.mark.parametrize("halves", [("add", "remove"), ("add", "add_remove")])
    def test_halves_do_not_mix(self, halves):
        with pytest.raises(AdjacencyMismatch):
            taut.pure(1.0, adjacency=halves[0]) + taut.pure(1.0, adjacency=halves[1])

    def test_poisson_of_a_replace_loss(self):
        with pytest.raises(UnsoundConfiguration, match=r"also needs the cost of removing"):
            taut.gaussian(1.0, adjacency="replace").poisson(0.1)

    @pytest.mark.parametrize("relation", ["add_remove", "add", "remove", "zero_out"])
    def test_fixed_size_of_another_relation(self, relation):
        with pytest.raises(UnsoundConfiguration, match="needs a loss for adjacency='replace'") as e:
            taut.gaussian(1.0, adjacency=relation).fixed_size(10, 100)
        assert repr(relation) in str(e.value)
        assert "sensitivity=2 * C" in str(e.value)

    def test_a_batch_keeps_its_relation(self):
        batch = taut.pure(1.0, adjacency="replace").fixed_size(10, 100)
        with pytest.raises(UnsoundConfiguration, match="made for another relation"):
            taut.PrivacyLoss(batch.terms, "replace")

    @pytest.mark.parametrize("sizes", [(101, 100), (100, 100)])
    def test_fixed_size_larger_than_the_population(self, sizes):
        with pytest.raises(ValueError, match=f"batch_size={sizes[0]}, population={sizes[1]}"):
            taut.pure(1.0, adjacency="replace").fixed_size(*sizes)

    @pytest.mark.parametrize("value", [0, -1])
    def test_fixed_size_not_positive(self, value):
        base = taut.pure(1.0, adjacency="replace")
        refuses(
            lambda x: base.fixed_size(x, 100), value, ValueError, "batch_size must be at least 1"
        )
        refuses(lambda x: base.fixed_size(1, x), value, ValueError, "population must be at least 1")

    @pytest.mark.parametrize("value", [True, 1.5, "3"])
    def test_fixed_size_is_no_integer(self, value):
        base = taut.pure(1.0, adjacency="replace")
        refuses(lambda x: base.fixed_size(x, 100), value, TypeError, "batch_size", "int(...)")
        refuses(lambda x: base.fixed_size(1, x), value, TypeError, "population", "int(...)")


class TestLongSums:
    """Releases are collected when they are asked for."""

    def test_added_one_by_one(self):
        steps = [taut.gaussian(1 + i % 7).poisson(0.1) for i in range(100)]
        total = sum(steps)
        assert total == taut.PrivacyLoss([term for step in steps for term in step.terms])
        assert sum(count for _, count in total.terms) == 100
        assert hash(total) == hash(sum(reversed(steps)))

    def test_doubling_visits_no_part_twice(self):
        total = taut.gaussian(1.0) + taut.laplace(2.0)
        for _ in range(50):
            total = total + total
        assert total == 2**50 * (taut.gaussian(1.0) + taut.laplace(2.0))

    def test_no_more_copies_than_engines_are_made_for(self):
        most = 10**18 * taut.gaussian(1.0)
        with pytest.raises(ValueError, match="at most 10\\^18"):
            (most + most).epsilon(1e-5)

    def test_both_parts_may_be_sums_and_stay_as_they_were(self):
        left = taut.gaussian(1.0) + taut.laplace(2.0)
        right = taut.laplace(2.0) + taut.pure(0.1)
        total = left + right
        assert total == taut.gaussian(1.0) + 2 * taut.laplace(2.0) + taut.pure(0.1)
        assert left == taut.laplace(2.0) + taut.gaussian(1.0)
        assert right == taut.pure(0.1) + taut.laplace(2.0)
