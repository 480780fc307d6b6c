"""Arguments of Opacus: no larger epsilon than there, and an answer to each of them."""

import logging
import math

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from training.ranks import in_processes
from training.runs import data, leave_out_noise, model, sgd, weights

import taut
from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import (
    FlatClip,
    Plan,
    PoissonSampling,
    PrivateLoader,
    PrivateTrainer,
    RunHistory,
    RunLedger,
    make_private,
    make_private_with_epsilon,
)

# Opacus 1.5.4, get_epsilon of its PRV and RDP accountants after len(loader) steps an epoch at rate
# 1 / len(loader), rounded down at the sixth digit. The first row is its example of a character LSTM
# on 6,720 names.
OPACUS = [
    # examples, batch, drop_last, epochs, sigma, delta, PRV, RDP
    (6_720, 800, False, 4, 1.0, 8e-5, 4.178544, 4.888285),
    (16_059, 800, False, 10, 1.0, 8e-5, 3.970900, 4.540219),
    (60_000, 64, False, 1, 1.0, 1e-5, 0.165075, 0.679392),
    (50_000, 512, False, 20, 0.8, 1e-5, 4.354831, 4.916073),
    (1_000, 300, False, 5, 1.2, 1e-4, 5.039077, 5.769965),
    (1_000, 300, True, 5, 1.2, 1e-4, 5.789728, 6.587502),
    (50_000, 2_000, True, 50, 2.0, 1e-5, 3.260703, 3.537321),
]


def zeros(examples):
    """Return examples that are never looked at."""
    return TensorDataset(torch.zeros(examples, 5), torch.zeros(examples, dtype=torch.long))


def private(dataset=None, *, batch_size=13, drop_last=False, net=None, **options):
    net = model() if net is None else net
    settings = {
        "noise_multiplier": 1.0,
        "max_grad_norm": 0.5,
        "optimizer": sgd(net),
        "noise_generator": SeededForExperiments(seed=11),
    }
    if "data_loader" not in options:
        settings["data_loader"] = DataLoader(
            data() if dataset is None else dataset, batch_size=batch_size, drop_last=drop_last
        )
    return make_private(module=net, **(settings | options))


def promised(dataset, batch_size=13, *, drop_last=False, epochs=2, **options):
    net = model()
    settings = {"target_epsilon": 3.0, "target_delta": 1e-3, "max_grad_norm": 0.5}
    return make_private_with_epsilon(
        module=net,
        optimizer=sgd(net),
        data_loader=DataLoader(dataset, batch_size=batch_size, drop_last=drop_last),
        epochs=epochs,
        **(settings | options),
    )


def run(net, optimizer, loader):
    for x, y in loader:
        optimizer.zero_grad()
        functional.cross_entropy(net(x), y).backward()
        optimizer.step()


# --- the rate ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("examples", "batch", "drop_last", "epochs", "sigma", "delta", "prv", "rdp"), OPACUS
)
def test_epsilon_is_no_larger_than_that_of_opacus(
    examples, batch, drop_last, epochs, sigma, delta, prv, rdp
):
    _, optimizer, loader = private(
        zeros(examples), batch_size=batch, drop_last=drop_last, noise_multiplier=sigma
    )
    batches = examples // batch if drop_last else math.ceil(examples / batch)
    assert len(loader) == batches
    found = optimizer.plan.loss_at(epochs * len(loader)).epsilon(delta)
    step = taut.gaussian(sigma).poisson(1 / batches)
    assert found <= (epochs * batches * step).epsilon_bounds(delta).upper
    assert found < prv < rdp


def test_noise_for_a_promise_is_no_more_than_that_of_opacus():
    # At a noise of 1, Opacus 1.5.4 states 4.1785 for these 36 steps; less noise must do here.
    _, optimizer, loader = promised(zeros(6_720), 800, epochs=4, target_epsilon=4.1785,
                                    target_delta=8e-5)  # fmt: skip
    assert (optimizer.plan.steps, len(loader)) == (36, 9)
    assert optimizer.plan.noise_multiplier <= 1.0


@pytest.mark.parametrize(
    ("examples", "batch", "drop_last", "batches"),
    [
        (60, 13, False, 5),
        (60, 13, True, 4),
        (60, 12, False, 5),
        (60, 61, False, 1),
        (98, 2, True, 49),
    ],
)
def test_loader_and_plan_agree_on_rate_batch_and_length(examples, batch, drop_last, batches):
    _, optimizer, loader = private(zeros(examples), batch_size=batch, drop_last=drop_last)
    plan = optimizer.plan
    assert len(loader) == batches
    assert loader.sampling == plan.sampling == PoissonSampling(rate=1 / batches)
    assert plan.batch_size == pytest.approx(examples / batches)
    assert (plan.steps, plan.epochs) == (batches, pytest.approx(1.0))
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.step_loss == taut.gaussian(1.0).poisson(1 / batches)


@pytest.mark.parametrize(("drop_last", "batches"), [(False, 5), (True, 4)])
def test_passes_are_as_long_as_those_of_the_loader(drop_last, batches):
    net, optimizer, loader = promised(data(), drop_last=drop_last, epochs=3)
    assert optimizer.plan.steps == 3 * batches
    for passed in range(1, 4):
        run(net, optimizer, loader)
        assert optimizer.ledger.steps == passed * batches
    assert 2.9 < optimizer.get_epsilon(1e-3) <= 3.0
    with pytest.raises(BudgetExceeded, match=f"all {3 * batches} steps"):
        next(iter(loader))


def test_batches_hold_the_expected_number_of_examples():
    dataset, passes = data(1_000), 60
    net, optimizer, loader = private(
        dataset, batch_size=300, noise_generator=SeededForExperiments(seed=5)
    )
    total = 0
    for _ in range(passes):
        for x, y in loader:
            total += len(x)
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    mean, deviation = 1_000 * passes, math.sqrt(passes * 4 * 1_000 * 0.25 * 0.75)
    assert abs(total - mean) < 5 * deviation
    assert optimizer.ledger.steps == 4 * passes


def test_sums_are_divided_by_the_expected_batch(monkeypatch):
    leave_out_noise(monkeypatch)
    monkeypatch.setattr(PoissonSampling, "draw", lambda _, n, *__: np.arange(n))
    inputs, labels = data().tensors
    ours, plain = model(), model()
    net, optimizer, loader = private(
        net=ours, optimizer=sgd(ours, lr=0.1), max_grad_norm=1e6
    )  # 60 examples in 5 batches: 12 expected
    x, y = next(iter(loader))
    functional.cross_entropy(net(x), y).backward()
    optimizer.step()
    by_hand = sgd(plain, lr=0.1)
    (functional.cross_entropy(plain(inputs), labels, reduction="sum") / 12).backward()
    by_hand.step()
    assert torch.allclose(weights(ours), weights(plain), atol=1e-5)


def full_step(_rank):
    """Return rate, steps and weights after one step on all examples, in one of two processes."""
    with pytest.MonkeyPatch.context() as patch:
        leave_out_noise(patch)
        patch.setattr(PoissonSampling, "draw", lambda _, n, *__: np.arange(n))
        net = model()
        _, optimizer, loader = private(net=net, optimizer=sgd(net, lr=0.1), max_grad_norm=1e6)
        x, y = next(iter(loader))
        functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return loader.sampling.rate, len(loader), len(x), weights(net)


def test_two_processes_divide_by_the_same_expected_batch():
    inputs, labels = data().tensors
    plain = model()
    (functional.cross_entropy(plain(inputs), labels, reduction="sum") / 12).backward()
    sgd(plain, lr=0.1).step()
    for rate, steps, own, found in in_processes(full_step):
        assert (rate, steps, own) == (1 / 5, 5, 30)
        assert torch.allclose(found, weights(plain), atol=1e-5)


def test_noise_is_divided_by_the_expected_batch(monkeypatch):
    monkeypatch.setattr(PoissonSampling, "draw", lambda *_: np.empty(0, dtype=np.int64))
    net = torch.nn.Linear(200, 100, bias=False)
    before = weights(net).clone()
    dataset = TensorDataset(torch.zeros(100, 200), torch.zeros(100, dtype=torch.long))
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    _, _, loader = private(
        dataset, batch_size=40, net=net, optimizer=optimizer, noise_multiplier=2.0,
        max_grad_norm=0.5,
    )  # fmt: skip
    assert list(loader) == []
    moved = (weights(net) - before) * (100 / 3) / (2.0 * 0.5)
    # Three steps of noise: a variance of 3, of which 20,000 numbers tell one percent.
    assert float(moved.square().mean()) == pytest.approx(3.0, rel=0.06)


def test_full_batches_of_a_loader_with_room_to_spare(monkeypatch):
    leave_out_noise(monkeypatch)
    ours, plain = model(), model()
    run(*private(net=ours, optimizer=sgd(ours), batch_size=100, max_grad_norm=1e6))
    inputs, labels = data().tensors
    by_hand = sgd(plain)
    functional.cross_entropy(plain(inputs), labels).backward()
    by_hand.step()
    assert torch.allclose(weights(ours), weights(plain), atol=1e-5)


def test_another_rate_can_be_asked_for():
    _, optimizer, loader = private(rate=13 / 60)
    assert optimizer.plan.sampling == PoissonSampling(rate=13 / 60)
    assert optimizer.plan.batch_size == pytest.approx(13.0)
    assert len(loader) == 5
    _, optimizer, loader = promised(data(), rate=13 / 60)
    assert len(loader) == 5
    assert optimizer.plan.steps == 10
    _, optimizer, loader = promised(data(), rate=0.01, epochs=0.5)
    assert (len(loader), optimizer.plan.steps) == (100, 50)


def test_rate_that_cannot_be():
    with pytest.raises(ValueError, match="batches of fixed size have no rate"):
        private(rate=0.2, poisson_sampling=False)
    with pytest.raises(ValueError, match="rate must"):
        private(rate=1.5)
    with pytest.raises(ValueError, match=r"no batches.*drop_last"):
        private(batch_size=61, drop_last=True)


def test_rate_and_expected_batch_are_said(caplog):
    with caplog.at_level(logging.INFO, logger="taut.training"):
        _, optimizer, loader = private(zeros(6_720), batch_size=800)
    assert f"{loader!r}, in place of 9 batches of 800 examples" in caplog.text
    assert repr(loader) == (
        "<private loader: 9 batches in a pass, PoissonSampling(rate=0.1111111111111111) of 6720 "
        "examples, 746.667 expected in a batch>"
    )
    assert "rate=0.1111111111111111" in repr(optimizer)
    assert "expected_batch_size=746.667" in repr(optimizer)


# --- what was saved at another rate --------------------------------------------------------------


def test_plans_and_ledgers_at_the_rate_of_the_batch_size_are_answered_as_before(tmp_path):
    old = Plan(
        examples=60, batch_size=13, steps=6, noise_multiplier=1.0, delta=1e-3,
        clipping=FlatClip(0.5),
    )  # fmt: skip
    assert old.rate == 13 / 60
    assert Plan.from_json(old.to_json()) == old
    path = tmp_path / "steps.jsonl"
    with RunLedger(path, old) as ledger:
        for step in range(6):
            ledger.record(step)
    assert RunHistory.read(path).loss == old.loss
    net, optimizer, loader = private(ledger=path)
    run(net, optimizer, loader)
    assert optimizer.loss == old.loss + 5 * taut.gaussian(1.0).poisson(1 / 5)
    optimizer.ledger.close()
    assert RunHistory.read(path).steps == 11


def test_state_from_another_rate_says_how_to_go_on():
    net, optimizer, loader = private(rate=13 / 60)
    run(net, optimizer, loader)
    state = optimizer.state_dict()
    _, other, _ = private()
    with pytest.raises(UnsoundConfiguration, match=f"rate={13 / 60!r}"):
        other.load_state_dict(state)
    _, same, _ = private(rate=13 / 60)
    same.load_state_dict(state)
    assert same.ledger.steps == 5


def test_trainer_keeps_the_batch_of_its_plan():
    plan = Plan(
        examples=60, batch_size=13, epochs=1, noise_multiplier=1.0, delta=1e-3,
        clipping=FlatClip(0.5),
    )  # fmt: skip
    result = PrivateTrainer(model(), torch.nn.CrossEntropyLoss(), plan).fit(data())
    assert (result.steps, plan.batch_size) == (5, 13.0)
    assert "an expected batch of 13 out of 60" in result.statement


# --- several runs --------------------------------------------------------------------------------


def test_loader_of_an_earlier_run_begins_a_run_of_its_own(caplog):
    loader = original = DataLoader(data(), batch_size=13, shuffle=True)
    optimizers, loaders = [], []
    for _ in range(3):
        net, optimizer, loader = private(data_loader=loader)
        optimizers.append(optimizer)
        loaders.append(loader)
        run(net, optimizer, loader)
    assert [optimizer.ledger.steps for optimizer in optimizers] == [5, 5, 5]
    assert len({optimizer.ledger.history.id for optimizer in optimizers}) == 3
    assert all(found.sampling == PoissonSampling(rate=1 / 5) for found in loaders)
    assert all(found.dataset is original.dataset for found in loaders)
    assert len({id(found) for found in loaders}) == 3
    assert caplog.text.count("losses of both runs add up") == 2
    step = taut.gaussian(1.0).poisson(1 / 5)
    assert sum((o.loss for o in optimizers[1:]), optimizers[0].loss) == 15 * step


def test_loader_of_an_earlier_run_has_the_rate_of_the_original():
    _, _, first = private(rate=0.9)
    _, optimizer, second = private(data_loader=first)
    assert second.sampling == optimizer.plan.sampling == PoissonSampling(rate=1 / 5)
    _, _, third = promised_again(second)
    assert (len(third), third.plan.steps) == (5, 10)


def promised_again(loader):
    net = model()
    return make_private_with_epsilon(
        module=net, optimizer=sgd(net), data_loader=loader, target_epsilon=3.0, target_delta=1e-3,
        epochs=2, max_grad_norm=0.5,
    )  # fmt: skip


def test_runs_with_one_ledger_are_counted_together(tmp_path):
    loader = DataLoader(data(), batch_size=13)
    for _ in range(2):
        net, optimizer, loader = private(data_loader=loader, ledger=tmp_path / "steps.jsonl")
        run(net, optimizer, loader)
        optimizer.ledger.close()
    assert optimizer.ledger.steps == 10


def test_earlier_run_goes_on_with_its_own_loader():
    net, optimizer, loader = private()
    private(data_loader=loader)
    run(net, optimizer, loader)
    assert optimizer.ledger.steps == 5


def test_loader_without_an_original_is_refused_with_the_way_out():
    plan = Plan(
        examples=60, batch_size=13, epochs=1, noise_multiplier=1.0, delta=1e-3,
        clipping=FlatClip(0.5),
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"DataLoader\(loader\.dataset, batch_size=13\)"):
        private(data_loader=PrivateLoader(data(), plan))
    with pytest.raises(ValueError, match="must be a DataLoader of torch"):
        private(data_loader=[1, 2, 3])


def test_optimizer_of_an_earlier_run_is_refused_with_the_way_out():
    net, optimizer, loader = private()
    optimizer.remove()
    with pytest.raises(UnsoundConfiguration, match=r"optimizer\.inner"):
        private(net=net, optimizer=optimizer, data_loader=loader)
    private(net=net, optimizer=optimizer.inner, data_loader=loader)


# --- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"batch_first": True},
        {"grad_sample_mode": "hooks"},
        {"grad_sample_mode": "functorch"},
        {"grad_sample_mode": "ew"},
        {"secure_mode": True},
        {"clipping": "flat", "batch_first": True, "grad_sample_mode": "hooks"},
    ],
)
def test_arguments_that_change_nothing_are_accepted(options):
    plain, also = private()[1].plan, private(**options)[1].plan
    assert also == plain
    assert promised(data(), **options)[1].plan == promised(data())[1].plan


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accountant": "rdp"}, "leave accountant out.*no accountant to choose"),
        ({"alphas": [2, 3]}, "leave alphas out.*no accountant to choose"),
        ({"epsilon_tolerance": 0.01}, "leave epsilon_tolerance out"),
        ({"batch_first": False}, "first dimension .* transpose inside"),
        ({"grad_sample_mode": "ghost"}, "leave grad_sample_mode out.*three values"),
        ({"grad_sample_mode": "ghost_fsdp"}, "leave grad_sample_mode out"),
        ({"grad_sample_mode": "no_op"}, "leave grad_sample_mode out"),
        ({"secure_mode": False}, "SeededForExperiments"),
        ({"clipping": "per_layer"}, r"GroupClip\(0\.5\)"),
        ({"clipping": "adaptive"}, r"QuantileClip\(0\.5\)"),
        ({"clipping": "automatic"}, "clipping must be 'flat' or a Clipping"),
    ],
)
@pytest.mark.parametrize("make", [private, lambda **options: promised(data(), **options)])
def test_arguments_that_change_something_are_answered(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.parametrize("make", [private, lambda **options: promised(data(), **options)])
def test_arguments_that_nobody_has_are_type_errors(make):
    with pytest.raises(TypeError, match="no argument 'max_grad_nrom'"):
        make(max_grad_nrom=1.0)


ADAPTIVE = {
    "clipping": "adaptive",
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 10.0,
    "min_clipbound": 0.1,
    "unclipped_num_std": 3.0,
}


@pytest.mark.parametrize(
    "options",
    [
        {"clipping": "per_layer", "max_grad_norm": 1.0},
        {"clipping": "per_layer", "max_grad_norm": [0.1, 0.2, 0.3, 0.4]},
        {"max_grad_norm": (0.1, 0.2, 0.3, 0.4)},
        ADAPTIVE,
    ],
    ids=["per layer", "per parameter", "list without a name", "adaptive"],
)
def test_clipping_that_an_answer_names_can_be_given(options):
    with pytest.raises(ValueError, match="give clipping=") as refused:
        private(**options)
    module = model()
    written = str(refused.value).split("give clipping=")[1].split(", or clipping=")[0]
    clipping = eval(written.split(", which")[0], vars(taut.training) | {"module": module})
    net, optimizer, loader = private(net=module, clipping=clipping, max_grad_norm=None)
    run(net, optimizer, loader)
    assert optimizer.ledger.steps == 5
    if options is ADAPTIVE:
        assert (clipping.norm, clipping.quantile, clipping.learning_rate) == (0.5, 0.5, 0.2)
        assert (clipping.bounds, clipping.count_noise) == ((0.1, 10.0), 3.0)
    elif options["max_grad_norm"] != 1.0:
        sizes = {name: p.numel() for name, p in module.named_parameters()}
        assert [share.bound for share in clipping.shares(sizes)] == [0.1, 0.2, 0.3, 0.4]
