"""Copies of an example are one vector to clip: the mean over them, whatever the layers."""

import logging
import random
from copy import deepcopy

import numpy as np
import pytest
import torch
from oracles.gradients import assert_equal, clipped_sum, cross_entropy, loop, median_norm, squares
from torch import nn
from torch.utils.data import DataLoader
from training.runs import data, model, plan, private_loop, sgd, weights

from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import (
    Checkpointing,
    FlatClip,
    Loading,
    PrivateTrainer,
    QuantileClip,
    make_private,
)
from taut.training._gradients.layers.convolution import Convolution, Geometry
from taut.training._gradients.layers.records import Blocks, OuterProduct, Rows, Sum
from taut.training.extend import PrivateGradient
from taut.training.models import StandardisedConv2d

EXAMPLES, COPIES = 5, 3
BACKENDS = ["bookkeeping", "materialised"]
LOSS = nn.CrossEntropyLoss(reduction="none")


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.block = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
        self.head = nn.Linear(6, 11)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(self.block(self.words(x)).mean(1))


class Crossed(nn.Module):
    """Query, key and value that differ: blocks of one matrix."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True)
        self.turn = nn.Linear(4, 4)

    def forward(self, x):
        return self.attention(x, self.turn(x), x)[0].flatten(1)


class Scaled(nn.Module):
    """A layer without a rule."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x):
        return (self.scale * x).tanh()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.GRU(4, 5, batch_first=True)

    def forward(self, x):
        return self.memory(x)[0].flatten(1)


def convolutional():
    return nn.Sequential(
        StandardisedConv2d(3, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, stride=2, groups=2),
        nn.Tanh(),
        nn.Conv2d(6, 40, 2, bias=False),  # few places, many weights
        nn.ConvTranspose2d(40, 2, 2),
        nn.Flatten(),
    )


def normal(*shape):
    return torch.randn(EXAMPLES, COPIES, *shape, generator=torch.Generator().manual_seed(3))


def words():
    return torch.randint(0, 11, (EXAMPLES, COPIES, 7), generator=torch.Generator().manual_seed(3))


MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), normal(6)),
    "sequence": (lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5)), normal(4, 6)),
    "convolution": (convolutional, normal(3, 8, 8)),
    "embedding and attention": (Attention, words()),
    "crossed attention": (Crossed, normal(5, 4)),
    "layer without a rule": (lambda: nn.Sequential(nn.Linear(4, 6), Scaled()), normal(4)),
    "recurrent": (Recurrent, normal(4, 4)),
}


def of_copies(net, inputs, targets=None, loss=squares):
    """Return the mean over copies of the gradients of single rows, by plain autograd."""
    wanted = None if targets is None else targets.repeat_interleave(COPIES)
    rows = loop(net, inputs.flatten(0, 1), wanted, loss)
    return {name: g.unflatten(0, (EXAMPLES, COPIES)).mean(1) for name, g in rows.items()}


def private(net, inputs, targets=None, loss=squares, *, norm, **options):
    step = PrivateGradient(
        net, FlatClip(norm), scales=[0.0], expected_batch_size=1, copies=COPIES, **options
    )
    losses = step.accumulate_batch(inputs, targets, loss)
    step.finish()
    return {name: p.grad for name, p in net.named_parameters()}, losses


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", MODELS)
def test_copies_are_averaged_before_the_clip(kind, backend):
    make, inputs = MODELS[kind]
    torch.manual_seed(0)
    net = make()
    rows = of_copies(net, inputs)
    norm = median_norm(rows)
    found, losses = private(net, inputs, norm=norm, backend=backend)
    assert_equal(found, clipped_sum(rows, norm), 1e-5)
    with torch.no_grad():
        expected = squares(net(inputs.flatten(0, 1)), None).unflatten(0, (EXAMPLES, COPIES))
    torch.testing.assert_close(losses, expected.mean(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_targets_are_those_of_the_example(backend):
    net, inputs = nn.Linear(6, 3), normal(6)
    targets = torch.tensor([0, 1, 2, 1, 0])
    rows = of_copies(net, inputs, targets, cross_entropy)
    found, _ = private(net, inputs, targets, cross_entropy, norm=0.4, backend=backend)
    assert_equal(found, clipped_sum(rows, 0.4), 1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["linear", "convolution", "embedding and attention"])
def test_example_with_all_its_copies_is_no_longer_than_the_norm(kind, backend):
    make, inputs = MODELS[kind]
    net = make()
    alike = inputs[:1, :1].expand(1, COPIES, *inputs.shape[2:])  # copies that add up in full
    for batch in (alike, inputs[:1]):
        grads, _ = private(net, batch, norm=1e-3, backend=backend)
        length = torch.stack([g.norm() for g in grads.values()]).norm()
        assert 0.99e-3 < float(length) <= 1e-3 * (1 + 1e-4)


def records():
    bits = torch.Generator().manual_seed(5)
    batch, normal = 2 * COPIES, lambda *shape: torch.randn(*shape, generator=bits)
    matrix, kernel = normal(4, 6), normal(4, 3, 2, 2)
    places = torch.randint(0, 4, (batch, 5), generator=bits)
    dense = OuterProduct(matrix, normal(batch, 5, 4), normal(batch, 5, 6))
    sparse = OuterProduct(matrix, places, normal(batch, 5, 6))
    halves = [OuterProduct(h, normal(batch, 5, 2), normal(batch, 5, 6)) for h in matrix.chunk(2)]
    slide = Geometry((1, 1), (1, 1), (1, 1), 1)
    conv = Convolution(kernel, normal(batch, 3, 4, 4), normal(batch, 4, 5, 5), slide)
    wide = Convolution(normal(40, 30, 2, 2), normal(batch, 30, 2, 2), normal(batch, 40, 1, 1),
                       Geometry((1, 1), (0, 0), (1, 1), 1))  # fmt: skip
    return {
        "rows": Rows(matrix, normal(batch, 4, 6)),
        "dense": dense,
        "sparse": sparse,
        "blocks": Blocks(matrix, halves),
        "sum": Sum([dense, sparse]),
        "convolution": conv,
        "convolution by products": wide,
    }


@pytest.mark.parametrize("kind", records())
def test_folded_records_are_sums_of_rows(kind):
    record = records()[kind]
    rows = record.rows().unflatten(0, (2, COPIES)).sum(1)
    folded = record.folded(COPIES)
    assert folded.batch == 2
    torch.testing.assert_close(folded.rows(), rows, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(folded.rows(slice(1, 2)), rows[1:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(folded.squared_norms(), rows.square().sum(1), rtol=1e-4, atol=1e-4)
    weighted = folded.weighted_sum(torch.tensor([0.5, 2.0])).flatten()
    torch.testing.assert_close(weighted, 0.5 * rows[0] + 2 * rows[1], rtol=1e-4, atol=1e-4)
    folded.drop(torch.tensor([True, False]))
    torch.testing.assert_close(folded.rows()[0], torch.zeros_like(rows[0]))
    torch.testing.assert_close(folded.rows()[1], rows[1], rtol=1e-4, atol=1e-4)


# --- checks ----------------------------------------------------------------------------------


class MixesExamples(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x - x.mean(0))


def test_model_that_mixes_examples_is_refused():
    with pytest.raises(UnsoundConfiguration):
        private(MixesExamples(), normal(6), norm=1.0, backend="bookkeeping")


class Patches(nn.Module):
    """Has more rows than examples and copies inside."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x):
        return self.layer(x.reshape(-1, 2)).view(len(x), -1)


def test_axis_that_is_not_of_examples_is_refused():
    with pytest.raises(UnsoundConfiguration, match="first axis"):
        private(Patches(), normal(6), norm=1.0, backend="bookkeeping")


def test_inputs_without_copies_are_refused():
    for inputs in (normal(6).flatten(0, 1), torch.zeros(4), torch.zeros(5, 2, 6)):
        with pytest.raises(ValueError, match="copies=3"):
            private(nn.Linear(6, 3), inputs, norm=1.0)


# --- the trainer -----------------------------------------------------------------------------


def jitter(inputs):
    return inputs + 0.1 * torch.randn_like(inputs)


def trainer(net, *, a_plan=None, seed=5, run_dir=None, **loading):
    return PrivateTrainer(
        net,
        LOSS,
        a_plan or plan(),
        optimizer=sgd(net),
        run_dir=run_dir,
        loading=Loading(**{"augment": jitter, "copies": COPIES} | loading),
        checkpoints=Checkpointing(every=2),
        generator=SeededForExperiments(seed=seed),
    )


def test_identical_copies_train_as_one_does():
    nets = [model() for _ in range(3)]
    quiet = plan(noise_multiplier=0.05)
    trainer(nets[0], a_plan=quiet, augment=lambda x: x.clone()).fit(data())
    trainer(nets[1], a_plan=quiet, augment=None, copies=1).fit(data())
    trainer(nets[2], a_plan=quiet).fit(data())
    torch.testing.assert_close(weights(nets[0]), weights(nets[1]))
    assert float((weights(nets[2]) - weights(nets[1])).norm()) > 1e-3


def test_physical_batches_hold_all_copies():
    sizes = []

    class Seen(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, x):
            sizes.append(len(x))
            return self.layer(x)

    trainer(Seen(), max_physical_batch_size=7).fit(data())
    assert max(sizes) == 6  # two examples
    sizes.clear()
    trainer(Seen(), max_physical_batch_size=2).fit(data())
    looks = 7  # at a few examples, before the first step: what the model keeps, what the loss is
    assert set(sizes[looks:]) == {COPIES}


def test_resumed_run_draws_the_same_copies(tmp_path):
    options = {"a_plan": plan(clipping=QuantileClip(0.5))}
    whole, cut, again = model(), model(), model(seed=9)
    torch.manual_seed(0)
    trainer(whole, run_dir=tmp_path / "whole", **options).fit(data())

    calls = 0

    def fails(inputs):
        nonlocal calls
        calls += 1
        if calls > 2 * COPIES + 36:  # in the third step; the check takes 36 calls
            raise KeyboardInterrupt
        return jitter(inputs)

    torch.manual_seed(0)
    with pytest.raises(KeyboardInterrupt):
        trainer(cut, run_dir=tmp_path / "cut", augment=fails, **options).fit(data())
    torch.manual_seed(77)
    trainer(again, run_dir=tmp_path / "cut", **options).fit(data())
    assert torch.equal(weights(again), weights(whole))


def of_numpy(inputs):
    return inputs + torch.from_numpy(np.random.normal(size=inputs.shape)).float()  # noqa: NPY002


def of_python(inputs):
    return inputs * random.choice([-1, 1])


@pytest.mark.parametrize("function", [jitter, of_numpy, of_python])
def test_augmentation_of_single_examples_is_accepted(function):
    trainer(model(), augment=function).fit(data())


def mixed_up(inputs):
    share = torch.rand(len(inputs), 1)
    return share * inputs + (1 - share) * inputs[torch.randperm(len(inputs))]


def now_and_then(inputs):
    return inputs if random.random() < 0.7 else inputs.flip(0)


def inside(inputs):
    found = inputs.clone()
    found[1:-1] = inputs[1:-1].flip(0)
    return found


def one_pair(inputs):
    return torch.cat([inputs[:2], inputs[3:4], inputs[3:]])


@pytest.mark.parametrize(
    "function",
    [
        mixed_up,
        now_and_then,
        inside,
        one_pair,
        lambda x: x - x.mean(0),
        lambda x: x.flip(0),
    ],
)
def test_augmentation_that_mixes_examples_is_refused(function):
    with pytest.raises(UnsoundConfiguration, match="if the others change"):
        trainer(model(), augment=function).fit(data())


def test_augmentation_with_bits_of_its_own_is_warned_about(caplog):
    bits = torch.Generator().manual_seed(0)
    with caplog.at_level(logging.WARNING):
        trainer(
            model(), augment=lambda x: x + torch.randn(x.shape, generator=bits)
        ).fit(data())  # fmt: skip
    assert "was not checked" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"augment": None}, "copies=3 would all be the same without augment"),
        ({"copies": 0}, "copies"),
        ({"augment": 1}, "augment must be a function"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        trainer(model(), **options)


def test_augmentation_must_keep_the_number_of_examples():
    with pytest.raises(ValueError, match="as many examples"):
        trainer(model(), augment=lambda x: torch.cat([x, x])).fit(data())


class Doubled(nn.Module):
    """Makes two copies of every example, and the mean of what becomes of them."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.repeat_interleave(2, 0)).unflatten(0, (-1, 2)).mean(1)


def test_loop_of_a_user_cannot_have_copies():
    """Which rows belong together cannot be seen from inside of an optimizer."""
    net = nn.Linear(5, 3)
    net, _, loader = make_private(
        module=net,
        optimizer=sgd(net),
        data_loader=DataLoader(data(), batch_size=12),
        noise_multiplier=1.0,
        max_grad_norm=0.5,
    )
    x, y = next(iter(loader))
    with pytest.raises(UnsoundConfiguration, match="examples where the loader handed out"):
        LOSS(Doubled(net)(x), y).mean().backward()


def test_copies_that_a_model_makes_are_those_of_one_example():
    """Such a model is called with one example at a time."""
    torch.manual_seed(0)
    plain = nn.Linear(5, 3)
    doubled = Doubled(deepcopy(plain))
    for net in (plain, doubled):
        private_loop(net, sgd(net), data(), noise_generator=SeededForExperiments(seed=1))
    torch.testing.assert_close(weights(doubled), weights(plain))
