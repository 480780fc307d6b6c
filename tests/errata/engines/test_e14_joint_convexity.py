"""E14: the proof for odd orders uses convexity of x^a / y^(a-1) where x is negative."""

import numpy as np


def test_the_function_is_not_convex_at_negative_arguments_and_odd_order():
    def function(x, y):
        return x**3 / y**2

    left, right = (-1.0, 1.0), (-3.0, 1.0)
    middle = function(-2.0, 1.0)
    assert middle > (function(*left) + function(*right)) / 2


def test_the_argument_can_be_negative():
    rate, mu0, mu1 = 0.5, np.array([0.1, 0.9]), np.array([0.9, 0.1])
    assert ((1 + rate) * mu0 - rate * mu1).min() < 0


def test_the_bound_itself_holds_at_order_three():
    rng = np.random.default_rng(11)
    for _ in range(500):
        p, q = rng.dirichlet(np.full(3, 0.7), 2)
        rate = rng.uniform(0.01, 0.9)
        mixed = (1 - rate) * p + rate * q
        moments = [max((q**j * p ** (1 - j)).sum(), (p**j * q ** (1 - j)).sum()) for j in (2, 3)]
        bound = (
            (1 - rate) ** 2 * (1 + 2 * rate)
            + 3 * rate**2 * (1 - rate) * moments[0]
            + rate**3 * moments[1]
        )
        assert (p**3 * mixed**-2.0).sum() <= bound * (1 + 1e-12)
        assert (mixed**3 * p**-2.0).sum() <= bound * (1 + 1e-12)
