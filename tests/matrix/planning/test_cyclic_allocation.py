"""Allocation within groups: quadrature, simulated runs, and what it must never be below."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from taut.accounting import PrivacyLoss, gaussian
from taut.errors import UnsoundConfiguration
from taut.matrix import (
    CyclicAllocation,
    ToeplitzEncoder,
    Workload,
    amplified_loss,
    identity,
    square_root,
)


@pytest.mark.parametrize("sigma", [0.8, 1.5, 4.0])
def test_one_epoch_of_two_slots_is_that_of_quadrature(sigma):
    encoder = ToeplitzEncoder(4, [1.0, 0.5])
    loss = amplified_loss(encoder, CyclicAllocation(groups=2, slots=2), sigma)
    ((release, _),) = loss.terms
    # An example of the first group is in step 0 or 2, whose columns are orthogonal.
    length = math.sqrt(1.25)
    at = np.linspace(-9.0, 12.0, 1201)
    x, y = np.meshgrid(at, at, indexing="ij")
    plain = norm.pdf(x) * norm.pdf(y) * (at[1] - at[0]) ** 2
    shift = length**2 / (2 * sigma**2)
    ratio = (np.exp(length * x / sigma - shift) + np.exp(length * y / sigma - shift)) / 2
    for epsilon in (0.1, 0.5, 1.0):
        truth = {
            "remove": float((plain * np.maximum(ratio - math.exp(epsilon), 0)).sum()),
            "add": float((plain * np.maximum(1 - math.exp(epsilon) * ratio, 0)).sum()),
        }
        for half, exact in truth.items():
            found = PrivacyLoss([(release, 1)], half).delta_bounds(epsilon)
            assert found.lower <= exact * (1 + 1e-5) + 1e-12
            assert found.upper >= exact * (1 - 1e-5)


def simulated_ratios(encoder, sampler, group, sigma, runs, *, with_example, random):
    """Return ratios of outputs C x + z of whole runs, over all draws of all epochs."""
    steps, epoch = encoder.steps, sampler.groups * sampler.slots
    matrix = encoder.matrix()
    choices = [
        range(first + group, min(first + epoch, steps), sampler.groups)
        for first in range(0, steps, epoch)
    ]
    means = np.array([matrix[:, list(drawn)].sum(axis=1) for drawn in itertools.product(*choices)])
    outputs = sigma * random.normal(size=(runs, steps))
    if with_example:
        outputs += means[random.integers(len(means), size=runs)]
    exponents = (outputs @ means.T - (means**2).sum(axis=1) / 2) / sigma**2
    return np.exp(exponents).mean(axis=1)


@pytest.mark.parametrize("group", [0, 1])
def test_two_epochs_are_those_of_simulated_runs(group):
    encoder, sampler, sigma, runs = ToeplitzEncoder(12, [1.0, 0.6]), CyclicAllocation(2, 3), 1.5, 0
    runs = 400_000
    loss = amplified_loss(encoder, sampler, sigma)
    random = np.random.default_rng(5)
    removed = simulated_ratios(
        encoder, sampler, group, sigma, runs, with_example=True, random=random
    )
    added = simulated_ratios(
        encoder, sampler, group, sigma, runs, with_example=False, random=random
    )
    for epsilon in (0.5, 1.0, 1.5):
        deltas = [
            np.maximum(1 - math.exp(epsilon) / removed, 0),
            np.maximum(1 - math.exp(epsilon) * added, 0),
        ]
        means = [float(values.mean()) for values in deltas]
        errors = [float(values.std()) / math.sqrt(runs) for values in deltas]
        worst = int(np.argmax(means))
        bound = loss.delta(epsilon)
        assert means[worst] <= bound + 4 * errors[worst]
        if group == 0:  # whose columns are never cut off at the end
            assert means[worst] >= bound - 5 * errors[worst]


def test_one_group_is_random_allocation():
    found = amplified_loss(identity(50), CyclicAllocation(1, 10), 1.2)
    plain = 5 * gaussian(1.2, adjacency="zero_out").allocated(10)
    assert found.epsilon(1e-5) == pytest.approx(plain.epsilon(1e-5), rel=1e-6)


def test_a_begun_epoch_costs_no_more_than_a_whole_one():
    sampler = CyclicAllocation(4, 8)
    root = square_root(Workload(96), bands=4)
    whole, begun, less = (
        amplified_loss(ToeplitzEncoder(steps, root.bands), sampler, 2.0).epsilon(1e-5)
        for steps in (96, 70, 64)
    )
    assert less < begun < whole


def test_more_bands_than_groups_are_refused():
    with pytest.raises(UnsoundConfiguration, match="BallsInBins"):
        amplified_loss(ToeplitzEncoder(12, [1.0, 0.5, 0.2]), CyclicAllocation(2, 3), 1.0)
    with pytest.raises(UnsoundConfiguration, match="replace"):
        amplified_loss(identity(12), CyclicAllocation(2, 3), 1.0, adjacency="replace")
