"""Arms with noise that is correlated over steps."""

import dataclasses
import math

import pytest
from comparison.tasks import SETTINGS, TASK_SIZES, task

from taut.comparison import compare, predict
from taut.comparison._noise_size import noise_std
from taut.comparison.arms import ArmSkipped, Banded, Buffered, Inverse, Plain
from taut.matrix import Workload, errors, sensitivity

LONG = dataclasses.replace(SETTINGS, examples=320, batch_size=20, gradients=1280)


@pytest.mark.parametrize("arm", [Banded(), Banded("cyclic_poisson"), Buffered(), Inverse(4)])
def test_arms_keep_the_promise_with_as_many_gradients(arm):
    plan = arm.plan(LONG, TASK_SIZES, None)
    assert (plan.steps, plan.batch_size) == (64, 20)
    assert plan.loss.epsilon(LONG.delta) <= LONG.epsilon
    assert plan.encoder is not None
    assert plan.adjacency == "zero_out"


def test_noise_counts_by_the_error_of_running_sums():
    plan = Buffered().plan(LONG, TASK_SIZES, None)
    sums = Workload(64)
    unit = errors(plan.encoder, sums).root_mean_square / sensitivity(plan.encoder).value
    error = plan.noise_multiplier * unit * LONG.norm * math.sqrt(sum(TASK_SIZES.values()))
    plain = math.sqrt((64 + 1) / 2)  # of independent noise of unit variance
    assert noise_std(plan, TASK_SIZES) == pytest.approx(error / plain / 20, rel=1e-9)


def test_predictions_put_them_beside_plain():
    table = predict(LONG, TASK_SIZES, arms=["plain", "banded"])
    plain, banded = table.arms
    assert banded.noise_std < plain.noise_std
    assert "noise 'best' is banded" in banded.notes[0]


def test_epochs_without_groups_are_skipped():
    once = dataclasses.replace(SETTINGS, batch_size=300, gradients=1200)
    with pytest.raises(ArmSkipped, match="no groups"):
        Banded().plan(once, TASK_SIZES, None)


def test_they_can_be_trained(tmp_path):
    settings = dataclasses.replace(SETTINGS, batch_size=30, gradients=600)
    arms = [Plain(), Buffered(), Inverse(2), Banded()]
    found = compare(task(public=None), settings, arms=arms, seeds=1, out_dir=tmp_path)
    assert {row.arm for row in found.results} == {arm.label for arm in arms}
    assert all(run.epsilon <= settings.epsilon for run in found.runs)
