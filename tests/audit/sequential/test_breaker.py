"""The circuit breaker lets a sound run through, and stops one whose noise is wrong."""

import time

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from taut.audit import CircuitBreaker
from taut.errors import ClaimRefuted, UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import FlatClip, GroupClip, Logs, Plan, PrivateTrainer
from taut.training._noise.step_noise import IndependentNoise

torch.set_num_threads(1)


def plan_of(**changes):
    settings = {
        "examples": 60, "rate": 0.2, "steps": 120, "noise_multiplier": 1.0, "delta": 1e-3,
        "clipping": FlatClip(1.0),
    } | changes  # fmt: skip
    return Plan(**settings)


def trained(plan, breaker, seed=0, **arguments):
    torch.manual_seed(seed)
    data = TensorDataset(torch.randn(60, 6), torch.randint(0, 3, (60,)))
    trainer = PrivateTrainer(
        nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
        nn.CrossEntropyLoss(),
        plan,
        logs=Logs(callbacks=[breaker], progress=False),
        generator=SeededForExperiments(seed),
        **arguments,
    )
    return trainer.fit(data)


def breaker_of(seed=0, level=1e-3):
    return CircuitBreaker(level, SeededForExperiments(100 + seed))


@pytest.mark.parametrize("clipping", [FlatClip(1.0), GroupClip(1.0)], ids=["flat", "group"])
def test_sound_run_goes_through(clipping):
    for seed in range(2):
        breaker = breaker_of(seed)
        result = trained(plan_of(clipping=clipping), breaker, seed)
        assert result.steps == breaker.steps == 120


def test_schedule_of_noise_is_followed():
    breaker = breaker_of()
    noise = [1.0] * 30 + [1.5] * 30
    assert trained(plan_of(steps=60, noise_multiplier=noise), breaker).steps == 60


@pytest.mark.parametrize("factor", [0.0, 0.25])
def test_run_with_too_little_noise_is_stopped(monkeypatch, factor):
    draw = IndependentNoise.draw

    def quiet(self, shapes, how):
        return [factor * noise for noise in draw(self, shapes, how)]

    monkeypatch.setattr(IndependentNoise, "draw", quiet)
    breaker = breaker_of()
    with pytest.raises(ClaimRefuted, match="not what the plan says"):
        trained(plan_of(), breaker)
    assert breaker.steps < 100


def test_run_that_does_not_clip_is_stopped(monkeypatch):
    monkeypatch.setattr(FlatClip, "weights", lambda _, squares: torch.ones_like(squares))
    with pytest.raises(ClaimRefuted):
        trained(plan_of(), breaker_of())


@pytest.mark.slow
def test_true_runs_are_stopped_no_more_often_than_stated():
    stopped = 0
    for seed in range(60):
        try:
            trained(plan_of(), breaker_of(seed, level=0.2), seed)
        except ClaimRefuted:
            stopped += 1
    assert stopped <= 12


def test_plan_whose_steps_are_not_gaussian_is_refused():
    from taut.training import ModelMix

    with pytest.raises(UnsoundConfiguration, match="Gaussian mechanisms each"):
        trained(plan_of(mixing=ModelMix(5.0)), breaker_of())


@pytest.mark.parametrize("level", [0.0, 0.9, float("nan")])
def test_bad_level(level):
    with pytest.raises(ValueError, match="level must be"):
        CircuitBreaker(level)


def test_unknown_parameter_cannot_be_inserted_into():
    trainer = PrivateTrainer(nn.Linear(2, 2), nn.CrossEntropyLoss(), plan_of())
    with pytest.raises(ValueError, match="must name trainable parameters"):
        trainer.insert({"nothing": torch.zeros(1, 2)})


def test_breaker_costs_little_per_step():
    """In microseconds of its own: a step of a small model takes ten times as long."""
    breaker = breaker_of()
    spent = []
    after = breaker.on_step_end

    def timed(trainer, event):
        begin = time.process_time()
        after(trainer, event)
        spent.append(time.process_time() - begin)

    breaker.on_step_end = timed
    trained(plan_of(), breaker)
    assert sorted(spent)[len(spent) // 2] < 5e-3
