"""E41: the error for an exponential profile saturates at 14.432 dB."""

import math

import numpy as np
import pytest

from taut.noise import Box, optimal_laplace


def decibel(value):
    return 10 * math.log10(value)


def test_saturation():
    errors = []
    for k in (40, 60):
        widths = np.exp(np.arange(1.0, k + 1))
        errors.append(optimal_laplace(Box(widths / widths.sum()), epsilon=0.5).error)
    assert decibel(errors[0]) == pytest.approx(decibel(errors[1]), abs=1e-4)
    one_hot = optimal_laplace(Box([1.0]), epsilon=0.5).error
    assert decibel(errors[1]) == pytest.approx(14.432, abs=5e-4)  # printed: 14.243
    assert decibel(errors[1] / one_hot) == pytest.approx(5.4, abs=5e-3)  # printed too
