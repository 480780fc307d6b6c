"""Files that version 0.1.0 wrote load for ever, and their guarantees never get weaker.

`written/` holds them as they were: losses with their bounds, plans, statements, and directories of
runs that ended or were stopped. They are read, never written anew.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from taut.accounting import PrivacyLoss
from taut.audit import verify_statement
from taut.training import Plan, PrivateTrainer, TrainingResult

WRITTEN = Path(__file__).parent / "written"
LOSSES = json.loads((WRITTEN / "losses.json").read_text())
PLANS = json.loads((WRITTEN / "plans.json").read_text())
STATEMENTS = sorted(WRITTEN.glob("statement-*.json"))
DIGITS = 1e-9  # relative: other versions of NumPy and SciPy round otherwise


def assert_no_wider(bounds, stored):
    """An engine may become better: brackets may shrink, and must stay inside of the old ones."""
    lower, upper = stored
    assert lower * (1 - DIGITS) <= bounds.lower <= bounds.upper <= upper * (1 + DIGITS)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_load_and_answer_as_before(name):
    loss = PrivacyLoss.from_dict(LOSSES[name]["loss"])
    assert loss.to_dict() == LOSSES[name]["loss"]
    for delta, stored in LOSSES[name]["epsilon"].items():
        assert_no_wider(loss.epsilon_bounds(float(delta)), stored)


@pytest.mark.parametrize("name", PLANS)
def test_plans_load_and_promise_the_same(name):
    plan = Plan.from_dict(PLANS[name]["plan"])
    assert plan.noise_multiplier == PLANS[name]["multiplier"]
    assert_no_wider(plan.loss.epsilon_bounds(1e-4), PLANS[name]["epsilon"])


@pytest.mark.parametrize("path", STATEMENTS, ids=lambda path: path.stem)
def test_statements_load_and_verify(path):
    found = verify_statement(path.read_text())
    assert found.holds
    assert found.findings == ()
    result = TrainingResult.from_json(path.read_text())
    assert result.statement == json.loads(path.read_text())["statement"]


def small_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def small_data():
    inputs = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs, (inputs[:, 0] > 0).long())


def test_a_stopped_run_resumes_where_it_was(tmp_path):
    directory = shutil.copytree(WRITTEN / "run-stopped", tmp_path / "run")
    model = small_model()
    trainer = PrivateTrainer(
        model,
        nn.CrossEntropyLoss(),
        Plan.from_dict(PLANS["flat"]["plan"]),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        run_dir=directory,
    )
    result = trainer.fit(small_data())
    # Its checkpoint is of step 3 and its ledger counts 5: two steps were taken twice.
    assert (result.steps, result.counted_steps) == (8, 10)
    assert_no_wider(result.epsilon, PLANS["flat"]["epsilon"])
