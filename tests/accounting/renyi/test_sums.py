"""Renyi curves and what Poisson sampling makes of them."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import taut
from taut.accounting import renyi
from taut.accounting.renyi._sums import (
    LARGEST_ORDER,
    poisson_cumulants,
)


def exact_sum(divergence, rate, order):
    """Return the binomial sum with 60 digits; ``divergence`` takes an integer order."""
    with mp.workdps(60):
        y, total = mp.mpf(rate), mp.mpf(0)
        for j in range(2, order + 1):
            weight = mp.binomial(order, j) * y**j * (1 - y) ** (order - j)
            total += weight * mp.expm1((j - 1) * divergence(j))
        return mp.log1p(total) / (order - 1)


def laplace_divergence(scale, order):
    with mp.workdps(60):
        a, r = mp.mpf(order), 1 / mp.mpf(scale)
        moment = a * mp.exp((a - 1) * r) + (a - 1) * mp.exp(-a * r)
        return mp.log(moment / (2 * a - 1)) / (a - 1)


def response_divergence(p, order):
    with mp.workdps(60):
        a, p = mp.mpf(order), mp.mpf(p)
        return mp.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1)


# --- closed forms ----------------------------------------------------------------------------


def test_bank_of_basic_curves():
    """Closed forms in 40 digits, the Laplace value confirmed by quadrature of its integral."""
    assert renyi.gaussian(1.7, 2.0)([3.5])[0] == pytest.approx(2.42214532871972, rel=1e-11)
    assert renyi.laplace(0.7)([4.5])[0] == pytest.approx(1.2641840906834, rel=1e-11)
    assert renyi.randomized_response(0.8)([7.0])[0] == pytest.approx(1.34910377171772, rel=1e-11)
    assert taut.laplace(0.7).rdp(1.0) == pytest.approx(0.668222465013204, rel=1e-11)


@pytest.mark.parametrize("scale", [0.01, 0.5, 1.0, 30.0, 1e3, 1e5, 1e8])
@pytest.mark.parametrize("order", [1.0001, 1.5, 2.0, 7.0, 64.0, 1e4])
def test_laplace_is_rounded_up(scale, order):
    truth, value = laplace_divergence(scale, order), renyi.laplace(scale)([order])[0]
    assert truth <= value <= truth * (1 + 1e-6)


@pytest.mark.parametrize("p", [0.5000001, 0.501, 0.6, 0.9, 0.999999])
@pytest.mark.parametrize("order", [1.0001, 2.0, 7.0, 64.0, 1e4])
def test_randomized_response_is_rounded_up(p, order):
    truth, value = response_divergence(p, order), renyi.randomized_response(p)([order])[0]
    assert truth <= value <= truth * (1 + 1e-6)
    assert renyi.randomized_response(1 - p)([order])[0] == pytest.approx(value, rel=1e-8)


def test_curves_at_infinite_order_are_largest_losses():
    infinity = np.array([math.inf])
    assert renyi.laplace(0.5)(infinity)[0] == pytest.approx(2.0, rel=1e-12)
    assert renyi.pure(0.3)(infinity)[0] == pytest.approx(0.3, rel=1e-12)
    assert renyi.gaussian(1.0)(infinity)[0] == math.inf
    assert renyi.pure(0.0)([2.0, math.inf]).tolist() == [0.0, 0.0]


def test_nothing_hidden_is_infinite():
    assert renyi.randomized_response(1.0)([2.0])[0] == math.inf
    assert renyi.randomized_response(0.0)([2.0])[0] == math.inf
    assert renyi.gaussian(1e-200)([2.0])[0] == math.inf


def test_concentrated_curves():
    assert renyi.zcdp(0.25)([2.0, 8.0]) == pytest.approx([0.5, 2.0], rel=1e-14)
    assert renyi.tcdp(0.25, 8.0)([2.0, 8.0]) == pytest.approx([0.5, math.inf], rel=1e-14)
    assert renyi.zcdp(0.0)([2.0, math.inf]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: renyi.gaussian(0.0), "sigma must be"),
        (lambda: renyi.gaussian(1.0, math.nan), "sensitivity must be"),
        (lambda: renyi.laplace(-1.0), "scale must be"),
        (lambda: renyi.laplace(1.0, 0.0), "sensitivity must be"),
        (lambda: renyi.randomized_response(1.5), "p must be"),
        (lambda: renyi.pure(-0.1), "epsilon must be"),
        (lambda: renyi.zcdp(math.inf), "rho must be"),
        (lambda: renyi.tcdp(-1.0, 4.0), "rho must be"),
        (lambda: renyi.tcdp(1.0, 1.0), "omega must be greater than 1"),
        (lambda: renyi.zcdp(1.0)([2.0, 1.0]), "orders must be greater than 1"),
        (lambda: renyi.zcdp(1.0)([10**400, -(10**400)]), "orders must be greater than 1"),
        (lambda: renyi.zcdp(1.0)([math.nan]), "orders must be greater than 1"),
    ],
)
def test_bad_parameters_of_curves(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- Poisson sampling ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("curve", "rate", "order", "expected"),
    [
        (renyi.gaussian(1.0), 0.01, 16, 3.08785078369624),
        (renyi.laplace(1.0), 0.1, 5, 0.0227983851158155),
        (renyi.randomized_response(0.9), 0.001, 8, 2.88502022227753e-05),
    ],
)
def test_exact_sum(curve, rate, order, expected):
    """Sums in 40 digits; the first two equal quadrature of the mixture's divergence."""
    assert renyi.poisson(curve, rate)([order])[0] == pytest.approx(expected, rel=1e-11)


def test_general_bound():
    """In 40 digits: the full sum with factor 3, and its version with 8 terms."""
    gaussian = renyi.poisson(renyi.gaussian(2.0), 0.1, method="general")
    assert gaussian([7.0])[0] == pytest.approx(0.0299352450506243, rel=1e-11)
    short = renyi.poisson(renyi.laplace(0.5), 0.001, method="general", tau=8)([32.0])[0]
    full = renyi.poisson(renyi.laplace(0.5), 0.001, method="general")([32.0])[0]
    assert short == pytest.approx(7.68932974745652e-05, rel=1e-11)
    assert full == pytest.approx(7.68932974671509e-05, rel=1e-11)


def test_tau_terms():
    """In 40 digits: five terms at either end, and the whole sum."""
    base = renyi.gaussian(5.0)
    five = renyi.poisson(base, 0.001, method="tau", tau=5)
    assert five([64.0])[0] == pytest.approx(1.30972135212315e-06, rel=1e-11)
    assert renyi.poisson(base, 0.001)([64.0])[0] == pytest.approx(1.30930219943667e-06, rel=1e-11)
    two = renyi.poisson(base, 0.001, method="tau", tau=2)([64.0])[0]
    assert two == pytest.approx(8.43e-6, rel=1e-3)
    ten = renyi.poisson(base, 0.001, method="tau", tau=10)([256.0])[0]
    assert ten == pytest.approx(0.109, rel=5e-3)


@pytest.mark.parametrize("rate", [0.001, 0.2, 0.9])
@pytest.mark.parametrize("order", [2, 3, 4, 9, 40])
def test_methods_are_ordered(rate, order):
    base = renyi.laplace(0.5)
    exact = renyi.poisson(base, rate)([order])[0]
    for tau in (1, 2, 4, 30):
        assert renyi.poisson(base, rate, method="tau", tau=tau)([order])[0] >= exact
    full = renyi.poisson(base, rate, method="general")([order])[0]
    for tau in (1, 5, 50):
        short = renyi.poisson(base, rate, method="general", tau=tau)([order])[0]
        assert short >= full * (1 - 1e-14)
    assert full >= exact * (1 - 1e-14)
    whole = renyi.poisson(base, rate, method="tau", tau=order)([order])[0]
    assert whole == pytest.approx(exact, rel=1e-14)


def test_tau_asks_for_few_orders():
    asked = []

    def counting(orders):
        asked.extend(orders.tolist())
        return orders / 50

    renyi.poisson(counting, 0.001, method="tau", tau=5)([1000.0])
    assert sorted(asked) == [2, 3, 4, 5, 995, 996, 997, 998, 999, 1000]


def test_symmetrised_poisson_counts():
    """Poisson(1) against Poisson(0.6), the larger order of the pair: 40 digits."""
    x = np.arange(60)
    p, q = stats.poisson.pmf(x, 1.0), stats.poisson.pmf(x, 0.6)

    def curve(orders):
        moments = [max((p**a * q ** (1 - a)).sum(), (q**a * p ** (1 - a)).sum()) for a in orders]
        return np.log(moments) / (orders - 1)

    value = renyi.poisson(curve, 0.1)([3.0])[0]
    assert value == pytest.approx(0.004930550292, rel=1e-8)


@pytest.mark.parametrize("rate", [1e-12, 1e-6, 0.02, 0.5, 1 - 1e-9])
@pytest.mark.parametrize("order", [2, 17, 256, 1500])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 50.0])
def test_sum_is_rounded_up_and_accurate(rate, order, sigma):
    with mp.workdps(60):
        rho = 1 / (2 * mp.mpf(sigma) ** 2)
        truth = exact_sum(lambda j: j * rho, rate, order)
    value = renyi.poisson(renyi.gaussian(sigma), rate)([order])[0]
    assert truth <= value <= truth * (1 + 1e-9)


def test_no_sampling_and_none():
    base = renyi.gaussian(2.0)
    orders = np.array([1.5, 2.0, 7.3])
    for method, tau in (("exact", None), ("general", None), ("tau", 3)):
        assert renyi.poisson(base, 1.0, method=method, tau=tau)(orders) == pytest.approx(
            base(orders)
        )
        assert renyi.poisson(base, 0.0, method=method, tau=tau)(orders).tolist() == [0, 0, 0]


def test_infinite_orders():
    curve = renyi.poisson(renyi.pure(1.0), 0.1)
    both = curve([2.0, math.inf])
    assert both[1] == pytest.approx(math.log(1 + 0.1 * math.expm1(1.0)), rel=1e-12)
    assert both[0] < both[1]
    assert renyi.poisson(renyi.gaussian(1.0), 0.1)([math.inf])[0] == math.inf


def test_infinite_divergences_stay_infinite():
    curve = renyi.poisson(renyi.tcdp(0.1, 8.0), 0.1)
    assert np.isfinite(curve([2.0, 7.0])).all()
    assert np.isinf(curve([7.5, 8.0, 20.0])).all()


def test_orders_beyond_the_largest_are_unknown():
    curve = renyi.poisson(renyi.gaussian(500.0), 1e-6)
    assert np.isfinite(curve([float(LARGEST_ORDER)])[0])
    assert curve([LARGEST_ORDER + 0.5])[0] == math.inf


def test_shapes_of_orders_are_kept():
    curve = renyi.poisson(renyi.gaussian(1.0), 0.1)
    assert curve(np.full((2, 3), 4.0)).shape == (2, 3)
    assert curve(np.array(4.0)).shape == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 1.1}, "rate must be a probability"),
        ({"rate": math.nan}, "rate must be a probability"),
        ({"rate": 0.1, "method": "best"}, "method must be one of 'exact'"),
        ({"rate": 0.1, "method": "tau"}, "needs tau"),
        ({"rate": 0.1, "tau": 3}, 'use method="tau"'),
        ({"rate": 0.1, "method": "tau", "tau": 0}, "tau must"),
    ],
)
def test_bad_sampling(options, message):
    with pytest.raises(ValueError, match=message):
        renyi.poisson(renyi.gaussian(1.0), **options)


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        (lambda a: a - 5, "at least 0"),
        (lambda a: a * math.nan, "at least 0"),
        (lambda _: np.array([1.0, 2.0]), "one value per order"),
    ],
)
def test_bad_curves(curve, message):
    with pytest.raises(ValueError, match=message):
        renyi.poisson(curve, 0.1)([4.0])


# --- many Gaussians at once ------------------------------------------------------------------


def test_sampled_gaussian_agrees_with_one_at_a_time():
    rates, sigmas = np.array([0.0, 0.003, 0.4, 1.0]), np.array([[0.5], [1.0], [20.0]])
    table = renyi.sampled_gaussian(rates, sigmas, 40)
    assert table.shape == (3, 4, 39)
    orders = np.arange(2.0, 41)
    for i, sigma in enumerate(sigmas[:, 0]):
        for j, rate in enumerate(rates):
            one = renyi.poisson(renyi.gaussian(float(sigma)), float(rate))(orders)
            assert table[i, j] == pytest.approx(one, rel=1e-12)


def test_sampled_gaussian_against_quadrature_of_the_pair():
    table = renyi.sampled_gaussian(0.02, 1.3, 12)
    loss = taut.gaussian(1.3).poisson(0.02)
    for order, value in enumerate(table.tolist(), start=2):
        assert value == pytest.approx(loss.rdp(order), rel=1e-8)


def test_sampled_gaussian_overflows_to_infinity():
    assert renyi.sampled_gaussian(0.5, 1e-200, 3).tolist() == [math.inf, math.inf]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sigma", [5e-324, 1e-200, 1.0])
def test_nobody_who_is_never_drawn_loses_anything(sigma):
    assert renyi.sampled_gaussian(0.0, sigma, 28).tolist() == [0.0] * 27
    mixed = renyi.sampled_gaussian([0.0, 0.5], [sigma, 1.0], 3)
    assert mixed[0].tolist() == [0.0, 0.0]
    assert mixed[1] == pytest.approx(renyi.sampled_gaussian(0.5, 1.0, 3))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0.1, 1.2], 1.0, 8), ValueError, "rates must be"),
        ((math.nan, 1.0, 8), ValueError, "rates must be"),
        ((0.1, [1.0, 0.0], 8), ValueError, "sigmas must be"),
        ((0.1, math.inf, 8), ValueError, "sigmas must be"),
        ((0.1, 1.0, 1), ValueError, "largest_order must be from 2"),
        ((0.1, 1.0, 5000), ValueError, "use poisson"),
        ((0.1, 1.0, 2.5), TypeError, "largest_order must be an integer"),
    ],
)
def test_bad_batches(arguments, error, message):
    with pytest.raises(error, match=message):
        renyi.sampled_gaussian(*arguments)


# --- what the sums are made of ---------------------------------------------------------------


def test_cumulants_below_two_vanish():
    base = np.array([0.0, 0.0, 0.5, 1.4])
    for rate in (0.0, 0.3, 1.0):
        assert poisson_cumulants(rate, base)[:2].tolist() == [0.0, 0.0]
    assert poisson_cumulants(0.3, base[:2]).tolist() == [0.0, 0.0]
