"""Groups in batches of fixed size, and the last iterate of linear losses."""

import numpy as np
import pytest
from scipy.stats import hypergeom

from taut.accounting import (
    gaussian,
    group_fixed_size,
    group_poisson,
    linear_last_iterate,
    mixture_of_gaussians,
)


def test_a_group_in_batches_has_the_reference_value():
    loss = 1_000 * group_fixed_size(1.0, batch_size=10, population=1_000, group_size=4)
    assert loss.epsilon(1e-6) == pytest.approx(9.95551, rel=1e-3)


def test_counts_of_a_group_are_hypergeometric():
    masses = hypergeom.pmf(np.arange(4), 20, 3, 12)
    expected = mixture_of_gaussians(masses, 0.5 * np.arange(4), 2.0, adjacency="zero_out")
    found = group_fixed_size(2.0, 12, 20, 3, sensitivity=0.5)
    assert found.epsilon(1e-5) == pytest.approx(expected.epsilon(1e-5), rel=1e-9)


def test_a_batch_of_all_is_the_whole_group():
    found = group_fixed_size(2.0, batch_size=20, population=20, group_size=3)
    assert found.epsilon(1e-5) == gaussian(2.0, 3.0).epsilon(1e-5)


def test_sizes_must_fit():
    with pytest.raises(ValueError, match="must not exceed population=10"):
        group_fixed_size(1.0, batch_size=11, population=10, group_size=1)
    with pytest.raises(ValueError, match="must not exceed population=10"):
        group_fixed_size(1.0, batch_size=5, population=10, group_size=11)


def test_the_last_iterate_has_the_reference_value_in_both_directions():
    reference = {"remove": 0.4199443680792944, "add": 0.29082659717186216}
    for half, expected in reference.items():
        loss = linear_last_iterate(1.0, 1 / 128, 128, adjacency=half)
        assert loss.epsilon(1e-6) == pytest.approx(expected, rel=1e-6)
    both = linear_last_iterate(1.0, 1 / 128, 128).epsilon(1e-6)
    assert both == pytest.approx(reference["remove"], rel=1e-6)


def test_one_step_has_no_other_iterate():
    assert linear_last_iterate(1.5, 0.2, 1).epsilon(1e-5) == group_poisson(1.5, 0.2, 1).epsilon(
        1e-5
    )
