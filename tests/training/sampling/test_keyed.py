"""Secret batches for correlated noise: who is drawn when, and what it costs."""

from itertools import islice

import numpy as np
import pytest
from scipy.stats import chisquare

from taut.errors import UnsoundConfiguration
from taut.matrix import (
    BallsInBins,
    CyclicAllocation,
    CyclicPoisson,
    MinimumSeparation,
    ToeplitzEncoder,
    amplified_loss,
    identity,
    unamplified_loss,
)
from taut.noise import SeededForExperiments
from taut.training import (
    BallsInBinsSampling,
    CyclicAllocationSampling,
    CyclicPoissonSampling,
    FlatClip,
    Plan,
)
from taut.training._noise.keyed_bits import KeyedBits, NoiseKeys, SessionKey

KINDS = [
    CyclicPoissonSampling(groups=4, rate=0.5),
    CyclicAllocationSampling(steps=8, groups=4),
    BallsInBinsSampling(steps=8),
]
KEY = NoiseKeys((SessionKey(0, bytes(range(32)), "ChaCha20"),)).of_batches
EXAMPLES = 1_003


def bits(number):
    return KeyedBits(KEY, number)


def batches(sampling, step, count, examples=EXAMPLES):
    return list(islice(sampling.keyed_batches(bits, step, examples), count))


@pytest.mark.parametrize("sampling", KINDS)
@pytest.mark.parametrize("stop", [1, 5, 8, 13])
def test_a_run_that_goes_on_has_the_batches_of_one_that_was_not_stopped(sampling, stop):
    whole = batches(sampling, 0, 20)
    for a, b in zip(whole[stop:], batches(sampling, stop, 20 - stop), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("sampling", KINDS)
def test_shares_of_processes_are_the_batch(sampling):
    whole = batches(sampling, 3, 10)
    parts = [
        list(islice(sampling.keyed_shares(bits, 3, EXAMPLES, rank, 3), 10)) for rank in (0, 1, 2)
    ]
    for batch, shares in zip(whole, zip(*parts, strict=True), strict=True):
        assert sorted(np.concatenate(shares).tolist()) == batch.tolist()


@pytest.mark.parametrize("sampling", KINDS)
def test_other_keys_have_other_batches(sampling):
    other = NoiseKeys((SessionKey(0, bytes(32), "ChaCha20"),)).of_batches
    first = next(sampling.keyed_batches(lambda n: KeyedBits(other, n), 0, EXAMPLES))
    assert not np.array_equal(first, batches(sampling, 0, 1)[0])


def test_the_key_of_batches_is_that_of_the_first_session_and_no_key_of_noise():
    first = SessionKey(0, bytes(range(32)), "ChaCha20")
    later = SessionKey(7, bytes(32), "ChaCha20")
    assert NoiseKeys((first, later)).of_batches == KEY
    assert KEY.key != first.key
    with pytest.raises(UnsoundConfiguration, match="no key"):
        _ = NoiseKeys((later,)).of_batches


@pytest.mark.parametrize("sampling", KINDS[1:])
def test_every_example_takes_part_once_in_every_epoch(sampling):
    found = batches(sampling, 0, 24)
    for first in (0, 8, 16):
        seen = np.concatenate(found[first : first + 8])
        assert sorted(seen.tolist()) == list(range(EXAMPLES))


@pytest.mark.parametrize("sampling", KINDS[:2])
def test_steps_of_an_example_are_groups_apart(sampling):
    for step, batch in enumerate(batches(sampling, 0, 24)):
        assert (batch % 4 == step % 4).all()


def test_bins_stay_and_allocations_are_drawn_anew():
    bins, slots = batches(KINDS[2], 0, 16), batches(KINDS[1], 0, 16)
    assert all(np.array_equal(a, b) for a, b in zip(bins[:8], bins[8:], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(slots[:8], slots[8:], strict=True))


@pytest.mark.parametrize("sampling", KINDS)
def test_batches_have_their_expected_size_whatever_the_step(sampling):
    sizes = [batch.size for batch in batches(sampling, 0, 8, examples=80_000)]
    assert chisquare(sizes, np.full(8, sum(sizes) / 8)).pvalue > 1e-4
    assert sum(sizes) / 8 == pytest.approx(sampling.expected_batch_size(80_000), rel=0.01)


def test_slots_of_two_epochs_are_independent():
    first, second = np.empty(EXAMPLES, dtype=int), np.empty(EXAMPLES, dtype=int)
    for step, batch in enumerate(batches(KINDS[1], 0, 16)):
        (first if step < 8 else second)[batch] = step % 8 // 4
    table = np.bincount(2 * first + second, minlength=4)
    assert chisquare(table).pvalue > 1e-4


ENCODER = ToeplitzEncoder(20, [1.0, 0.5, 0.25])


def test_losses_are_those_of_the_samplers():
    cyclic, allocated, bins = (kind.correlated_loss(ENCODER, 2.0) for kind in KINDS)
    assert cyclic == amplified_loss(ENCODER, CyclicPoisson(4, 0.5), 2.0)
    assert allocated == amplified_loss(ENCODER, CyclicAllocation(4, 2), 2.0)
    expected = amplified_loss(ENCODER, BallsInBins(8), 2.0, adjacency="add_remove")
    assert bins.epsilon(1e-5) == expected.epsilon(1e-5)


@pytest.mark.parametrize("sampling", KINDS[:2])
def test_noise_that_reaches_further_than_the_groups_is_refused(sampling):
    with pytest.raises(UnsoundConfiguration, match="at most 4 bands"):
        sampling.correlated_loss(ToeplitzEncoder(20, [1.0, 0.5, 0.25, 0.2, 0.1]), 2.0)


def planned(**changes):
    usual = {"examples": 320, "batch_size": 10, "steps": 96, "epsilon": 3.0, "delta": 1e-4}
    return Plan(**{**usual, "clipping": FlatClip(1.0), "noise": "banded", **changes})


SLOW_BINS = pytest.param("balls_in_bins", marks=pytest.mark.slow)  # whose noise is searched for


@pytest.mark.parametrize("name", ["cyclic_poisson", "cyclic_allocation", SLOW_BINS])
def test_a_plan_fits_and_keeps_them(name):
    plan = planned(sampling=name)
    assert plan.sampling.is_fitted
    assert plan.sampling.expected_batch_size(320) == pytest.approx(10)
    assert len(plan.encoder.bands) == 16
    assert plan.loss.epsilon(1e-4) <= 3.0
    assert Plan.from_json(plan.to_json()) == plan
    fixed = planned()
    assert plan.noise_multiplier < fixed.noise_multiplier or name == "balls_in_bins"
    with pytest.raises(UnsoundConfiguration, match="independent noise"):
        planned(sampling=name, noise=None)
    with pytest.raises(UnsoundConfiguration, match="apart"):
        planned(sampling=name, noise="blt")


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="at most 1 / rate"):
        planned(sampling=CyclicPoissonSampling(groups=64))
    with pytest.raises(ValueError, match="divide"):
        planned(sampling=CyclicAllocationSampling(groups=5))
    with pytest.raises(ValueError, match="whole number"):
        planned(sampling=BallsInBinsSampling(), batch_size=None, rate=0.3)
    for kind in (CyclicPoissonSampling(), CyclicAllocationSampling(), BallsInBinsSampling()):
        with pytest.raises(ValueError, match="must be set"):
            kind.draw(10)


def test_the_best_noise_is_chosen_with_its_sampling():
    best = planned(noise="best")
    others = [planned(), planned(noise=None, sampling="poisson")]
    (note,) = best.notes
    assert "noise 'best' is banded" in note
    assert "% less" in note
    assert best.sampling.name == "cyclic_allocation"
    assert best.steps == others[0].steps
    assert len(best.encoder.bands) == best.sampling.groups
    cyclic = planned(noise="best", sampling="cyclic_poisson")
    assert cyclic.sampling.name == "cyclic_poisson"
    alone = planned(noise="best", sampling="poisson")
    assert alone == others[1]
    with pytest.raises(ValueError, match="for a promise"):
        planned(noise="best", epsilon=None, noise_multiplier=1.0)
    with pytest.raises(UnsoundConfiguration, match="not ranked"):
        planned(noise="best", sampling="fixed_size")


@pytest.mark.slow
def test_bounds_for_bins_are_made_for_the_delta_of_the_plan():
    plan = planned(sampling="balls_in_bins", delta=1e-7)
    assert plan.loss.epsilon(1e-7) <= 3.0
    with pytest.raises(ValueError, match="give delta"):
        planned(sampling="balls_in_bins", delta=None, noise_multiplier=9.0)


def test_seeds_repeat_a_run():
    for kind in KINDS:
        a, b = (next(kind.batches(50, SeededForExperiments(3))) for _ in range(2))
        assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("sampler", "apart"),
    [(CyclicPoisson(1, 0.05), 1), (BallsInBins(20), 20)],
    ids=["poisson", "bins"],
)
def test_amplified_losses_of_copies_that_share_their_draws_do_not_add(sampler, apart):
    """Two copies with one draw are one run with twice the squared sensitivity."""
    encoder, sigma, delta = identity(40), 0.8, 1e-5
    both = amplified_loss(encoder, sampler, sigma / 2**0.5).epsilon_bounds(delta)
    one = amplified_loss(encoder, sampler, sigma)
    assert both.lower > 1.3 * (one + one).epsilon(delta)
    plain = unamplified_loss(encoder, MinimumSeparation(apart, 40 // apart), sigma)
    assert both.upper < (plain + plain).epsilon(delta)
