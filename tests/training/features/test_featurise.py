"""Features of a dataset: each example's own, and stored as asked."""

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset

from taut.errors import UnsoundConfiguration
from taut.training import FlatClip, Plan, PrivateTrainer
from taut.training.features import Scattering2d, featurise
from taut.training.models import LinearProbe


def double(inputs):
    return 2 * inputs


class Squares(Dataset):
    """Examples made one by one, as most datasets make them."""

    def __len__(self):
        return 7

    def __getitem__(self, place):
        return torch.full((3,), float(place)), place * place


def test_keeps_targets_and_order():
    inputs, targets = torch.randn(10, 3), torch.arange(10)
    found = featurise(TensorDataset(inputs, targets), double, batch_size=4)
    torch.testing.assert_close(found.tensors[0], 2 * inputs)
    torch.testing.assert_close(found.tensors[1], targets)


def test_takes_a_tensor_without_targets():
    found = featurise(torch.ones(5, 2), double)
    assert len(found.tensors) == 1
    torch.testing.assert_close(found.tensors[0], torch.full((5, 2), 2.0))


def test_takes_a_subset():
    whole = TensorDataset(torch.arange(10.0)[:, None], torch.arange(10))
    found = featurise(Subset(whole, [7, 2]), double)
    assert found.tensors[0].flatten().tolist() == [14, 4]
    assert found.tensors[1].tolist() == [7, 2]


def test_takes_any_dataset():
    found = featurise(Squares(), double, batch_size=3)
    assert found.tensors[0][:, 0].tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert found.tensors[1].tolist() == [0, 1, 4, 9, 16, 25, 36]


def test_stores_in_half_precision():
    found = featurise(torch.rand(5, 2), double, dtype=torch.float16)
    assert found.tensors[0].dtype is torch.float16


def test_network_is_evaluated_and_left_as_it_was():
    network = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.9))
    network[0].eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = featurise(torch.randn(20, 3), network)
    assert not found.tensors[0].requires_grad
    assert [module.training for module in network] == [False, True, True]
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, before[name])


def test_refuses_what_mixes_examples():
    with pytest.raises(UnsoundConfiguration, match="change with the batch"):
        featurise(torch.randn(20, 3), lambda inputs: inputs - inputs.mean(0))


def test_refuses_what_is_random():
    with pytest.raises(UnsoundConfiguration, match="from call to call"):
        featurise(torch.randn(20, 3), lambda inputs: inputs + torch.randn_like(inputs))


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, inputs):
        self.seen += inputs.sum(0)
        return inputs


def test_refuses_what_remembers_examples():
    with pytest.raises(UnsoundConfiguration, match="freeze it"):
        featurise(torch.randn(20, 3), Remembers())


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda inputs: inputs[:1], "one row of features"),
        (lambda inputs: list(inputs), "one row of features"),
        (lambda inputs: 1e6 * inputs, "not finite numbers in torch.float16"),
    ],
)
def test_refuses_features_that_cannot_be_stored(transform, message):
    with pytest.raises(ValueError, match=message):
        featurise(torch.ones(4, 2), transform, dtype=torch.float16)


def test_refuses_an_empty_dataset():
    with pytest.raises(ValueError, match="at least one example"):
        featurise(torch.ones(0, 2), double)


def test_refuses_examples_that_are_not_tensors():
    class Words(Squares):
        def __getitem__(self, place):
            return "word", place

    with pytest.raises(ValueError, match="input and further tensors"):
        featurise(Words(), double)


def test_probe_learns_from_stored_features_with_privacy():
    bits = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 2, (400,), generator=bits)
    across = torch.sin(torch.arange(12.0) * 2.4).expand(12, 12)
    stripes = torch.where(targets.view(-1, 1, 1) == 1, across, across.T)
    images = (stripes + 0.3 * torch.randn(400, 12, 12, generator=bits))[:, None]
    transform = Scattering2d((12, 12), angles=4)
    features = featurise(TensorDataset(images, targets), transform, dtype=torch.float16)
    train, held_out = Subset(features, range(300)), Subset(features, range(300, 400))
    plan = Plan(
        examples=300, batch_size=100, epochs=5, epsilon=3, delta=1e-3, clipping=FlatClip(0.1)
    )
    model = LinearProbe(transform.output_shape, 2, groups=5)
    trainer = PrivateTrainer(
        model, nn.CrossEntropyLoss(), plan, optimizer=torch.optim.SGD(model.parameters(), lr=1.0)
    )
    assert trainer.fit(train).epsilon.upper <= 3
    assert trainer.evaluate(held_out).accuracy > 0.9
