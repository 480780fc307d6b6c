"""Correlated noise is audited as a whole run: encoded again, it is white."""

import numpy as np
import pytest
import torch

from taut.audit import audit_loop, audit_plan, crafted, refute_loop
from taut.audit._attacks.loop_game import LoopGame
from taut.training import FlatClip, Plan

torch.set_num_threads(1)

PLAN = Plan(
    examples=8, batch_size=2, steps=8, noise_multiplier=2.0, delta=1e-2, clipping=FlatClip(0.5),
    noise="blt",
)  # fmt: skip


class Loop:
    """Training in a fixed order, with noise that an encoder correlates; or independent noise."""

    def __init__(self, is_sound=True, clip=0.5):
        self.is_sound, self.clip = is_sound, clip
        self.decoder = np.linalg.inv(PLAN.encoder.matrix())

    def __call__(self, gradients, seed):
        draw = np.random.default_rng(seed)
        clipped = np.clip(gradients, -self.clip, self.clip)
        sums = np.stack([clipped[step % 4 :: 4].sum(0) for step in range(8)])
        noise = draw.normal(0.0, 1.0, (8, 4))
        return (sums + (self.decoder @ noise if self.is_sound else noise)) / 2


def test_shipped_engine_passes():
    result = audit_plan(PLAN, trials=60, seed=0)
    assert result.passed, str(result)
    assert str(result.adjacency) == "zero_out"


def test_sound_loop_passes_and_the_attack_comes_close():
    result = audit_loop(Loop(), PLAN, trials=8_000, seed=0)
    assert result.passed, str(result)
    assert result.epsilon_lower > 0.5 * result.claimed_epsilon


def test_independent_noise_is_not_what_was_claimed():
    assert audit_loop(Loop(is_sound=False), PLAN, trials=200, seed=0).mismatches


def test_gradients_that_are_too_long_are_refuted():
    assert audit_loop(Loop(clip=1.5), PLAN, trials=600, seed=0).violations
    assert refute_loop(Loop(clip=1.5), PLAN, seed=0, level=1e-3).violations


def test_canary_moves_encoded_sums_as_the_encoder_says():
    game = LoopGame(PLAN, 4)
    still = [game.run(Loop(), game.crafts[0], side, 5) for side in (False, True)]
    moved = (still[1] - still[0])[:, 0]
    taken = np.array([1, 0, 0, 0, 1, 0, 0, 0])
    assert moved == pytest.approx(PLAN.encoder.matrix() @ taken / PLAN.noise_multiplier)
    assert moved @ moved == pytest.approx(game._order.pattern @ game._order.pattern)


def test_crafts_of_ones_own_are_refused():
    craft, _ = crafted(8, clip_norm=0.5, dimension=4, adjacency="add_remove")
    with pytest.raises(ValueError, match="crafts must be left out"):
        audit_loop(Loop(), PLAN, trials=40, crafts=[craft])
