"""Bugs that cannot be written with this package: refused, or without a place to be in."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import taut
from taut.audit import replay
from taut.errors import UnsoundConfiguration
from taut.noise import Box, L2Ball, optimal_gaussian, optimal_laplace
from taut.training import FlatClip, ModelMix, Plan, PrivateTrainer

SETTINGS = {"examples": 32, "noise_multiplier": 1.0, "delta": 1e-3, "clipping": FlatClip(1.0)}
DATA = TensorDataset(torch.ones(32, 3), torch.zeros(32, dtype=torch.long))


def trainer(plan, loss=None, **arguments):
    loss = nn.CrossEntropyLoss() if loss is None else loss
    return PrivateTrainer(nn.Linear(3, 2), loss, plan, **arguments)


def test_mixed_models_with_momentum_are_refused():
    plan = Plan(**SETTINGS, rate=0.5, steps=2, mixing=ModelMix(width=2.0))
    with pytest.raises(UnsoundConfiguration, match="mixing needs plain SGD"):
        trainer(plan, optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


def test_key_of_noise_is_in_no_checkpoint(tmp_path):
    plan = Plan(**SETTINGS, batch_size=8, epochs=2, noise="blt", sampling="fixed_order")
    trainer(plan, run_dir=tmp_path).fit(DATA)
    (said,) = json.loads((tmp_path / "private.noise").read_text())["keys"]
    key = bytes.fromhex(said["key"])
    others = [
        path for path in tmp_path.rglob("*") if path.is_file() and path.name != "private.noise"
    ]
    assert others
    for path in others:
        text = path.read_bytes()
        assert key not in text, path
        assert said["key"].encode() not in text, path


def test_spend_that_is_lost_in_rounding_is_refused():
    """maziyarpanahi/openmed#2457: a budget is exhausted, and what is tiny still gets through."""
    budget = taut.PrivacyFilter(1.0, 1e-6)
    for sigma in np.geomspace(5, 1e9, 60):
        while budget.can_spend(taut.gaussian(float(sigma))):
            budget.spend(taut.gaussian(float(sigma)))
    assert not budget.can_spend(taut.gaussian(1e99))
    with pytest.raises(ValueError, match="noise so large"):
        taut.gaussian(1e300)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan")])
def test_epsilon_of_zero_is_no_switch(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        optimal_laplace(Box([1.0]), epsilon=epsilon)
    with pytest.raises(ValueError, match="epsilon"):
        Plan(examples=32, batch_size=8, epochs=1, epsilon=epsilon, delta=1e-3,
             clipping=FlatClip(1.0))  # fmt: skip


def test_mean_over_the_tokens_of_a_batch_is_refused():
    def token_mean(outputs, targets):
        lengths = 1.0 + torch.arange(len(targets))
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        return losses * lengths / lengths.sum()

    plan = Plan(**SETTINGS, batch_size=16, epochs=1)
    with pytest.raises((UnsoundConfiguration, ValueError), match="loss_fn"):
        trainer(plan, token_mean).fit(DATA)


def test_sum_of_doubles_that_moves_too_far_is_summed_exactly():
    """Casacuberta et al. (2022): one record moves a sum in doubles by more than itself."""
    rows = np.array([[2.0**53], [1.0], [1.0], [-(2.0**53)]])
    wide = optimal_laplace(Box([2.0**53]), epsilon=1.0)
    naive = [sum(part[:, 0]) for part in (rows, rows[1:])]
    assert abs(naive[0] - naive[1]) != 2.0**53
    result = replay(wide.release_sum, rows, rows[1:], crafted=True)
    assert result.passed
    assert result.releases[0].measured == pytest.approx(1.0)


def test_training_that_never_moves_is_seen():
    """meta-pytorch/opacus#820: weights got noise alone; the replay says that nothing was tested."""
    noise = optimal_gaussian(L2Ball(3, 1.0), epsilon=1.0, delta=1e-6)

    def never_moves(rows):
        adapters = rows.astype(np.float64) * 0.0  # gradients were lost on the way
        return noise.release_sum(adapters)

    rows = np.ones((4, 3))
    result = replay(never_moves, rows, rows[:-1])
    assert not result.exercised
    assert "nothing was tested" in result.notes[-1]
