"""How many rows fit: counted by hand, and blind to the values of examples."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from taut.noise import SeededForExperiments
from taut.training import FlatClip, Loading, Plan, PrivateTrainer
from taut.training._tensors import rows_at_once as module
from taut.training._tensors.rows_at_once import free_memory, rows_at_once, saved_bytes


def _net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(50, 70), nn.Tanh(), nn.Dropout(0.5), nn.Linear(70, 3))


def test_bytes_of_a_row_are_those_that_autograd_keeps():
    net, inputs = _net(), torch.ones(1, 50)
    one, three = (saved_bytes(net, inputs, rows) for rows in (1, 3))
    # Inputs, what tanh returned (also the input of the last layer), and outputs, in float32.
    assert (three - one) / 2 == 4 * (50 + 70 + 3)
    assert all(part.training for part in net.modules())


def test_rows_fill_a_share_of_the_memory(monkeypatch):
    monkeypatch.setattr(module, "free_memory", lambda _: 4 * 2 * 4 * (50 + 70 + 3) * 17)
    assert rows_at_once(_net(), torch.ones(1, 50)) == 17
    assert rows_at_once(_net(), torch.ones(1, 50), processes=2) == 8
    monkeypatch.setattr(module, "free_memory", lambda _: 0)
    assert rows_at_once(_net(), torch.ones(1, 50)) == 1


def test_values_play_no_part():
    class Nosy(nn.Module):
        """Keeps more the larger its inputs are."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 2)

        def forward(self, inputs):
            for _ in range(int(inputs.abs().max())):
                inputs = inputs.exp()
            return self.layer(inputs)

    sizes = {saved_bytes(Nosy(), torch.full((1, 5), value), 2) for value in (0.0, 3.0)}
    assert len(sizes) == 1


def test_models_that_take_no_zeros_are_told_so():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, inputs):
            if not inputs.any():
                raise RuntimeError("no length")
            return self.layer(inputs)

    with pytest.raises(ValueError, match="give a number of rows"):
        rows_at_once(Packed(), torch.ones(1, 4))


def test_there_is_memory():
    assert free_memory(torch.device("cpu")) > 2**20


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_training_is_the_same_whatever_fits(rows, monkeypatch):
    data = TensorDataset(torch.randn(60, 5), torch.randint(0, 2, (60,)))
    plan = Plan(
        examples=60, batch_size=20, steps=3, noise_multiplier=1.0, delta=1e-3,
        clipping=FlatClip(1.0),
    )  # fmt: skip

    def trained(size):
        torch.manual_seed(1)
        net = nn.Linear(5, 2)
        trainer = PrivateTrainer(
            net,
            nn.CrossEntropyLoss(),
            plan,
            loading=Loading(max_physical_batch_size=size),
            generator=SeededForExperiments(seed=4),
        )
        trainer.fit(data)
        return net.weight.detach(), trainer

    monkeypatch.setattr("taut.training._run.settings.rows_at_once", lambda *_: rows)
    found, trainer = trained("auto")
    assert trainer._loading.max_physical_batch_size == rows
    assert torch.allclose(found, trained(None)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises((TypeError, ValueError), match="max_physical_batch_size"):
        Loading(max_physical_batch_size="many")
