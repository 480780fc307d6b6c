"""Noise and batch sizes that change from step to step: what they cost, and who takes them."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taut
from taut.errors import InfeasibleBudget, UnsoundConfiguration
from taut.training import (
    FixedSizeSampling,
    FlatClip,
    L2LInfClip,
    ModelMix,
    Plan,
    PoissonSampling,
    QuantileClip,
    RefreshedHybridClip,
    TwiceSampling,
)
from taut.training._plan.schedule import together
from taut.training.extend import Schedule


def plan(**changes):
    arguments = {"examples": 1_000, "batch_size": 50, "delta": 1e-5, "clipping": FlatClip(1.0)}
    return Plan(**arguments | changes)


def sampled(sigma, rate):
    return taut.gaussian(sigma).poisson(rate)


# --- schedules as values -----------------------------------------------------------------------


def test_all_forms_are_one_value():
    numbers = [2.0, 2.0, 3.0, 3.0, 3.0, 2.0]
    pairs = [(2, 2.0), (3, 3.0), (1, 2.0)]
    forms = [numbers, pairs, np.array(numbers), np.array(pairs), [list(pair) for pair in pairs]]
    found = {Schedule.of(form) for form in forms}
    assert found == {Schedule(tuple(pairs))}
    (schedule,) = found
    assert Schedule.of(schedule) is schedule
    assert [schedule.at(step) for step in range(8)] == [*numbers, 2.0, 2.0]  # the last one goes on
    assert (schedule.steps, schedule.least, schedule.most, schedule.mean) == (6, 2.0, 3.0, 2.5)
    assert Schedule.of(schedule.to_list()) == schedule
    assert schedule.total(8) == sum(numbers) + 4.0


@given(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=30), st.integers(0, 40))
def test_stretches_say_what_every_step_has(values, steps):
    first, second = Schedule.of(values), Schedule.of(values[::-1])
    told = [pair for count, pair in together(steps, first, second) for _ in range(count)]
    assert told == [(first.at(step), second.at(step)) for step in range(steps)]


@pytest.mark.parametrize(
    ("given_", "complaint"),
    [
        ([], "at least one step"),
        ([1.0, -1.0], "greater than 0"),
        ([1.0, math.nan], "greater than 0"),
        ([(0, 1.0)], "steps"),
        ([(1.5, 1.0)], "steps"),
        ([(2, 1.0), 3.0], "not both"),
        ([(1, 2.0, 3.0)], "not both"),
        (["much"], "value"),
    ],
)
def test_bad_schedules(given_, complaint):
    with pytest.raises((ValueError, TypeError), match=complaint):
        plan(noise_multiplier=given_)


# --- what they cost ----------------------------------------------------------------------------


def test_loss_is_the_sum_over_steps_at_every_step():
    noises = [1.0, 1.0, 0.7, 2.0, 2.0]
    sizes = [50, 100, 100, 100, 20]
    found = plan(noise_multiplier=noises, batch_size=sizes)
    assert found.steps == 5
    for step in range(6):
        terms = [sampled(s, b / 1_000) for s, b in zip(noises[:step], sizes[:step], strict=True)]
        assert found.loss_at(step) == sum(terms, start=taut.zero())
        if step < 5:
            assert found.noise_multiplier_at(step) == pytest.approx(noises[step], rel=1e-15)
            assert found.batch_size_at(step) == sizes[step]
            assert found.sampling_at(step) == PoissonSampling(sizes[step] / 1_000)
    assert found.epsilon == found.loss.epsilon(1e-5)
    assert found.epsilon_at(3) == pytest.approx(found.loss_at(3).epsilon(1e-5), rel=1e-3)
    # Beyond the plan, the last step goes on.
    assert found.loss_at(7) == found.loss + 2 * sampled(2.0, 0.02)
    assert (found.batch_size, found.epochs) == (pytest.approx(74), pytest.approx(0.37))
    assert found.epochs_at(2) == pytest.approx(0.15)
    assert (found.noise_multiplier, found.noise_range) == (0.7, (0.7, 2.0))
    assert found.rate_range == (0.02, 0.1)


def test_noise_of_a_mean_gradient():
    noises, sizes = np.array([1.0, 2.0, 2.0]), np.array([50, 50, 100])
    found = plan(noise_multiplier=noises, batch_size=sizes)
    assert found.mean_gradient_noise == pytest.approx(np.sqrt(np.mean((noises / sizes) ** 2)))
    found = plan(noise_multiplier=noises)
    assert found.mean_gradient_noise == pytest.approx(np.sqrt(np.mean((noises / 50) ** 2)))


def test_fixed_sizes_may_change():
    found = plan(sampling=FixedSizeSampling(), noise_multiplier=1.0, batch_size=[10, 20])
    base = taut.gaussian(1.0, 2.0, adjacency="replace")
    sizes = [base.fixed_size(size, 1_000, "replace") for size in (10, 20)]
    assert found.loss == sum(sizes, start=taut.zero())
    assert found.sampling_at(1) == FixedSizeSampling(20)


def test_constant_schedules_are_none():
    constant = plan(noise_multiplier=1.5, steps=4)
    assert plan(noise_multiplier=[1.5] * 4, batch_size=[(4, 50)]) == constant
    assert plan(noise_multiplier=[(4, 1.5)]) == constant
    assert not constant.is_scheduled
    assert constant.to_dict()["schema"] == "taut.training-plan/1"


@settings(max_examples=8)
@given(
    factors=st.lists(st.floats(0.5, 2.0), min_size=2, max_size=4),
    epsilon=st.floats(0.5, 5.0),
)
def test_a_common_factor_keeps_the_promise(factors, epsilon):
    stretches = [(25, factor) for factor in factors]
    found = plan(noise_schedule=stretches, epsilon=epsilon)
    assert found.loss.epsilon(1e-5) <= epsilon
    for step in (0, 30, found.steps - 1):
        ratio = found.noise_multiplier_at(step) / found.noise_multiplier_at(0)
        assert ratio == pytest.approx(factors[step // 25] / factors[0], rel=1e-12)
    less = [(25, 0.998 * found.noise_multiplier_at(25 * i)) for i in range(len(factors))]
    assert plan(noise_multiplier=less).epsilon > epsilon


def test_factors_multiply_the_noise():
    found = plan(noise_multiplier=2.0, noise_schedule=[1.0, 0.5])
    assert [found.noise_multiplier_at(step) for step in (0, 1)] == [2.0, 1.0]
    assert found == plan(noise_multiplier=[2.0, 1.0])
    delta = plan(noise_multiplier=[2.0, 1.0], epsilon=1.0, delta=None).delta
    assert plan(noise_multiplier=[2.0, 1.0], delta=delta).epsilon == pytest.approx(1.0, rel=1e-2)


def test_noise_is_that_of_the_step():
    found = plan(noise_multiplier=[1.0, 3.0])
    first, second = (found.noise({"weight": 4}, step).scales for step in (0, 1))
    assert (*first, *second) == pytest.approx((1.0, 3.0), rel=1e-9)


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"noise_multiplier": [1.0, 2.0], "steps": 3},
        {"noise_multiplier": 1.0, "batch_size": [(2, 10), (3, 20)], "steps": 4},
        {"noise_multiplier": [1.0, 2.0], "batch_size": [10, 20, 30]},
        {"noise_multiplier": [(2, 1.0), (1, 2.0)], "epochs": 1},
    ],
)
def test_wrong_lengths(arguments):
    with pytest.raises(ValueError, match="must have one value for each of"):
        plan(**arguments)


def test_too_much_or_too_little():
    with pytest.raises(ValueError, match="either steps or epochs"):
        plan(noise_multiplier=1.0)
    with pytest.raises(ValueError, match="either steps or epochs"):
        plan(noise_multiplier=[1.0, 2.0], steps=2, epochs=1)
    with pytest.raises(ValueError, match="is noise_schedule"):
        plan(noise_multiplier=[1.0, 2.0], epsilon=1.0)
    with pytest.raises(ValueError, match="schedule already"):
        plan(noise_multiplier=[1.0, 2.0], noise_schedule=[1.0, 2.0])
    with pytest.raises(ValueError, match="has one batch size"):
        plan(noise_multiplier=1.0, batch_size=[10, 20], sampling=PoissonSampling(0.1))
    with pytest.raises(ValueError, match="at most examples"):
        plan(noise_multiplier=1.0, batch_size=[10, 2_000])


@pytest.mark.parametrize(
    ("arguments", "way_out"),
    [
        ({"sampling": "allocation"}, "sampling='poisson'"),
        ({"sampling": "best"}, "sampling='poisson'"),
        (
            {"sampling": TwiceSampling(), "clipping": L2LInfClip.spread_over(1.0, spread=100)},
            "sampling='poisson'",
        ),
        ({"mixing": ModelMix(width=1.0)}, "leave mixing or the schedule out"),
        (
            {"clipping": RefreshedHybridClip([2], 1.0, every=4)},
            "a clipping that stays",
        ),
        ({"clipping": QuantileClip(1.0), "batch_size": [10, 20]}, "noise_schedule change alone"),
    ],
)
def test_what_has_no_theorem_or_engine(arguments, way_out):
    with pytest.raises(UnsoundConfiguration, match=way_out):
        plan(**{"noise_multiplier": [1.0, 2.0]} | arguments)


def test_quantile_clip_takes_noise_that_changes():
    found = plan(noise_multiplier=[1.0, 2.0], clipping=QuantileClip(1.0))
    first, second = (found.noise({"weight": 4}, step) for step in (0, 1))
    assert second.gradients.scales[0] == pytest.approx(2 * first.gradients.scales[0], rel=1e-2)


def test_an_impossible_promise_says_what_helps():
    with pytest.raises(InfeasibleBudget, match="a schedule of fewer steps"):
        plan(noise_schedule=[(500, 1.0), (500, 2.0)], epsilon=1e-4)


# --- files -------------------------------------------------------------------------------------

WRITTEN = plan(noise_multiplier=[(3, 1.0), (2, 2.0)], batch_size=[(2, 20), (3, 50)])


def test_plans_survive_json():
    assert Plan.from_json(WRITTEN.to_json()) == WRITTEN
    assert WRITTEN.to_dict()["schema"] == "taut.training-plan/2"
    assert not WRITTEN.sampling.is_fitted
    assert "5 steps of 20 to 50 examples" in str(WRITTEN)
    assert "noise multiplier 1 to 2" in str(WRITTEN)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"schema": "taut.training-plan/1"}, "belongs to plans of schema"),
        ({"noise_schedule": [[3, 2.0], [2, 4.0]]}, "least value 1"),
        ({"noise_schedule": [[3, 1.0], [3, 2.0]]}, "for each of 5 steps"),
        ({"rate_schedule": [[2, 0.02], [3, 0.06]]}, "does not fit"),
        ({"rate_schedule": [[2, 0.02], [3, 1.5]]}, "rate_schedule"),
        ({"sampling": {"name": "poisson", "rate": 0.038}}, "has one batch size"),
        ({"noise_schedule": [[3, 1.0], [2, "much"]]}, "noise_schedule"),
        ({"noise_schedule": 3}, "malformed"),
    ],
)
def test_damaged_files(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        Plan.from_dict({**WRITTEN.to_dict(), **change})


def test_a_promise_that_was_changed_by_hand():
    forged = WRITTEN.to_dict() | {"epsilon": WRITTEN.epsilon / 2}
    with pytest.raises(UnsoundConfiguration, match="changed by hand"):
        Plan.from_dict(forged)
    forged = WRITTEN.to_dict()
    forged["noise_schedule"] = [[1, 2.0], [4, 1.0]]
    with pytest.raises(UnsoundConfiguration, match="changed by hand"):
        Plan.from_json(json.dumps(forged))
