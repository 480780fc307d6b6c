"""Random allocation: exact draws, each example once an epoch, and what steps of epochs cost."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chi2

import taut
from taut.accounting import GaussianRun
from taut.noise import SeededForExperiments
from taut.training import FlatClip, PoissonSampling, RandomAllocation
from taut.training.extend import Sampling


class Words:
    """A source whose draws below a bound are given."""

    def __init__(self, values):
        self.values = list(values)

    def uniform_below(self, bound, size):
        taken, self.values = self.values[:size], self.values[size:]
        assert all(value < bound for value in taken)
        return np.array(taken, dtype=np.uint64)


def epoch_of(sampling, examples, source):
    batches = sampling.batches(examples, source)
    return [next(batches) for _ in range(sampling.epoch_steps)]


def test_every_assignment_of_tiny_data_is_what_was_drawn():
    """All 3^4 outcomes of the source, each with its own epoch: exactly uniform if the source is."""
    seen = set()
    for drawn in itertools.product(range(3), repeat=4):
        epoch = epoch_of(RandomAllocation(steps=3), 4, Words(drawn))
        assert [[i for i in range(4) if drawn[i] == step] for step in range(3)] == [
            batch.tolist() for batch in epoch
        ]
        seen.add(tuple(tuple(batch.tolist()) for batch in epoch))
    assert len(seen) == 3**4


@pytest.mark.parametrize(("examples", "steps"), [(1, 1), (7, 1), (5, 9), (1_000, 256), (70_000, 3)])
def test_each_example_is_in_one_batch_of_an_epoch(examples, steps):
    batches = RandomAllocation(steps=steps).batches(examples, SeededForExperiments(seed=1))
    for _ in range(2):
        epoch = [next(batches) for _ in range(steps)]
        assert all(batch.dtype == np.int64 for batch in epoch)
        assert all((np.diff(batch) > 0).all() for batch in epoch)
        assert np.array_equal(np.sort(np.concatenate(epoch)), np.arange(examples))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_steps_are_uniform_and_epochs_independent(seed):
    """Chi-square of the pair of steps that an example draws in two epochs, at level 1e-6."""
    steps, examples = 5, 20_000
    batches = RandomAllocation(steps=steps).batches(examples, SeededForExperiments(seed=seed))
    drawn = np.empty((2, examples), dtype=np.int64)
    for epoch, step in itertools.product(range(2), range(steps)):
        drawn[epoch, next(batches)] = step
    counts = np.bincount(drawn[0] * steps + drawn[1], minlength=steps**2)
    expected = examples / steps**2
    assert np.square(counts - expected).sum() / expected < chi2.isf(1e-6, steps**2 - 1)
    # Neighbours in the data are no more alike than others.
    pairs = np.bincount(drawn[0, ::2] * steps + drawn[0, 1::2], minlength=steps**2)
    expected /= 2
    assert np.square(pairs - expected).sum() / expected < chi2.isf(1e-6, steps**2 - 1)


def test_batch_sizes_are_binomial():
    sizes = [
        len(RandomAllocation(steps=4).draw(400, SeededForExperiments(seed=seed)))
        for seed in range(2_000)
    ]
    variance = 400 * 0.25 * 0.75
    assert abs(np.mean(sizes) - 100) < 5 * math.sqrt(variance / 2_000)
    assert abs(np.var(sizes) / variance - 1) < 5 * math.sqrt(2 / 2_000)


@pytest.mark.parametrize("size", [1, 3])
def test_shares_of_processes_are_disjoint_and_together_the_epoch(size):
    sampling = RandomAllocation(steps=4)
    shares = [
        sampling.shares(50, rank, size, SeededForExperiments(seed=rank)) for rank in range(size)
    ]
    for _ in range(2):
        epoch = [np.concatenate([next(share) for share in shares]) for _ in range(4)]
        assert np.array_equal(np.sort(np.concatenate(epoch)), np.arange(50))
    assert sampling.samples_apart


def test_loss_is_that_of_whole_epochs_and_a_part():
    sampling, step = RandomAllocation(steps=10), taut.gaussian(2.0)
    assert sampling.loss(2.0, 100, 30) == 3 * step.allocated(10)
    part = 2 * step.allocated(10) + step.allocated(10, taken=7)
    assert sampling.loss(2.0, 100, 27) == part
    assert sampling.loss(2.0, 100, 4) == step.allocated(10, taken=4)
    assert sampling.loss(2.0, 100, 0) == taut.zero()
    assert sampling.step_loss(2.0, 100) == step.allocated(10, taken=1)
    # In one step of an epoch the example is there with probability 1/10, as under Poisson.
    poisson = PoissonSampling(rate=0.1).step_loss(2.0, 100).epsilon_bounds(1e-3)
    allocated = sampling.step_loss(2.0, 100).epsilon_bounds(1e-3)
    assert allocated.lower <= poisson.upper
    assert poisson.lower <= allocated.upper


def test_loss_grows_with_every_step():
    bounds = [RandomAllocation(steps=4).loss(1.0, 8, n).epsilon_bounds(1e-3) for n in range(1, 10)]
    assert all(a.lower <= b.upper for a, b in itertools.pairwise(bounds))
    assert all(a.upper < b.lower for a, b in itertools.pairwise(bounds[::4]))


def test_fitting_makes_whole_epochs():
    fitted = RandomAllocation().fitted(1_000, 0.01)
    assert fitted == RandomAllocation(steps=100)
    assert fitted.expected_batch_size(1_050) == 10.5
    assert RandomAllocation().rate_of(512, 60_000) == 1 / 117
    assert RandomAllocation().rate_of(100, 10_000) == 1 / 100
    assert RandomAllocation().rate_of(90, 100) == 1.0
    fitted.check_examples(1_000, 999)
    fitted.check_clipping(FlatClip(1.0))


def test_survives_json():
    sampling = RandomAllocation(steps=7)
    assert Sampling.from_dict(sampling.to_dict()) == sampling
    assert sampling.to_dict() == {"name": "allocation", "steps": 7}


def test_refusals():
    with pytest.raises(ValueError, match="steps must be"):
        RandomAllocation(steps=0)
    with pytest.raises(ValueError, match=r"at most 2\^32"):
        RandomAllocation(steps=2**33)
    with pytest.raises(ValueError, match=r"RandomAllocation\(steps=...\)"):
        RandomAllocation().draw(10)
    with pytest.raises(ValueError, match="1/3 and 1/4"):
        RandomAllocation().fitted(100, 0.3)
    with pytest.raises(ValueError, match=r"2\^46"):
        RandomAllocation(steps=2).draw(2**47)


def test_run_of_a_sampler_agrees_with_the_sampling():
    run = GaussianRun.of("allocation", batch_size=512, examples=60_000, epochs=2)
    assert (run.epoch_steps, run.steps, run.epochs) == (117, 234, 2)
    fitted = RandomAllocation().fitted(60_000, RandomAllocation().rate_of(512, 60_000))
    assert run.loss(1.0) == fitted.loss(1.0, 60_000, 234)
    with pytest.raises(taut.errors.UnsoundConfiguration, match="no theorem for adjacency='rep"):
        run.loss(1.0, taut.Adjacency.REPLACE)
    zero_out = run.loss(1.0, taut.Adjacency.ZERO_OUT)
    assert zero_out.adjacency is taut.Adjacency.ZERO_OUT
    assert taut.accounting.samplers_of(zero_out) == (taut.accounting.Sampler.ALLOCATION,)
