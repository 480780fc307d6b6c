"""Twice sampling passes the audit, and masks that are drawn too rarely do not."""

import numpy as np
import pytest
import torch

from taut.audit import audit_loop, audit_plan, crafted
from taut.noise.geometry import Subspaces
from taut.training import HybridClip, L2LInfClip, Plan, TwiceSampling
from taut.training._sampling.masks import Masks

torch.set_num_threads(1)


def plan_of(spread=1.0, **changes):
    settings = {
        "examples": 4, "rate": 1.0, "steps": 2, "noise_multiplier": 0.5, "delta": 1e-2,
        "clipping": L2LInfClip.spread_over(2.0, spread=spread),
        "sampling": TwiceSampling(spread=spread, coordinate_rate=0.25),
    } | changes  # fmt: skip
    return Plan(**settings)


MANY = plan_of(examples=1, steps=256, noise_multiplier=5.0, delta=0.02)
ONE = plan_of(
    examples=8, steps=1, noise_multiplier=1.0, delta=1e-3,
    sampling=TwiceSampling(spread=1.0, coordinate_rate=1 / 16),
)  # fmt: skip
SILENT, OPPOSED = (
    crafted(plan.examples, clip_norm=2.0, dimension=4, adjacency="add_remove")[place]
    for place, plan in enumerate((MANY, ONE))
)


class Loop:
    """Twice sampling in NumPy, with masks of its own for every record and step, or not."""

    def __init__(self, plan, *, per_record=True, per_step=True):
        self.plan, self.per_record, self.per_step = plan, per_record, per_step
        self.scale = plan.noise({"weight": 4}).scales[0]

    def __call__(self, gradients, seed):
        draw = np.random.default_rng(seed)
        plan, shape = self.plan, gradients.shape if self.per_record else (1, gradients.shape[1])
        bound = plan.clipping.entry_bound
        clipped = np.clip(gradients, -bound, bound)
        kept = plan.sampling.coordinate_rate
        mask = draw.random(shape) < kept
        released = []
        for _ in range(plan.steps):
            if self.per_step:
                mask = draw.random(shape) < kept
            present = draw.random(len(gradients)) < plan.rate
            total = (clipped * mask * present[:, None]).sum(0)
            noise = draw.normal(size=4) * self.scale
            released.append((total + noise) / (plan.batch_size * kept))
        return released


@pytest.mark.parametrize("plan", [plan_of(rate=0.5), plan_of(4.0, steps=1)])
def test_shipped_engine_passes(plan):
    result = audit_plan(plan, trials=40, seed=0, max_physical_batch_size=2)
    assert result.passed, str(result)


@pytest.mark.parametrize(("plan", "trials", "craft"), [(MANY, 400, SILENT), (ONE, 6_000, OPPOSED)])
def test_sound_loop_passes(plan, trials, craft):
    result = audit_loop(Loop(plan), plan, trials=trials, seed=0, crafts=[craft])
    assert result.passed, str(result)


def test_mask_that_is_reused_in_all_steps_is_caught():
    """The canary is then in all steps with probability 1/4, not in a quarter of them."""
    loop = Loop(MANY, per_step=False)
    result = audit_loop(loop, MANY, trials=1_000, seed=0, crafts=[SILENT])
    assert result.violations, str(result)


@pytest.mark.slow
def test_mask_that_records_share_is_caught():
    """Other records show whether the common mask kept a coordinate: the canary loses its own."""
    loop = Loop(ONE, per_record=False)
    result = audit_loop(loop, ONE, trials=60_000, seed=0, crafts=[OPPOSED])
    assert result.violations, str(result)


def test_masks_left_out_of_the_engine_are_caught(monkeypatch):
    monkeypatch.setattr(Masks, "cut", lambda _, rows: rows)
    rarely = TwiceSampling(spread=1.0, coordinate_rate=1 / 16)
    plan = plan_of(steps=4, noise_multiplier=1.0, sampling=rarely, delta=0.05)
    result = audit_plan(plan, trials=150, seed=0)
    assert result.violations, str(result)


def test_noise_in_a_basis_cannot_be_audited_coordinate_by_coordinate():
    spaces = Subspaces(np.eye(4)[:, :2], (2, 2), np.ones(2), "public")
    clipping = HybridClip(spaces, [1.0, 1.0], entry_bounds=[0.8, 0.8])
    with pytest.raises(ValueError, match="same noise in all coordinates"):
        audit_plan(plan_of(clipping=clipping, sampling=TwiceSampling()), trials=20)
