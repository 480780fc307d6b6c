"""Noisy screening and votes against brute force: over counts, over datasets, over samples."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

import taut
from taut.accounting._adjacency import Half
from taut.accounting._mechanisms.screening import (
    NoisyScreening,
    noisy_screening,
    noisy_vote,
    screening_pair,
    screening_rdp,
)
from taut.accounting._pairs.gaussian import GaussianPair
from taut.accounting._pairs.sampled import SampledPair
from taut.errors import UnsoundConfiguration

SMALL = (12, 7.0, 3.0)  # k, threshold, sigma
SETTINGS = [SMALL, (12, 7.3, 3.0), (5, 2.5, 0.4), (300, 180.0, 75.0), (3, -4.0, 1.0), (1, 0.5, 9.0)]


def bits(t, threshold, sigma):
    z = (mp.mpf(t) - mp.mpf(threshold)) / mp.mpf(sigma)
    return mp.ncdf(z), mp.ncdf(-z)


def mixed(p, q, rate):
    return tuple((1 - rate) * b + rate * a for a, b in zip(p, q, strict=True))


def family(k, threshold, sigma, rate=1):
    """Return all (with or without, without or with) pairs of bits in exact order."""
    rate = mp.mpf(rate)
    for t in range(k):
        low, high = bits(t, threshold, sigma), bits(t + 1, threshold, sigma)
        for p, q in ((low, high), (high, low)):
            yield mixed(p, q, rate), q
            yield q, mixed(p, q, rate)


def divergence(p, q, order):
    order = mp.mpf(order)
    return mp.log(mp.fsum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True))) / (
        order - 1
    )


def hockey_stick(p, q, t):
    return mp.fsum(max(a - t * b, 0) for a, b in zip(p, q, strict=True))


# --- Renyi ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("rate", [1.0, 0.15])
def test_divergence_is_the_largest_over_all_counts(setting, rate):
    orders = [1.0001, 1.7, 8.0] if setting[0] == 300 else [1.0001, 1.7, 8.0, 64.0]
    values = screening_rdp(*setting, orders, rate)
    with mp.workdps(30):
        pairs = list(family(*setting, rate))
        for order, value in zip(orders, values.tolist(), strict=True):
            truth = max(divergence(p, q, order) for p, q in pairs)
            assert truth <= value <= truth * (1 + 1e-5 if order < 1.001 else 1 + 1e-9)


@given(
    st.integers(1, 8),
    st.floats(-3.0, 12.0),
    st.floats(0.3, 20.0),
    st.floats(0.001, 1.0),
    st.floats(1.01, 40.0),
)
def test_divergence_is_an_upper_bound_and_tight(k, threshold, sigma, rate, order):
    value = screening_rdp(k, threshold, sigma, [order], rate)[0]
    with mp.workdps(40):
        truth = max(divergence(p, q, order) for p, q in family(k, threshold, sigma, rate))
    assert truth <= value
    assert value <= truth * (1 + 1e-6) + 1e-13


def test_divergence_at_order_one_is_bounded_by_the_next_representable_order():
    values = screening_rdp(*SMALL, [1.0, 1.000001, 1.00001])
    assert values[0] == values[1] == values[2]
    with mp.workdps(30):
        kl = max(
            mp.fsum(a * mp.log(a / b) for a, b in zip(p, q, strict=True)) for p, q in family(*SMALL)
        )
    assert kl <= values[0] <= kl * (1 + 1e-4)


def test_screening_costs_less_than_the_gaussian_at_every_order():
    orders = np.array([1.1, 10.0, 100.0, 1000.0])
    share = screening_rdp(300, 210.0, 85.0, orders) / (orders / (2 * 85.0**2))
    assert share[0] == pytest.approx(2 / math.pi, rel=1e-3)
    assert (np.diff(share[:-1]) >= -1e-9).all()
    assert (share < 1).all()


def test_the_largest_count_moves_with_the_order():
    # At high orders the worst count is far from the threshold: looking at it alone is unsafe.
    k, threshold, sigma, order = 300, 210.0, 85.0, 200.0
    with mp.workdps(30):
        at_threshold = divergence(bits(211, threshold, sigma), bits(210, threshold, sigma), order)
    assert screening_rdp(k, threshold, sigma, [order])[0] > 1.05 * at_threshold


def test_nothing_is_lost_without_a_sample():
    assert screening_rdp(*SMALL, [2.0, 8.0], 0.0).tolist() == [0.0, 0.0]


def test_huge_orders_do_not_overflow():
    value = screening_rdp(5, 2.5, 0.05, [1e4], 0.1)[0]
    assert 0 < value < math.inf


# --- the pair ------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
def test_profile_of_one_release_is_the_maximum_over_the_family(setting):
    pair = screening_pair(*setting)
    thresholds = np.exp(np.linspace(-3.0, 3.0, 13))
    values = pair.profile(np.log(thresholds))
    with mp.workdps(30):
        pairs = list(family(*setting))
        for t, value in zip(thresholds.tolist(), values.tolist(), strict=True):
            truth = max(hockey_stick(p, q, t) for p, q in pairs)
            assert truth <= value * (1 + 1e-12) + 1e-15
            assert value == pytest.approx(float(truth), rel=1e-9, abs=1e-13)


def test_points_of_the_family_that_nearly_coincide_do_no_harm():
    exact, shifted = screening_pair(12, 7.0, 3.0), screening_pair(12, 7.0 + 1e-13, 3.0)
    epsilons = np.linspace(-2.0, 2.0, 41)
    np.testing.assert_allclose(exact.profile(epsilons), shifted.profile(epsilons), atol=1e-13)
    assert np.exp(shifted.log_masses).sum() == pytest.approx(1, abs=1e-13)


@pytest.mark.parametrize("half", [Half.ADD, Half.REMOVE])
@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_sampling_commutes_with_the_maximum(half, rate):
    pair = NoisyScreening(*SMALL, rate).pair(half)
    assert pair == SampledPair(screening_pair(*SMALL), rate, half)
    with mp.workdps(30):
        for t in (0.9, 0.99, 1.0, 1.02, 1.2):
            truth = mp.mpf(0)
            for c in range(SMALL[0]):
                low, high = bits(c, *SMALL[1:]), bits(c + 1, *SMALL[1:])
                for p, q in ((low, high), (high, low)):
                    m = mixed(p, q, mp.mpf(rate))
                    first, second = (m, q) if half is Half.REMOVE else (q, m)
                    truth = max(truth, hockey_stick(first, second, t))
            value = float(pair.profile(np.array([math.log(t)]))[0])
            assert value == pytest.approx(float(truth), rel=1e-9, abs=1e-14)


def test_the_pair_is_a_coarser_gaussian_and_a_bit_is_inside():
    pair, gaussian = screening_pair(300, 180.0, 75.0), GaussianPair(1 / 75.0)
    epsilons = np.linspace(-0.05, 0.05, 41)
    assert (pair.profile(epsilons) <= gaussian.profile(epsilons) * (1 + 1e-9) + 1e-15).all()
    inside = pair.attained.profile(epsilons)
    assert (inside <= pair.profile(epsilons) + 1e-15).all()
    assert inside[20] == pytest.approx(float(pair.profile(np.zeros(1))[0]), rel=1e-3)


def test_the_pair_bounds_the_divergence_of_every_member():
    pair = screening_pair(*SMALL)
    for order in (2.0, 10.0):
        moment = pair.log_mgf(np.array([order - 1 + 0j]))[0].real / (order - 1)
        assert moment >= screening_rdp(*SMALL, [order])[0] * (1 - 1e-9)


# --- real mechanisms -----------------------------------------------------------------------------


def largest_count(records, k):
    """Return the largest count of labels among the k records with smallest distance."""
    labels = [label for _, label in sorted(records)[:k]]
    return max((labels.count(c) for c in set(labels)), default=0)


def histogram(records, k, classes=3):
    labels = [label for _, label in sorted(records)[:k]]
    return np.array([labels.count(c) for c in range(classes)])


def random_records(rng, n):
    return [
        (float(d), int(c)) for d, c in zip(rng.permutation(n), rng.integers(0, 3, n), strict=True)
    ]


def test_neighbours_move_the_largest_count_by_one_both_ways():
    rng = np.random.default_rng(31)
    seen = {"remove": set(), "replace": set()}
    for _ in range(1500):
        records = random_records(rng, int(rng.integers(1, 9)))
        k, i = int(rng.integers(1, 5)), int(rng.integers(len(records)))
        without = records[:i] + records[i + 1 :]
        swapped = [*without, (float(rng.uniform(-1, 9)), int(rng.integers(3)))]
        here = largest_count(records, k)
        seen["remove"].add(largest_count(without, k) - here)
        seen["replace"].add(largest_count(swapped, k) - here)
    assert seen["remove"] == {-1, 0, 1}
    assert seen["replace"] == {-1, 0, 1}


def test_votes_move_by_root_two_with_fixed_neighbours_and_by_one_within_a_radius():
    rng = np.random.default_rng(32)
    fixed, swapped_fixed, radius, swapped_radius = 0.0, 0.0, 0.0, 0.0
    for _ in range(1500):
        records = random_records(rng, int(rng.integers(2, 9)))
        k, i = int(rng.integers(1, 5)), int(rng.integers(len(records)))
        without = records[:i] + records[i + 1 :]
        other = [*without, (float(rng.uniform(-1, 9)), int(rng.integers(3)))]
        here = histogram(records, k)
        fixed = max(fixed, float(np.linalg.norm(here - histogram(without, k))))
        swapped_fixed = max(swapped_fixed, float(np.linalg.norm(here - histogram(other, k))))
        near, near_without, near_other = (
            histogram([r for r in data if r[0] < 4.0], 99) for data in (records, without, other)
        )
        radius = max(radius, float(np.linalg.norm(near - near_without)))
        swapped_radius = max(swapped_radius, float(np.linalg.norm(near - near_other)))
    assert fixed == swapped_fixed == swapped_radius == math.sqrt(2)
    assert radius == 1


def sampled_bit(records, k, threshold, sigma, rate):
    """Return the exact probability of passing over all Poisson samples."""
    total = 0.0
    for chosen in itertools.product([False, True], repeat=len(records)):
        sample = [r for r, take in zip(records, chosen, strict=True) if take]
        weight = rate ** len(sample) * (1 - rate) ** (len(records) - len(sample))
        total += weight * float(ndtr((largest_count(sample, k) - threshold) / sigma))
    return np.array([total, 1 - total])


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_screening_of_real_records_stays_below_the_bounds(rate):
    rng = np.random.default_rng(33)
    k, threshold, sigma = 3, 1.6, 0.8
    orders = [1.5, 4.0, 16.0]
    bound = screening_rdp(k, threshold, sigma, orders, rate)
    release = NoisyScreening(k, threshold, sigma, rate)
    largest = 0.0
    for _ in range(25):
        records = random_records(rng, int(rng.integers(1, 7)))
        i = int(rng.integers(len(records)))
        present = sampled_bit(records, k, threshold, sigma, rate)
        absent = sampled_bit(records[:i] + records[i + 1 :], k, threshold, sigma, rate)
        for order, value in zip(orders, bound.tolist(), strict=True):
            found = max(
                float(divergence(present, absent, order)), float(divergence(absent, present, order))
            )
            assert found <= value + 1e-12
            largest = max(largest, found / value)
        for t in (0.8, 1.0, 1.25, 2.0):
            for half, p, q in ((Half.ADD, absent, present), (Half.REMOVE, present, absent)):
                delta = float(release.pair(half).profile(np.array([math.log(t)]))[0])
                assert np.maximum(p - t * q, 0.0).sum() <= delta + 1e-12
    assert largest > 0.5  # random records come near


# --- losses --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_loss_answers_by_its_divergences():
    loss = noisy_screening(300, 210.0, 85.0)
    assert loss.rdp(8.0) == pytest.approx(screening_rdp(300, 210.0, 85.0, [8.0])[0], rel=1e-8)
    epsilon = (8192 * loss).epsilon(1e-5)
    # Between what two fixed counts give and what the plain Gaussian would.
    assert 3.6275 < epsilon < 4.4387
    assert epsilon < 0.85 * (8192 * taut.gaussian(85.0)).epsilon(1e-5)


def test_sampling_twice_multiplies_rates():
    assert NoisyScreening(*SMALL, 0.5).sampled(0.4) == NoisyScreening(*SMALL, 0.2)


def test_text_shows_the_rate_only_if_there_is_one():
    assert "rate" not in str(NoisyScreening(*SMALL))
    assert "rate=0.25" in str(NoisyScreening(*SMALL, 0.25))


@pytest.mark.parametrize("adjacency", ["add_remove", "add", "remove", "zero_out", "replace"])
def test_every_relation_is_covered_without_sampling(adjacency):
    assert noisy_screening(*SMALL, adjacency=adjacency).rdp(4.0) == pytest.approx(
        screening_rdp(*SMALL, [4.0])[0], rel=1e-8
    )


def test_vote_sensitivity_depends_on_neighbours_and_relation():
    assert noisy_vote(10.0) == taut.gaussian(10.0, math.sqrt(2))
    assert noisy_vote(10.0, neighbours="radius") == taut.gaussian(10.0, 1.0)
    assert noisy_vote(10.0, neighbours="radius", adjacency="replace") == taut.gaussian(
        10.0, math.sqrt(2), adjacency="replace"
    )
    assert noisy_vote(10.0, adjacency="replace") == taut.gaussian(
        10.0, math.sqrt(2), adjacency="replace"
    )


# --- what is refused -----------------------------------------------------------------------------


def test_replace_one_on_a_sample_is_refused():
    with pytest.raises(UnsoundConfiguration, match="rate=1"):
        noisy_screening(*SMALL, rate=0.5, adjacency="replace")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"k": 0}, "k must"),
        ({"threshold": math.nan}, "threshold"),
        ({"sigma": 0.0}, "sigma"),
        ({"rate": 1.5}, "rate"),
    ],
)
def test_bad_screenings(arguments, match):
    given_arguments = {"k": 12, "threshold": 7.0, "sigma": 3.0} | arguments
    with pytest.raises(ValueError, match=match):
        noisy_screening(**given_arguments)
    with pytest.raises(ValueError, match=match):
        screening_rdp(orders=[2.0], **given_arguments)


@pytest.mark.parametrize("orders", [[0.5], [math.nan], [math.inf], [[2.0]]])
def test_bad_orders(orders):
    with pytest.raises(ValueError, match="orders"):
        screening_rdp(*SMALL, orders)


def test_bad_votes():
    with pytest.raises(ValueError, match="neighbours"):
        noisy_vote(1.0, neighbours="some")
    with pytest.raises(ValueError, match="sigma"):
        noisy_vote(0.0)
