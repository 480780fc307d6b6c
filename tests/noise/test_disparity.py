"""Disparity: definitions, inequalities, and what they say about errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.noise import (
    Box,
    disparity,
    laplace_threshold,
    majorises,
    optimal_gaussian,
    optimal_laplace,
)
from taut.noise._optimal.baselines import iid_gaussian, iid_laplace

widths = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12)
TARGET = {"epsilon": 0.7, "delta": 1e-5}


@given(widths)
def test_definitions(values):
    found, lam = disparity(values), np.array(values)
    pairs = np.abs(lam[:, None] - lam).sum()
    assert found.gini == pytest.approx(pairs / (2 * lam.size * lam.sum()), abs=1e-12)
    assert found.nu == pytest.approx(lam.mean() / lam.max())
    box = Box(values)
    gaussian, laplace = optimal_gaussian(box, **TARGET), optimal_laplace(box, epsilon=0.7)
    assert iid_gaussian(box, **TARGET).error / gaussian.error == pytest.approx(found.gain_gaussian)
    assert iid_laplace(box, epsilon=0.7).error / laplace.error == pytest.approx(found.gain_laplace)
    ratio = laplace.error / gaussian.error
    assert found.k_eff / laplace_threshold(0.7, 1e-5) == pytest.approx(ratio, rel=1e-8)


@given(widths)
def test_laplace_noise_gains_less(values):
    found = disparity(values)
    chain = [1 / found.dimension, found.nu, 1 / found.gain_gaussian, 1 / found.gain_laplace, 1.0]
    assert (np.diff(chain) >= -1e-12).all()


@given(widths.filter(lambda v: len(v) > 1), st.floats(0, 1), st.data())
def test_majorised_widths_cost_more(values, share, data):
    i, j = data.draw(st.permutations(range(len(values))))[:2]
    even = list(values)
    even[i], even[j] = (
        share * values[i] + (1 - share) * values[j],
        share * values[j] + (1 - share) * values[i],
    )
    assert majorises(values, even)
    errors = [optimal_laplace(Box(v), epsilon=1.0).error for v in (values, even)]
    assert errors[0] <= errors[1] * (1 + 1e-9)


def test_majorisation_needs_equal_sums():
    assert not majorises([3.0, 1.0], [2.0, 1.0])
    assert not majorises([3.0, 1.0, 1.0], [2.0, 3.0, 0.0])
    with pytest.raises(ValueError, match="other must hold 2"):
        majorises([1.0, 2.0], [3.0])


@pytest.mark.parametrize(
    ("epsilon", "delta", "expected"), [(0.1, 1e-2, 0.46), (1, 1e-5, 6.96), (8, 1e-12, 26.6)]
)
def test_table_of_thresholds(epsilon, delta, expected):
    assert laplace_threshold(epsilon, delta) == pytest.approx(expected, abs=6e-3, rel=2e-3)


@pytest.mark.parametrize("values", [[], [-1.0], [float("nan")], [0.0, 0.0]])
def test_bad_widths(values):
    with pytest.raises(ValueError, match="widths"):
        disparity(values)


def test_bad_targets():
    with pytest.raises(ValueError, match="delta"):
        laplace_threshold(1.0, 0.0)
    with pytest.raises(ValueError, match="epsilon"):
        laplace_threshold(0.0, 1e-5)
