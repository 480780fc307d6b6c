"""The exact sum bounds every Poisson-sampled mechanism, and two points decide a conversion."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.accounting import renyi
from taut.accounting.renyi._sums import interpolated
from taut.accounting.renyi._two_point import optimal_epsilon, optimal_log_delta

GRID = [mp.mpf(10) ** x for x in (-8, -4, -2, -1, -0.3, -0.02, 0.02, 0.3, 1, 2, 4, 8)]
RATES = [1e-6, 0.003, 0.1, 0.5, 0.75, 0.9, 0.999]
ORDERS = [2, 2.5, 3, 7, 33, 100, 389, 390, 1000, 4096, 10**6]


def log_moment(order, p, q):
    """Return log sum p^a q^(1-a) of two vectors, to the working precision."""
    terms = [
        mp.mpf(a) * mp.exp((order - 1) * (mp.log(mp.mpf(a)) - mp.log(mp.mpf(b))))
        for a, b in zip(p, q, strict=True)
    ]
    return mp.log(mp.fsum(terms))


def normalised(p):
    total = mp.fsum(p)
    return [mp.mpf(x) / total for x in p]


def mixed(p, q, rate):
    return [(1 - rate) * a + rate * b for a, b in zip(p, q, strict=True)]


# --- the pointwise inequality ----------------------------------------------------------------


def weight_and_slope(order, rate):
    w = 3 * (1 - rate) / (3 + 2 * (order - 2) * rate)
    return w, w * order * rate + (1 - w) * (1 - order * rate) + (order - 1) * rate


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rate", RATES)
def test_pointwise_inequality(order, rate):
    with mp.workdps(120):
        a, y = mp.mpf(order), mp.mpf(rate)
        w, c = weight_and_slope(a, y)
        for r in GRID:
            f, h = 1 - y + y * r, 1 - y + y / r
            assert f ** (1 - a) + c * (r - 1) <= w * f**a + (1 - w) * r * h**a


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rate", RATES)
def test_second_derivatives_compare_by_means(order, rate):
    """The proof: the second derivative is positive, because both logarithms of means are."""
    with mp.workdps(60):
        a, y = mp.mpf(order), mp.mpf(rate)
        w, _ = weight_and_slope(a, y)
        for r in GRID:
            f, h = 1 - y + y * r, 1 - y + y / r
            geometric = w * (2 * a - 1) * mp.log(f) + (1 - w) * (
                -3 * mp.log(r) + (a - 2) * mp.log(h) + (a + 1) * mp.log(f)
            )
            jensen = mp.log(f) - y * mp.log(r), mp.log(f) + mp.log(h)
            scale = (2 * a - 1) / (3 + 2 * (a - 2) * y)
            identity = scale * (3 * jensen[0] + y * (a - 2) * jensen[1])
            assert mp.almosteq(geometric, identity, 1e-40, 1e-40)
            assert min(jensen) > 0
            assert f ** (-a - 1) <= w * f ** (a - 2) + (1 - w) * r**-3 * h ** (a - 2)


@pytest.mark.parametrize(("order", "rate"), [(2, 0.2), (5.5, 0.01), (40, 0.7)])
def test_difference_vanishes_to_the_fourth_order(order, rate):
    with mp.workdps(60):
        a, y = mp.mpf(order), mp.mpf(rate)
        w, c = weight_and_slope(a, y)

        def difference(r):
            f, h = 1 - y + y * r, 1 - y + y / r
            return w * f**a + (1 - w) * r * h**a - f ** (1 - a) - c * (r - 1)

        coefficients = mp.taylor(difference, 1, 4)
        assert max(map(abs, coefficients[:4])) < 1e-20
        assert coefficients[4] > 0


# --- the same by integer polynomials, without analysis ---------------------------------------


def numerator(a):
    """Return the cleared difference as coefficients of G^row r^column, G = (1 - rate) / rate."""
    table = np.zeros((2 * a + 1, 3 * a - 1), dtype=object)
    long = [math.comb(2 * a - 1, i) for i in range(2 * a)]
    upper, lower = [math.comb(a, i) for i in range(a + 1)], [math.comb(a - 1, j) for j in range(a)]
    for i, ways in enumerate(long):
        table[2 * a - i, a - 1 + i] += 3 * ways  # 3 G r^(a-1) (G + r)^(2a-1)
        table[i + 1, a - 1] -= 3 * ways  # (3 G + 2a - 1) (1 + G)^(2a-1) r^(a-1)
        table[i, a - 1] -= (2 * a - 1) * ways
    for j, ways in enumerate(lower):
        for i, others in enumerate(upper):  # (2a - 1) (G r + 1)^a (G + r)^(a-1)
            table[i + a - 1 - j, i + j] += (2 * a - 1) * others * ways
        for i, others in enumerate(lower):  # 4 (2a-1) G (1+G)^(a-1) (r-1) r^(a-1) (G+r)^(a-1)
            term = 4 * (2 * a - 1) * others * ways
            table[i + a - j, a + j] -= term
            table[i + a - j, a - 1 + j] += term
    return table


def certificate(a):
    """Return the smallest coefficient of the quotient by (r - 1)^4, which must leave no rest."""
    table = numerator(a)
    for _ in range(4):
        sums = np.add.accumulate(table[:, ::-1], axis=1)  # division by r - 1, from the top
        assert not sums[:, -1].any()
        table = sums[:, -2::-1]
    return min(table.flat)


def test_cleared_difference_is_the_difference():
    a, rate, r = 3, Fraction(1, 5), Fraction(7, 3)
    w, c = weight_and_slope(a, rate)
    f, h = 1 - rate + rate * r, 1 - rate + rate / r
    difference = w * f**a + (1 - w) * r * h**a - f ** (1 - a) - c * (r - 1)
    G = (1 - rate) / rate
    factor = (1 + G) ** a * (3 * G + 2 * a - 1) * r ** (a - 1) * (G + r) ** (a - 1)
    table = numerator(a)
    cleared = sum(
        int(table[k, j]) * G**k * r**j for k in range(2 * a + 1) for j in range(3 * a - 1)
    )
    assert cleared == difference * factor


def test_integer_certificate():
    assert all(certificate(a) >= 0 for a in range(2, 101))


@pytest.mark.slow
@pytest.mark.parametrize("decade", range(10, 39))
def test_integer_certificate_of_large_orders(decade):
    assert all(certificate(a) >= 0 for a in range(10 * decade, 10 * decade + 10))


# --- random mechanisms -----------------------------------------------------------------------


def curve_of_pairs(pairs):
    """Return the Renyi curve over pairs, both orders, rounded to floats."""

    def divergence(order):
        with mp.workdps(40):
            both = [pair for p, q in pairs for pair in ((p, q), (q, p))]
            return float(max(log_moment(order, p, q) for p, q in both) / (order - 1))

    return np.vectorize(divergence, otypes=[float])


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), min_size=2, max_size=4),
    st.floats(1e-4, 0.9999),
    st.sampled_from([2.0, 2.3, 3.0, 3.9, 5.0, 8.0, 13.0]),
)
def test_sum_bounds_both_directions_of_random_pairs(outcomes, rate, order):
    with mp.workdps(40):
        p, q = (normalised(column) for column in zip(*outcomes, strict=True))
        sampled = renyi.poisson(curve_of_pairs([(p, q)]), rate)
        bound = mp.mpf(float(sampled([order])[0])) * (order - 1)
        mixture = mixed(p, q, mp.mpf(rate))
        slack = bound * mp.mpf(10) ** -12 + mp.mpf(10) ** -25  # the base curve is rounded to floats
        assert log_moment(mp.mpf(order), mixture, p) <= bound + slack
        assert log_moment(mp.mpf(order), p, mixture) <= bound + slack


@pytest.mark.parametrize("order", [390.0, 600.0])
@pytest.mark.parametrize("seed", range(6))
def test_sum_bounds_both_directions_at_large_orders(order, seed):
    rng = np.random.default_rng(seed)
    p, q = (normalised(rng.dirichlet([1.0, 1.0]).tolist()) for _ in range(2))
    rate = float(rng.uniform(0.001, 0.5))
    with mp.workdps(40):
        sampled = renyi.poisson(curve_of_pairs([(p, q)]), rate)
        bound = float(sampled([order])[0]) * (order - 1)
        mixture = mixed(p, q, mp.mpf(rate))
        assert log_moment(order, mixture, p) <= bound * (1 + 1e-12)
        assert log_moment(order, p, mixture) <= bound * (1 + 1e-12)


@given(st.integers(0, 10**6), st.floats(0.01, 0.99), st.sampled_from([2, 3, 4, 7]))
def test_other_records_do_not_break_the_bound(seed, rate, order):
    """A mechanism on two other records and one in question: every subset has its own law."""
    laws = np.random.default_rng(seed).dirichlet(np.full(3, 0.8), 8) + 1e-6
    laws = [normalised(row.tolist()) for row in laws]
    with mp.workdps(40):
        y = mp.mpf(rate)
        chances = [(1 - y) ** 2, y * (1 - y), y * (1 - y), y**2]

        def law(rows):
            return [
                mp.fsum(c * row[i] for c, row in zip(chances, rows, strict=True)) for i in range(3)
            ]

        without, with_ = laws[:4], laws[4:]
        first = law(without)
        second = mixed(first, law(with_), y)
        sampled = renyi.poisson(curve_of_pairs(list(zip(without, with_, strict=True))), rate)
        bound = float(sampled([order])[0]) * (order - 1) * (1 + 1e-12)
        assert log_moment(order, second, first) <= bound
        assert log_moment(order, first, second) <= bound


# --- where it is attained --------------------------------------------------------------------


def gaussian_moment(sigma, rate, order, *, swapped=False):
    """Return log E of the sampled Gaussian's a-th moment by quadrature."""
    s, y, a = mp.mpf(sigma), mp.mpf(rate), mp.mpf(order)

    def integrand(x):
        ratio = 1 - y + y * mp.exp((2 * x - 1) / (2 * s * s))
        return mp.npdf(x, 0, s) * ratio ** (1 - a if swapped else a)

    pieces = [-30 * s, -4 * s, 0, 1, *[a * k / 4 for k in range(2, 5)], a + 4 * s, a + 30 * s]
    return mp.log(mp.quad(integrand, sorted(set(pieces))))


def laplace_moment(scale, rate, order, *, swapped=False):
    b, y, a = mp.mpf(scale), mp.mpf(rate), mp.mpf(order)
    power = 1 - a if swapped else a

    def integrand(x):
        ratio = 1 - y + y * mp.exp((2 * x - 1) / b)
        return mp.exp(-x / b) / (2 * b) * ratio**power

    low = (1 - y + y * mp.exp(-1 / b)) ** power / 2
    high = (1 - y + y * mp.exp(1 / b)) ** power * mp.exp(-1 / b) / 2
    return mp.log(low + mp.quad(integrand, [0, mp.mpf(1) / 2, 1]) + high)


@pytest.mark.parametrize("order", [2, 5, pytest.param(16, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("curve", "moment"),
    [
        (renyi.gaussian(1.0), lambda *args, **half: gaussian_moment(1.0, *args, **half)),
        (renyi.gaussian(3.0), lambda *args, **half: gaussian_moment(3.0, *args, **half)),
        (renyi.laplace(0.5), lambda *args, **half: laplace_moment(0.5, *args, **half)),
        (renyi.laplace(2.0), lambda *args, **half: laplace_moment(2.0, *args, **half)),
    ],
)
def test_sum_is_attained_by_removal(curve, moment, order):
    for rate in (0.01, 0.3):
        with mp.workdps(30):
            removal, addition = moment(rate, order), moment(rate, order, swapped=True)
        value = float(renyi.poisson(curve, rate)([order])[0]) * (order - 1)
        assert value == pytest.approx(float(removal), rel=1e-11)
        assert value >= removal * (1 - mp.mpf(10) ** -20)
        assert addition <= removal


@pytest.mark.parametrize(
    ("order", "excess"),
    [(1.001, 0.03), (1.1, 0.03), (1.9, 0.01), (2.5, 1e-3), (3.7, 1e-3), (9.5, 0.5), (12.5, 0.01)],
)
def test_interpolation_bounds_real_orders(order, excess):
    with mp.workdps(30):
        truth = gaussian_moment(1.0, 0.01, order) / (order - 1)
    value = renyi.poisson(renyi.gaussian(1.0), 0.01)([order])[0]
    assert truth <= value <= (1 + excess) * truth


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), min_size=2, max_size=4),
    st.lists(st.floats(-3.0, 9.0), min_size=3, max_size=3, unique=True),
)
def test_power_divergences_are_log_convex_in_the_order(outcomes, orders):
    """Also across orders 0 and 1, where the moment less one is divided by zero."""
    low, middle, high = sorted(orders)
    if min(abs(a - x) for a in orders for x in (0, 1)) < 1e-6 or high - low < 1e-6:
        return
    with mp.workdps(60):
        p, q = (normalised(column) for column in zip(*outcomes, strict=True))
        if p == q:
            return

        def log_power(order):
            a = mp.mpf(order)
            return mp.log(mp.expm1(log_moment(a, p, q)) / (a * (a - 1)))

        share = (mp.mpf(middle) - low) / (mp.mpf(high) - low)
        chord = (1 - share) * log_power(low) + share * log_power(high)
        assert log_power(middle) <= chord + mp.mpf(10) ** -40


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), min_size=2, max_size=4),
    st.floats(1.001, 7.0),
)
def test_interpolation_bounds_random_pairs(outcomes, order):
    """With bounds for one order of the pair or for both."""
    with mp.workdps(40):
        p, q = (normalised(column) for column in zip(*outcomes, strict=True))

        def one_sided(integers):
            return np.array([float(log_moment(int(a), p, q)) for a in integers])

        def two_sided(integers):
            reverse = [float(log_moment(int(a), q, p)) for a in integers]
            return np.maximum(one_sided(integers), reverse)

        truth = float(log_moment(mp.mpf(order), p, q))
    at = np.array([order])
    for cumulants, both in ((one_sided, False), (two_sided, True)):
        assert interpolated(at, cumulants, both=both)[0] >= truth * (1 - 1e-12) - 1e-25


# --- conversions: two points suffice ---------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), min_size=2, max_size=5),
    st.floats(0.0, 3.0),
    st.floats(1.05, 40.0),
)
def test_no_pair_exceeds_the_two_point_bound(outcomes, epsilon, order):
    with mp.workdps(40):
        p, q = (normalised(column) for column in zip(*outcomes, strict=True))
        rdp = float(log_moment(mp.mpf(order), p, q) / (mp.mpf(order) - 1))
        rdp = max(rdp, 0.0) * (1 + 1e-15) + 1e-18
        t = mp.exp(mp.mpf(epsilon))
        truth = mp.fsum(max(a - t * b, 0) for a, b in zip(p, q, strict=True))
    assert mp.exp(optimal_log_delta(order, rdp, epsilon)) >= truth
    if 0 < truth < 1:
        assert optimal_epsilon(order, rdp, float(truth) * (1 - 1e-15)) >= epsilon * (1 - 1e-12)


@pytest.mark.parametrize(
    ("order", "rdp", "epsilon"),
    [(2.0, 1.0, 0.5), (1.3, 0.4, 0.1), (10.0, 0.3, 1.0), (40.0, 0.01, 0.2), (3.0, 2.5, 1.0)],
)
def test_two_point_bound_is_attained(order, rdp, epsilon):
    """Some pair within the divergence comes close: search q, take the largest p within."""
    best = 0.0
    for log_q in [-rdp, *np.linspace(-40.0, -1e-6, 2001)]:
        q = math.exp(log_q)
        p = largest_within(order, (order - 1) * rdp, q)
        best = max(best, p - math.exp(epsilon) * q)
    value = math.exp(optimal_log_delta(order, rdp, epsilon))
    assert best <= value <= best * (1 + 1e-3)
    assert optimal_epsilon(order, rdp, value) == pytest.approx(epsilon, rel=1e-6)


def largest_within(order, bound, q):
    low, high = q, 1.0
    for _ in range(80):
        p = (low + high) / 2
        rest = (1 - p) ** order * (1 - q) ** (1 - order)
        log = np.logaddexp(order * math.log(p) + (1 - order) * math.log(q), np.log(rest or 1e-320))
        low, high = (p, high) if log <= bound else (low, p)
    return low
