"""Simulated attacks on plans come close to what is certified, from below."""

import json

import numpy as np
import pytest

import taut
from taut.audit import MechanismGame, RunAttack, attack_plan, gaussian_game, simulated_epsilon
from taut.training import FixedOrderSampling, FixedSizeSampling, FlatClip, ModelMix, Plan


def plan_of(**changes):
    settings = {
        "examples": 200, "rate": 0.1, "steps": 30, "noise_multiplier": 1.0, "delta": 1e-4,
        "clipping": FlatClip(1.0),
    } | changes  # fmt: skip
    return Plan(**settings)


@pytest.mark.parametrize(
    "plan",
    [
        plan_of(),
        plan_of(rate=1.0, steps=3, noise_multiplier=2.0),
        plan_of(sampling="allocation"),
        plan_of(sampling="allocation", steps=34),
        plan_of(noise_multiplier=[1.0] * 10 + [1.5] * 20),
        plan_of(batch_size=20, rate=None, sampling=FixedSizeSampling(), noise_multiplier=3.0),
    ],
    ids=["poisson", "all", "allocation", "part of an epoch", "schedule", "fixed size"],
)
def test_attack_is_just_below_what_is_certified(plan):
    found = attack_plan(plan, trials=60_000, seed=1)
    assert found.passed
    assert 0.85 * found.epsilon_upper < found.epsilon_lower


def test_run_that_was_stopped_is_attacked_as_far_as_it_went():
    plan = plan_of()
    part = attack_plan(plan, steps=10, trials=20_000, seed=0)
    assert part.epsilon_upper == plan.loss_at(10).epsilon(plan.delta)
    assert part.epsilon_upper < attack_plan(plan, trials=2_000, seed=0).epsilon_upper


def test_bound_exceeds_the_truth_no_more_often_than_stated():
    truth = taut.gaussian(1.0).epsilon_bounds(1e-2).lower
    errors = sum(
        simulated_epsilon(gaussian_game(1.0), delta=1e-2, trials=2_000, confidence=0.8, seed=seed)
        > truth
        for seed in range(50)
    )
    assert errors <= 10


def test_releases_that_say_nothing_prove_nothing():
    blind = MechanismGame("blind", taut.gaussian(1.0), lambda _, n, __: np.zeros(n))
    assert simulated_epsilon(blind, delta=1e-3, trials=1_000, seed=0) == 0.0


def test_words_and_json():
    found = attack_plan(plan_of(), trials=2_000, seed=0)
    assert str(found).startswith("attack >= ")
    assert RunAttack.from_json(found.to_json()) == found
    for text in (
        "{}",
        "[]",
        json.dumps(found.to_dict() | {"delta": "x"}),
        json.dumps(found.to_dict() | {"delta": np.nan}),
    ):
        with pytest.raises(ValueError, match="must be a"):
            RunAttack.from_json(text)


def test_plans_without_a_known_ratio_are_refused():
    plan = plan_of(rate=0.1, sampling=FixedOrderSampling())
    with pytest.raises(ValueError, match="likelihood ratio is known"):
        attack_plan(plan, trials=1_000)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_plans_that_mix_are_attacked_through_their_states(momentum):
    """Below what is certified with mixing, and far below what the Gaussian noise alone costs."""
    mixed = plan_of(rate=1.0, steps=20, delta=1e-2, mixing=ModelMix(5.0, momentum=momentum))
    found = attack_plan(mixed, trials=20_000, seed=0)
    assert found.passed
    assert 0.7 * found.epsilon_upper < found.epsilon_lower
    fewer = attack_plan(mixed, steps=5, trials=20_000, seed=0)
    assert fewer.epsilon_lower < found.epsilon_lower
    assert (
        found.epsilon_lower
        < attack_plan(plan_of(rate=1.0, steps=20, delta=1e-2), trials=20_000, seed=0).epsilon_lower
    )


def test_more_steps_than_planned():
    with pytest.raises(ValueError, match="steps must be at most"):
        attack_plan(plan_of(), steps=31, trials=1_000)
