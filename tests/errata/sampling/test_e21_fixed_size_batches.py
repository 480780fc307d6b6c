"""E21: fixed-size batches need a replace-one base, of twice the sensitivity."""

import pytest

import taut


def test_forgetting_the_factor_two_hides_most_of_the_loss():
    poisson = 1000 * taut.gaussian(1.0).poisson(rate=0.01)
    base = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
    fixed = 1000 * base.fixed_size(batch_size=10, population=1000)
    assert poisson.epsilon(1e-5) == pytest.approx(1.828, abs=3e-3)
    assert fixed.epsilon(1e-5) == pytest.approx(13.36, abs=2e-2)


def test_an_add_remove_base_is_refused():
    with pytest.raises(taut.errors.UnsoundConfiguration, match="sensitivity=2"):
        taut.gaussian(1.0).fixed_size(batch_size=10, population=1000)
