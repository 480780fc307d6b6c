"""Models in which one example reaches the gradient of another are refused; others are not.

What is not refused is measured: on neighbouring datasets with the noise left out, the sum of
clipped gradients moves by no more than the clipping norm.
"""

import pytest
import torch
from oracles.gradients import cross_entropy
from torch import nn
from torch.nn import functional

from taut.errors import UnsoundConfiguration
from taut.training import FlatClip
from taut.training._gradients import self_check
from taut.training._gradients.isolation import checks
from taut.training._gradients.isolation import schedule as schedule_module
from taut.training._gradients.isolation.company import (
    COMPANIES,
    PLAIN,
    everyone,
    half_of,
    is_other,
)
from taut.training._gradients.isolation.draws import ConstantDraws
from taut.training._gradients.isolation.sketch import Sketch, Sketching
from taut.training._gradients.layers.records import Rows
from taut.training._gradients.tape import Tape
from taut.training.extend import PrivateGradient

EXAMPLES, FEATURES, CLASSES, NORM = 16, 8, 3, 1.0


class Net(nn.Module):
    def __init__(self, before=None, after=None):
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)
        self.before, self.after = before, after
        self.seen = 0.0

    def forward(self, x):
        if self.before is not None:
            x = self.before(self, x)
        hidden = torch.tanh(self.first(x))
        if self.after is not None:
            hidden = self.after(self, hidden)
        return self.last(hidden)


def neighbours(outlier):
    bits = torch.Generator().manual_seed(3)
    x = torch.randn(EXAMPLES, FEATURES, generator=bits)
    y = torch.randint(0, CLASSES, (EXAMPLES,), generator=bits)
    more = outlier * torch.randn(1, FEATURES, generator=bits)
    return (x, y), (torch.cat([x, more]), torch.cat([y, torch.tensor([1])]))


def engine(model, **options):
    settings = {"scales": [0.0], "expected_batch_size": 1.0}
    return PrivateGradient(model, FlatClip(NORM), **(settings | options))


def released(make, batch, **options):
    torch.manual_seed(0)
    private = engine(make(), **options)
    torch.manual_seed(1)
    private.accumulate_batch(*batch, cross_entropy)
    private.finish()
    return torch.cat([p.grad.flatten() for p in private.parameters])


def moved(make, outlier=50.0, **options):
    one, other = neighbours(outlier)
    return float((released(make, one, **options) - released(make, other, **options)).norm())


def quantised(bits):
    def f(_, x):
        scale = x.detach().abs().max() / (2 ** (bits - 1) - 1)
        return x + ((x / scale).round() * scale - x).detach()

    return f


def eight_bits(_, x):
    scale = 448.0 / x.detach().abs().max()
    return x + ((x * scale).to(torch.float8_e4m3fn).to(x) / scale - x).detach()


def remembered(model, x):
    model.seen = 0.9 * model.seen + 0.1 * x.detach().mean(0)
    return x - model.seen


def counted(model, x):
    model.seen += 1
    return x * (1 + model.seen)


def seeded_by_data(_, x):
    bits = torch.Generator().manual_seed(int(x.abs().sum() * 1000))
    return x + torch.randn(x.shape, generator=bits)


def large(f):
    return lambda model, x: f(model, x) if len(x) > 3 else x


def in_pairs(_, x):
    return torch.cat([x[:1], x[1:] + 1e-3 * x[:-1].detach()])


BEFORE = {
    "mean": lambda _, x: x - x.mean(0),
    "mean of large batches": large(lambda _, x: x - x.mean(0).detach()),
    "noise of the batch": lambda _, x: x + 0.1 * torch.randn_like(x) * x.detach().std(0),
    "mixup": lambda _, x: x + 0.5 * x[torch.randperm(len(x))].detach(),
    "roll by a random shift": lambda _, x: x + 0.5 * x.roll(int(torch.randint(1, 4, ())), 0),
    "running mean": remembered,
    "count of calls": counted,
    "8 bits": quantised(8),
    "12 bits": quantised(12),
    "16 bits": quantised(16),
    "float8": eight_bits,
    "seed from data": seeded_by_data,
    "neighbour in the batch": in_pairs,
    "sorted": lambda _, x: x + 0.1 * x.sort(0).values.detach(),
    "median of large batches": large(lambda _, x: x - x.detach().median(0).values),
    "least value": lambda _, x: x - x.detach().amin(),
    "rank in the batch": lambda _, x: x + x.detach().argsort(0).argsort(0) / len(x),
    "place in the batch": lambda _, x: x * torch.arange(1, len(x) + 1)[:, None],
    "size of the batch": lambda _, x: x * len(x),
    "inverse size of the batch": lambda _, x: x / len(x),
    "dropout of the largest": lambda _, x: x * (x.norm(dim=1) < x.norm(dim=1).max())[:, None],
    "whether any is large": lambda _, x: x * (2.0 if bool((x.abs() > 10).any()) else 1.0),
    "checksum": lambda _, x: x + 1e-4 * x.detach().sum(),
}
AFTER = {
    "statistic of large batches": large(lambda _, h: h * (1 + 100 * h.mean(0).abs())),
    "mean with its gradient": large(lambda _, h: h - h.mean(0)),
    "temperature": large(lambda _, h: h / h.detach().norm(dim=1).max()),
    "minibatch deviation": lambda _, h: h * (1 + h.std(0).mean()) if len(h) >= 4 else h,
    "softmax over the batch": large(lambda _, h: h * torch.softmax(h, 0) * len(h)),
    "attention over the batch": lambda _, h: torch.softmax(h @ h.T, -1) @ h,
    "batch norm": lambda _, h: functional.batch_norm(h, None, None, training=True),
    "whitening": lambda _, h: h / (h.detach().T @ h.detach()).diagonal().sqrt(),
}  # fmt: skip
MIXED = {name: (f, None) for name, f in BEFORE.items()}
MIXED |= {name: (None, f) for name, f in AFTER.items()}


@pytest.mark.parametrize("name", MIXED)
def test_models_that_mix_examples_are_refused(name):
    with pytest.raises(UnsoundConfiguration):
        released(lambda: Net(*MIXED[name]), neighbours(50.0)[0])


@pytest.mark.parametrize("name", ["mean", "12 bits", "temperature", "size of the batch"])
def test_unchecked_they_move_the_sum_by_more_than_the_norm(name):
    size = {"size of the batch": 1.0, "12 bits": 1e4}.get(name, 50.0)
    distance = moved(lambda: Net(*MIXED[name]), size, unchecked_isolation=True, self_check=False)
    assert distance > NORM * (1 + 1e-3)


class Depth(nn.Module):
    """Every example skips the layer or not."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, FEATURES)

    def forward(self, x):
        return x + (torch.rand(len(x), 1) > 0.5) * torch.relu(self.layer(x))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(FEATURES, 2, dropout=0.1, batch_first=True)
        self.last = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        tokens = x[:, None] * torch.linspace(0.5, 1.5, 5)[:, None]
        hidden = (x[:, :1] > 0) & (torch.arange(5) > 2)
        out, _ = self.attention(tokens, tokens, tokens, key_padding_mask=hidden)
        return self.last(out[:, 0])


class Experts(nn.Module):
    """Examples go to one of two experts, which see batches of their own size."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(FEATURES, 2)
        self.last = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("table", torch.randn(2, FEATURES, FEATURES))

    def forward(self, x):
        gate = self.gate(x).softmax(1)
        out = torch.zeros_like(x)
        for i in range(2):
            chosen = gate.argmax(1) == i
            out[chosen] = (x[chosen] @ self.table[i]) * gate[chosen, i : i + 1]
        return self.last(out)


class OwnGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.bits = torch.Generator().manual_seed(0)
        self.last = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        return self.last(x + 0.01 * torch.randn(x.shape, generator=self.bits))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(2, 6, 2, dropout=0.2, batch_first=True)
        self.last = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.last(self.cells(x.view(len(x), 4, 2))[0][:, -1])


def plain(*layers):
    return nn.Sequential(nn.Linear(FEATURES, 8), *layers, nn.Linear(8, CLASSES))


SOUND = {
    "linear": lambda: plain(nn.Tanh()),
    "dropout": lambda: plain(nn.Dropout(0.3), nn.Tanh()),
    "group norm": lambda: plain(nn.GroupNorm(2, 8)),
    "layer norm": lambda: plain(nn.LayerNorm(8), nn.GELU()),
    "in place": lambda: plain(nn.ReLU(inplace=True)),
    "stochastic depth": lambda: nn.Sequential(Depth(), nn.Linear(FEATURES, CLASSES)),
    "attention with a mask": Masked,
    "experts": Experts,
    "recurrent": Recurrent,
    "noise": lambda: Net(lambda _, x: x + torch.randn_like(x)),
    "own generator": OwnGenerator,
    "own scale": lambda: Net(lambda _, x: x / x.detach().abs().amax(1, keepdim=True)),
    "single precision inside": lambda: Net(None, lambda _, h: h.float().softmax(1).to(h.dtype)),
    "random choice of a token": lambda: Net(
        lambda _, x: x * (torch.rand(len(x), 1) < 0.9).to(x.dtype)
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_models_that_keep_examples_apart_are_not_refused(name):
    released(SOUND[name], neighbours(1.0)[1])


def test_sketches_see_gradients_that_sum_to_zero_whatever_a_model_draws():
    last = nn.Linear(FEATURES, CLASSES)
    rows = torch.tensor([[1.0, -1.0, 0.0], [0.5, 0.25, -0.75]])
    with ConstantDraws():
        values = Sketch.of({last.bias: Rows(last.bias, rows)}, [last.bias]).values[last.bias]
    assert (values.norm(dim=1) > 0.1).all()
    assert torch.equal(
        values, Sketch.of({last.bias: Rows(last.bias, rows)}, [last.bias]).values[last.bias]
    )


@pytest.mark.parametrize("name", ["linear", "group norm", "layer norm", "experts", "own scale"])
def test_one_example_moves_the_sum_by_no_more_than_the_norm(name):
    assert moved(SOUND[name]) <= NORM * (1 + 1e-3)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_precision_hides_no_mixing_and_is_no_reason_to_refuse(kind):
    (x, y), _ = neighbours(1.0)
    engine(plain(nn.Tanh()).to(kind)).accumulate_batch(x.to(kind), y, cross_entropy)
    mixed = Net(lambda _, x: x - x.detach().mean(0)).to(kind)
    with pytest.raises(UnsoundConfiguration):
        engine(mixed).accumulate_batch(x.to(kind), y, cross_entropy)


def test_written_out_gradients_are_apart_by_construction():
    options = {"backend": "materialised", "self_check": False}
    for name in ("statistic of large batches", "temperature", "softmax over the batch"):
        distance = moved(lambda name=name: Net(*MIXED[name]), **options)
        assert distance <= NORM * (1 + 1e-3)


@pytest.mark.parametrize("name", ["running mean", "count of calls"])
def test_what_a_model_keeps_is_found_where_examples_are_computed_in_turn(name):
    with pytest.raises(UnsoundConfiguration):
        released(lambda: Net(*MIXED[name]), neighbours(1.0)[0], backend="materialised")


# --- later batches -------------------------------------------------------------------------------


def after_first(model, change):
    (x, y), _ = neighbours(1.0)
    private = engine(model)
    private.accumulate_batch(x, y, cross_entropy)
    private.finish()
    change()
    private.accumulate_batch(x, y, cross_entropy)


def centred(_module, _args, out):
    return out - out.mean(0)


def test_hooks_that_come_later_are_tested():
    model = plain(nn.Tanh())
    with pytest.raises(UnsoundConfiguration, match="other examples"):
        after_first(model, lambda: model[0].register_forward_hook(centred))
    after_first(model := plain(nn.Tanh()), lambda: model.register_forward_hook(lambda *_: None))


def test_compiled_models_are_tested_and_not_refused():
    # The wrapper of torch.compile keeps no mode of its own; "eager" compiles nothing, and is quick.
    sound = torch.compile(Net(), backend="eager")
    batch = neighbours(1.0)[0]
    engine(sound).accumulate_batch(*batch, cross_entropy)
    mixing = torch.compile(Net(before=lambda _, x: x - x.mean(0)), backend="eager")
    with pytest.raises(UnsoundConfiguration, match="depends on the other examples"):
        engine(mixing).accumulate_batch(*batch, cross_entropy)


def test_layers_that_come_later_are_tested():
    model = plain(nn.Tanh())
    with pytest.raises(UnsoundConfiguration, match="BatchNorm1d '1'"):
        after_first(model, lambda: model.__setitem__(1, nn.BatchNorm1d(8, affine=False)))


def test_attributes_that_change_are_found_at_random(monkeypatch):
    monkeypatch.setattr(schedule_module, "_SHARE", float("inf"))
    monkeypatch.setattr(schedule_module, "_ONE_IN", 1)
    model = Net()
    with pytest.raises(UnsoundConfiguration, match="other examples"):
        after_first(model, lambda: setattr(model, "after", AFTER["mean with its gradient"]))


def test_larger_batches_are_tested(monkeypatch):
    monkeypatch.setattr(schedule_module, "_SHARE", 0.0)
    model = Net(lambda _, x: x - x.detach().mean(0) if len(x) > 12 else x)
    (x, y), _ = neighbours(1.0)
    private = engine(model)
    private.accumulate_batch(x[:12], y[:12], cross_entropy)
    with pytest.raises(UnsoundConfiguration, match="other examples"):
        private.accumulate_batch(x, y, cross_entropy)


def test_what_was_summed_is_forgotten_with_a_refusal():
    model = Net(*MIXED["mean of large batches"])
    private = engine(model)
    with pytest.raises(UnsoundConfiguration):
        private.accumulate_batch(*neighbours(1.0)[0], cross_entropy)
    private.finish()
    assert all(not bool(p.grad.any()) for p in private.parameters)


def test_draws_go_on_as_if_nothing_was_tested():
    (x, y), _ = neighbours(1.0)
    found = []
    for unchecked in (False, True):
        private = engine(plain(nn.Dropout(0.5)), unchecked_isolation=unchecked)
        torch.manual_seed(5)
        private.accumulate_batch(x, y, cross_entropy)
        found.append(torch.rand(3))
    assert torch.equal(*found)


def test_half_of_a_batch_is_exchanged():
    (x, y), _ = neighbours(1.0)
    stays = half_of(EXAMPLES)
    assert int(stays.sum()) == EXAMPLES // 2
    other, labels = PLAIN.of(x, stays), PLAIN.of(y, stays, scaled=False)
    assert torch.equal(other[stays], x[stays])
    assert not bool((other[~stays] == x[~stays]).all(1).any())
    assert torch.equal(labels[stays], y[stays])
    assert is_other(x, other)
    assert not is_other(torch.ones(4, 2), PLAIN.of(torch.ones(4, 2), half_of(4), scaled=False))


def test_everyone_meets_those_who_stay_at_once():
    count = 2 * len(COMPANIES)
    stays = torch.arange(count) % 2 == 0
    values = {"x": torch.randn(count, 6), "names": list("abcdefghijklmnopqrstuvwxyz"[:count])}
    found = everyone().of(values, stays)
    assert torch.equal(found["x"][stays], values["x"][stays])
    assert found["names"][::2] == values["names"][::2]
    alone = [company.of(values, stays)["x"] for company in COMPANIES]
    who = [
        [i for i, x in enumerate(alone) if torch.equal(x[r], found["x"][r])] for r in range(count)
    ]
    assert {i for row in range(1, count, 2) for i in who[row]} == set(range(len(COMPANIES)))


@pytest.mark.parametrize("name", MIXED)
def test_models_that_mix_examples_are_refused_if_large(name, monkeypatch):
    monkeypatch.setattr(checks, "_MANY", 0)
    monkeypatch.setattr(self_check, "_LARGE", 0)
    with pytest.raises(UnsoundConfiguration):
        released(lambda: Net(*MIXED[name]), neighbours(50.0)[0])


def test_sketches_made_on_the_way_are_those_of_records():
    model = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 4), nn.LayerNorm(4))
    tape, parameters = Tape(model), list(model.parameters())
    tokens = torch.randint(5, (6, 3))
    found = []
    for keep in (True, False):
        tape.sketching = sketching = Sketching(parameters, keep=keep)
        with tape.recording():
            values = model(tokens).square().sum(1)
        torch.autograd.backward(values.sum())
        records = tape.records(6)
        if keep:
            found.append(Sketch.of(records, parameters))
        found.append(sketching.taken())
        assert keep or all(record.rows().numel() == 0 for record in records.values())
    tape.sketching = None
    everyone = torch.arange(6)
    for other in found[1:]:
        assert found[0].differing(other, everyone, everyone) is None
