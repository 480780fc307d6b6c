"""Models that mix examples on a coincidence, now and then, or later: most are found at once."""

import random

import numpy as np
import pytest
import torch
from oracles.gradients import cross_entropy
from torch import nn

from taut.errors import UnsoundConfiguration
from taut.training import FlatClip
from taut.training._gradients.isolation import schedule as schedule_module
from taut.training._gradients.isolation.circumstances import Counts, circumstances
from taut.training._gradients.isolation.company import COMPANIES, half_of
from taut.training._gradients.isolation.draws import HIGHEST, LOWEST, Draws, extreme_draws
from taut.training._gradients.isolation.schedule import Schedule
from taut.training._gradients.isolation.structure import Attributes
from taut.training.extend import PrivateGradient

FEATURES, CLASSES, BATCH = 6, 3, 20


class Net(nn.Module):
    def __init__(self, inside, activation=torch.tanh, before=False):
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)
        self.inside, self.activation, self.before = inside, activation, before
        self.calls, self.bank = 0, []

    def forward(self, x):
        self.calls += 1
        if self.before:
            return self.last(self.activation(self.first(self.inside(self, x))))
        return self.last(self.inside(self, self.activation(self.first(x))))


class Keyed(nn.Module):
    """Averages what examples with the same key hold."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(FEATURES, CLASSES)

    def forward(self, keys, x):
        return self.last(averaged(keys[:, None] == keys, x))


def averaged(alike, x):
    weights = alike.to(x.dtype)
    return weights @ x / weights.sum(1, keepdim=True)


def same(column):
    return lambda _, x: averaged(x[:, None, column] == x[:, column], x)


def identity(x):
    return x


def centred_if(condition):
    return lambda model, h: h - h.mean(0) if condition(model, h) else h


def without_twins(_, x):
    _, places, counts = x.unique(dim=0, return_inverse=True, return_counts=True)
    return x / counts[places][:, None]


def banked(model, h):
    model.bank.append(h.detach().mean(0))
    return h - model.bank[-9] if len(model.bank) > 60 else h


class Backward(torch.autograd.Function):
    """Mixes the gradients of examples if one is large."""

    @staticmethod
    def forward(_, h):
        return h.clone()

    @staticmethod
    def backward(_, grads):
        return grads - (grads.abs().max() > 5) * grads.mean(0)


def first_and_last(_, h):
    return torch.cat([h[:1] + 0.5 * h[-1:].detach(), h[1:]])


RARE = {
    "equal keys": lambda: Net(same(0), before=True),
    "equal keys elsewhere": lambda: Net(same(3), before=True),
    "nearly equal": lambda: Net(
        lambda _, x: averaged(torch.cdist(x, x) < 0.05, x), before=True
    ),
    "twins": lambda: Net(without_twins, before=True),
    "beyond one": lambda: Net(lambda _, h: h / h.abs().max().clamp(min=1), identity),
    "beyond a hundred": lambda: Net(
        lambda _, h: h / (h.detach().abs().max() / 100).clamp(min=1), torch.relu
    ),
    "overflow": lambda: Net(
        lambda _, h: h if bool(h.isfinite().all()) else h.nan_to_num() / 2, identity
    ),
    "beyond most of the batch": lambda: Net(
        lambda _, h: h.clamp(max=float(h.detach().abs().quantile(0.9)))
    ),
    "two examples": lambda: Net(first_and_last),
    "large gradients": lambda: Net(lambda _, h: Backward.apply(h), torch.relu),
    "now and then": lambda: Net(centred_if(lambda *_: float(torch.rand(())) < 1e-3)),
    "now and then, without a branch": lambda: Net(
        lambda _, h: h - (torch.rand(()) > 0.999).to(h) * h.mean(0)
    ),
    "at a tail": lambda: Net(lambda _, h: h - (torch.randn(()) > 4).to(h) * h.mean(0)),
    "by a draw of Python": lambda: Net(centred_if(lambda *_: random.random() < 1e-3)),
    "by a draw of numpy": lambda: Net(centred_if(lambda *_: np.random.rand() > 0.999)),  # noqa: NPY002
    "after many calls": lambda: Net(centred_if(lambda model, _: model.calls > 5_000)),
    "every hundredth call": lambda: Net(centred_if(lambda model, _: model.calls % 100 == 0)),
    "large weights": lambda: Net(centred_if(lambda m, _: float(m.last.weight.norm()) > 9)),
}  # fmt: skip


def batch(seed=7):
    bits = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, FEATURES, generator=bits)
    return x, torch.randint(0, CLASSES, (BATCH,), generator=bits)


def engine(model, **options):
    return PrivateGradient(model, FlatClip(1.0), scales=[0.0], expected_batch_size=1.0, **options)


def train(model, steps):
    private = engine(model)
    for step in range(steps):
        private.accumulate_batch(*batch(step), cross_entropy)
        private.finish()


@pytest.mark.parametrize("name", RARE)
def test_rare_mixing_is_found_with_the_first_batch(name):
    with pytest.raises(UnsoundConfiguration):
        engine(RARE[name]()).accumulate_batch(*batch(), cross_entropy)


def test_equal_keys_beside_inputs_are_found():
    x, y = batch()
    keys = torch.arange(BATCH)
    with pytest.raises(UnsoundConfiguration):
        engine(Keyed()).accumulate_batch((keys, x), y, cross_entropy)


def test_loss_that_looks_for_equal_labels_is_refused():
    def crowded(outputs, labels):
        many = (labels[:, None] == labels).sum(1) > BATCH // 2
        return cross_entropy(outputs, labels) * (1 + many)

    with pytest.raises(UnsoundConfiguration):
        engine(Net(lambda _, h: h)).accumulate_batch(*batch(), crowded)


@pytest.mark.parametrize("start", [3, 40])
def test_what_begins_unseen_is_found_soon(start, monkeypatch):
    monkeypatch.setattr(schedule_module, "_SHARE", 0.0)
    passes = []
    model = Net(centred_if(lambda *_: passes.append(1) or len(passes) > 40 + start))
    with pytest.raises(UnsoundConfiguration):
        train(model, 4 * start + 8)


def test_memory_that_is_used_later_is_found():
    with pytest.raises(UnsoundConfiguration):
        train(Net(banked), 70)


def test_counts_of_calls_go_on_as_if_nothing_was_tested():
    model = Net(lambda _, h: h)
    private = engine(model)
    private.accumulate_batch(*batch(), cross_entropy)
    before = model.calls
    private.examples.schedule.due = lambda _: "half"
    private.accumulate_batch(*batch(), cross_entropy)
    assert model.calls == before + 1


def test_models_are_as_before_after_a_test():
    model = Net(lambda _, h: h)
    before = [p.clone() for p in model.parameters()]
    kept = [p.data_ptr() for p in model.parameters()]
    engine(model).accumulate_batch(*batch(), cross_entropy)
    assert all(map(torch.equal, before, model.parameters()))
    assert kept == [p.data_ptr() for p in model.parameters()]


# --- company -------------------------------------------------------------------------------------


@pytest.mark.parametrize("company", COMPANIES)
@pytest.mark.parametrize(
    "kind", [torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.int64, torch.bool]
)
def test_company_leaves_examples_that_stay_as_they_are(company, kind):
    values = (10 * torch.randn(9, 4)).to(kind)
    stays = half_of(9)
    stays[0] = True
    if kind.is_floating_point:
        values[0] = torch.inf
    found = company.of({"a": values, "b": [*range(9)], "c": "same"}, stays)
    assert found["a"].dtype == kind
    assert torch.equal(found["a"][stays], values[stays])
    assert [found["b"][i] for i in stays.nonzero()] == [i for i in range(9) if stays[i]]
    assert found["c"] == "same"
    if not kind.is_complex and company.shared == "none":
        assert bool(found["a"][~stays].isfinite().all())


def test_every_column_is_shared_in_one_company_and_not_in_another():
    values = torch.randn(8, 5)
    stays = torch.arange(8) < 4
    shared = [
        (c.of(values, stays)[4:] == values[:4]).all(0) for c in COMPANIES if c.shared != "none"
    ]
    assert torch.equal(shared[0], ~shared[1])


def test_extreme_draws_come_from_all_sources():
    states = torch.get_rng_state(), random.getstate()
    for drawn in (LOWEST, HIGHEST):
        with extreme_draws(drawn):
            assert torch.rand(3).tolist() == pytest.approx([drawn] * 3)
            assert float(torch.randn(())) == pytest.approx(4.7 if drawn > 0.5 else -4.7, abs=0.1)
            assert random.random() == drawn
            assert np.random.random() == drawn  # noqa: NPY002
            assert torch.rand(3, 4).shape == (3, 4)
    assert random.random() not in (LOWEST, HIGHEST)
    random.setstate(states[1])
    torch.set_rng_state(states[0])


def test_circumstances_follow_from_what_a_model_does():
    model = Net(lambda _, h: h)
    draws, counts = Draws(model), Counts(model)
    assert not draws.were_used
    assert len(circumstances(model, draws, counts)) == 2
    model(batch()[0])
    assert [(p.kept is vars(model), p.name) for p in counts.moved()] == [(True, "calls")]
    assert len(circumstances(model, draws, counts)) == 6
    torch.rand(())
    assert draws.were_used
    assert len(circumstances(model, draws, counts)) == 8
    counts.restore()
    assert model.calls == 0


# --- when ----------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def share_of_tests(schedule, clock, batches, step=1.0, cost=0.5):
    """Return how much of the time went into tests, and how often there was one."""
    spent, times = 0.0, []
    for place in range(batches):
        how = schedule.due(100)
        clock.now += step
        if how is not None:
            with schedule.testing(how):
                clock.now += cost
            schedule.passed(100)
            if how != "whole":
                spent += cost
                times.append(place)
    return spent / (batches * step), times


@pytest.mark.parametrize(("step", "test"), [(1.0, 0.5), (1.0, 0.03), (1e-3, 5e-3)])
def test_tests_take_a_hundredth_of_a_run(step, test):
    clock = Clock()
    share, times = share_of_tests(Schedule(nn.Linear(2, 2), clock=clock), clock, 20_000, step, test)
    assert 0.005 < share < 0.01
    assert times[:4] == [1, 4, 16, 64] or test < step / 10
    assert len(times) > 20


def test_attributes_that_change_are_tested_a_few_times():
    model = nn.Linear(2, 2)
    clock = Clock()
    schedule = Schedule(model, clock=clock)
    share_of_tests(schedule, clock, 3)
    model.epoch = 1
    assert schedule.due(100) == "half"
    assert schedule.due(100) is None
    model.epoch = 2
    assert schedule.due(100) == "half"


def test_attributes_that_always_change_are_soon_no_news():
    model = nn.Linear(2, 2)
    attributes = Attributes(model)
    news = []
    for call in range(1_000, 1_064):
        model.calls = call
        news.append(attributes.changed())
    assert [i + 1 for i, is_news in enumerate(news) if is_news] == [1, 2, 4, 8, 16, 32, 64]
