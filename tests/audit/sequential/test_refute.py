"""Sequential audits: wrong loops are refuted in few runs, right ones seldom, whenever one stops."""

import json

import numpy as np
import pytest
from audit.attacks.test_seeded_bugs import CALLED_POISSON, NEARLY_ALL, ONE_EPOCH, PLAN
from audit.loops import (
    Allocated,
    ClippedAfterAveraging,
    ClippedAtTwice,
    NoiseOfOneSeed,
    NoisePerMicrobatch,
    NoiseReused,
    NoiseShareOfMicrobatch,
    RealisedBatchSize,
    Shuffled,
    Sound,
)

import taut
from taut.audit import audit_loop, refute_loop, refute_plan, refute_training, runs_to_refute
from taut.training import FlatClip, Plan

BUGS = [
    (Shuffled, ONE_EPOCH),
    (RealisedBatchSize, NEARLY_ALL),
    (NoisePerMicrobatch, PLAN),
    (NoiseShareOfMicrobatch, NEARLY_ALL),
    (NoiseReused, PLAN),
    (ClippedAfterAveraging, PLAN),
    (ClippedAtTwice, NEARLY_ALL),
    (Allocated, CALLED_POISSON),
    (NoiseOfOneSeed, PLAN),
]
FIXED_SIZE = 1_200  # runs of the audit that decides beforehand: 300 on each side of two pairs


def refuted(loop, plan, seed, **changes):
    settings = {"level": 1e-2, "most_runs": 600} | changes
    return refute_loop(loop(plan, microbatch=2), plan, seed=seed, **settings)


def gaussian_run(shift, sigma=1.0, steps=1, rate=1.0):
    def run(with_canary, seed):
        draw = np.random.default_rng(seed)
        moved = with_canary * shift * (draw.random(steps) < rate)
        return moved + sigma * draw.normal(size=steps)

    return run


@pytest.mark.parametrize(("loop", "plan"), BUGS, ids=lambda value: getattr(value, "__name__", ""))
def test_mistake_is_found_in_few_runs(loop, plan):
    results = [refuted(loop, plan, seed) for seed in range(3)]
    assert not any(result.passed for result in results)
    assert np.median([result.runs for result in results]) <= 300


def test_what_learns_from_few_runs_is_chosen_by_what_it_did_not_learn_from():
    """Runs of sixteen numbers are separated by a discriminant that has learned from as many."""
    runs = [refuted(RealisedBatchSize, NEARLY_ALL, seed, level=1e-3).runs for seed in range(5)]
    assert np.median(runs) <= 240


@pytest.mark.slow
def test_medians_over_seeds():
    medians = {
        loop.__name__: np.median([refuted(loop, plan, seed, level=1e-3).runs for seed in range(25)])
        for loop, plan in BUGS
    }
    assert max(medians.values()) <= 300, medians
    assert sum(10 * runs <= FIXED_SIZE for runs in medians.values()) >= 5, medians


def test_violation_is_found_where_noise_is_not_looked_at():
    result = refute_training(
        gaussian_run(2.0, steps=4), claimed=4 * taut.gaussian(1.0), delta=1e-3, seed=3
    )
    assert result.violations
    assert result.statistic is not None
    assert "FAULT FOUND" in str(result)


def test_bound_on_epsilon_is_below_the_truth_and_not_zero():
    claimed = taut.gaussian(1.0)
    result = refute_training(gaussian_run(1.0), claimed=claimed, delta=0.05, seed=0, most_runs=600)
    assert result.passed
    assert 0 < result.epsilon_lower < claimed.epsilon(0.05)


TRUE_CLAIMS = {
    "gaussian": (gaussian_run(1.0), taut.gaussian(1.0), 1e-2),
    "sampled": (
        gaussian_run(2.0, steps=3, rate=0.4), 3 * taut.gaussian(0.5).poisson(0.4), 1e-2
    ),
    "other_pair": (gaussian_run(0.0), taut.gaussian(20.0), 1e-3),
}  # fmt: skip


def false_alarms(name, audits, level, runs):
    run, claimed, delta = TRUE_CLAIMS[name]
    return sum(
        not refute_training(
            run, claimed=claimed, delta=delta, level=level, most_runs=runs, seed=seed
        ).passed
        for seed in range(audits)
    )


@pytest.mark.parametrize("name", sorted(TRUE_CLAIMS))
def test_tight_claims_are_seldom_refuted_at_any_time(name):
    assert false_alarms(name, audits=16, level=0.3, runs=40) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TRUE_CLAIMS))
def test_tight_claims_are_seldom_refuted_at_any_of_many_times(name):
    assert false_alarms(name, audits=300, level=0.1, runs=300) <= 30


def test_sound_loops_are_not_refuted():
    for seed in range(6):
        assert refuted(Sound, PLAN, seed, level=1e-3, most_runs=100).passed


@pytest.mark.slow
def test_no_false_alarm_in_a_thousand_audits():
    plans = [(Sound, PLAN), (Sound, NEARLY_ALL), (Sound, ONE_EPOCH), (Sound, CALLED_POISSON)]
    alarms = [
        str(result)
        for seed in range(1_000)
        if not (
            result := refuted(*plans[seed % len(plans)], seed, level=1e-3, most_runs=100)
        ).passed
    ]
    assert not alarms


def test_shipped_engine_passes():
    plan = Plan(
        examples=3, rate=0.8, steps=2, noise_multiplier=0.6, delta=1e-2, clipping=FlatClip(2.0)
    )
    result = refute_plan(plan, most_runs=60, seed=0, max_physical_batch_size=2)
    assert result.passed, str(result)
    assert result.runs == 60


def test_result_is_json_and_repeats_with_its_seed():
    first, second = (refuted(NoiseReused, PLAN, 5) for _ in range(2))
    assert first == second
    data = json.loads(first.to_json())
    assert data["passed"] is False
    assert data["adjacency"] == "add_remove"
    assert {check["name"] for check in data["checks"]} == {
        "variance", "between steps", "between runs", "draws in an epoch",
    }  # fmt: skip


def test_fewer_runs_than_an_audit_of_one_size_needs():
    """Of what a thousand runs refute beforehand, a fraction is enough when one looks at each."""
    fixed = audit_loop(ClippedAfterAveraging(PLAN), PLAN, trials=40, seed=0)
    sequential = [refuted(ClippedAfterAveraging, PLAN, seed).runs for seed in range(5)]
    assert not fixed.passed
    assert np.median(sequential) < 4 * 40


def test_planned_runs_grow_as_the_fault_shrinks():
    claimed = taut.gaussian(1.0)
    runs = [runs_to_refute(claimed, taut.gaussian(sigma), delta=1e-3) for sigma in (0.3, 0.5, 0.7)]
    assert runs == sorted(runs)
    assert runs[0] < 60 < runs[2]


def test_planned_runs_of_a_fault_that_is_none():
    with pytest.raises(ValueError, match="must exceed what claimed allows"):
        runs_to_refute(taut.gaussian(1.0), taut.gaussian(1.5), delta=1e-3)


def good(run=lambda *_: [0.0, 1.0], **changes):
    settings = {"claimed": taut.gaussian(1.0), "delta": 1e-3, "seed": 0, "most_runs": 5} | changes
    return refute_training(run, **settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"level": 0.0}, "level must be above 0 and at most 0.5"),
        ({"level": 0.7}, "level must be above 0 and at most 0.5"),
        ({"level": float("nan")}, "level must be"),
        ({"most_runs": 0}, "most_runs must be"),
        ({"noise_scale": -1.0}, "noise_scale must be"),
        ({"noise_scale": 1.0}, "runs have one only"),
        ({"run": lambda *_: [np.nan]}, "NaN or infinite"),
        ({"run": lambda *_: 1.0}, "must be of shape"),
        ({"run": lambda _, seed: [0.0] * (1 + seed % 2)}, "arrays of one shape"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        good(**changes)
