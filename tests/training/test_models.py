"""The models: sizes as published, and both back ends agree on them."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from taut.training import FlatClip
from taut.training.extend import PrivateGradient
from taut.training.models import (
    FeatureCNN,
    LinearProbe,
    ResNet20,
    StandardisedConv2d,
    TanhCNN,
    TextTransformer,
    WideResNet,
    mlp,
)


def losses(outputs, targets):
    return functional.cross_entropy(outputs, targets, reduction="none")


def count(model):
    return sum(p.numel() for p in model.parameters())


def test_sizes():
    assert count(TanhCNN()) == 26_010
    assert count(FeatureCNN((243, 8, 8), 10)) == 22_186
    assert count(mlp()) == 535_818
    assert count(ResNet20()) == 272_474
    assert count(TextTransformer()) == 1_045_250
    # Zagoruyko and Komodakis (2016) print 2.7 million for WRN-16-4.
    assert 2.65e6 < count(WideResNet(16, 4)) < 2.76e6


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (TanhCNN, lambda: torch.randn(3, 1, 28, 28)),
        (lambda: FeatureCNN((6, 4, 4), 3, width=5), lambda: torch.randn(3, 6, 4, 4)),
        (lambda: LinearProbe((6, 2, 2), 3, groups=2), lambda: torch.randn(3, 6, 2, 2)),
        (lambda: mlp((5, 4, 2)), lambda: torch.randn(3, 5)),
        (ResNet20, lambda: torch.randn(3, 3, 32, 32)),
        (lambda: WideResNet(10, 1, groups=8), lambda: torch.randn(3, 3, 32, 32)),
        (lambda: TextTransformer(50, 3, 16, 1, 2, 8), lambda: torch.randint(50, (3, 8))),
    ],
    ids=["cnn", "feature cnn", "probe", "mlp", "resnet", "wide", "text"],
)
def test_back_ends_agree(make, inputs):
    torch.manual_seed(0)
    model, batch = make().double(), inputs()
    batch = batch.double() if batch.is_floating_point() else batch
    targets = torch.randint(2, (3,))
    sums = []
    for backend in ("bookkeeping", "materialised"):
        gradient = PrivateGradient(
            model, FlatClip(0.1), scales=[0.0], expected_batch_size=3, backend=backend
        )
        gradient.accumulate_batch(batch, targets, losses)
        gradient.finish()
        sums.append([p.grad.clone() for p in model.parameters()])
    for one, other in zip(*sums, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_standardised_kernels_are_centred_and_of_length_one():
    layer = StandardisedConv2d(4, 6, 3, bias=False)
    shown = torch.zeros(4 * 9, 4, 3, 3)
    shown.view(36, 36).fill_diagonal_(1.0)
    kernels = layer(shown).squeeze().T
    torch.testing.assert_close(kernels.sum(1), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(kernels.norm(dim=1), torch.ones(6))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WideResNet(depth=15), "depth must be"),
        (lambda: FeatureCNN((6, 4), 3), "features must be channels"),
        (lambda: FeatureCNN(5, 3), "features must be channels"),
        (lambda: FeatureCNN((6.0, 4, 4), 3), "features must be channels"),
        (lambda: FeatureCNN((6, 1, 4), 3), "at least 2 by 2"),
        (lambda: FeatureCNN((6, 4, 4), 3, width=0), "width must be"),
        (lambda: mlp((3,)), "widths must"),
        (lambda: TextTransformer(width=10, heads=4), "multiple of heads"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_probe_normalises_within_each_example():
    model = LinearProbe((6, 2, 2), 3, groups=2)
    nn.init.normal_(model.head.weight)
    features = torch.rand(4, 6, 2, 2)
    scale = torch.tensor([1.0, 10.0, 100.0, 1000.0]).view(-1, 1, 1, 1)
    torch.testing.assert_close(model(scale * features + 5), model(features), rtol=1e-3, atol=1e-3)


def test_probe_begins_at_zero_and_takes_half_precision():
    scores = LinearProbe(384, 4)(torch.rand(5, 384).half())
    torch.testing.assert_close(scores, torch.zeros(5, 4))


def test_weights_lie_in_order_so_that_they_can_be_sharded():
    assert all(weight.is_contiguous() for weight in TanhCNN().parameters())


def test_networks_on_features_take_half_precision():
    features = torch.rand(2, 6, 4, 4).half()
    model = FeatureCNN((6, 4, 4), 3)
    torch.testing.assert_close(model(features), model(features.float()))


@pytest.mark.parametrize("features", [0, (), (3, 0)])
def test_probe_refuses_empty_features(features):
    with pytest.raises(ValueError, match="features must be"):
        LinearProbe(features, 2)


@pytest.mark.parametrize("groups", [0, 4])
def test_probe_refuses_groups_that_do_not_divide_channels(groups):
    with pytest.raises(ValueError, match="groups must divide"):
        LinearProbe((6, 2, 2), 2, groups=groups)
