"""From Renyi curves to (epsilon, delta)."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import accounting as oracles

import taut
from taut.accounting import renyi

CONVERSIONS = ["classic", "improved", "optimal"]


def half(orders):
    return orders / 2


@pytest.mark.parametrize("conversion", CONVERSIONS)
@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.5, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-30])
def test_gaussian_epsilon_is_an_upper_bound(sigma, delta, conversion):
    value, _ = renyi.epsilon_from_rdp(renyi.gaussian(sigma), delta, conversion=conversion)
    if value > 0:
        assert oracles.gaussian_delta(1 / sigma, value) <= delta
    else:
        assert oracles.gaussian_delta(1 / sigma, 0.0) <= delta


@pytest.mark.parametrize("conversion", CONVERSIONS)
@pytest.mark.parametrize("sigma", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 4.0, 60.0])
def test_gaussian_delta_is_an_upper_bound(sigma, epsilon, conversion):
    value, order = renyi.delta_from_rdp(renyi.gaussian(sigma), epsilon, conversion=conversion)
    assert order > 1
    assert oracles.gaussian_delta(1 / sigma, epsilon) <= value <= 1


def test_the_order_itself_is_used_and_not_one_less():
    """The exact value is 91.81729; the misprint in Zhu 2023, eq. (1.1), gives 47.985."""
    classic = renyi.epsilon_from_rdp(renyi.gaussian(0.1), 1e-5, conversion="classic").value
    improved = renyi.epsilon_from_rdp(renyi.gaussian(0.1), 1e-5).value
    assert 91.81729 <= improved <= classic <= 97.99
    assert classic == pytest.approx(50 + 2 * math.sqrt(50 * math.log(1e5)), rel=1e-6)


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-10])
@pytest.mark.parametrize("rho", [0.001, 0.5, 20.0])
def test_conversions_are_ordered(delta, rho):
    found = [
        renyi.epsilon_from_rdp(renyi.zcdp(rho), delta, conversion=name).value
        for name in ("optimal", "improved", "classic")
    ]
    assert found == sorted(found)


def test_example_of_figure_3_1():
    """0.818 from the closed form, 0.277 in truth; 0.472 is what no Renyi bound can beat."""
    improved = renyi.epsilon_from_rdp(half, 0.3).value
    optimal = renyi.epsilon_from_rdp(half, 0.3, conversion="optimal").value
    assert improved == pytest.approx(0.818, abs=1e-3)
    assert 0.472 < optimal <= 0.648
    best = min(_epsilon_by_grid(order, order / 2, 0.3) for order in np.linspace(1.1, 2.0, 10))
    assert best <= optimal <= 1.005 * best


def _epsilon_by_grid(order, rdp, delta):
    """Return the largest log((p - delta)/q) over a grid of two-point pairs."""
    p, q = np.meshgrid(np.linspace(0.002, 0.998, 499), np.geomspace(1e-4, 0.999, 600))
    moment = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
    with np.errstate(divide="ignore"):
        gain = np.log(np.maximum(p - delta, 0.0)) - np.log(q)
    return gain[moment <= math.exp((order - 1) * rdp)].max()


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), min_size=2, max_size=5),
    st.floats(0.0, 3.0),
    st.sampled_from(CONVERSIONS),
)
def test_delta_bounds_random_pairs(outcomes, epsilon, conversion):
    p, q = (np.array(column) / sum(column) for column in zip(*outcomes, strict=True))

    def curve(orders):
        with np.errstate(over="ignore"):
            moments = (p * (p / q) ** (orders[:, None] - 1)).sum(axis=1)
        return np.maximum(np.log(moments) / (orders - 1), 0.0) * (1 + 1e-12) + 1e-15

    orders = [1.2, 1.7, 2.0, 3.0, 5.0, 12.0, 30.0, 100.0]
    value = min(
        renyi.delta_from_rdp(curve, epsilon, conversion=conversion, orders=[order]).value
        for order in orders
    )
    truth = np.maximum(p - math.exp(epsilon) * q, 0.0).sum()
    assert value >= truth * (1 - 1e-12)


def test_epsilon_and_delta_invert_each_other():
    for conversion in CONVERSIONS:
        epsilon = renyi.epsilon_from_rdp(half, 1e-6, conversion=conversion).value
        delta = renyi.delta_from_rdp(half, epsilon, conversion=conversion).value
        assert delta == pytest.approx(1e-6, rel=1e-4)


def test_sampled_runs():
    """Fractional orders in other accountants: 2.10137, 6.71274 and 27.23185."""
    step = renyi.poisson(renyi.gaussian(1.0), 0.01)
    best = {10**3: 2.10137, 10**4: 6.71274, 10**5: 27.23185}
    for count, value in best.items():
        found = renyi.epsilon_from_rdp(lambda a, n=count: n * step(a), 1e-5).value
        assert value - 1e-5 <= found <= value * 1.004
        assert found > taut.gaussian(1.0).poisson(0.01).__mul__(count).epsilon(1e-5)


@pytest.mark.parametrize("sigma", [1e-6, 1e-4, 1.0, 1e4, 1e6])
@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_search_extends_to_small_and_large_orders(sigma, conversion):
    value, order = renyi.epsilon_from_rdp(renyi.gaussian(sigma), 1e-5, conversion=conversion)
    rho = 1 / (2 * sigma**2)
    classic = rho + 2 * math.sqrt(rho * math.log(1e5))  # attained at 1 + sqrt(log(1e5) / rho)
    assert value <= classic * (1 + 1e-4)
    assert order < 1.1 if sigma < 1e-3 else True
    assert order > 64 if sigma > 1e3 else True


def test_refined_search_beats_a_list_of_integers():
    listed = renyi.epsilon_from_rdp(half, 1e-5, orders=range(2, 65)).value
    assert renyi.epsilon_from_rdp(half, 1e-5).value <= listed


def test_best_order_at_the_end_of_a_list_warns():
    with pytest.warns(UserWarning, match="the last one given, 4"):
        renyi.epsilon_from_rdp(half, 1e-5, orders=[2, 3, 4])
    with pytest.warns(UserWarning, match="larger orders may prove more"):
        renyi.delta_from_rdp(half, 8.0, orders=[2, 3, 4])


def test_single_orders_and_inner_optima_do_not_warn():
    only = renyi.epsilon_from_rdp(half, 1e-5, orders=[4.0])
    assert only.order == 4.0
    assert renyi.epsilon_from_rdp(half, 1e-5, orders=[2, 5, 64]).order == 5.0


def test_truncated_curves_are_searched_below_their_limit():
    value, order = renyi.epsilon_from_rdp(renyi.tcdp(0.1, 1.0005), 1e-3)
    assert 1 < order < 1.0005
    assert math.isfinite(value)


@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_extremes(conversion):
    nothing, everything = renyi.zcdp(0.0), renyi.randomized_response(1.0)
    assert renyi.epsilon_from_rdp(nothing, 1e-5, conversion=conversion).value == 0
    assert renyi.delta_from_rdp(nothing, 0.0, conversion=conversion).value == 0
    assert renyi.epsilon_from_rdp(everything, 1e-5, conversion=conversion).value == math.inf
    assert renyi.delta_from_rdp(everything, 1.0, conversion=conversion).value == 1
    assert renyi.delta_from_rdp(renyi.zcdp(1e4), 0.0, conversion=conversion).value == 1
    tiny = renyi.epsilon_from_rdp(renyi.zcdp(1e-30), 1e-5, conversion=conversion).value
    assert 0 <= tiny <= 1e-10


def test_improved_matches_its_formula():
    with mp.workdps(30):
        a = mp.mpf(5)
        truth = a / 2 + mp.log(1 - 1 / a) - mp.log(a * mp.mpf(1e-5)) / (a - 1)
        log_delta = (a - 1) * (a / 2 - 4) + a * mp.log(1 - 1 / a) - mp.log(a - 1)
    found = renyi.epsilon_from_rdp(half, 1e-5, orders=[5.0]).value
    assert found == pytest.approx(float(truth), rel=1e-14)
    assert found >= truth
    delta = renyi.delta_from_rdp(half, 4.0, orders=[5.0]).value
    assert delta == pytest.approx(float(mp.exp(log_delta)), rel=1e-13)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: renyi.epsilon_from_rdp(half, 0.0), "delta must be greater than 0"),
        (lambda: renyi.epsilon_from_rdp(half, 1.0), r"delta must be in \[0, 1\)"),
        (lambda: renyi.epsilon_from_rdp(half, math.nan), "delta must be"),
        (lambda: renyi.delta_from_rdp(half, -1.0), "epsilon must be"),
        (lambda: renyi.delta_from_rdp(half, math.inf), "epsilon must be"),
        (lambda: renyi.epsilon_from_rdp(half, 1e-5, conversion="best"), "conversion must be one"),
        (lambda: renyi.epsilon_from_rdp(half, 1e-5, orders=[]), "orders must be finite"),
        (lambda: renyi.epsilon_from_rdp(half, 1e-5, orders=[1.0, 2.0]), "orders must be finite"),
        (lambda: renyi.epsilon_from_rdp(half, 1e-5, orders=[math.inf]), "orders must be finite"),
        (lambda: renyi.epsilon_from_rdp(half, 1e-5, orders=10**400), "orders must be finite"),
        (lambda: renyi.delta_from_rdp(half, 1.0, orders=[2.0, 10**400]), "orders must be finite"),
        (lambda: renyi.delta_from_rdp(half, 1.0, orders=["x"]), "orders must be real numbers"),
        (lambda: renyi.epsilon_from_rdp(lambda a: -a, 1e-5), "at least 0"),
        (lambda: renyi.epsilon_from_rdp(lambda _: 1.0, 1e-5), "one value per order"),
    ],
)
def test_bad_questions(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()
