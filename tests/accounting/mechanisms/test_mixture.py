"""Mixtures of Gaussians: profiles, cells and sums against closed forms in many digits."""

import itertools
import math
import time

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut
from taut.accounting._adjacency import Half
from taut.accounting._mechanisms.mixture import (
    MixtureOfGaussians,
    MixturePair,
    _binomial,
    group_poisson,
    mixture_of_gaussians,
)
from taut.accounting._pairs.gaussian import GaussianPair
from taut.accounting._pairs.sampled import SampledPair
from taut.errors import UnsoundConfiguration

HALVES = [Half.ADD, Half.REMOVE]
MIXTURES = {
    "two shifts": ((0.9, 0.1), (0.5, 2.0)),
    "faint": ((0.5, 0.3, 0.2), (0.01, 0.02, 0.05)),
    "loud": ((0.25, 0.5, 0.25), (1.0, 8.0, 40.0)),
    "rare and far": ((1 - 1e-9, 1e-9), (0.3, 6.0)),
    "binomial": (tuple(_binomial(16, 0.2)[1:] / _binomial(16, 0.2)[1:].sum()), tuple(range(1, 17))),
}


def normal(x):
    return mp.ncdf(x)


def log_ratio(weights, shifts, x):
    terms = zip(weights, shifts, strict=True)
    return mp.log(mp.fsum(w * mp.exp(mp.mpf(c) * x - mp.mpf(c) ** 2 / 2) for w, c in terms))


def inverse(weights, shifts, level):
    """Return the output at which the log ratio is ``level``, by secants within a bracket."""
    low, high = mp.mpf(-1), mp.mpf(1)
    while log_ratio(weights, shifts, low) > level:
        low *= 2
    while log_ratio(weights, shifts, high) < level:
        high *= 2
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if log_ratio(weights, shifts, middle) < level else (low, middle)
    return mp.findroot(
        lambda x: log_ratio(weights, shifts, x) - level, (low, high), solver="anderson", tol=1e-90
    )


def between(left, right):
    """Return a normal probability from the tails on the side where they are small."""
    return normal(-left) - normal(-right) if left > 0 else normal(right) - normal(left)


def true_profile(weights, shifts, half, epsilon):
    """Return the hockey stick of positive shifts with unit noise."""
    with mp.workdps(60):
        weights = [mp.mpf(w) for w in weights]
        epsilon = mp.mpf(epsilon)
        if half is Half.REMOVE:
            x = inverse(weights, shifts, epsilon)
            p = mp.fsum(w * normal(c - x) for w, c in zip(weights, shifts, strict=True))
            return p - mp.exp(epsilon) * normal(-x)
        x = inverse(weights, shifts, -epsilon)
        q = mp.fsum(w * normal(x - c) for w, c in zip(weights, shifts, strict=True))
        return normal(x) - mp.exp(epsilon) * q


def mixed_density(weights, shifts, x):
    return mp.fsum(w * mp.npdf(x - c) for w, c in zip(weights, shifts, strict=True))


def true_cell(weights, shifts, half, low, high):
    """Return mass, Q-mass and surplus of a cell from the two distribution functions."""
    with mp.workdps(60):
        sign = 1 if half is Half.REMOVE else -1
        ends = sorted(inverse(weights, shifts, sign * mp.mpf(float(e))) for e in (low, high))
        plain = between(*ends)
        mixed = mp.fsum(
            mp.mpf(w) * between(ends[0] - c, ends[1] - c)
            for w, c in zip(weights, shifts, strict=True)
        )
        p, q = (mixed, plain) if half is Half.REMOVE else (plain, mixed)
        return p, q, p - mp.exp(mp.mpf(float(low))) * q


@pytest.fixture(params=MIXTURES.values(), ids=MIXTURES.keys())
def mixture(request):
    return request.param


@pytest.fixture(params=HALVES)
def half(request):
    return request.param


# --- the pair ------------------------------------------------------------------------------------


def test_profile_has_its_digits_from_one_half_to_tiny_deltas(mixture, half):
    pair = MixturePair(*mixture, half)
    scale = sum(w * c for w, c in zip(*mixture, strict=True))
    for epsilon in (np.array([-3.0, -0.5, 0.0, 0.2, 1.0, 4.0, 9.0]) * max(scale, 0.1)).tolist():
        truth = true_profile(*mixture, half, epsilon)
        value = float(pair.profile(np.array([epsilon]))[0])
        if truth > 1e-290:
            assert abs(mp.mpf(value) / truth - 1) <= pair.profile_error
        else:
            assert value <= 1e-280


def test_one_shift_is_a_gaussian(half):
    pair, gaussian = MixturePair((1.0,), (0.7,), half), GaussianPair(0.7)
    epsilons = np.linspace(-6.0, 9.0, 301)
    np.testing.assert_allclose(pair.profile(epsilons), gaussian.profile(epsilons), rtol=1e-12)
    for edges in (np.linspace(-3.0, 4.0, 29), np.linspace(-0.5, 1.0, 3001)):
        mine, other = pair.cells(edges), gaussian.cells(edges)
        np.testing.assert_allclose(mine.mass, other.mass, rtol=1e-10)
        np.testing.assert_allclose(mine.q_mass, other.q_mass, rtol=1e-10)
        blur = 1e-15 * (1 + np.abs(edges[1:])) / np.diff(edges)  # the ends are rounded
        allowed = mine.error + other.error + blur * other.surplus
        assert (np.abs(mine.surplus - other.surplus) <= allowed).all()


def test_swapping_the_distributions_follows_the_swap_rule(mixture):
    forward, backward = (MixturePair(*mixture, half) for half in (Half.REMOVE, Half.ADD))
    epsilons = np.linspace(-3.0, 3.0, 61)
    swapped = -np.expm1(epsilons) + np.exp(epsilons) * forward.profile(-epsilons)
    np.testing.assert_allclose(backward.profile(epsilons), swapped, rtol=0, atol=1e-13)


@pytest.mark.parametrize("width", [1e-9, 1e-5, 1e-2, 0.3, 2.0])
def test_cells_know_mass_and_surplus_within_the_stated_error(mixture, half, width):
    pair = MixturePair(*mixture, half)
    grid = pair.grid(1e-6, 7)
    for low in grid[1:-1].tolist():
        edges = np.array([low, low + width * max(mixture[1][0], 1e-2)])
        mass, q_mass, surplus, error = (float(part[0]) for part in pair.cells(edges))
        p, q, excess = true_cell(*mixture, half, *edges)
        # The ends of a cell are solutions of an equation, exact to rounding in the loss.
        blur = 1e-14 * (1 + abs(low)) / float(edges[1] - edges[0])
        assert abs(mass - p) <= (1e-13 + blur) * p + error
        assert abs(q_mass - q) <= (1e-13 + blur) * q + 1e-15 + error * math.exp(-low)
        assert abs(surplus - excess) <= error + 3 * blur * excess
        assert error <= 1e-9 * p + 1e-14


def test_table_of_starting_points_changes_nothing(mixture, half):
    pair = MixturePair(*mixture, half)
    grid = pair.grid(1e-12, 2)
    edges = np.linspace(grid[0], grid[-1], 4001)
    together = pair.profile(edges)
    apart = np.concatenate([pair.profile(part) for part in np.array_split(edges, 40)])
    np.testing.assert_allclose(together, apart, rtol=pair.profile_error)


def test_edges_may_be_infinitely_far(mixture, half):
    pair = MixturePair(*mixture, half)
    mass, q_mass, surplus, _ = pair.cells(np.array([-1e300, 0.0, 1e300]))
    assert mass.sum() == pytest.approx(1, abs=1e-14)
    assert q_mass.sum() == pytest.approx(1, abs=1e-14)
    assert surplus[0] == mass[0]
    assert surplus[1] == pytest.approx(float(pair.profile(np.zeros(1))[0]), rel=1e-9)
    np.testing.assert_array_equal(pair.profile(np.array([-1e300, 1e300])), [1.0, 0.0])


@pytest.mark.parametrize("tail", [1e-3, 1e-12, 1e-80])
def test_grid_leaves_no_more_than_the_tail(mixture, half, tail):
    weights, shifts = mixture
    pair = MixturePair(*mixture, half)
    grid = pair.grid(tail, 64)
    assert (np.diff(grid) > 0).all()
    with mp.workdps(60):
        top, bottom = (
            inverse(weights, shifts, (1 if half is Half.REMOVE else -1) * mp.mpf(float(end)))
            for end in (grid[-1], grid[0])
        )
        upper = max(top, bottom)
        above = mp.fsum(w * normal(c - upper) for w, c in zip(weights, shifts, strict=True))
        assert above <= tail * (1 + 1e-9)
        assert normal(min(top, bottom)) <= tail * (1 + 1e-9)
        assert above >= tail * (1 - 1e-6)  # and does not waste nodes


@pytest.mark.parametrize("order", [2, 3])
def test_moments_are_sums_of_exponentials(mixture, order):
    # E_Q (p/q)^n = sum over n-tuples of weights times exp(sum of pairwise products of shifts)
    weights, shifts = mixture
    terms = list(zip(weights, shifts, strict=True))
    logs = []
    for chosen in itertools.product(terms, repeat=order):
        overlap = sum(a[1] * b[1] for a, b in itertools.combinations(chosen, 2))
        logs.append(sum(math.log(w) for w, _ in chosen) + overlap)
    truth = float(np.logaddexp.reduce(logs))
    value = MixturePair(*mixture, Half.REMOVE).log_mgf(np.array([order - 1 + 0j]))[0]
    assert value.real == pytest.approx(truth, rel=1e-12, abs=1e-13)
    assert value.imag == 0


def test_moment_when_adding_agrees_with_quadrature():
    mixture = MIXTURES["two shifts"]
    with mp.workdps(30):
        truth = mp.log(
            mp.quad(
                lambda x: mp.npdf(x) * mp.exp(-1.5 * log_ratio(*mixture, x)),
                [-60, -20, -5, 0, 5, 20],
            )
        )
    value = MixturePair(*mixture, Half.ADD).log_mgf(np.array([1.5 + 0j]))[0].real
    assert value == pytest.approx(float(truth), rel=1e-12)


def test_pairs_are_values(mixture, half):
    assert MixturePair(*mixture, half) == MixturePair(*mixture, half)
    assert hash(MixturePair(*mixture, half)) == hash(MixturePair(*mixture, half))


# --- the release ---------------------------------------------------------------------------------


def test_delta_matches_the_closed_form_with_a_shift_of_zero():
    loss = mixture_of_gaussians([0.81, 0.18, 0.01], [0, 1, 2], 1, adjacency="remove")
    lower, upper = loss.delta_bounds(1.0, tolerance=1e-9)
    assert lower <= 0.003826051815787042 <= upper
    assert upper == pytest.approx(0.003826051815787042, rel=1e-9)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.5])
def test_two_points_are_a_sampled_gaussian(half, rate):
    release = mixture_of_gaussians([1 - rate, rate], [0.0, 3.0], 2.0).terms[0][0]
    pair, sampled = release.pair(half), SampledPair(GaussianPair(1.5), rate, half)
    epsilons = np.linspace(-1.0, 3.0, 41)
    np.testing.assert_allclose(pair.profile(epsilons), sampled.profile(epsilons), rtol=1e-12)


@pytest.mark.parametrize("half", HALVES)
def test_nearly_equal_shifts_approach_one_shift(half):
    release = MixtureOfGaussians((0.9, 0.05, 0.05), (0.0, 1.0, 1.0 + 1e-13), 1.0)
    sampled = SampledPair(GaussianPair(1.0), 0.1, half)
    epsilons = np.linspace(-0.5, 5.0, 45)
    np.testing.assert_allclose(
        release.pair(half).profile(epsilons), sampled.profile(epsilons), rtol=1e-11
    )


def test_a_certain_shift_merges_with_gaussians():
    loss = mixture_of_gaussians([1.0], [2.0], 4.0)
    assert loss.terms[0][0].pair(Half.ADD) == GaussianPair(0.5)
    total = loss + taut.gaussian(sigma=2.0)
    assert total.epsilon(1e-6) == pytest.approx(
        taut.gaussian(sigma=math.sqrt(2.0)).epsilon(1e-6), rel=1e-9
    )


def test_no_shift_at_all_costs_nothing():
    loss = mixture_of_gaussians([0.5, 0.5], [0.0, 0.0], 1.0)
    assert (1000 * loss).epsilon(1e-9) == 0
    assert loss.delta(0.0) == 0


def test_equal_shifts_merge_and_impossible_ones_vanish():
    first = mixture_of_gaussians([0.25, 0.5, 0.25, 0.0], [1.0, 0.0, 1.0, 9.0], 1.0)
    assert first == mixture_of_gaussians([0.5, 0.5], [0.0, 1.0], 1.0)


def test_no_loss_below_the_chance_of_no_shift_and_none_above_it():
    remove = mixture_of_gaussians([0.9, 0.1], [0, 1], 1, adjacency="remove")
    add = mixture_of_gaussians([0.9, 0.1], [0, 1], 1, adjacency="add")
    assert remove.profile(math.exp(-0.2)) == pytest.approx(-math.expm1(-0.2), rel=1e-12)
    assert add.delta(0.2) == 0
    assert add.epsilon(0.0) == pytest.approx(-math.log(0.9), rel=1e-12)


@pytest.mark.parametrize("half", HALVES)
def test_two_releases_are_bracketed_by_the_convolution(half):
    weights, shifts = (0.7, 0.2, 0.1), (0.0, 1.0, 2.5)
    loss = 2 * mixture_of_gaussians(weights, shifts, 1.0, adjacency=str(half))
    epsilon = 0.15 if half is Half.ADD else 1.0
    lower, upper = loss.delta_bounds(epsilon, tolerance=1e-5)

    def slope(x):  # the density of P times the profile of the second at what is left
        x = mp.mpf(x)
        ratio = log_ratio(weights, shifts, x)
        if half is Half.REMOVE:
            return mp.npdf(x) * mp.exp(ratio) * sampled_profile(half, epsilon - ratio)
        return mp.npdf(x) * sampled_profile(half, epsilon + ratio)

    def sampled_profile(half, at):
        rate, inner = mp.mpf("0.3"), ((mp.mpf(2) / 3, mp.mpf(1) / 3), (1.0, 2.5))
        t = mp.exp(at)
        if half is Half.REMOVE:
            rest = (t - 1 + rate) / rate
            return rate * true_fast(*inner, half, mp.log(rest)) if rest > 0 else 1 - t
        rest = 1 - t * (1 - rate)
        return rest * true_fast(*inner, half, mp.log(t * rate / rest)) if rest > 0 else mp.mpf(0)

    def true_fast(weights, shifts, half, at):
        sign = 1 if half is Half.REMOVE else -1
        x = mp.findroot(lambda x: log_ratio(weights, shifts, x) - sign * at, sign * at + 1)
        mixed = [(w, c) for w, c in zip(weights, shifts, strict=True)]
        if half is Half.REMOVE:
            return mp.fsum(w * normal(c - x) for w, c in mixed) - mp.exp(at) * normal(-x)
        return normal(x) - mp.exp(at) * mp.fsum(w * normal(x - c) for w, c in mixed)

    with mp.workdps(18):
        truth = mp.quad(slope, [-9, -4, -2, -1, 0, 1, 2, 4, 9], maxdegree=5)
    assert float(lower) * (1 - 1e-6) <= truth <= float(upper) * (1 + 1e-6)
    assert upper - lower <= 1e-4 * upper


def test_a_thousand_releases_are_quick():
    loss = 1000 * mixture_of_gaussians([0.98, 0.0198, 0.0001, 0.0001], [0, 1, 2, 5], 1.0)
    start = time.process_time()
    lower, upper = loss.epsilon_bounds(1e-6)
    assert time.process_time() - start < 0.3
    assert upper - lower <= 1e-3 * upper


def test_sampling_a_mixture_thins_it():
    # A record that takes part in one of four steps, and then shifts at random.
    base = mixture_of_gaussians([0.5, 0.3, 0.2], [0, 1, 2], 1.0)
    thinned = mixture_of_gaussians([0.875, 0.075, 0.05], [0, 1, 2], 1.0)
    assert base.poisson(0.25).epsilon(1e-6) == pytest.approx(thinned.epsilon(1e-6), rel=1e-9)


@given(
    st.lists(st.floats(0.05, 1.0), min_size=2, max_size=5),
    st.lists(st.floats(0.01, 3.0), min_size=5, max_size=5),
    st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5),
    st.floats(-2.0, 4.0),
)
def test_larger_shifts_dominate(raw, shifts, growth, epsilon):
    weights = [w / math.fsum(raw) for w in raw]
    small = [c for c, _ in zip(shifts, raw, strict=False)]
    large = [c + g for c, g in zip(small, growth, strict=False)]
    for half in HALVES:
        values = [
            mixture_of_gaussians(weights, each, 1.0)
            .terms[0][0]
            .pair(half)
            .profile(np.array([epsilon]))[0]
            for each in (small, large)
        ]
        assert values[0] <= values[1] * (1 + 1e-11) + 1e-15


def test_group_of_one_is_the_sampled_gaussian():
    single = 10 * group_poisson(sigma=1.3, rate=0.1, group_size=1, sensitivity=2.0)
    plain = 10 * taut.gaussian(sigma=1.3, sensitivity=2.0).poisson(0.1)
    assert single.epsilon(1e-6) == pytest.approx(plain.epsilon(1e-6), rel=1e-9)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_group_at_extreme_rates(rate):
    loss = group_poisson(sigma=2.0, rate=rate, group_size=3)
    expected = taut.gaussian(sigma=2.0, sensitivity=3.0).epsilon(1e-6) if rate else 0.0
    assert loss.epsilon(1e-6) == pytest.approx(expected, rel=1e-9)


def test_binomial_weights_are_exact_in_the_tail():
    assert _binomial(128, 1 / 128)[100] == pytest.approx(
        float(mp.binomial(128, 100) * mp.mpf(1) / 128**100 * (mp.mpf(127) / 128) ** 28), rel=1e-12
    )


def test_text_counts_many_shifts():
    assert "17 shifts" in str(group_poisson(1.0, 0.5, 16))
    assert "[0, 1]" in str(group_poisson(1.0, 0.5, 1))


# --- what is refused -----------------------------------------------------------------------------


def test_replace_one_is_refused():
    with pytest.raises(UnsoundConfiguration, match="replace"):
        mixture_of_gaussians([0.5, 0.5], [0, 1], 1.0, adjacency="replace")


@pytest.mark.parametrize(
    ("probabilities", "shifts", "sigma", "match"),
    [
        ([0.5, 0.4], [0, 1], 1.0, "sum to 1"),
        ([0.5, 0.5], [0, -1], 1.0, "shifts must be"),
        ([0.5, 0.5], [0, math.nan], 1.0, "shifts must be"),
        ([0.5, 0.5], [0, math.inf], 1.0, "shifts must be"),
        ([1.5, -0.5], [0, 1], 1.0, "probabilities must be"),
        ([0.5, 0.5], [0, 1, 2], 1.0, "equal length"),
        ([], [], 1.0, "non-empty"),
        ([[0.5], [0.5]], [0, 1], 1.0, "non-empty vector"),
        ([[0.5], [0.5, 1.0]], [0, 1], 1.0, "non-empty vector"),
        (["a", "b"], [0, 1], 1.0, "non-empty vector"),
        ([0.5, 0.5], [0, 1], 0.0, "sigma"),
        ([0.5, 0.5], [0, 1], math.nan, "sigma"),
    ],
)
def test_bad_arguments(probabilities, shifts, sigma, match):
    with pytest.raises(ValueError, match=match):
        mixture_of_gaussians(probabilities, shifts, sigma)


def test_release_checks_its_own_lengths():
    with pytest.raises(ValueError, match="equal length"):
        MixtureOfGaussians((0.5, 0.5), (1.0,), 1.0)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"rate": 1.5}, "rate"),
        ({"group_size": 0}, "group_size"),
        ({"sensitivity": 0.0}, "sensitivity"),
        ({"sigma": -1.0}, "sigma"),
    ],
)
def test_bad_groups(arguments, match):
    with pytest.raises(ValueError, match=match):
        group_poisson(**({"sigma": 1.0, "rate": 0.1, "group_size": 2} | arguments))
