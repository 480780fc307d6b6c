"""Models, datasets and loops that keep something of examples, and bring it to others later."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracles.gradients import cross_entropy
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from taut.errors import UnsoundConfiguration
from taut.training import FlatClip, Loading, Logs, Plan, PrivateTrainer, make_private
from taut.training._data.fetching import check_fetching
from taut.training._gradients.isolation import memory
from taut.training._gradients.isolation.circumstances import Counts
from taut.training._gradients.isolation.memory import check_memory
from taut.training._gradients.unchanged_state import _checksum
from taut.training._tensors.examples import apply
from taut.training.extend import PrivateGradient

EXAMPLES, FEATURES, CLASSES = 24, 6, 3
BITS = torch.Generator().manual_seed(4)
X = torch.randn(EXAMPLES, FEATURES, generator=BITS)
Y = torch.randint(0, CLASSES, (EXAMPLES,), generator=BITS)


class Net(nn.Module):
    def __init__(self, before=lambda _, x: x):
        super().__init__()
        self.first, self.last, self.before = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES), before
        self.kept, self.table, self.state = None, {}, SimpleNamespace(mean=None)

    def forward(self, x, *more):
        return self.last(torch.tanh(self.first(self.before(self, x, *more))))


def by_first_mean(model, x):
    if model.kept is None:
        model.kept = x.mean(0)
    return x - model.kept


def by_largest_of_first(model, x):
    if model.kept is None:
        model.kept = float(x.abs().max())
    return x / model.kept


def by_table(model, x):
    return x - model.table.setdefault("mean", x.mean(0))


def by_namespace(model, x):
    if model.state.mean is None:
        model.state.mean = x.mean(0)
    return x - model.state.mean


def by_batch_before(model, x):
    kept, model.kept = model.kept, x.mean(0)
    return x if kept is None else x - kept


REMEMBERS = [by_first_mean, by_largest_of_first, by_table, by_namespace, by_batch_before]


def with_positions(model, x):
    if model.kept is None:
        model.kept = torch.linspace(0, 1, FEATURES)  # a table that is made at the first call
    return x + model.kept


def shown(model, x):
    model.kept = x.detach().softmax(1)  # for people to look at
    return x


def noisy(_, x):
    return x + 0.1 * torch.randn_like(x)


def in_place(_, x):
    return x.sub_(0.5).mul_(2)


SOUND = [with_positions, shown, noisy, in_place]


def trained(before, **loading):
    plan = Plan(
        examples=EXAMPLES, rate=0.5, steps=3, noise_multiplier=1.0, delta=1e-3,
        clipping=FlatClip(1.0),
    )  # fmt: skip
    trainer = PrivateTrainer(
        Net(before), nn.CrossEntropyLoss(), plan,
        loading=Loading(**loading), logs=Logs(progress=False),
    )  # fmt: skip
    return trainer.fit(TensorDataset(X, Y))


def looped(model, step, dataset=None, rate=0.5, collate=None):
    loader = DataLoader(dataset or TensorDataset(X, Y), batch_size=12, collate_fn=collate)
    model, optimizer, loader = make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0), data_loader=loader,
        noise_multiplier=1.0, max_grad_norm=1.0, rate=rate,
    )  # fmt: skip
    for _ in range(3):
        for batch in loader:
            optimizer.zero_grad()
            step(model, *batch).backward()
            optimizer.step()
    return optimizer


def plain(model, x, y):
    return functional.cross_entropy(model(x), y)


@pytest.mark.parametrize("before", REMEMBERS)
def test_models_that_remember_their_first_examples_are_refused(before):
    with pytest.raises(UnsoundConfiguration, match="called with first"):
        trained(before)
    with pytest.raises(UnsoundConfiguration, match="called with first"):
        looped(Net(before), plain)


@pytest.mark.parametrize("before", SOUND)
def test_models_that_keep_nothing_of_examples_are_not(before):
    assert trained(before).steps == 3
    assert looped(Net(before), plain).ledger.steps == 6


def test_models_have_seen_nothing_after_the_check():
    model = Net(with_positions)
    check_memory(model, apply, X)
    assert model.kept is None


def test_models_that_cannot_be_copied_are_left_alone():
    model = Net(by_first_mean)
    model.file = iter([1])
    model.generator = (i for i in range(3))
    check_memory(model, apply, X)


def test_inputs_that_a_model_writes_to_are_trained_on_as_they_are():
    found = []
    for before in (lambda _, x: x - 0.5, lambda _, x: x.sub_(0.5)):
        torch.manual_seed(0)
        private = PrivateGradient(Net(before), FlatClip(0.1), scales=[0.0], expected_batch_size=1.0)
        private.accumulate_batch(X.clone(), Y, cross_entropy)
        private.finish()
        found.append(torch.cat([p.grad.flatten() for p in private.parameters]))
    torch.testing.assert_close(*found)


# --- what loops do to batches --------------------------------------------------------------------


def centred(model, x, y):
    x.sub_(x.mean(0))
    return plain(model, x, y)


def centred_by_numpy(model, x, y):
    x.numpy()[:] -= x.numpy().mean(0)
    return plain(model, x, y)


def relabelled(model, x, y):
    outputs = model(x)
    y.fill_(int(y.mode().values))
    return functional.cross_entropy(outputs, y)


@pytest.mark.parametrize("step", [centred, centred_by_numpy, relabelled])
def test_batches_that_are_changed_in_place_are_refused(step):
    with pytest.raises(UnsoundConfiguration, match="changed in place"):
        looped(Net(), step)


def scaled(_, x, scale):
    return x / scale


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (lambda x: x.std(), "tensor of one number"),
        (lambda x: float(x.std()), "another number than in the step before"),
    ],
)
def test_numbers_of_a_batch_beside_it_are_refused(number, message):
    with pytest.raises(UnsoundConfiguration, match=message):
        looped(Net(scaled), lambda m, x, y: functional.cross_entropy(m(x, number(x)), y))


def test_numbers_that_stay_the_same_are_not():
    looped(Net(scaled), lambda m, x, y: functional.cross_entropy(m(x, 2.0), y))


# --- datasets and collate functions --------------------------------------------------------------


class Examples(Dataset):
    def __init__(self):
        self.mean, self.before, self.bits = 0.0, X[0], np.random.default_rng(0)

    def __len__(self):
        return EXAMPLES


class Running(Examples):
    def __getitem__(self, place):
        self.mean = 0.9 * self.mean + 0.1 * X[place]
        return X[place] - self.mean, Y[place]


class Blended(Examples):
    def __getitem__(self, place):
        before, self.before = self.before, X[place]
        return (X[place] + before) / 2, Y[place]


class Drawn(Examples):
    def __getitem__(self, place):
        drawn = torch.rand(()) + random.random() + float(self.bits.normal())
        return X[place] + drawn, Y[place]


@pytest.mark.parametrize("kind", [Running, Blended])
def test_datasets_that_remember_examples_are_refused(kind):
    with pytest.raises(UnsoundConfiguration, match="fetched again"):
        looped(Net(), plain, kind())


def test_datasets_that_draw_are_not():
    dataset = Drawn()
    before = dataset.bits.bit_generator.state
    check_fetching(dataset, default_collate, EXAMPLES)
    assert dataset.bits.bit_generator.state == before
    looped(Net(), plain, dataset)


class ByFirstBatch:
    def __init__(self):
        self.mean = None

    def __call__(self, items):
        x, y = default_collate(items)
        if self.mean is None:
            self.mean = x.mean(0)
        return x - self.mean, y


def test_collation_by_the_first_batch_is_refused():
    with pytest.raises(UnsoundConfiguration, match="collate_fn makes something else"):
        looped(Net(), plain, collate=ByFirstBatch())
    with pytest.raises(UnsoundConfiguration, match="collate_fn makes something else"):
        trained(lambda _, x: x, collate_fn=ByFirstBatch())


# --- counts --------------------------------------------------------------------------------------


def test_counts_are_found_in_dictionaries_and_tensors():
    model = Net()
    model.table = {"calls": 1, "name": "x"}
    model.calls = torch.zeros(())
    counts = Counts(model)
    model.table["calls"] += 1
    model.calls.add_(1)
    assert sorted(place.name for place in counts.moved()) == ["calls", "calls"]
    counts.restore()
    assert model.table["calls"] == 1
    assert float(model.calls) == 0.0


def late(counted):
    def before(model, x):
        return x - x.mean(0) if counted(model) > 500 else x

    return before


def in_table(model):
    model.table["calls"] = model.table.get("calls", 0) + 1
    return model.table["calls"]


def in_tensor(model):
    model.kept = torch.zeros(()) if model.kept is None else model.kept.add_(1)
    return model.kept


@pytest.mark.parametrize("counted", [in_table, in_tensor])
def test_models_that_mix_after_many_calls_are_refused_at_once(counted):
    with pytest.raises(UnsoundConfiguration, match="depends on the other examples"):
        trained(late(counted))


def test_memory_of_a_large_model_is_found_before_its_second_batch(monkeypatch):
    monkeypatch.setattr(memory, "_LARGE", 0)
    torch.manual_seed(0)
    private = PrivateGradient(
        Net(by_first_mean), FlatClip(1.0), scales=[0.0], expected_batch_size=1.0
    )
    private.accumulate_batch(X, Y, cross_entropy)
    private.finish()  # gradients of the first batch owe nothing to an earlier one
    with pytest.raises(UnsoundConfiguration, match="called with first"):
        private.accumulate_batch(X, Y, cross_entropy)


@pytest.mark.parametrize("keeps", [by_first_mean, by_largest_of_first, by_table, by_namespace])
def test_two_first_calls_tell_as_much_of_a_large_model(monkeypatch, keeps):
    monkeypatch.setattr(memory, "_LARGE", 0)
    torch.manual_seed(0)
    with pytest.raises(UnsoundConfiguration, match="called with first"):
        check_memory(Net(keeps), apply, X)
    check_memory(Net(), apply, X)


@pytest.mark.parametrize(
    "values",
    [
        torch.randn(5, 3),
        torch.randn(4, 4).t(),
        torch.randn(7).bfloat16(),
        torch.randn(3, dtype=torch.complex128),
        torch.tensor([True, False, True]),
        torch.randn(300_001),
    ],
    ids=lambda values: f"{values.dtype} {tuple(values.shape)}",
)
def test_checksums_follow_every_bit(values):
    known = _checksum(values)
    assert _checksum(values.clone()) == known
    for place in (0, values.numel() // 2, values.numel() - 1):
        changed = values.clone(memory_format=torch.contiguous_format)
        number = changed.view(-1)[place : place + 1].view(torch.uint8)
        number[0] ^= 1
        assert _checksum(changed) != known
    swapped = values.flip(0)
    assert (_checksum(swapped) == known) == torch.equal(swapped, values)
