"""Earlier bounds: sound where they claim to be, and refused elsewhere."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import accounting as oracles

import taut
from taut.accounting import renyi

# --- fixed-size samples ----------------------------------------------------------------------


def wang(divergence, rate, order, loss=math.inf):
    """Return the bound of Wang, Balle and Kasiviswanathan (2019, Theorem 9) with 40 digits."""
    with mp.workdps(40):
        y, cap = mp.mpf(rate), mp.inf if loss == math.inf else mp.expm1(mp.mpf(loss))
        second = mp.exp(divergence(2))
        total = y**2 * mp.binomial(order, 2) * min(4 * (second - 1), second * min(2, cap**2))
        for j in range(3, order + 1):
            moment = mp.exp((j - 1) * divergence(j))
            total += y**j * mp.binomial(order, j) * moment * min(2, cap**j)
        return mp.log1p(total) / (order - 1)


@pytest.mark.parametrize("order", [2, 3, 8, 64])
@pytest.mark.parametrize("rate", [1e-4, 0.02])
def test_fixed_size_is_the_published_bound(rate, order):
    truth = wang(lambda j: mp.mpf(j) / 8, rate, order)
    value = renyi.fixed_size(renyi.gaussian(4.0, 2.0), rate)([order])[0]
    assert value >= min(truth, order / mp.mpf(8))
    assert value == pytest.approx(float(min(truth, order / mp.mpf(8))), rel=1e-11)


@pytest.mark.parametrize("loss", [0.05, 0.6, 2.0])
def test_fixed_size_uses_a_bounded_loss(loss):
    def divergence(order):
        p = 1 / (1 + mp.exp(-mp.mpf(loss)))
        return mp.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (
            order - 1
        )

    for order in (2, 5, 20):
        bound = renyi.fixed_size(renyi.pure(loss), 0.01, pure_epsilon=loss)([order])[0]
        assert bound == pytest.approx(float(wang(divergence, 0.01, order, loss)), rel=1e-9)
        assert bound <= renyi.fixed_size(renyi.pure(loss), 0.01)([order])[0]


@given(
    st.integers(0, 10**6),
    st.sampled_from([(2, 1), (3, 1), (4, 1), (3, 2), (4, 2)]),
    st.sampled_from([1.5, 2.0, 3.0, 4.0, 5.5, 9.0]),
    st.floats(0.02, 1.0),
)
def test_fixed_size_bounds_random_mechanisms(seed, sizes, order, spread):
    """Every subset of the records 0, ..., n has its own law; record 0 is replaced by record n."""
    population, size = sizes
    rng = np.random.default_rng(seed)
    centre = rng.dirichlet(np.full(3, 2.0))
    sets = [frozenset(s) for s in itertools.combinations(range(population + 1), size)]
    laws = {s: (1 - spread) * centre + spread * rng.dirichlet(np.full(3, 0.7)) for s in sets}
    neighbours = [
        (laws[a], laws[b]) for a in sets for b in sets if a != b and len(a & b) == size - 1
    ]

    def curve(orders):
        return np.array([max(divergence(a, p, q) for p, q in neighbours) for a in orders])

    loss = max(float(np.log(p / q).max()) for p, q in neighbours)
    before = np.mean([laws[s] for s in sets if population not in s], axis=0)
    after = np.mean([laws[s] for s in sets if 0 not in s], axis=0)
    truth = divergence(order, before, after)
    for bound in (
        renyi.fixed_size(curve, size / population)([order])[0],
        renyi.fixed_size(curve, size / population, pure_epsilon=loss)([order])[0],
    ):
        assert truth <= bound * (1 + 1e-9) + 1e-13


def divergence(order, p, q):
    with np.errstate(over="ignore"):
        return max(math.log((p * (p / q) ** (order - 1)).sum()) / (order - 1), 0.0)


def test_fixed_size_limits():
    base = renyi.gaussian(1.0)
    orders = np.array([1.5, 2.0, 9.5, math.inf])
    assert renyi.fixed_size(base, 0.0)(orders).tolist() == [0.0] * 4
    assert (renyi.fixed_size(base, 1.0)(orders) <= base(orders)).all()
    assert renyi.fixed_size(renyi.pure(1.0), 0.1)(orders)[-1] == pytest.approx(1.0)
    assert renyi.fixed_size(renyi.pure(0.0), 0.1, pure_epsilon=0.0)(orders[:3]).max() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": -0.1}, "rate must be"),
        ({"rate": 0.1, "pure_epsilon": -1.0}, "pure_epsilon must be"),
        ({"rate": 0.1, "pure_epsilon": math.nan}, "pure_epsilon must be"),
    ],
)
def test_bad_fixed_sizes(options, message):
    with pytest.raises(ValueError, match=message):
        renyi.fixed_size(renyi.gaussian(1.0), **options)


# --- the first moments accountant ------------------------------------------------------------


def abadi(rate, sigma, order):
    """Return the sum in the proof of Abadi et al. (2016), Lemma 3, with 40 digits."""
    with mp.workdps(40):
        q, s = mp.mpf(rate), mp.mpf(sigma)
        total = order * (order - 1) * q**2 / ((1 - q) * s**2)
        for t in range(3, order + 1):
            double, stay = mp.fac2(t - 1), (1 - q) ** (t - 1)
            growth = mp.exp((t * t - t) / (2 * s**2)) * (s**t * double + mp.mpf(t) ** t)
            total += mp.binomial(order, t) * (
                (2 * q) ** t * double / (2 * stay * s**t)
                + q**t / (stay * (1 - q) * s ** (2 * t))
                + (2 * q) ** t * growth / (2 * stay * s ** (2 * t))
            )
        return mp.log1p(total) / (order - 1)


@pytest.mark.parametrize(
    ("rate", "sigma", "order"),
    [(0.001, 4.0, 2), (0.001, 4.0, 8), (0.01, 1.0, 5), (0.01, 4.0, 32), (1e-5, 2.0, 40)],
)
def test_abadi_is_the_published_sum_and_above_the_truth(rate, sigma, order):
    value, published = renyi.abadi_moments(rate, sigma, order), abadi(rate, sigma, order)
    assert published <= value <= published * (1 + 1e-10)
    loss = taut.gaussian(sigma).poisson(rate)
    assert loss.rdp(order) <= value
    assert renyi.poisson(renyi.gaussian(sigma), rate)([order])[0] <= value


@pytest.mark.parametrize(
    ("rate", "sigma", "order"),
    [
        (0.01, 0.9, 3),  # too little noise
        (1 / 16, 1.0, 2),  # rate not below 1 / (16 sigma)
        (0.5, 4.0, 2),  # rate times sigma above one
        (0.01, 1.0, 6),  # order above 1 + log(100) = 5.6
        (0.01, 1.0, 1),
    ],
)
def test_abadi_is_refused_outside_its_domain(rate, sigma, order):
    with pytest.raises(ValueError, match="the bound is proven for"):
        renyi.abadi_moments(rate, sigma, order)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0.0, 1.0, 2), ValueError),
        ((0.01, -1.0, 2), ValueError),
        ((0.01, 1.0, 2.5), TypeError),
        ((1e-12, 1e4, 10**6), ValueError),
    ],
)
def test_abadi_bad_arguments(arguments, error):
    with pytest.raises(error, match="must be"):
        renyi.abadi_moments(*arguments)


# --- boxes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 50, 3000])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (0.02, 1e-9), (1.5, 1e-3)])
def test_optimal_composition_against_the_exact_sum(epsilon, delta, count):
    total = renyi.optimal_composition(epsilon, delta, count)
    for at in (0.0, 0.7 * epsilon, 0.3 * count * epsilon, 1.1 * count * epsilon):
        truth = oracles.failing_response_delta(epsilon, delta, count, at)
        assert truth <= total(at) <= truth * (1 + 1e-8) + 1e-13


def test_optimal_composition_agrees_with_the_loss_of_boxes():
    total = renyi.optimal_composition(0.1, 1e-8, 100)(3.0)
    lower, upper = (100 * taut.approximate(0.1, 1e-8)).delta_bounds(3.0)
    assert lower * (1 - 1e-9) <= total <= upper * (1 + 1e-9)


def test_boxes_without_loss():
    assert renyi.optimal_composition(0.0, 0.0, 10)(0.0) == 0
    assert renyi.optimal_composition(0.0, 0.01, 2)(0.0) == pytest.approx(1 - 0.99**2)
    assert renyi.optimal_composition(800.0, 0.0, 3)(0.0) == 1


@pytest.mark.parametrize("count", [1, 30, 1000])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 900.0])
def test_advanced_composition_is_never_below_the_optimum(epsilon, count):
    total, failure = renyi.advanced_composition(epsilon, 1e-9, count, slack=1e-6)
    assert failure == pytest.approx(1e-9 * count + 1e-6)
    assert total <= count * epsilon * (1 + 1e-12)
    assert oracles.failing_response_delta(epsilon, 1e-9, count, total) <= failure


def test_advanced_composition_is_the_published_formula():
    total, failure = renyi.advanced_composition(0.01, 0.0, 10_000, slack=1e-5)
    formula = 0.01 * math.sqrt(2e4 * math.log(1e5)) + 100 * math.expm1(0.01)
    assert total == pytest.approx(formula, rel=1e-13)
    assert failure == pytest.approx(1e-5, rel=1e-13)
    assert renyi.advanced_composition(1.0, 0.5, 3, slack=0.1) == pytest.approx((3.0, 1.0))
    assert renyi.advanced_composition(1.0, 0.5, 0, slack=0.1) == pytest.approx((0.0, 0.1))


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: renyi.optimal_composition(-1.0, 0.0, 2), ValueError, "epsilon must be"),
        (lambda: renyi.optimal_composition(1.0, 1.0, 2), ValueError, "delta must be"),
        (lambda: renyi.optimal_composition(1.0, 0.0, -2), ValueError, "count must"),
        (lambda: renyi.optimal_composition(1.0, 0.0, 10**8), ValueError, "taut.approximate"),
        (lambda: renyi.optimal_composition(1.0, 0.0, 2.0), TypeError, "count must be"),
        (lambda: renyi.optimal_composition(1.0, 0.0, 2)(-1.0), ValueError, "epsilon must be"),
        (lambda: renyi.advanced_composition(-1.0, 0.0, 2, 0.1), ValueError, "epsilon must be"),
        (lambda: renyi.advanced_composition(1.0, -0.1, 2, 0.1), ValueError, "delta must be"),
        (lambda: renyi.advanced_composition(1.0, 0.0, True, 0.1), TypeError, "count must be"),
        (lambda: renyi.advanced_composition(1.0, 0.0, 2, 1.0), ValueError, "slack must be"),
        (lambda: renyi.advanced_composition(1.0, 0.0, 2, 0.0), ValueError, "slack must be greater"),
    ],
)
def test_bad_boxes(ask, error, message):
    with pytest.raises(error, match=message):
        ask()
