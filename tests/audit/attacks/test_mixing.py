"""Mixed models with a hidden momentum do not keep the promise of mixed models; without it they do.

Models of one weight, released after every step, as many as runs: every coordinate of the optimizer
is a run of its own. The mixing noise is fresh in every step, but the buffer of a momentum carries
each noisy gradient into many of them, where it is averaged out.
"""

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from taut.accounting import mixed_gaussian
from taut.audit import (
    attack_plan,
    audit_loop,
    audit_observations,
    audit_plan,
    crafted,
    refute_loop,
)
from taut.audit._attacks.attack import rate_at_least, rate_at_most
from taut.audit._attacks.games.mixed_states import MixedStatesGame
from taut.audit._attacks.shipped_engine import engine_loop
from taut.noise import SeededForExperiments
from taut.training import FlatClip, ModelMix, Plan
from taut.training._run.mixed_sgd import MixedSGD


class Remembering(MixedSGD):
    """The bug: steps along a momentum of noisy gradients."""

    momentum = 0.9

    def step(self, closure=None):
        for group in self.param_groups:
            for weights in group["params"]:
                kept = self.__dict__.setdefault("kept", {}).get(weights, 0.0)
                weights.grad = self.kept[weights] = weights.grad + self.momentum * kept
        super().step(closure)


def mixed_runs(runs, kind, *, steps, sigma, width, rate, canary, blocks, momentum=0.0):
    """Return how far each state is from the middle of the two before it, summed over blocks."""
    draw = np.random.default_rng(canary)
    weights = torch.nn.Parameter(torch.zeros(runs, dtype=torch.float64))
    bits = SeededForExperiments(seed=10 + canary)
    mixing = ModelMix(width, momentum=momentum)
    optimizer = kind([weights], lr=1.0, mixing=mixing, unit=1.0, generator=bits)
    older = newer = np.zeros(runs)
    moves = np.zeros((runs, blocks))
    for step in range(steps):
        gradient = draw.random(runs) < rate if canary else np.zeros(runs)
        weights.grad = torch.from_numpy(gradient + sigma * draw.standard_normal(runs))
        optimizer.step()
        middle = (newer + older) / 2 + momentum * (newer - older)
        older, newer = newer, weights.detach().numpy().copy()
        moves[:, step * blocks // steps] += middle - newer
    return moves


def audited(runs, kind, *, sigma, width, rate, steps, delta, blocks=10, momentum=0.0):
    setting = {"steps": steps, "sigma": sigma, "width": width, "rate": rate, "momentum": momentum}
    sides = [
        mixed_runs(runs, kind, **setting, canary=canary, blocks=blocks) for canary in (False, True)
    ]
    claimed = steps * mixed_gaussian(sigma, width, rate=rate)
    return audit_observations(*sides, claimed=claimed, delta=delta)


FULL_BATCH = {"sigma": 1.0, "width": 10.0, "rate": 1.0, "steps": 20, "delta": 1e-2}
HEADLINE = {"sigma": 6.10, "width": 78.6, "rate": 0.178, "steps": 300, "delta": 1e-5}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_shipped_mixing_passes_also_with_a_momentum_of_released_states(momentum):
    assert audited(4_000, MixedSGD, **FULL_BATCH, momentum=momentum).passed


def test_hidden_momentum_is_caught():
    result = audited(4_000, Remembering, **FULL_BATCH)
    assert result.violations, str(result)


@pytest.mark.slow
def test_promised_epsilon_is_refuted_in_the_headline_setting():
    # Promised is delta 1e-5 at epsilon 1 (0.80 by the tighter conversion here); by the exact
    # likelihood ratio it is 5.6e-3 +- 0.9e-3. A sum of moves is an attack that proves enough.
    result = audited(400_000, Remembering, **HEADLINE, blocks=2)
    assert result.epsilon_lower > result.claimed_epsilon
    assert len(result.violations) == 2
    assert audited(100_000, MixedSGD, **HEADLINE, blocks=2).passed


# --- plans that mix -------------------------------------------------------------------------------

PLAN = Plan(
    examples=3,
    rate=0.6,
    steps=6,
    noise_multiplier=1.0,
    delta=1e-2,
    clipping=FlatClip(1.0),
    mixing=ModelMix(3.0, momentum=0.5),
)


def mixing_loop(*, width=3.0, hidden=0.0, clip=1.0, sigma=1.0):
    """Return Algorithm 1 in NumPy, honest by default, at a learning rate of one."""

    def loop(rows, seed):
        draw = np.random.default_rng(seed)
        states, kept = [draw.normal(size=rows.shape[1])] * 2, 0.0
        unit = 1.0 / PLAN.batch_size
        for _ in range(PLAN.steps):
            older, newer = states[-2:]
            batch = rows[draw.random(len(rows)) < PLAN.rate]
            norms = np.linalg.norm(batch, axis=1, keepdims=True)
            total = (batch / np.maximum(norms / clip, 1.0)).sum(0)
            gradient = (total + sigma * draw.normal(size=rows.shape[1])) * unit
            kept = gradient + hidden * kept
            gap = np.maximum(np.abs(newer - older), width * unit)
            mixed = (newer + older) / 2 + 0.5 * (newer - older)
            states.append(mixed + gap * (draw.random(rows.shape[1]) - 0.5) - kept)
        return states[1:]

    return loop


def test_plan_that_mixes_is_kept_by_an_honest_loop():
    result = audit_loop(mixing_loop(), PLAN, trials=1_500, seed=0)
    assert result.passed, str(result)
    assert 0 < result.epsilon_lower <= result.claimed_epsilon


@pytest.mark.parametrize(
    ("bug", "words"),
    [
        ({"width": 1.5}, "noise is not what was claimed"),
        ({"sigma": 0.5}, "noise is not what was claimed"),
        ({"hidden": 0.9}, "noise is not what was claimed"),
        ({"clip": 4.0}, "true-positive rate"),
    ],
)
def test_loops_that_break_a_plan_that_mixes_are_caught(bug, words):
    result = audit_loop(mixing_loop(**bug), PLAN, trials=800, seed=0)
    assert not result.passed
    assert any(words in fault for fault in (*result.violations, *result.mismatches)), str(result)


def test_one_mixed_step_is_told_apart_as_well_as_its_likelihood_ratio_allows():
    """One step on the whole data: the best test's rates by quadrature bound what is proven."""
    plan = Plan(
        examples=3,
        rate=1.0,
        steps=1,
        noise_multiplier=1.0,
        delta=1e-2,
        clipping=FlatClip(1.0),
        mixing=ModelMix(2.0),
    )

    def loop(rows, seed):
        draw = np.random.default_rng(seed)
        total = np.clip(rows, -1, 1).sum(0) + draw.normal(size=rows.shape[1])
        move = 2.0 * (draw.random(rows.shape[1]) - 0.5) - total
        return np.stack([np.zeros(rows.shape[1]), move / plan.batch_size])

    result = audit_loop(loop, plan, trials=4_000, seed=2)
    at = np.linspace(-12, 12, 4_801)
    density = stats.norm.cdf(at + 1) - stats.norm.cdf(at - 1)
    weights = density / density.sum()
    moved = np.interp(at - 1, at, weights)
    cuts = np.arange(0, 4, 0.05)
    true, false = (np.array([p[at > cut].sum() for cut in cuts]) for p in (moved, weights))
    best = np.log((true - plan.delta)[true > 0.02] / false[true > 0.02]).max()
    # What 2,000 runs that judge can prove of it, at the level that an attack is given.
    failure = (1 - 0.99) / 3 / 2
    least = rate_at_least((2_000 * true).astype(int), 2_000, failure)
    most = rate_at_most((2_000 * false).astype(int), 2_000, failure)
    provable = np.log(np.maximum(least - plan.delta, 1e-9) / most).max()
    assert result.passed, str(result)
    assert 0.6 * provable < result.epsilon_lower <= best
    simulated = attack_plan(plan, trials=100_000, seed=0).epsilon_lower
    assert 0.95 * best < simulated <= best


def test_noise_of_the_trainer_becomes_normal_numbers():
    """States of one run with many weights, where no example speaks, by Kolmogorov and Smirnov."""
    game = MixedStatesGame.of(PLAN, {"weight": 2_000})
    rows = game.crafts[0].without
    states = engine_loop(PLAN, "gradient", 2_000, None, True)(rows, 3)
    seen = game.seen(states, game.crafts[0])
    assert seen.shape == (6, 2_000)
    assert stats.kstest(seen[:, 1:].ravel(), "norm").pvalue > 1e-3
    following = np.corrcoef(seen[:-1, 1:].ravel(), seen[1:, 1:].ravel())[0, 1]
    assert abs(following) < 4 / np.sqrt(10_000)


def test_likelihood_ratio_is_that_of_the_noise():
    game = MixedStatesGame.of(PLAN, {"weight": 2})
    at, width = np.array([-7.0, -2.0, 0.0, 0.3, 1.6, 9.0]), np.full(6, 3.0)
    found = game._log_density(at - 1.0, width) - game._log_density(at, width)

    def density(x):
        return integrate.quad(lambda u: stats.norm.pdf(x - u), -1.5, 1.5, epsabs=0)[0]

    assert found == pytest.approx([np.log(density(x - 1) / density(x)) for x in at], rel=1e-8)


@pytest.mark.slow
def test_trainer_keeps_a_plan_that_mixes():
    result = audit_plan(PLAN, trials=150, seed=0)
    assert result.passed, str(result)


def test_states_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="all states of a plan that mixes"):
        audit_loop(lambda rows, _: np.zeros((6, rows.shape[1])), PLAN, trials=40)
    pairs = crafted(3, clip_norm=1.0, dimension=4, adjacency="add_remove")
    with pytest.raises(ValueError, match="crafts must be left out"):
        audit_loop(mixing_loop(), PLAN, trials=40, crafts=pairs)


def test_plans_that_mix_are_refuted_run_by_run():
    assert refute_loop(mixing_loop(), PLAN, level=1e-3, most_runs=300, seed=0).passed
    found = refute_loop(mixing_loop(hidden=0.9), PLAN, level=1e-3, most_runs=1_000, seed=0)
    assert not found.passed
    assert found.runs < 300
