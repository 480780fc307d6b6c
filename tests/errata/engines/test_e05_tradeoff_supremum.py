"""E5: a condition on the supremum of trade-off functions does not imply privacy."""

import numpy as np

import taut


def tradeoff(loss, rates):
    return np.array([loss.tradeoff(float(rate)) for rate in rates])


def test_one_harmless_pair_satisfies_the_printed_condition_for_a_revealing_mechanism():
    rates = np.linspace(0.0, 1.0, 11)
    harmless = taut.finite([0.5, 0.5], [0.5, 0.5])  # one pair of neighbours
    revealing = taut.finite([1.0, 0.0], [0.0, 1.0])  # another pair of the same mechanism
    epsilon, delta = 0.1, 1e-6
    required = np.maximum.reduce(
        [
            np.zeros_like(rates),
            1 - delta - np.exp(epsilon) * rates,
            np.exp(-epsilon) * (1 - delta - rates),
        ]
    )
    curves = np.array([tradeoff(harmless, rates), tradeoff(revealing, rates)])
    assert (curves.max(axis=0) >= required - 1e-4).all()  # as printed: "satisfied"
    assert not (curves.min(axis=0) >= required - 1e-4).all()  # for all neighbours: violated
    assert revealing.epsilon(delta) == np.inf
