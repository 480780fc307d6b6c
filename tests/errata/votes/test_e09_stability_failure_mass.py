"""E9: the distance test fails with probability delta / 2, not delta."""

import math

import numpy as np
import pytest
from scipy import stats

from taut.accounting import stability_release


def test_only_one_tail_of_the_noise_crosses_the_threshold():
    epsilon, delta = 1.0, 1e-3
    failure = stats.laplace(scale=1 / epsilon).sf(math.log(1 / delta) / epsilon)
    assert failure == pytest.approx(delta / 2)
    loss = stability_release(epsilon, delta)
    assert loss.delta(epsilon=epsilon + 1) == pytest.approx(delta / 2, rel=1e-9)


def test_loss_covers_both_modes_of_the_mechanism():
    epsilon, delta = 0.7, 0.01
    loss = stability_release(epsilon, delta)
    for e in np.linspace(0.0, 1.0, 21):
        mode_one = max(1 - math.exp((e - epsilon) / 2), 0.0)  # post-processed Laplace
        assert loss.delta(float(e)) >= max(mode_one, delta / 2) * (1 - 1e-12)
        assert loss.delta(float(e)) == pytest.approx(max(mode_one, delta / 2), rel=1e-9)
