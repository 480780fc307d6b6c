"""Plans with noise that differs by block are audited in coordinates where it does not."""

import numpy as np
import pytest
import torch

from taut.audit import audit_loop, audit_plan, refute_plan
from taut.audit._attacks.games.whitening import Whitening
from taut.noise.geometry import Subspaces
from taut.training import GroupClip, HybridClip, Plan

torch.set_num_threads(1)

SIZES = {"body.weight": 3, "head.weight": 2}
SPACES = Subspaces(
    np.linalg.qr(np.random.default_rng(0).normal(size=(5, 2)))[0], (2, 3), np.ones(2), "public"
)


def plan_of(clipping, **changes):
    settings = {
        "examples": 4, "rate": 0.8, "steps": 2, "noise_multiplier": 0.7, "delta": 1e-2,
        "clipping": clipping,
    } | changes  # fmt: skip
    return Plan(**settings)


GROUPS = GroupClip(bounds={"body": 1.0, "head": 0.3})
HYBRID = HybridClip(SPACES, [1.0, 0.4])
CASES = [(GROUPS, SIZES), (HYBRID, {"all.weight": 5})]


@pytest.mark.parametrize(("clipping", "sizes"), CASES, ids=["group", "hybrid"])
def test_canary_is_at_the_bound_of_every_block_and_noise_is_white(clipping, sizes):
    plan = plan_of(clipping)
    white = Whitening.of(plan, sizes)
    assert white.shift == pytest.approx(1 / plan.noise_multiplier, rel=1e-3)
    moved = white.matrix @ white.direction
    assert moved == pytest.approx([white.shift, 0, 0, 0, 0], abs=1e-9)
    # The covariance of the noise, from its definition.
    noise = plan.noise(sizes)
    if clipping is GROUPS:
        covariance = np.diag(np.repeat(np.square(noise.scales), [3, 2]))
    else:
        inside = SPACES.basis[:, :2] @ SPACES.basis[:, :2].T
        covariance = noise.scales[0] ** 2 * inside + noise.scales[1] ** 2 * (np.eye(5) - inside)
    assert white.matrix @ covariance @ white.matrix.T == pytest.approx(np.eye(5), abs=1e-6)


@pytest.mark.parametrize(("clipping", "sizes"), CASES, ids=["group", "hybrid"])
def test_shipped_engine_passes(clipping, sizes):
    result = audit_plan(plan_of(clipping), trials=40, seed=0, sizes=sizes)
    assert result.passed, str(result)
    assert refute_plan(plan_of(clipping), most_runs=40, seed=1, sizes=sizes).passed


class Loop:
    """Group clipping in NumPy, with noise of its own for every group, or the same for all."""

    def __init__(self, plan, is_sound):
        self.plan = plan
        self.bounds = [1.0, 0.3]
        scales = plan.noise(SIZES).scales
        self.scales = np.repeat(scales if is_sound else [min(scales)] * 2, [3, 2])

    def __call__(self, gradients, seed):
        draw, released = np.random.default_rng(seed), []
        for _ in range(self.plan.steps):
            batch = gradients[draw.random(len(gradients)) < self.plan.rate]
            parts = [batch[:, :3], batch[:, 3:]]
            clipped = [
                part
                * np.minimum(1, bound / np.maximum(np.linalg.norm(part, axis=1), 1e-9))[:, None]
                for part, bound in zip(parts, self.bounds, strict=True)
            ]
            total = np.concatenate([part.sum(0) for part in clipped])
            released.append((total + self.scales * draw.normal(size=5)) / self.plan.batch_size)
        return released


def test_loop_with_noise_of_each_group_passes_and_with_the_smaller_for_all_does_not():
    plan = plan_of(GROUPS)
    assert audit_loop(Loop(plan, True), plan, trials=300, seed=0, sizes=SIZES).passed
    wrong = audit_loop(Loop(plan, False), plan, trials=300, seed=0, sizes=SIZES)
    assert not wrong.passed


def test_sizes_must_name_weights_of_layers():
    with pytest.raises(ValueError, match="must name weights of layers"):
        audit_plan(plan_of(GroupClip(1.0)), trials=40, sizes={"body.bias": 2, "head.weight": 2})
