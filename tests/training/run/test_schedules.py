"""Runs whose noise and batch sizes change: every step as its plan says, through crashes too."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training.runs import Kill, Killed, data, model, plan, sgd, weights

from taut.audit import audit_loop, audit_plan, verify_statement
from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.report import privacy_report
from taut.report._privacy.wording import batches, noises, rates
from taut.training import (
    Callback,
    Checkpointing,
    FlatClip,
    Logs,
    Plan,
    PrivateLoader,
    PrivateTrainer,
    RunHistory,
    RunLedger,
    TrainingResult,
    check_sampler,
    make_private,
    make_private_with_epsilon,
)
from taut.training.extend import PrivateGradient

NOISES, SIZES = [1.0, 1.0, 3.0, 3.0, 2.0, 2.0], [12, 12, 12, 30, 30, 6]
CHANGING = plan(noise_multiplier=NOISES, batch_size=SIZES)


def trainer(net, a_plan=CHANGING, **options):
    return PrivateTrainer(net, nn.CrossEntropyLoss(), a_plan, optimizer=sgd(net), **options)


class Noise(Callback):
    """Keeps the gradients that the optimizer got."""

    def __init__(self):
        self.seen = []

    def on_step_end(self, trainer, event):
        self.seen.append(torch.cat([p.grad.flatten() for p in trainer.model.parameters()]))


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_loader_draws_every_step_at_its_rate(workers):
    numbers = TensorDataset(torch.arange(10_000.0))
    changing = plan(examples=10_000, batch_size=[100, 4_000] * 2, steps=4)
    loader = PrivateLoader(numbers, changing, steps=4, num_workers=workers)
    parts = list(loader.microbatches())
    assert [part.place for part in parts] == [0, 1, 2, 3]
    for part, size in zip(parts, [100, 4_000] * 2, strict=True):
        assert abs(part.size - size) < 8 * np.sqrt(size)
    with pytest.raises(BudgetExceeded):
        next(loader.microbatches())
    assert "2050 expected" in repr(loader)


def test_a_loader_goes_on_at_the_rate_of_its_step():
    numbers = TensorDataset(torch.arange(10_000.0))
    changing = plan(examples=10_000, batch_size=[(2, 10), (2, 5_000)], steps=4)
    loader = PrivateLoader(numbers, changing, steps=4)
    loader.load_state_dict({"steps": 2, "generator": None})
    assert [part.size > 1_000 for part in loader.microbatches()] == [True, True]


def test_an_experiment_repeats_its_batches():
    loader = PrivateLoader(data(), CHANGING, steps=6, generator=SeededForExperiments(seed=3))
    for part in loader.microbatches():
        if part.step == 2:
            state = loader.state_dict()
    rest = [part.size for part in loader.microbatches()] if loader.steps_taken < 6 else []
    assert rest == []
    again = PrivateLoader(data(), CHANGING, steps=6, generator=SeededForExperiments(seed=0))
    again.load_state_dict(state)
    first = PrivateLoader(data(), CHANGING, steps=6, generator=SeededForExperiments(seed=3))
    sizes = [part.size for part in first.microbatches()]
    assert [part.size for part in again.microbatches()] == sizes[3:]


def test_a_loop_of_ones_own_is_told_that_rates_change():
    loader = PrivateLoader(data(), CHANGING)
    with pytest.raises(UnsoundConfiguration, match="PrivateTrainer alone"):
        check_sampler(loader, CHANGING.sampling)


# --- steps ----------------------------------------------------------------------------------------


def test_every_step_has_its_noise_and_its_divisor():
    """With gradients of next to no length, what comes out is noise over the batch size."""
    silent = plan(noise_multiplier=NOISES, batch_size=SIZES, clipping=FlatClip(1e-3))
    net = nn.Sequential(nn.Linear(5, 300), nn.Linear(300, 3))
    watch = Noise()
    trainer(net, silent, logs=Logs(callbacks=[watch], progress=False)).fit(data())
    found = [float(seen.std()) for seen in watch.seen]
    wanted = [1e-3 * noise / size for noise, size in zip(NOISES, SIZES, strict=True)]
    assert found == pytest.approx(wanted, rel=0.1)


def test_noise_does_not_change_within_a_batch():
    net = model()
    sizes = {name: p.numel() for name, p in net.named_parameters()}
    gradient = PrivateGradient(
        net, CHANGING.clipping, noise=CHANGING.noise(sizes), expected_batch_size=12
    )
    x, y = data()[:4]
    losses = nn.CrossEntropyLoss(reduction="none")
    gradient.accumulate_batch(x, y, losses)
    with pytest.raises(UnsoundConfiguration, match="within a logical batch"):
        gradient.change(CHANGING.noise(sizes, 3), 30)
    gradient.finish()
    gradient.change(CHANGING.noise(sizes, 3), 30)


# --- the ledger -----------------------------------------------------------------------------------


def test_ledger_counts_steps_in_their_order():
    with RunLedger(None, CHANGING) as ledger:
        for step in range(6):
            assert ledger.position == step
            ledger.record(step, step)
            assert ledger.loss == CHANGING.loss_at(step + 1)
    assert not ledger.history.has_one_price


def test_ledger_refuses_the_noise_of_another_step():
    with RunLedger(None, CHANGING) as ledger:
        ledger.record(0, 0)
        for place in (0, 2):
            with pytest.raises(UnsoundConfiguration, match="noise follows the ledger"):
                ledger.record(1, place)
        with pytest.raises(UnsoundConfiguration, match="price of a schedule"):
            ledger.include({"other": 3})
        assert ledger.include({"other": 0}) == 0
        assert ledger.loss == CHANGING.loss_at(1)


def test_a_ledger_that_is_opened_again_goes_on(tmp_path):
    path = tmp_path / "run.jsonl"
    ledger = RunLedger(path, CHANGING, block=4, enforce=True)
    ledger.record(0, 0)
    ledger._let_go()  # as if the process had been killed
    with RunLedger(path, CHANGING, enforce=True) as again:
        assert again.position == 4
        again.record(1, 4)
        again.record(2, 5)
        with pytest.raises(BudgetExceeded):
            again.record(3, 6)
    assert RunHistory.read(path).loss == CHANGING.loss


# --- whole runs -----------------------------------------------------------------------------------


def test_result_can_be_verified_and_reported():
    result = trainer(model()).fit(data())
    assert (result.steps, result.loss) == (6, CHANGING.loss)
    assert "an expected batch of 6 to 30 out of 60" in result.statement
    assert "multiplier 1 to 3, by a schedule" in result.statement
    assert TrainingResult.from_json(result.to_json()) == result
    assert verify_statement(json.loads(result.to_json())).verdict == "certified"


@pytest.mark.slow
def test_report_of_a_schedule():
    report = privacy_report(trainer(model()).fit(data())).to_markdown()
    assert "1 to 3, by a schedule" in report
    assert "6 to 30, 17 on average" in report
    assert "Alternatives at equal compute" not in report


def test_report_names_ranges():
    assert noises(CHANGING) == "1 to 3, by a schedule"
    assert batches(CHANGING) == "6 to 30, 17 on average"
    assert rates(CHANGING) == "rates 0.1 to 0.5"
    constant = plan()
    assert (noises(constant), batches(constant), rates(constant)) == ("1", "12", "rate 0.2")


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"noise_multiplier": 2.0}, "wrong"),
        ({"noise_schedule": [[5, 1.0], [1, 3.0]]}, "wrong"),
        ({"rate_schedule": [[3, 0.2], [2, 0.5], [1, 0.1]], "typo_schedule": 1}, "not certified"),
    ],
)
def test_forged_plans_are_found(change, verdict):
    stated = json.loads(trainer(model()).fit(data()).to_json())
    stated["plan"] |= change
    assert verify_statement(stated).verdict == verdict


def test_a_killed_run_goes_on_where_its_ledger_is(tmp_path):
    options = {"run_dir": tmp_path, "checkpoints": Checkpointing(every=2)}
    with pytest.raises(Killed):
        trainer(model(), logs=Logs(callbacks=[Kill(3)], progress=False), **options).fit(data())
    result = trainer(model(), **options).fit(data())
    # Three steps were taken, two of them kept; the ledger goes on with the fourth.
    assert (result.steps, result.counted_steps) == (5, 6)
    assert result.stopped_at_budget
    assert result.loss == CHANGING.loss
    assert verify_statement(json.loads(result.to_json())).verdict == "certified"
    assert trainer(model(), **options).fit(data()) == result  # nothing is left to do


def test_an_interrupted_experiment_is_the_same_as_one_without(tmp_path):
    def run(net, **options):
        return trainer(net, generator=SeededForExperiments(seed=5), **options)

    whole = model()
    run(whole).fit(data())
    options = {"run_dir": tmp_path, "checkpoints": Checkpointing(every=1)}
    with pytest.raises(Killed):
        run(model(), logs=Logs(callbacks=[Kill(3)], progress=False), **options).fit(data())
    resumed = model(seed=2)
    run(resumed, **options).fit(data())
    assert torch.equal(weights(resumed), weights(whole))


def test_fit_again_after_an_error_goes_on():
    net = model()
    running = trainer(net, logs=Logs(callbacks=[Kill(2)], progress=False))
    with pytest.raises(Killed):
        running.fit(data())
    assert running.fit(data()).loss == CHANGING.loss


# --- loops ----------------------------------------------------------------------------------------


def loop(net, optimizer, loader):
    for x, y in loader:
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def private(net, **options):
    settings = {
        "target_epsilon": 5.0,
        "target_delta": 1e-3,
        "epochs": 2,
        "max_grad_norm": 0.5,
        "noise_schedule": [(5, 1.0), (5, 2.0)],
        "noise_generator": SeededForExperiments(seed=11),
    }
    loader = DataLoader(data(), batch_size=12)
    return make_private_with_epsilon(
        module=net, optimizer=sgd(net), data_loader=loader, **settings | options
    )


def test_loop_of_a_user_follows_a_schedule(tmp_path):
    net, optimizer, loader = private(model(), ledger=tmp_path / "run.jsonl")
    loop(net, optimizer, loader)
    assert optimizer.loss == optimizer.plan.loss_at(5)
    state = optimizer.state_dict()
    optimizer.ledger.close()
    net, again, loader = private(model(), ledger=tmp_path / "run.jsonl")
    loop(net, again, loader)
    assert again.loss == again.plan.loss
    assert again.get_epsilon(1e-3) <= 5.0
    with pytest.raises(BudgetExceeded):
        loop(net, again, loader)
    _, other, _ = private(model())
    with pytest.raises(UnsoundConfiguration, match="steps cost something else"):
        other.load_state_dict(state)


def test_loop_noise_is_that_of_the_step():
    net = nn.Linear(5, 3_000)
    net, optimizer, loader = private(
        net, max_grad_norm=1e-3, criterion=lambda out, _: out.mean(1), loss_reduction="sum"
    )
    seen = []
    for _ in range(2):
        for x, _ in loader:
            net(x).mean(1).sum().backward()
            optimizer.step()
            seen.append(float(net.weight.grad.std()))
            optimizer.zero_grad()
    sigma = optimizer.plan.noise_multiplier
    assert seen == pytest.approx([1e-3 * sigma] * 5 + [2e-3 * sigma] * 5, rel=0.06)


def test_loops_without_an_end_have_one_noise():
    net = model()
    with pytest.raises(ValueError, match="make_private_with_epsilon"):
        make_private(
            module=net,
            optimizer=sgd(net),
            data_loader=DataLoader(data(), batch_size=12),
            noise_multiplier=[1.0, 2.0],
            max_grad_norm=1.0,
        )
    with pytest.raises(UnsoundConfiguration, match="another cost"):
        make_private(
            module=net,
            optimizer=sgd(net),
            data_loader=DataLoader(data(), batch_size=12),
            noise_multiplier=1.0,
            max_grad_norm=0.5,
            ledger=RunLedger(None, plan(noise_multiplier=[1.0, 2.0], steps=2)),
        )


# --- audits ---------------------------------------------------------------------------------------

SMALL = Plan(
    examples=4,
    rate=[0.5, 0.5, 0.25, 0.25],
    noise_multiplier=[1.0, 1.0, 1.0, 0.5],
    delta=1e-3,
    clipping=CHANGING.clipping,
)


def test_the_engine_passes_an_audit():
    assert audit_plan(SMALL, trials=60, seed=1).passed


@pytest.mark.slow
def test_the_trainer_passes_an_audit():
    assert audit_plan(SMALL, trials=200, seed=1, engine="trainer").passed


def _loop(noises, rates):
    def run(gradients, seed):
        draw = np.random.default_rng(seed)
        released = []
        for step in range(SMALL.steps):
            batch = gradients[draw.random(len(gradients)) < rates[step]]
            norms = np.linalg.norm(batch, axis=1, keepdims=True)
            clipped = 0.5 * batch / np.maximum(norms, 0.5)
            noise = draw.normal(scale=0.5 * noises[step], size=gradients.shape[1])
            released.append((clipped.sum(0) + noise) / SMALL.batch_size_at(step))
        return released

    return run


def test_audits_find_loops_that_ignore_a_schedule():
    noises = [SMALL.noise_multiplier_at(step) for step in range(4)]
    rates = [SMALL.sampling_at(step).rate for step in range(4)]
    assert audit_loop(_loop(noises, rates), SMALL, trials=600, seed=1).passed
    assert not audit_loop(_loop([0.5] * 4, rates), SMALL, trials=600, seed=1).passed
    assert not audit_loop(_loop(noises, [0.9] * 4), SMALL, trials=600, seed=1).passed
