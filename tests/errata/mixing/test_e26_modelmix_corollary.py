"""E26: Corollary 4.1 of ModelMix lost the number of steps, and its sign."""

import math

import pytest
from oracles import mixed_noise

from taut.accounting import mixed_gaussian

RATE, STEPS, Z, WIDTH, P, DELTA = 0.03, 3400, 0.335, 11.25, 100, 1e-5
ORDERS = range(2, 11)


def log_moment(k):
    return P * mixed_noise.log_moment(k, 1 / math.sqrt(P), Z, WIDTH)


def sampled(order, moments):
    return math.log1p(
        sum(
            math.comb(order, k) * (1 - RATE) ** (order - k) * RATE**k * math.expm1(moments[k])
            for k in range(2, order + 1)
        )
    )


def test_the_printed_formula_is_negative_and_forgets_the_steps():
    moments = {k: log_moment(k) for k in ORDERS}
    log = math.log(1 / DELTA)
    printed = min((sampled(a, moments) + log) / (1 - a) for a in ORDERS)
    one_step = min((sampled(a, moments) + log) / (a - 1) for a in ORDERS)
    corrected = min((STEPS * sampled(a, moments) + log) / (a - 1) for a in ORDERS)
    assert printed < 0
    assert one_step == pytest.approx(1.924, abs=1e-3)
    assert corrected == pytest.approx(8.000, abs=1e-3)  # what the paper reports for CIFAR-10


def test_taut_counts_every_step():
    step = mixed_gaussian(Z, WIDTH, sensitivity_inf=1 / math.sqrt(P), rate=RATE)
    moments = {k: log_moment(k) for k in (2, 3, 4)}
    assert (STEPS * step).rdp(4) == pytest.approx(STEPS * sampled(4, moments) / 3, rel=1e-6)
    assert (STEPS * step).epsilon(DELTA) == pytest.approx(7.25, abs=1e-2)
