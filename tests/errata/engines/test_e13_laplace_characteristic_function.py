"""E13: with the printed sign the Laplace entry of Table 3.2 is not a characteristic function."""

import math

import numpy as np
import pytest

import taut


def entry(s, scale, sign):
    first, middle = np.exp(1j * s / scale), np.exp((sign * 1j * s - 1) / scale)
    if sign > 0:  # as printed: exp(-(i s - 1) / scale)
        middle = np.exp(-(1j * s - 1) / scale)
    return 0.5 * (first + middle + (first - middle) / (2j * s + 1))


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_printed_entry_exceeds_one(scale):
    s = np.linspace(1e-3, 200.0, 40_001)
    printed, corrected = entry(s, scale, +1), entry(s, scale, -1)
    assert abs(corrected).max() <= 1 + 1e-12
    assert abs(printed).max() > 1.05
    assert abs(printed).max() <= (1 + math.exp(1 / scale)) / 2 + 0.1
    value = np.exp([taut.laplace(scale).log_mgf(1j * point) for point in s[::4000]])
    assert value == pytest.approx(corrected[::4000])
