"""Correlated noise in a loop that exists: the trainer's updates, noise, batches and refusals."""

import io
import json
import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, TensorDataset
from training.ranks import in_processes
from training.runs import EXAMPLES, data, model, plan, sgd, weights

from taut.audit import verify_statement
from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.matrix import Workload, banded_toeplitz
from taut.noise import SeededForExperiments, default_generator
from taut.training import (
    BallsInBinsSampling,
    CyclicAllocationSampling,
    FlatClip,
    LoRAClip,
    PrivateLoader,
    PrivateOptimizer,
    PrivateTrainer,
    QuantileClip,
    RunHistory,
    RunLedger,
    TrainingResult,
    make_private,
    make_private_with_epsilon,
)
from taut.training.extend import PrivateGradient

STEPS = 15
NAMES = ("banded", "blt", "inverse", "tree")
SECRET = ("cyclic_poisson", "cyclic_allocation", "balls_in_bins")
KINDS = [*((name, None) for name in NAMES), *(("banded", sampling) for sampling in SECRET)]


def promised(net=None, *, dataset=None, batch_size=12, seed=7, **options):
    net = model() if net is None else net
    settings = {
        "optimizer": sgd(net),
        "target_epsilon": 5.0,
        "target_delta": 1e-3,
        "epochs": 3,
        "max_grad_norm": 0.5,
        "noise": "blt",
        "noise_generator": default_generator() if seed is None else SeededForExperiments(seed=seed),
    }
    loader = DataLoader(data() if dataset is None else dataset, batch_size=batch_size)
    return make_private_with_epsilon(module=net, data_loader=loader, **settings | options)


def loop(net, optimizer, loader, until=STEPS, after=None):
    """Take steps until a number of them counts; call `after` each."""
    while optimizer.ledger.steps < until:
        for x, y in loader:
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            if after is not None:
                after()
            if optimizer.ledger.steps == until:
                break


def stopped(path, at, **options):
    """Take some steps of a run, and let go of its ledger as the end of a process would."""
    net, optimizer, loader = promised(ledger=path, **options)
    loop(net, optimizer, loader, at)
    optimizer.ledger.close()
    return net, optimizer


# --- what is added, and to whom -------------------------------------------------------------------


@pytest.mark.parametrize("most", [None, 4])
@pytest.mark.parametrize(("noise", "sampling"), KINDS)
def test_updates_are_those_of_the_trainer(noise, sampling, most):
    net, optimizer, loader = promised(noise=noise, sampling=sampling, max_physical_batch_size=most)
    loop(net, optimizer, loader)
    same = plan(steps=STEPS, epsilon=5.0, noise_multiplier=None, noise=noise, sampling=sampling)
    assert optimizer.plan == same
    other = model()
    PrivateTrainer(
        other, nn.CrossEntropyLoss(), same, optimizer=sgd(other),
        generator=SeededForExperiments(seed=7),
    ).fit(data())  # fmt: skip
    assert torch.allclose(weights(net), weights(other), atol=1e-5)
    assert not torch.allclose(weights(net), weights(model()), atol=1e-2)
    with pytest.raises(BudgetExceeded, match="all 15 steps"):
        next(iter(loader))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_noise_has_the_covariance_of_the_decoder(reduction):
    """Gradients are so small that what is seen is noise, 18000 numbers of it in every step."""
    net = nn.Linear(5, 3_000)
    net, optimizer, loader = promised(
        net,
        optimizer=sgd(net, lr=1e-6),
        noise="banded",
        sampling="cyclic_allocation",
        criterion=lambda out, _: out.mean(1),
        loss_reduction=reduction,
        seed=None,
    )
    seen = []
    while len(seen) < STEPS:
        for x, _ in loader:
            out = net(x).mean(1)
            (out.mean() if reduction == "mean" else out.sum()).backward()
            optimizer.step()
            seen.append(torch.cat([p.grad.flatten() for p in net.parameters()]).numpy())
    rows = np.stack(seen).astype(float)
    found = rows @ rows.T / rows.shape[1]
    decoder = np.linalg.inv(optimizer.plan.encoder.matrix())
    unit = optimizer.plan.noise_multiplier * 0.5 / (12 if reduction == "mean" else 1)
    expected = unit**2 * decoder @ decoder.T
    # Six deviations of a mean over 18000 products; gradients themselves add less than a tenth.
    scale = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
    assert np.abs(found - expected).max() < (6 * np.sqrt(2 / rows.shape[1]) + 0.01) * scale.max()
    assert np.abs((expected / scale)[np.tril_indices(STEPS, -1)]).max() > 0.2


def drawn(monkeypatch):
    """Note the batches of all loaders by step."""
    found, batch = {}, PrivateLoader._batch

    def noted(self, step):
        made = batch(self, step)
        found[step] = made.indices.tolist()
        return made

    monkeypatch.setattr(PrivateLoader, "_batch", noted)
    return found


def test_batches_come_in_a_fixed_order(monkeypatch):
    batches = drawn(monkeypatch)
    net, optimizer, loader = promised()
    loop(net, optimizer, loader)
    assert batches == {step: list(range(step % 5, EXAMPLES, 5)) for step in range(STEPS)}


@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(CyclicAllocationSampling(groups=2), marks=pytest.mark.slow),
        BallsInBinsSampling(),
    ],
    ids=repr,
)
def test_secret_batches_outlive_a_stop_without_a_seed(tmp_path, monkeypatch, sampling):
    batches = drawn(monkeypatch)
    options = {"noise": "banded", "sampling": sampling, "seed": None, "batch_size": 10}
    stopped(tmp_path / "loop.jsonl", 7, **options)
    before = dict(batches)
    net, optimizer, loader = promised(ledger=tmp_path / "loop.jsonl", **options)
    loop(net, optimizer, loader, 18)
    assert all(batches[step] == before[step] for step in range(7))
    for first in (0, 6, 12):
        epoch = [p for step in range(first, first + 6) for p in batches[step]]
        assert sorted(epoch) == list(range(EXAMPLES))
    assert (batches[0] == batches[6]) == (sampling.name == "balls_in_bins")


def test_batches_without_examples_are_steps_of_noise():
    options = {"noise": "banded", "sampling": "cyclic_poisson", "batch_size": 1, "epochs": 1}
    net, optimizer, loader = promised(target_epsilon=50.0, **options)
    sizes = []
    for x, y in loader:
        sizes.append(len(x))
        functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    assert min(sizes) > 0
    assert len(sizes) < optimizer.ledger.steps == EXAMPLES


# --- what it costs --------------------------------------------------------------------------------


def test_the_loss_is_that_of_the_whole_run_from_the_first_step_on():
    net, optimizer, loader = promised()
    assert optimizer.get_epsilon(1e-3) == 0.0
    loop(net, optimizer, loader, 1)
    assert optimizer.loss == optimizer.plan.loss
    spent = optimizer.get_epsilon(1e-3)
    assert 4.9 < spent <= 5.0
    loop(net, optimizer, loader)
    assert spent <= optimizer.get_epsilon(1e-3) <= 5.0


@pytest.mark.parametrize("sampling", [None, "cyclic_allocation"])
def test_whoever_reads_the_statement_of_a_loop_certifies_it(tmp_path, sampling):
    path = tmp_path / "loop.jsonl"
    _, optimizer = stopped(path, STEPS, noise="banded", sampling=sampling, seed=None)
    history = RunHistory.read(path)
    assert not history.seeded
    result = TrainingResult.of(optimizer.plan, history, steps=STEPS, is_secure=True)
    assert "correlated over steps by ToeplitzEncoder" in result.statement
    assert verify_statement(json.loads(result.to_json())).verdict == "certified"


def test_noise_without_a_promise_costs_what_its_encoder_does():
    encoder = banded_toeplitz(Workload(10), bands=3)
    net = model()
    settings = {"module": net, "noise_multiplier": 4.0, "max_grad_norm": 0.5}
    given = DataLoader(data(), batch_size=12)
    net, optimizer, loader = make_private(
        optimizer=sgd(net), data_loader=given, noise=encoder, **settings
    )
    loop(net, optimizer, loader, 10)
    assert optimizer.loss == plan(steps=10, noise_multiplier=4.0, noise=encoder).loss
    with pytest.raises(BudgetExceeded, match="all 10 steps"):
        next(iter(loader))
    optimizer.remove()
    _, named, _ = make_private(
        optimizer=sgd(net), data_loader=given, noise="banded", epochs=2, **settings
    )
    assert named.plan.steps == 10
    for options, message in (
        ({"noise": "banded"}, "give epochs"),
        ({"noise": "best", "epochs": 2}, "chosen for a promise"),
        ({"epochs": 2}, "leave epochs out"),
        ({"noise": encoder, "epochs": 3}, "10 steps, the plan has 15"),
    ):
        with pytest.raises(ValueError, match=message):
            make_private(optimizer=sgd(net), data_loader=given, **settings | options)


def test_the_best_noise_is_that_of_the_plan():
    net, optimizer, loader = promised(noise="best", sampling="fixed_order", epochs=2)
    assert optimizer.plan.encoder is not None
    assert loader.sampling == optimizer.plan.sampling
    assert "noise 'best' is" in str(optimizer.plan)
    loop(net, optimizer, loader, 10)
    assert optimizer.loss == optimizer.plan.loss


# --- stopping and going on ------------------------------------------------------------------------


def save(path, net, optimizer):
    torch.save((net.state_dict(), optimizer.state_dict()), path)


def run_and_die(folder, sampling):
    torch.set_num_threads(1)
    net, optimizer, loader = promised(
        noise="banded", sampling=sampling, ledger=folder / "loop.jsonl"
    )

    def after():
        save(folder / "state.pt", net, optimizer)
        if optimizer.ledger.steps == 7:
            os.kill(os.getpid(), signal.SIGKILL)

    loop(net, optimizer, loader, after=after)


@pytest.mark.parametrize("sampling", [pytest.param(None, marks=pytest.mark.slow), "balls_in_bins"])
def test_a_killed_loop_goes_on_with_the_noise_of_one_that_was_not(tmp_path, sampling):
    whole, optimizer, loader = promised(noise="banded", sampling=sampling)
    loop(whole, optimizer, loader)
    process = multiprocessing.get_context("spawn").Process(
        target=run_and_die, args=(tmp_path, sampling)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    again, optimizer, loader = promised(
        noise="banded", sampling=sampling, ledger=tmp_path / "loop.jsonl"
    )
    weights_then, state = torch.load(tmp_path / "state.pt", weights_only=False)
    again.load_state_dict(weights_then)
    optimizer.load_state_dict(state)
    assert (optimizer.ledger.steps, loader.steps_taken) == (7, 7)
    loop(again, optimizer, loader)
    assert torch.equal(weights(again), weights(whole))
    assert optimizer.loss == optimizer.plan.loss
    optimizer.ledger.close()
    assert RunHistory.read(tmp_path / "loop.jsonl").seeded
    keys = json.loads((tmp_path / "loop.jsonl.private.noise").read_text())["keys"]
    assert [k["begins"] for k in keys] == [0, 7]
    for path in tmp_path.iterdir():
        if path.name != "loop.jsonl.private.noise":
            content = path.read_bytes()
            assert not any(k["key"].encode() in content for k in keys)
            assert not any(bytes.fromhex(k["key"]) in content for k in keys)


def test_steps_that_were_counted_and_lost_are_left_out(tmp_path):
    path = tmp_path / "loop.jsonl"
    stopped(path, 7)
    net, optimizer, loader = promised(ledger=path)  # from the first weights on
    seen = []
    loop(net, optimizer, loader, after=lambda: seen.append(loader.current.place))
    assert seen == list(range(7, STEPS))
    assert optimizer.loss == optimizer.plan.loss
    optimizer.ledger.close()
    net, optimizer, loader = promised(ledger=path)
    with pytest.raises(BudgetExceeded, match="all 15 steps"):
        next(iter(loader))
    optimizer.ledger.close()


def test_a_run_goes_on_with_the_plan_of_another_machine(tmp_path):
    path = tmp_path / "loop.jsonl"
    _, begun = stopped(path, 4, noise="banded")
    bands = (1.0, *(band * (1 + 1e-10) for band in begun.plan.encoder.bands[1:]))
    rounded = replace(begun.plan.encoder, bands=bands)
    net, optimizer, loader = promised(ledger=path, noise=rounded)
    assert rounded != begun.plan.encoder
    assert optimizer.plan == begun.plan
    loop(net, optimizer, loader)
    assert optimizer.loss == begun.plan.loss
    optimizer.ledger.close()


def test_a_loop_cannot_turn_its_loader_back():
    net, optimizer, loader = promised()
    loop(net, optimizer, loader, 4)
    loader.load_state_dict({"steps": 2, "generator": None})
    with pytest.raises(UnsoundConfiguration, match="handed out before"):
        next(iter(loader))
    loader.load_state_dict({"steps": 6, "generator": None})
    x, y = next(iter(loader))
    functional.cross_entropy(net(x), y).backward()
    with pytest.raises(UnsoundConfiguration, match="follows 4 steps"):
        optimizer.step()


def frozen(name):
    net = model()
    net.get_submodule(name).requires_grad_(False)
    return net


def on_half(dataset):
    inputs, labels = dataset.tensors
    return TensorDataset(inputs[:30], labels[:30])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": data(seed=1)}, "not the one that this run began with"),
        ({"dataset": on_half(data())}, "counts steps of another plan"),
        ({"net": frozen("2")}, "order, shapes or types"),
        ({"loss_reduction": "sum"}, "loss_reduction"),
        ({"batch_size": 6}, "counts steps of another plan"),
        ({"max_grad_norm": 1.0}, "counts steps of another plan"),
        ({"target_epsilon": 6.0}, "counts steps of another plan"),
        ({"epochs": 4}, "counts steps of another plan"),
        ({"noise": "banded"}, "counts steps of another plan"),
        ({"noise": "banded", "sampling": "balls_in_bins"}, "counts steps of another plan"),
    ],
)
def test_a_run_goes_on_as_it_began_or_not_at_all(tmp_path, changes, message):
    path = tmp_path / "loop.jsonl"
    stopped(path, 4)
    before = path.read_bytes()
    with pytest.raises(UnsoundConfiguration, match=message):
        promised(ledger=path, **changes)
    assert path.read_bytes() == before
    stopped(path, STEPS)


def test_keys_are_those_of_the_run_and_all_of_them(tmp_path):
    path, other = tmp_path / "loop.jsonl", tmp_path / "other.jsonl"
    keys = tmp_path / "loop.jsonl.private.noise"
    for one in (path, other):
        stopped(one, 3, seed=None)
    assert keys.stat().st_mode & 0o777 == 0o600
    old = keys.read_bytes()
    stopped(path, 6, seed=None)
    last = keys.read_bytes()
    for bad, message in (
        (old, "lacks keys"),
        ((tmp_path / "other.jsonl.private.noise").read_bytes(), "is that of another run"),
        (None, "was lost"),
    ):
        keys.unlink() if bad is None else keys.write_bytes(bad)
        with pytest.raises(UnsoundConfiguration, match=message):
            promised(ledger=path)
    keys.write_bytes(last)
    shutil.move(tmp_path / "loop.jsonl.private.key", tmp_path / "kept")
    with pytest.raises(UnsoundConfiguration, match="key of this run was lost"):
        promised(ledger=path)
    shutil.move(tmp_path / "kept", tmp_path / "loop.jsonl.private.key")
    stopped(path, STEPS, seed=None)
    stopped(other, STEPS, seed=None)


def test_a_run_in_memory_does_not_go_on_elsewhere(caplog):
    caplog.set_level("INFO")
    net, optimizer, loader = promised()
    assert "cannot go on in another process" in caplog.text
    loop(net, optimizer, loader, 4)
    torch.save((net.state_dict(), optimizer.state_dict()), file := io.BytesIO())
    loop(net, optimizer, loader, 6)
    file.seek(0)
    weights_then, state = torch.load(file, weights_only=False)
    net.load_state_dict(weights_then)  # its own, of an earlier step: noise goes on, none returns
    optimizer.load_state_dict(state)
    loop(net, optimizer, loader)
    other, fresh, _ = promised()
    with pytest.raises(UnsoundConfiguration, match="its own ledger and keys alone"):
        fresh.load_state_dict(state)
    with pytest.raises(UnsoundConfiguration, match="its own ledger and keys alone"):
        other.load_state_dict(weights_then)


def shared(_, folder):
    """Stop a loop and go on with it, in processes that share its batches."""
    path, net = Path(folder) / "loop.jsonl", DistributedDataParallel(model())
    options = {"noise": "banded", "sampling": "balls_in_bins", "ledger": path}
    for until in (7, STEPS):
        net, optimizer, loader = promised(net, **options)
        loop(net, optimizer, loader, until)
        optimizer.ledger.close()
        optimizer.remove()
    try:
        promised(fully_shard(model()))
    except UnsoundConfiguration as error:
        return weights(net), optimizer.ledger.steps, str(error)


@pytest.mark.slow  # of two processes; test_migration has ordinary tests of them
def test_processes_have_the_noise_and_the_batches_of_one(tmp_path):
    net, optimizer, loader = promised(noise="banded", sampling="balls_in_bins")
    loop(net, optimizer, loader)
    for found, steps, refusal in in_processes(shared, str(tmp_path)):
        assert steps == STEPS
        assert torch.allclose(found, weights(net), atol=1e-5)
        assert "sharded" in refusal


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"noise": "shuffle"}, ValueError, "one of"),
        ({"noise": 3}, TypeError, "Encoder or a name"),
        ({"noise": banded_toeplitz(Workload(11), bands=2)}, ValueError, "11 steps"),
        ({"sampling": "poisson"}, UnsoundConfiguration, "fixed order"),
        ({"sampling": "allocation"}, UnsoundConfiguration, "fixed order"),
        ({"sampling": "best"}, ValueError, "decides the sampling"),
        ({"poisson_sampling": False}, ValueError, "fixed size"),
        ({"sampling": "cyclic_poisson"}, UnsoundConfiguration, "reaches over more steps"),
        ({"noise": None, "sampling": "fixed_order"}, ValueError, "give noise='banded'"),
        ({"noise": None, "sampling": BallsInBinsSampling()}, ValueError, "give noise='banded'"),
        ({"noise_schedule": [(5, 1.0), (10, 2.0)]}, UnsoundConfiguration, "schedule|change"),
        (
            {"max_grad_norm": None, "clipping": QuantileClip(1.0)},
            UnsoundConfiguration,
            "moves its bound",
        ),
        (
            {"max_grad_norm": None, "clipping": LoRAClip(1.0)},
            UnsoundConfiguration,
            "changes its coordinates",
        ),
    ],
)
def test_what_has_no_theorem_is_refused(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        promised(ledger=tmp_path / "loop.jsonl", **options)
    assert not list(tmp_path.iterdir())


def test_optimizers_that_look_at_one_gradient_alone_are_refused(tmp_path):
    net, path = model(), tmp_path / "loop.jsonl"
    for optimizer in (torch.optim.Rprop(net.parameters()), sgd(net)):
        optimizer.register_step_pre_hook(lambda *_: None)
        with pytest.raises(UnsoundConfiguration, match="single noisy gradients"):
            promised(net, optimizer=optimizer, ledger=path)
    handle = register_optimizer_step_pre_hook(lambda *_: None)
    try:
        with pytest.raises(UnsoundConfiguration, match="single noisy gradients"):
            promised(ledger=path)
    finally:
        handle.remove()
    assert not path.exists()
    for late in (lambda private: private, lambda private: private.inner):
        net, private, loader = promised()
        loop(net, private, loader, 2)
        late(private).register_step_pre_hook(lambda *_: None)
        with pytest.raises(UnsoundConfiguration, match="single noisy gradients"):
            loop(net, private, loader, 3)
        assert private.ledger.steps == 2


def test_ledgers_that_others_opened_are_refused():
    correlated = plan(steps=STEPS, noise="blt")
    net = model()
    settings = {"module": net, "optimizer": sgd(net), "noise_multiplier": 1.0, "max_grad_norm": 0.5}
    with pytest.raises(UnsoundConfiguration, match="give the path of the ledger"):
        make_private(
            **settings,
            data_loader=DataLoader(data(), batch_size=12),
            noise="blt",
            epochs=3,
            ledger=RunLedger(None, correlated),
        )
    gradient = PrivateGradient(
        net, FlatClip(0.5), noise=correlated.noise({"a": 40, "b": 8, "c": 24, "d": 3}),
        expected_batch_size=12,
    )  # fmt: skip
    with pytest.raises(UnsoundConfiguration, match="keys nobody has begun"):
        PrivateOptimizer(sgd(net), gradient, RunLedger(None, correlated), is_mean=True)


def test_a_ledger_of_independent_noise_does_not_take_correlated_steps(tmp_path):
    path = tmp_path / "loop.jsonl"
    with RunLedger(path, plan()) as ledger:
        ledger.record(0)
    with pytest.raises(UnsoundConfiguration, match="counts steps of another plan"):
        promised(ledger=path)
