"""Every mistake that people make in training loops is found, and sound loops pass."""

import numpy as np
import pytest
from audit.loops import (
    Allocated,
    ClippedAfterAveraging,
    ClippedAtTwice,
    EmptyBatchesDrawnAgain,
    FixedSize,
    FixedSizeClippedAtTwice,
    InOrder,
    NoiseOfOneSeed,
    NoisePerMicrobatch,
    NoiseReused,
    NoiseShareOfMicrobatch,
    OneBatch,
    RealisedBatchSize,
    Shuffled,
    Sound,
    Truncated,
)

from taut.accounting import Adjacency
from taut.audit import Craft, audit_loop, crafted
from taut.audit._attacks.crafted import likelihood_ratios
from taut.training import FixedSizeSampling, FlatClip, Plan

PLAN = Plan(
    examples=12, rate=0.5, steps=4, noise_multiplier=1.0, delta=1e-3, clipping=FlatClip(0.5)
)
NEARLY_ALL = Plan(
    examples=8, rate=0.95, steps=4, noise_multiplier=1.0, delta=1e-3, clipping=FlatClip(0.5)
)
ONE_EPOCH = Plan(
    examples=15, rate=0.125, steps=8, noise_multiplier=0.2, delta=1e-3, clipping=FlatClip(0.5)
)
FEW = Plan(examples=3, rate=0.3, steps=6, noise_multiplier=0.3, delta=1e-3, clipping=FlatClip(0.5))
NEARLY_NONE = Plan(
    examples=2, rate=0.1, steps=6, noise_multiplier=0.3, delta=1e-3, clipping=FlatClip(0.5)
)
RARE = Plan(
    examples=1, rate=0.1, steps=24, noise_multiplier=1.0, delta=1e-3, clipping=FlatClip(0.5)
)
FIXED_NEARLY_ALL = Plan(
    examples=12, batch_size=11, steps=4, noise_multiplier=2.0, delta=1e-3,
    clipping=FlatClip(0.5), sampling=FixedSizeSampling(),
)  # fmt: skip
FIXED = Plan(
    examples=12, batch_size=6, steps=4, noise_multiplier=1.0, delta=1e-3,
    clipping=FlatClip(0.5), sampling=FixedSizeSampling(),
)  # fmt: skip


ALLOCATED = Plan(
    examples=12, rate=0.5, steps=9, noise_multiplier=0.6, delta=1e-2,
    clipping=FlatClip(0.5), sampling="allocation",
)  # fmt: skip
CALLED_POISSON = Plan(
    examples=12, rate=0.5, steps=9, noise_multiplier=0.6, delta=1e-2, clipping=FlatClip(0.5)
)


def audited(loop, plan, trials=300):
    return audit_loop(loop(plan, microbatch=2), plan, trials=trials, seed=11)


@pytest.mark.parametrize(
    ("loop", "plan"),
    [
        (Sound, PLAN),
        (Sound, NEARLY_ALL),
        (Sound, ONE_EPOCH),
        (FixedSize, FIXED),
        (FixedSize, FIXED_NEARLY_ALL),
        (Allocated, ALLOCATED),
    ],
)
def test_sound_loop_passes(loop, plan):
    result = audited(loop, plan)
    assert result.passed, str(result)


@pytest.mark.parametrize(
    ("loop", "plan"),
    [
        (Shuffled, ONE_EPOCH),
        (RealisedBatchSize, NEARLY_ALL),
        (NoiseShareOfMicrobatch, NEARLY_ALL),
        (NoiseReused, PLAN),
        (ClippedAfterAveraging, PLAN),
        (ClippedAtTwice, NEARLY_ALL),
        (NoiseOfOneSeed, PLAN),
        (FixedSizeClippedAtTwice, FIXED_NEARLY_ALL),
        (EmptyBatchesDrawnAgain, NEARLY_NONE),
        (InOrder, FEW),
        (Truncated, NEARLY_ALL),
    ],
)
def test_violation_is_found(loop, plan):
    result = audited(loop, plan)
    assert result.violations, str(result)


@pytest.mark.slow
def test_batch_that_is_kept_is_found():
    # It shows in rare runs, in which every step speaks for the canary.
    assert audited(OneBatch, RARE, trials=2_000).violations


@pytest.mark.parametrize(
    ("loop", "name"),
    [
        (NoisePerMicrobatch, "variance"),
        (NoiseShareOfMicrobatch, "variance"),
        (RealisedBatchSize, "variance"),
        (NoiseReused, "between steps"),
        (NoiseOfOneSeed, "between runs"),
    ],
)
def test_wrong_noise_is_found(loop, name):
    result = audited(loop, PLAN, trials=100)
    assert any(name in text for text in result.mismatches), str(result)


def test_too_much_noise_is_no_violation():
    result = audited(NoisePerMicrobatch, PLAN)
    assert not result.violations
    assert not result.passed


def test_loop_must_return_every_step():
    with pytest.raises(ValueError, match="one gradient for every step"):
        audit_loop(lambda *_: [[0.0] * 4], PLAN, trials=40)


def test_crafts_must_be_silent_after_the_first_coordinate():
    loud = Craft("loud", np.ones((3, 4)), np.ones((4, 4)))
    with pytest.raises(ValueError, match="zero after the first coordinate"):
        audit_loop(Sound(PLAN), PLAN, trials=40, crafts=[loud])


@pytest.mark.parametrize(
    ("loop", "plan"), [(Allocated, CALLED_POISSON), (Sound, ALLOCATED), (OneBatch, ALLOCATED)]
)
def test_batches_that_are_not_drawn_as_claimed_are_found(loop, plan):
    result = audited(loop, plan)
    assert any("batches are not what was claimed" in said for said in result.mismatches), result
    assert not result.passed


def test_ratio_of_epochs_is_that_of_densities():
    """By enumeration of the step that the canary draws, for whole epochs and for a part."""
    (silent, _) = crafted(2, clip_norm=1.0, dimension=2, adjacency="add_remove")
    ratio = likelihood_ratios(silent, shift=0.7, rate=1 / 3, relation=Adjacency.ADD_REMOVE)
    x = np.random.default_rng(0).normal(size=(5, 5, 2))
    steps = np.exp(0.7 * x[:, :, 0] - 0.7**2 / 2)
    whole = steps[:, :3].mean(1)
    part = (steps[:, 3] + steps[:, 4] + 1) / 3
    assert ratio["once in an epoch"](x) == pytest.approx(np.log(whole * part))
