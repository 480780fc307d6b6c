"""E32: the largest loss of noisy screening can be at counts that were left out."""

import math

import numpy as np
import pytest
from scipy.special import log_ndtr

from taut.accounting import screening_rdp


def divergences(k, threshold, sigma, order):
    """Return the larger divergence of counts t and t + 1, for t = 0, ..., k - 1."""
    z = (np.arange(k + 1.0) - threshold) / sigma
    passed, failed = log_ndtr(z), log_ndtr(-z)

    def one_way(i, j):
        power = np.logaddexp(
            order * passed[i] + (1 - order) * passed[j], order * failed[i] + (1 - order) * failed[j]
        )
        return power / (order - 1)

    t = np.arange(k)
    return np.maximum(one_way(t, t + 1), one_way(t + 1, t))


def test_a_sample_may_hold_fewer_than_k_records():
    k, classes, threshold, sigma, order = 300, 2, 120, 20.0, 2.0
    found = divergences(k, threshold, sigma, order)
    printed = found[math.ceil(k / classes) - 1 :].max()
    assert found.argmax() == 119
    assert found.max() > 2.19 * printed
    assert screening_rdp(k, threshold, sigma, [order])[0] == pytest.approx(found.max(), rel=1e-9)


@pytest.mark.parametrize(("order", "missed"), [(200.0, 0.0), (220.0, 0.0105), (1000.0, 0.130)])
def test_high_orders_ask_for_small_counts(order, missed):
    found = divergences(300, 180, 75.0, order)
    printed = found[300 // 10 - 1 :].max()
    assert found.max() / printed - 1 == pytest.approx(missed, abs=5e-4)


@pytest.mark.parametrize(
    ("order", "at", "excess"), [(10.0, 204, 0.0013), (100.0, 149, 0.161), (200.0, 67, 0.620)]
)
def test_the_threshold_itself_is_not_the_worst_count(order, at, excess):
    found = divergences(300, 210, 85.0, order)
    near = max(found[209], found[210])
    assert found.argmax() == at
    assert found.max() / near - 1 == pytest.approx(excess, abs=5e-4)
    assert screening_rdp(300, 210, 85.0, [order])[0] >= found.max() * (1 - 1e-12)
