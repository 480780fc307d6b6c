import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matrix.oracle import admissible, encoders

from taut.matrix import (
    FixedOrder,
    MinimumSeparation,
    SingleParticipation,
    ToeplitzEncoder,
    Workload,
    banded_inverse,
    sensitivity,
    square_root,
)

KINDS = sorted(encoders(5))


def largest(encoder, choices):
    """Return the largest root of sums of |G| over the given choices of steps."""
    gram = np.abs(encoder.gram(np.arange(encoder.steps)))
    return max(np.sqrt(gram[np.ix_(chosen, chosen)].sum()) for chosen in choices)


@pytest.mark.parametrize("kind", KINDS)
def test_one_participation_is_the_largest_column(kind):
    encoder = encoders(13)[kind]
    found = sensitivity(encoder)
    assert found.exact
    norms = np.linalg.norm(encoder.matrix(), axis=0)
    assert norms.max() <= found.value <= norms.max() * (1 + 1e-12)


@pytest.mark.parametrize(("period", "epochs"), [(4, None), (5, 2), (3, 9), (13, None), (1, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_fixed_order_is_the_worst_first_step(kind, period, epochs):
    encoder = encoders(13)[kind]
    count = epochs or 13
    choices = [list(range(first, 13, period))[:count] for first in range(period)]
    expected = largest(encoder, choices)
    found = sensitivity(encoder, FixedOrder(period, epochs))
    assert found.exact == (encoder.non_negative or encoder.reach <= period)
    assert expected <= found.value <= expected * (1 + 1e-12)


@pytest.mark.parametrize(("gap", "count"), [(3, 3), (4, None), (2, 2), (6, 3), (1, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_minimum_separation_is_bounded_and_exact_where_it_says_so(kind, gap, count):
    encoder = encoders(11)[kind]
    expected = largest(encoder, admissible(11, gap, count or 11))
    found = sensitivity(encoder, MinimumSeparation(gap, count))
    assert found.value >= expected
    if found.exact:
        assert found.value <= expected * (1 + 1e-12)
    else:
        assert found.value <= expected * 1.6  # a bound, though of the right size


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=50)
def test_decreasing_coefficients_are_worst_at_equal_distances(drops, gap, count):
    bands = np.append(np.cumsum(drops[::-1])[::-1], 0.0) + 0.01
    encoder = ToeplitzEncoder(10, bands[:10].tolist())
    found = sensitivity(encoder, MinimumSeparation(gap, count))
    expected = largest(encoder, admissible(10, gap, count))
    assert found.exact
    assert expected * (1 - 1e-12) <= found.value <= expected * (1 + 1e-12)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_no_contributions_exceed_the_sensitivity(seed):
    random = np.random.default_rng(seed)
    encoder = encoders(13)["dense"]
    rule = MinimumSeparation(3, 4)
    steps = np.cumsum(random.integers(3, 5, 4)) - 3
    steps = steps[steps < 13]
    directions = random.normal(size=(steps.size, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    moved = np.linalg.norm(encoder.columns(steps) @ directions)
    assert moved <= sensitivity(encoder, rule).value


def test_more_bands_than_dense_methods_hold_are_bounded_by_an_envelope():
    bumpy = ToeplitzEncoder(10_000, [1.0, 0.2, 0.6, 0.1])
    smooth = ToeplitzEncoder(10_000, [1.0, 0.6, 0.6, 0.1])
    rule = MinimumSeparation(2, 100)
    found = sensitivity(bumpy, rule)
    assert not found.exact
    assert found.value == pytest.approx(sensitivity(smooth, rule).value, rel=1e-12)


def test_long_banded_inverse_needs_no_matrix():
    encoder = banded_inverse(Workload(5_000), 2, MinimumSeparation(1_000))
    assert sensitivity(encoder, MinimumSeparation(1_000)).value > 1


def test_large_matrices_without_structure_are_refused():
    from taut.matrix import TreeEncoder

    with pytest.raises(ValueError, match="dense methods serve up to 4096 steps"):
        sensitivity(TreeEncoder(10_000), MinimumSeparation(5))


def test_bands_within_the_separation_cost_the_root_of_the_participations():
    encoder = square_root(Workload(1_000), bands=20)
    once = sensitivity(encoder, SingleParticipation()).value
    assert sensitivity(encoder, MinimumSeparation(20, 9)).value == pytest.approx(3 * once)


@pytest.mark.parametrize("rule", [FixedOrder, MinimumSeparation])
def test_bad_rules_are_refused(rule):
    with pytest.raises(ValueError, match="separation must be at least 1"):
        rule(0)
    with pytest.raises(ValueError, match="must be at least 1"):
        rule(3, 0)
