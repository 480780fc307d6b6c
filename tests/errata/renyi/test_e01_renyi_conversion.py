"""E1: the conversion from Rényi DP is printed with the order shifted by one."""

import math

import numpy as np
import pytest

import taut

ORDERS = 1 + np.geomspace(1e-3, 1e4, 20_001)


@pytest.mark.parametrize(
    ("sigma", "printed", "truth"), [(0.5, 9.597, 9.997), (0.2, 23.99, 33.10), (0.1, 47.99, 91.82)]
)
def test_printed_conversion_reports_less_than_the_truth(sigma, printed, truth):
    delta = 1e-5
    shifted = (math.log(1 / delta) / (ORDERS - 1) + (ORDERS - 1) / (2 * sigma**2)).min()
    correct = (math.log(1 / delta) / (ORDERS - 1) + ORDERS / (2 * sigma**2)).min()
    exact = taut.gaussian(sigma).epsilon_bounds(delta)
    assert shifted == pytest.approx(printed, rel=1e-3)
    assert exact.upper == pytest.approx(truth, rel=1e-3)
    assert shifted < exact.lower
    assert correct > exact.upper


def test_explanation_uses_the_correct_order():
    explanation = taut.gaussian(0.2).explain(1e-5)
    assert explanation.rdp_epsilon > explanation.epsilon.upper
