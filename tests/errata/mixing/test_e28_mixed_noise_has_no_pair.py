"""E28: under Gaussian plus uniform noise a dense record has the larger hockey stick."""

import math

import numpy as np
import pytest
from oracles.mixed_noise import log_density

from taut.accounting import mixed_gaussian

Z, WIDTH = 0.335, 11.25


def total_variation(count):
    """Return delta(0) of a record of norm 1 on ``count`` coordinates, by convolving its losses."""
    shift, nodes, size, step = 1 / math.sqrt(count), 20_000, 2**17, 2e-3 / math.sqrt(count)
    x = np.linspace(-WIDTH / 2 - 12 * Z, WIDTH / 2 + 14 * Z, nodes)
    log_p = log_density(x - shift, Z, WIDTH)
    masses = np.exp(log_p) * (x[1] - x[0])
    losses = np.rint((log_p - log_density(x, Z, WIDTH)) / step)
    keep = masses > 1e-18
    lattice = np.bincount(losses[keep].astype(int) % size, masses[keep], size)
    total = np.fft.ifft(np.fft.fft(lattice) ** count).real
    at = np.arange(size)
    at = np.where(at > size // 2, at - size, at) * step
    return float(-(total * np.expm1(-np.maximum(at, 0.0))).sum())


def test_the_record_that_is_worst_for_moments_is_not_worst_for_delta():
    between = (np.arange(10_000) + 0.5) / 10_000 - 0.5  # outputs less than half a shift away
    one_hot = float(np.exp(log_density(between, Z, WIDTH)).mean())
    assert one_hot == pytest.approx(0.0889, abs=1e-4)
    assert total_variation(1) == pytest.approx(one_hot, abs=1e-4)
    assert total_variation(100) == pytest.approx(0.2662, abs=2e-4)


def test_taut_answers_above_every_record():
    loss = mixed_gaussian(Z, WIDTH)
    assert loss.delta(0.0) >= total_variation(400)
    with pytest.raises(ValueError, match="dominating pair"):
        loss.estimate_delta(0.0)
