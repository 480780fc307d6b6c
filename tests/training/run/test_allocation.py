"""Runs that allocate: each example once an epoch, and epochs that were broken off count as such."""

import itertools
import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training.runs import data, model, plan, sgd

import taut
from taut.audit import verify_statement
from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import (
    Callback,
    Checkpointing,
    FlatClip,
    Loading,
    Logs,
    PoissonSampling,
    PrivateLoader,
    PrivateTrainer,
    RandomAllocation,
    RunHistory,
    RunLedger,
    TrainingResult,
    make_private,
    make_private_with_epsilon,
)

ALLOCATED = plan(sampling="allocation", steps=10)  # two epochs of five steps
STEP = taut.gaussian(ALLOCATED.noise_multiplier)
WHOLE = STEP.allocated(5)
NUMBERS = TensorDataset(torch.arange(60.0))


def part(taken):
    return STEP.allocated(5, taken=taken)


def seen(parts):
    return np.concatenate([p.data[0].numpy() for p in parts if not p.is_empty]).astype(int)


# --- plans ----------------------------------------------------------------------------------------


def test_plan_of_a_name_survives_json():
    assert ALLOCATED.sampling == RandomAllocation(steps=5)
    assert ALLOCATED.loss == 2 * WHOLE
    assert type(ALLOCATED).from_json(ALLOCATED.to_json()) == ALLOCATED
    assert ALLOCATED.epsilon_at(7) <= ALLOCATED.epsilon
    assert "sampling allocation" in str(ALLOCATED)
    uneven = plan(sampling=RandomAllocation(), batch_size=16, steps=7)
    assert (uneven.sampling.steps, uneven.batch_size, uneven.rate) == (3, 20.0, 1 / 3)
    assert uneven.loss == 2 * STEP.allocated(3) + STEP.allocated(3, taken=1)
    assert type(uneven).from_json(uneven.to_json()) == uneven


@pytest.mark.parametrize("sampling", ["shuffle", "none", ""])
def test_names_of_no_sampling(sampling):
    with pytest.raises(ValueError, match="must be one of poisson, truncated_poisson, allocation"):
        plan(sampling=sampling)


def test_best_is_the_cheaper_one_and_says_so():
    best = plan(sampling="best", steps=10)
    poisson = plan(sampling=PoissonSampling(), steps=10)
    assert best == (ALLOCATED if ALLOCATED.epsilon < poisson.epsilon else poisson)
    (note,) = [note for note in best.notes if "best" in note]
    share = 100 * (1 - best.epsilon / max(ALLOCATED.epsilon, poisson.epsilon))
    assert f"{share:.2g} % less" in note
    assert best.sampling.name in note
    solved = plan(sampling="best", noise_multiplier=None, epsilon=4.0, batch_size=16)
    assert solved.rate == 1 / 3
    other = RandomAllocation() if solved.sampling.name == "poisson" else PoissonSampling()
    rest = plan(sampling=other, noise_multiplier=None, epsilon=4.0, batch_size=None, rate=1 / 3)
    assert solved.noise_multiplier <= rest.noise_multiplier


def test_best_may_be_poisson():
    """With next to no noise, an allocated example is surely seen, a sampled one is not."""
    loud = {"noise_multiplier": 0.3, "batch_size": 30, "steps": 2, "delta": 0.7}
    best = plan(sampling="best", **loud)
    assert best.sampling == PoissonSampling(rate=0.5)
    assert any("best' is poisson" in note for note in best.notes)


def test_best_of_an_impossible_promise():
    with pytest.raises(taut.errors.InfeasibleBudget):
        plan(sampling="best", noise_multiplier=None, epsilon=1e-6)


# --- the loader -----------------------------------------------------------------------------------


@pytest.mark.parametrize("physical", [None, 4])
def test_an_epoch_hands_out_every_example_once(physical):
    loader = PrivateLoader(NUMBERS, ALLOCATED, max_physical_batch_size=physical)
    assert len(loader) == 5
    for _ in range(2):
        parts = list(loader.microbatches())
        assert sorted(seen(parts)) == list(range(60))
        assert [p.place for p in parts if p.is_last] == [0, 1, 2, 3, 4]
        assert physical is None or max(p.size for p in parts) <= physical
    with pytest.raises(BudgetExceeded):
        next(loader.microbatches())


@pytest.mark.parametrize("workers", [0, 1])
def test_a_pass_that_was_left_is_gone_on_with(workers):
    """What a worker fetched ahead is neither lost nor handed out twice."""
    loader = PrivateLoader(NUMBERS, RandomAllocation(steps=6), num_workers=workers)
    first = []
    for part_ in loader.microbatches():
        first.append(part_)
        if part_.step == 2:
            break
    rest = [p for p in loader.microbatches() if p.step < 6]
    assert [p.step for p in (*first, *rest) if p.is_last] == [0, 1, 2, 3, 4, 5]
    assert sorted(seen([*first, *rest])) == list(range(60))


def test_a_stale_pass_draws_nothing():
    loader = PrivateLoader(NUMBERS, RandomAllocation(steps=6))
    old, new = loader.microbatches(), loader.microbatches()
    handed = [next(old)]
    handed += [next(new), next(new)]
    with pytest.raises(UnsoundConfiguration, match="another pass"):
        next(old)
    handed += list(new)[:3]
    assert sorted(seen(handed)) == list(range(60))


def test_a_loaded_state_begins_an_epoch():
    loader = PrivateLoader(NUMBERS, ALLOCATED)
    begun = list(itertools.islice(loader.microbatches(), 3))
    state = loader.state_dict()
    assert state == {"steps": 3, "generator": None}  # how the epoch was drawn is a secret
    other = PrivateLoader(NUMBERS, ALLOCATED)
    other.load_state_dict(json.loads(json.dumps(state)))
    parts = list(other.microbatches())
    assert [p.place for p in parts] == [0, 1, 2, 3, 4]
    assert [p.step for p in parts] == [3, 4, 5, 6, 7]
    assert sorted(seen(parts)) == list(range(60))
    assert len(begun) == 3


def test_an_experiment_repeats_what_follows_an_epoch():
    """The state of a seed in the middle of an epoch is that before the next one is drawn."""
    loader = PrivateLoader(NUMBERS, ALLOCATED, generator=SeededForExperiments(seed=4))
    for part_ in loader.microbatches():
        if part_.step == 1:
            state = loader.state_dict()
    following = seen(loader.microbatches())
    again = PrivateLoader(NUMBERS, ALLOCATED, generator=SeededForExperiments(seed=0))
    again.load_state_dict(state)
    assert np.array_equal(seen(again.microbatches()), following)


# --- the ledger -----------------------------------------------------------------------------------


def take(ledger, places):
    for place in places:
        ledger.record(ledger.steps, place)


def test_ledger_counts_parts_of_epochs():
    with RunLedger(None, ALLOCATED) as ledger:
        for count in range(1, 8):
            take(ledger, [(count - 1) % 5])
            assert ledger.loss == ALLOCATED.loss_at(count)
    assert ledger.loss == WHOLE + part(2)
    assert ledger.epsilon(1e-3) == ALLOCATED.epsilon_at(7)


@pytest.mark.parametrize("block", [1, 2, 16])
def test_opening_a_ledger_begins_an_epoch(tmp_path, block):
    path = tmp_path / "run.jsonl"
    for taken in (3, 5, 4):
        with RunLedger(path, ALLOCATED, block=block) as ledger:
            take(ledger, range(taken))
    assert [s.steps for s in RunHistory.read(path).segments] == [3, 9]
    assert RunHistory.read(path).loss == ledger.loss == part(3) + WHOLE + part(4)
    assert not ledger.history.has_one_price


def test_a_step_that_begins_an_epoch_says_so(tmp_path):
    path = tmp_path / "run.jsonl"
    with RunLedger(path, ALLOCATED, block=4) as ledger:
        take(ledger, [0, 1, 0, 1, 2])
        assert ledger.loss == part(2) + part(3)
        assert RunHistory.read(path).steps == 6  # one is reserved
    assert RunHistory.read(path).loss == part(2) + part(3)
    with (
        RunLedger(None, ALLOCATED) as memory,
        pytest.raises(UnsoundConfiguration, match="counted by one ledger"),
    ):
        take(memory, [0, 1, 3])


def test_killed_run_counts_the_reserved_steps_of_its_epoch(tmp_path):
    path = tmp_path / "run.jsonl"
    ledger = RunLedger(path, ALLOCATED, block=4)
    take(ledger, [0, 1])
    ledger._let_go()  # as if the process had been killed
    with RunLedger(path, ALLOCATED) as again:
        take(again, [0])
        assert again.loss == part(4) + part(1)
        assert again.history.crashes == RunHistory.read(path).crashes


def test_budget_pays_for_an_epoch_that_was_broken_off(tmp_path):
    path = tmp_path / "run.jsonl"
    with RunLedger(path, ALLOCATED, enforce=True) as ledger:
        take(ledger, range(3))
    with RunLedger(path, ALLOCATED, enforce=True) as ledger, pytest.raises(BudgetExceeded):
        take(ledger, [step % 5 for step in range(10)])
    assert ledger.epsilon(ALLOCATED.delta) <= ALLOCATED.epsilon
    assert (ledger.loss + part(1)).epsilon(ALLOCATED.delta) > ALLOCATED.epsilon
    assert 3 < ledger.steps < 10


def test_epochs_of_another_run_are_other_epochs(tmp_path):
    path = tmp_path / "run.jsonl"
    with RunLedger(path, ALLOCATED) as ledger:
        take(ledger, [0, 1])
        assert ledger.include({"other": 3}) == 3
        take(ledger, [2, 3])
        assert ledger.loss == part(3) + part(4)
        # Further steps may belong to the epoch of the first three: it counts again, from its start.
        assert ledger.include({"other": 4}) == 1
        assert ledger.loss == part(3) + part(4) + ALLOCATED.loss_at(1 + 4)
    assert RunHistory.read(path).loss == ledger.loss


def test_budget_pays_for_the_epochs_of_another_run():
    ledger = RunLedger(None, ALLOCATED, enforce=True)
    take(ledger, [0, 1])
    assert ledger.include({"other": 5}) == 5
    with pytest.raises(BudgetExceeded):
        take(ledger, [2, 3, 4, 0, 1])
    assert ledger.epsilon(ALLOCATED.delta) <= ALLOCATED.epsilon
    full = RunLedger(None, ALLOCATED, enforce=True)
    full.include({"other": 10})
    with pytest.raises(BudgetExceeded):
        full.record(0, 0)


# --- whole runs -----------------------------------------------------------------------------------


class Killed(Exception):
    pass


class Kill(Callback):
    def on_step_end(self, trainer, event):
        if event.step == 3:
            raise Killed


def trainer(net, **options):
    return PrivateTrainer(net, nn.CrossEntropyLoss(), ALLOCATED, optimizer=sgd(net), **options)


def test_trainer_allocates_and_its_result_can_be_verified():
    result = trainer(model(), loading=Loading(max_physical_batch_size=5)).fit(data())
    assert (result.sampler, result.steps, result.loss) == ("allocation", 10, 2 * WHOLE)
    assert "(allocation sampling)" in result.statement
    assert TrainingResult.from_json(result.to_json()) == result
    assert verify_statement(json.loads(result.to_json())).verdict == "certified"


def test_resumed_trainer_begins_an_epoch_and_pays_for_it(tmp_path):
    with pytest.raises(Killed):
        trainer(
            model(),
            run_dir=tmp_path,
            checkpoints=Checkpointing(every=1),
            logs=Logs(callbacks=[Kill()]),
        ).fit(data())
    result = trainer(model(), run_dir=tmp_path).fit(data())
    assert result.stopped_at_budget
    assert result.epsilon.upper <= ALLOCATED.epsilon
    assert 3 < result.steps < 10
    assert result.counted_steps == result.steps
    assert result.loss == part(3) + ALLOCATED.loss_at(result.steps - 3)
    assert TrainingResult.from_json(result.to_json()) == result
    assert verify_statement(json.loads(result.to_json())).verdict == "certified"
    forged = json.loads(result.to_json())
    forged["loss"] = ALLOCATED.loss_at(4).to_dict()
    with pytest.raises(UnsoundConfiguration, match="changed by hand"):
        TrainingResult.from_dict(forged)


def private(net, **options):
    loader = DataLoader(data(), batch_size=12)
    settings = {
        "max_grad_norm": 0.5,
        "sampling": "allocation",
        "noise_generator": SeededForExperiments(seed=11),
    }
    return make_private(
        module=net, optimizer=sgd(net), data_loader=loader, noise_multiplier=1.0,
        **settings | options,
    )  # fmt: skip


def loop(net, optimizer, loader, most=100):
    for place, (x, y) in enumerate(loader):
        if place == most:
            break
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_loop_of_a_user_allocates(tmp_path):
    net, optimizer, loader = private(model(), ledger=tmp_path / "run.jsonl")
    assert loader.sampling == RandomAllocation(steps=5)
    loop(net, optimizer, loader)
    assert optimizer.loss == WHOLE
    loop(net, optimizer, loader)
    assert optimizer.loss == 2 * WHOLE
    loader.load_state_dict(loader.state_dict())
    loop(net, optimizer, loader)
    assert optimizer.loss == 3 * WHOLE


def test_loop_that_rewinds_its_loader_pays_for_it():
    net, optimizer, loader = private(model())
    for x, y in loader:
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if optimizer.ledger.steps == 2:
            break
    loader.load_state_dict(loader.state_dict())
    loop(net, optimizer, loader)
    assert optimizer.loss == part(2) + WHOLE


def test_loop_with_a_promise_allocates():
    net = model()
    net, optimizer, loader = make_private_with_epsilon(
        module=net, optimizer=sgd(net), data_loader=DataLoader(data(), batch_size=12),
        target_epsilon=5.0, target_delta=1e-3, epochs=2, max_grad_norm=0.5, sampling="allocation",
    )  # fmt: skip
    assert optimizer.plan.steps == 10
    assert optimizer.plan.loss == 2 * taut.gaussian(optimizer.plan.noise_multiplier).allocated(5)
    loop(net, optimizer, loader)
    assert optimizer.get_epsilon(1e-3) <= 5.0


def test_arguments_that_do_not_go_together():
    with pytest.raises(ValueError, match="give one of the two"):
        private(model(), poisson_sampling=False)
    with pytest.raises(ValueError, match="1/3 and 1/4"):
        private(model(), rate=0.3)
    twice = taut.training.TwiceSampling()
    with pytest.raises(ValueError, match="not for a loop that exists"):
        private(model(), sampling=twice)
    with pytest.raises(UnsoundConfiguration, match="give the path"):
        private(model(), ledger=RunLedger(None, ALLOCATED))
    best = private(model(), sampling="best", clipping=FlatClip(0.5), max_grad_norm=None)[1].plan
    assert any("best" in note for note in best.notes)
