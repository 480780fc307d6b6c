"""E40: against equal noise for the right norm the gain is smaller, and smaller for Laplace."""

import numpy as np
import pytest

from taut.noise import Box, L2Ball, disparity, optimal_gaussian

TARGET = {"epsilon": 0.5, "delta": 1e-6}


@pytest.mark.parametrize(
    ("widths", "printed", "true"),
    [(np.arange(1.0, 21), 0.276, 0.768), (np.eye(20)[0], 1 / 400, 1 / 20)],
)
def test_reduction_by_nu_squared(widths, printed, true):
    assert disparity(widths).nu ** 2 == pytest.approx(printed, abs=5e-4)
    box = Box(widths, allow_zero=True)
    equal = optimal_gaussian(L2Ball(20, box.max_l2), **TARGET)  # knows the l2 norm, no widths
    found = optimal_gaussian(box, **TARGET).error / equal.error
    assert found == pytest.approx(true, abs=5e-4)
    assert disparity(widths).nu - 1e-12 <= 1 / disparity(widths).gain_gaussian


@pytest.mark.parametrize(
    ("widths", "decibels"),
    [
        (np.arange(1.0, 21), (1.145, 0.546)),
        (np.arange(1.0, 21) ** 2, (2.442, 1.390)),
        (np.exp(np.arange(1.0, 21)), (9.658, 7.609)),
    ],
)
def test_printed_numbers_say_that_gaussian_noise_gains_more(widths, decibels):
    found = disparity(widths)
    gains = 10 * np.log10([found.gain_gaussian, found.gain_laplace])
    assert gains == pytest.approx(decibels, abs=6e-4)


def test_dimension_free_laplace_cannot_be():
    one_hot = disparity(np.eye(50)[0])
    assert one_hot.nu == pytest.approx(1 / 50)  # the least possible, above 50 ** -1.5
