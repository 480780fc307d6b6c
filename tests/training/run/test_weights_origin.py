"""Weights that have been through a run: counted where they are loaded, or refused."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from training.runs import data, model, plan, private_loop, sgd

from taut.errors import UnsoundConfiguration
from taut.training import PrivateTrainer

NOTE = "taut.runs"


@pytest.fixture
def first():
    net = model()
    return net, private_loop(net, sgd(net), data())


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


def note(net):
    return net.state_dict()._metadata[""].get(NOTE)


def test_the_keys_of_a_state_stay_as_they_were(first):
    assert set(first[0].state_dict()) == set(model().state_dict())
    assert note(model()) is None
    fresh = model()
    private_loop(fresh, sgd(fresh), data(), before=lambda _: None, steps=1)
    plain = model()
    plain.load_state_dict(through_a_file(first[0].state_dict()))


def test_weights_before_the_first_step_have_no_past():
    net, seen = model(), []
    private_loop(net, sgd(net), data(), steps=1, before=lambda _: seen.append(note(net)))
    assert seen == [None]
    assert note(net) is not None


def test_loaded_weights_bring_their_steps(first):
    net, optimizer = first
    other = model()
    second = private_loop(other, sgd(other), data(), steps=1)
    other.load_state_dict(through_a_file(net.state_dict()))
    assert second.ledger.steps == 1 + 5
    assert second.get_epsilon(1e-3) > optimizer.get_epsilon(1e-3)
    second.load_state_dict(optimizer.inner.state_dict())  # the same steps once more
    assert second.ledger.steps == 6
    net.load_state_dict(net.state_dict())
    assert optimizer.ledger.steps == 5


def test_the_optimizer_inside_does_not_hide_them(first):
    _, optimizer = first
    other = model()
    second = private_loop(other, sgd(other), data(), steps=1)
    second.load_state_dict(optimizer.inner.state_dict())
    assert second.ledger.steps == 6


def test_optimizers_that_call_no_hooks_are_noted():
    class Silent(torch.optim.SGD):
        def state_dict(self):
            return {"state": {}, "param_groups": []}

    net = model()
    optimizer = private_loop(net, Silent(net.parameters(), lr=0.1), data(), steps=1)
    assert sum(optimizer.state_dict()["privacy"]["runs"].values()) == 1


def test_weights_of_another_price_are_refused_and_not_loaded(first):
    net, _ = first
    other = model(seed=9)
    second = private_loop(other, sgd(other), data(), steps=1, noise_multiplier=2.0)
    before = copy.deepcopy(other).state_dict()
    with pytest.raises(UnsoundConfiguration, match=r"another noise.*add their losses"):
        other.load_state_dict(net.state_dict())
    assert second.ledger.steps == 1
    for name, value in other.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_private_part_of_a_module_is_noticed(first):
    net, _ = first
    whole, other = nn.ModuleDict({"part": net}), model()
    second = private_loop(other, sgd(other), data(), steps=1)
    nn.ModuleDict({"part": other}).load_state_dict(through_a_file(whole.state_dict()))
    assert second.ledger.steps == 6


def test_copies_know_where_they_come_from(first):
    net, optimizer = first
    twin = copy.deepcopy(net)
    assert note(twin) == note(net)
    twin.load_state_dict(net.state_dict())
    pickled = pickle.loads(pickle.dumps(nn.Sequential(*net)))
    assert note(pickled) is None  # other modules around the same tensors: that cannot be seen
    optimizer.remove()
    whole = pickle.loads(pickle.dumps(net))
    assert note(whole) == note(net)
    whole.load_state_dict(net.state_dict())


def test_a_second_run_of_a_module_takes_the_place_of_the_first(first):
    net, optimizer = first
    optimizer.remove()
    second = private_loop(net, sgd(net), data(), steps=2)
    assert note(net)["runs"] == second.ledger.history.runs


def test_trainers_count_weights_that_were_loaded_into_them(first):
    net, _ = first
    mine = model()
    trainer = PrivateTrainer(mine, nn.CrossEntropyLoss(), plan(steps=12))
    mine.load_state_dict(net.state_dict())
    result = trainer.fit(data())
    assert (result.counted_steps, result.steps) == (12, 7)
    assert note(mine)["runs"] == trainer.ledger.history.runs
    other = model()
    dear = PrivateTrainer(other, nn.CrossEntropyLoss(), plan(noise_multiplier=3.0))
    other.load_state_dict(net.state_dict())
    with pytest.raises(UnsoundConfiguration, match="another noise"):
        dear.fit(data())


def test_a_checkpoint_of_its_own_is_counted_once(tmp_path):
    for _ in range(2):
        trainer = PrivateTrainer(model(), nn.CrossEntropyLoss(), plan(), run_dir=tmp_path)
        assert trainer.fit(data()).counted_steps == plan().steps
    saved = torch.load(tmp_path / "checkpoint.pt")["model"]
    stranger = model()
    fresh = PrivateTrainer(stranger, nn.CrossEntropyLoss(), plan())
    stranger.load_state_dict(saved)
    assert fresh.fit(data()).steps == 0
