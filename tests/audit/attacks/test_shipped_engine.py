"""The shipped engine passes, and a mistake planted in it does not."""

import pytest
import torch

from taut.audit import audit_loop, audit_plan, crafted
from taut.audit._attacks.shipped_engine import _trainer_loop
from taut.training import FixedSizeSampling, FlatClip, Plan
from taut.training.extend import PrivateGradient

torch.set_num_threads(1)

POISSON = Plan(
    examples=5, rate=0.8, steps=2, noise_multiplier=0.5, delta=1e-2, clipping=FlatClip(2.0)
)
NEARLY_ALL = Plan(
    examples=3, rate=0.95, steps=4, noise_multiplier=1.5, delta=1e-2, clipping=FlatClip(2.0)
)
FIXED = Plan(
    examples=6, batch_size=5, steps=2, noise_multiplier=1.0, delta=1e-2,
    clipping=FlatClip(2.0), sampling=FixedSizeSampling(),
)  # fmt: skip


ALLOCATED = Plan(
    examples=5, rate=0.5, steps=3, noise_multiplier=0.7, delta=1e-2,
    clipping=FlatClip(2.0), sampling="allocation",
)  # fmt: skip


@pytest.mark.parametrize("plan", [POISSON, FIXED, ALLOCATED], ids=lambda plan: plan.sampling.name)
def test_gradient_and_loader_pass(plan):
    result = audit_plan(plan, trials=40, seed=0, max_physical_batch_size=2)
    assert result.passed, str(result)
    assert str(result.adjacency) == str(plan.adjacency)


def test_trainer_passes_with_the_secure_generator():
    plan = Plan(
        examples=2, rate=0.5, steps=1, noise_multiplier=1.0, delta=1e-2, clipping=FlatClip(2.0)
    )
    loop = _trainer_loop(plan, 4, None, is_seeded=False)
    silent, _ = crafted(2, clip_norm=2.0, dimension=4, adjacency="add_remove")
    # Nothing is seeded: a sound loop is refuted once in ten million runs of this test.
    result = audit_loop(loop, plan, trials=40, crafts=[silent], confidence=1 - 1e-7)
    assert result.passed, str(result)


def clipped_too_long(make):
    def changed(self, model, clipping, **arguments):
        make(self, model, FlatClip(4 * clipping.norm), **arguments)

    return changed


def test_wrong_clip_norm_in_the_engine_is_caught(monkeypatch):
    changed = clipped_too_long(PrivateGradient.__init__)
    monkeypatch.setattr(PrivateGradient, "__init__", changed)
    result = audit_plan(NEARLY_ALL, trials=60, seed=0)
    assert result.violations, str(result)


def test_noise_in_every_part_is_caught(monkeypatch):
    add = PrivateGradient._add

    def noisy(self, records, batch, scale):
        add(self, records, batch, scale)
        shapes = [parameter.shape for parameter in self._parameters]
        drawn = self._step_noise.draw(shapes, self._how(1 / self._expected))
        for parameter, noise in zip(self._parameters, drawn, strict=True):
            self._sum._sums[parameter] += noise

    monkeypatch.setattr(PrivateGradient, "_add", noisy)
    result = audit_plan(POISSON, trials=40, seed=0, max_physical_batch_size=2)
    assert not result.violations
    assert result.mismatches


def test_unknown_engine():
    with pytest.raises(ValueError, match="engine must be"):
        audit_plan(POISSON, engine="opacus")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["gradient", "trainer"])
@pytest.mark.parametrize("plan", [POISSON, FIXED], ids=["poisson", "fixed_size"])
@pytest.mark.parametrize("physical", [None, 2])
def test_engine_passes_many_runs(plan, engine, physical):
    result = audit_plan(plan, trials=300, seed=7, engine=engine, max_physical_batch_size=physical)
    assert result.passed, str(result)
