"""E17: the tau-term approximation counts terms twice when 2 tau exceeds the order."""

import math

import pytest

RATE, SIGMA = 0.1, 2.0


def renyi(order):
    return order / (2 * SIGMA**2)


def binomial(order, j):
    return math.comb(order, j) * (1 - RATE) ** (order - j) * RATE**j


def exact(order):
    total = (1 - RATE) ** (order - 1) * (order * RATE - RATE + 1)
    total += sum(binomial(order, j) * math.exp((j - 1) * renyi(j)) for j in range(2, order + 1))
    return math.log(total) / (order - 1)


def printed(order, tau):
    constant = renyi(order - tau)
    total = (1 - RATE) ** order * (1 - math.exp(-constant))
    total += math.exp(-constant) * (1 - RATE + RATE * math.exp(constant)) ** order
    for j in [*range(2, tau + 1), *range(order - tau + 1, order + 1)]:
        difference = math.exp((j - 1) * renyi(j)) - math.exp((j - 1) * constant)
        total += binomial(order, j) * difference
    return math.log(total) / (order - 1)


@pytest.mark.parametrize("tau", [1, 2, 3, 4])
def test_statement_is_an_upper_bound_while_the_sums_are_disjoint(tau):
    assert printed(9, tau) >= exact(9) * (1 - 1e-12)


def test_overlapping_sums_do_not_return_the_exact_value():
    assert printed(9, 4) == pytest.approx(exact(9), rel=1e-9)  # 2 tau = order - 1: no middle left
    assert printed(9, 7) > 1.2 * exact(9)
