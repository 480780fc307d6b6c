"""E18: slips that change no result."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from taut.accounting import variance_pair


def test_equivalence_after_lemma_2_3_5_shifts_the_order_by_one():
    outcomes = np.arange(50)
    p, q = stats.poisson.pmf(outcomes, 0.6), stats.poisson.pmf(outcomes, 1.0)
    # For alpha = 2 the condition (odd orders from 3 to 2) is empty, its "equivalent" is not.
    ratio = p / q - 1
    assert (q * ratio**3).sum() == pytest.approx(-0.004647, rel=1e-3)
    assert (p * ratio**2).sum() < (q * ratio**2).sum()


def test_renyi_divergence_is_infinite_at_the_boundary_too():
    loss = variance_pair(math.sqrt(2.0), 1.0, adjacency="add")
    with np.errstate(invalid="ignore"):
        assert loss.rdp(2.0) == math.inf  # 2 * 1 + (1 - 2) * 2 = 0, printed as "< 0"
    assert loss.rdp(1.99) < math.inf


def test_printed_laplace_density_integrates_to_two():
    total, _ = integrate.quad(lambda x: 2 * math.exp(-x / 0.7) / 0.7, 0, math.inf)
    assert total == pytest.approx(2.0)
