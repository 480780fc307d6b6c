"""Training with batches that never exceed a cap: trainers, loops, ledgers, statements."""

import json

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from taut.audit import verify_statement
from taut.errors import UnsoundConfiguration
from taut.training import (
    FlatClip,
    Plan,
    PrivateLoader,
    PrivateTrainer,
    TruncatedPoissonSampling,
    make_private,
)


def data(examples=60):
    torch.manual_seed(0)
    return TensorDataset(torch.randn(examples, 3), torch.randint(2, (examples,)))


def plan(cap=22):
    return Plan(
        examples=60,
        batch_size=15,
        steps=4,
        noise_multiplier=1.0,
        delta=1e-3,
        clipping=FlatClip(1.0),
        sampling=TruncatedPoissonSampling(cap=cap),
    )


def trained(of):
    model = nn.Linear(3, 2)
    trainer = PrivateTrainer(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss_fn=nn.functional.cross_entropy,
        plan=of,
    )
    return trainer.fit(data())


def test_loader_yields_no_batch_beyond_the_cap():
    loader = PrivateLoader(data(), plan(15), steps=4)
    for batch in loader:
        assert len(batch[0]) <= 15


def test_a_trainer_states_the_cap_and_what_it_costs():
    result = trained(plan(18))
    assert "truncated_poisson sampling" in result.statement
    assert "batches are cut at 18 examples; without the cap epsilon would be" in result.statement
    found = verify_statement(result.to_json())
    assert found.holds, found


def test_a_statement_with_another_cap_is_refused():
    told = json.loads(trained(plan(16)).to_json())
    told["plan"]["sampling"]["cap"] = 30
    assert not verify_statement(json.dumps(told)).holds


def test_a_larger_dataset_is_refused():
    with pytest.raises(UnsoundConfiguration, match="at most examples=60"):
        PrivateLoader(data(61), plan())


def test_a_loop_that_exists_takes_a_cap():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = DataLoader(data(), batch_size=15, shuffle=True)
    model, optimizer, loader = make_private(
        module=model,
        optimizer=optimizer,
        data_loader=given,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        sampling=TruncatedPoissonSampling(cap=20),
    )
    for inputs, labels in loader:
        assert len(inputs) <= 20
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    assert optimizer.ledger.steps == 4
