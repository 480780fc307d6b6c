"""Sweeps of one argument of a plan."""

import math

import pytest

from taut.runs import sweep_plan
from taut.training import FixedSizeSampling, FlatClip, Plan

RUN = {"examples": 2_000, "batch_size": 100, "epochs": 4, "epsilon": 2.0, "delta": 1e-4}


def test_is_the_plan_of_every_value():
    sweep = sweep_plan("batch_size", [50, 200], **RUN)
    for swept, size in zip(sweep.plans, (50, 200), strict=True):
        expected = Plan(**(RUN | {"batch_size": size}), clipping=FlatClip(1.0))
        assert swept.plan == expected
        assert swept.noise_per_step == expected.noise_multiplier / size
        assert swept.noise_of_run == swept.noise_per_step / math.sqrt(expected.steps)


@pytest.mark.parametrize(
    ("knob", "value"),
    [("rate", 0.1), ("steps", 30), ("epochs", 2.5), ("epsilon", 1.0), ("delta", 1e-5)],
)
def test_knob_takes_the_place_of_what_it_replaces(knob, value):
    (swept,) = sweep_plan(knob, [value], **RUN).plans
    assert getattr(swept.plan, knob) == value


def test_sampling_is_kept():
    (swept,) = sweep_plan("epsilon", [2.0], **RUN, sampling=FixedSizeSampling()).plans
    assert swept.plan.sampling == FixedSizeSampling(100)


def test_what_cannot_be_afforded_has_a_reason():
    swept = sweep_plan("epsilon", [1e-6, 2.0], **RUN).plans[0]
    assert swept.plan is None
    assert "Any one of these would suffice" in swept.reason
    assert math.isnan(swept.noise_per_step)
    assert swept.to_dict() == {"value": 1e-6, "infeasible": swept.reason}


@pytest.mark.parametrize(
    ("knob", "values", "message"),
    [
        ("batchsize", [1], "did you mean 'batch_size'"),
        ("batch_size", [1.5], "must be a whole number"),
        ("batch_size", [], "at least one batch_size"),
        ("batch_size", [0], "greater than 0"),
        ("batch_size", [2001], "at most examples=2000"),
        ("rate", [1.5], "probability"),
    ],
)
def test_a_mistake_is_named(knob, values, message):
    with pytest.raises(ValueError, match=message):
        sweep_plan(knob, values, **RUN)
