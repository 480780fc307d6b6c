"""Mixed weights: the noise that was accounted, in every coordinate, and nothing kept beside it."""

import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset
from training.ranks import in_processes
from training.runs import Kill, Killed, data, model, plan, sgd, weights

from taut.errors import InfeasibleBudget, UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.noise.geometry import Subspaces
from taut.training import (
    Callback,
    Checkpointing,
    FixedSizeSampling,
    FlatClip,
    GroupClip,
    HybridClip,
    L2LInfClip,
    Logs,
    ModelMix,
    NormalisedClip,
    Plan,
    PoissonSampling,
    PrivateOptimizer,
    PrivateTrainer,
    RunLedger,
    TrainingResult,
)
from taut.training._run.mixed_sgd import MixedSGD
from taut.training.extend import PrivateGradient

LOSS = nn.CrossEntropyLoss(reduction="none")
WIDTH = 4.0
MIXED = plan(mixing=ModelMix(WIDTH))
LR, NORM, BATCH = 0.5, 0.5, 12  # of the small runs
TAU = WIDTH * LR * NORM / BATCH
HYBRID = HybridClip(Subspaces(np.eye(75)[:, :5], (5, 70), np.ones(5), "public"), [0.5, 0.5])
CIFAR = {"examples": 50_000, "rate": 0.03, "steps": 3_400, "noise_multiplier": 0.335, "delta": 1e-5}


def cifar(width=11.25, **changes):
    arguments = {"clipping": L2LInfClip(20.0, 2.0), "mixing": ModelMix(width, spread=100)}
    return Plan(**(CIFAR | arguments | changes))


class Keep(Callback):
    """Keeps what is released, and what gradients are left at that time."""

    def __init__(self, net):
        self.states, self.gradients = [weights(net)], []

    def on_step_end(self, trainer, event):
        self.states.append(weights(trainer.model))
        self.gradients += [p.grad for p in trainer.model.parameters()]


def trainer(net, a_plan=MIXED, *, seed=3, callbacks=(), **options):
    options.setdefault("optimizer", sgd(net, LR))
    bits = None if seed is None else SeededForExperiments(seed=seed)
    logs = Logs(callbacks=callbacks, progress=False)
    return PrivateTrainer(net, LOSS, a_plan, generator=bits, logs=logs, **options)


def states(net, a_plan=MIXED, **options):
    keep = Keep(net)
    trainer(net, a_plan, callbacks=[keep], **options).fit(data())
    return keep.states


def optimizer_of(parameters, *, lr=1.0, width=2.0, seed=0, **options):
    mixing = ModelMix(width, **options)
    bits = SeededForExperiments(seed=seed)
    return MixedSGD(parameters, lr=lr, mixing=mixing, unit=1.0, generator=bits)


# --- what the plan says --------------------------------------------------------------------------


def test_headline_of_the_paper_and_the_better_conversion():
    a_plan = cifar()
    classic = [a_plan.loss.rdp(k) + math.log(1e5) / (k - 1) for k in range(2, 17)]
    assert min(classic) == pytest.approx(7.99996567801, rel=1e-6)
    assert a_plan.epsilon == pytest.approx(7.25, abs=2e-3)
    assert a_plan.epsilon > 6.6843  # exact, of the pair that the bound is about


def test_mixing_is_worth_less_than_the_same_noise_all_gaussian():
    a_plan = cifar()
    note = a_plan.notes[0]
    assert note == (
        "plain DP-SGD with noise multiplier 1.345 reaches the same epsilon with 5.90 times less "
        "noise"
    )
    assert note in str(a_plan)
    plain = Plan(**CIFAR | {"noise_multiplier": 1.345}, clipping=FlatClip(20.0))
    assert (
        plain.epsilon
        <= a_plan.epsilon
        < Plan(**CIFAR | {"noise_multiplier": 1.34}, clipping=FlatClip(20.0)).epsilon
    )
    variance = 0.335**2 + 11.25**2 / 12
    assert variance / 1.345**2 == pytest.approx(5.90, abs=0.01)


@pytest.mark.parametrize("clipping", [FlatClip(0.5), NormalisedClip(0.5), L2LInfClip(0.5, 0.1)])
def test_never_more_than_the_gaussian_noise_alone(clipping):
    spread = 25 if isinstance(clipping, L2LInfClip) else 1
    found = [
        plan(clipping=clipping, steps=100, mixing=mixing).epsilon
        for mixing in (None, ModelMix(0.1, spread), ModelMix(5.0, spread), ModelMix(50.0, spread))
    ]
    assert found == sorted(found, reverse=True)
    assert found[3] < 0.7 * found[0]


def test_least_noise_at_a_fixed_width():
    settings = {"mixing": ModelMix(10.0), "steps": 100, "batch_size": 6}
    solved = plan(noise_multiplier=None, epsilon=2.0, **settings)
    assert solved.loss.epsilon(solved.delta) <= 2.0 == solved.epsilon
    assert plan(noise_multiplier=0.999 * solved.noise_multiplier, **settings).epsilon > 2.0
    plain = plan(noise_multiplier=None, epsilon=2.0, steps=100, batch_size=6)
    assert solved.noise_multiplier < 0.9 * plain.noise_multiplier


def test_budget_out_of_reach_says_what_would_help():
    with pytest.raises(InfeasibleBudget, match=r"epsilon=0.0001 .*examples >= "):
        plan(noise_multiplier=None, epsilon=1e-4, mixing=ModelMix(10.0))


def test_delta_is_solved_for():
    found = plan(delta=None, epsilon=3.0, mixing=ModelMix(10.0))
    assert 0 < found.delta <= plan(delta=None, epsilon=3.0).delta


def test_json_keeps_the_mixing_and_reads_plans_without():
    a_plan = plan(clipping=L2LInfClip(0.5, 0.1), mixing=ModelMix(3.0, 25, momentum=0.25))
    assert Plan.from_json(a_plan.to_json()) == a_plan
    plain = plan().to_dict()
    assert "mixing" not in plain
    assert Plan.from_dict(plain).mixing is None
    assert a_plan != plan(clipping=L2LInfClip(0.5, 0.1))


def test_plans_changed_by_hand_are_refused():
    described = MIXED.to_dict()
    described["mixing"]["spread"] = 16.0
    with pytest.raises(UnsoundConfiguration, match="L2LInfClip"):
        Plan.from_dict(described)
    for factor in (0.9, 0.995, 0.99999):
        described = MIXED.to_dict() | {"epsilon": factor * MIXED.epsilon}
        with pytest.raises(UnsoundConfiguration, match="changed by hand"):
            Plan.from_dict(described)
    described = MIXED.to_dict()
    described["mixing"]["width"] = 0.1
    with pytest.raises(UnsoundConfiguration, match="changed by hand"):
        Plan.from_dict(described)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.0,), "width"),
        ((-1.0,), "width"),
        ((math.inf,), "width"),
        ((1.0, 0.5), "spread"),
        ((1.0, 1, 1.0), "momentum"),
        ((1.0, 1, -0.1), "momentum"),
    ],
)
def test_bad_arguments(arguments, name):
    with pytest.raises(ValueError, match=name):
        ModelMix(*arguments)


def test_statement_and_json_of_the_result_carry_the_comparison():
    net = model()
    result = trainer(net).fit(data())
    assert "plain DP-SGD with noise multiplier" in result.statement
    assert "times less noise" in result.statement
    assert "not by proof" in result.statement
    described = json.loads(result.to_json())
    assert described["mixing"]["variance_ratio"] > 1
    assert described["mixing"]["gaussian_std"] >= 1.0
    assert TrainingResult.from_json(result.to_json()) == result


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sampling": FixedSizeSampling()}, "PoissonSampling"),
        ({"clipping": GroupClip(0.5)}, "one size in every coordinate"),
        ({"clipping": HYBRID}, "one size in every coordinate"),
        ({"mixing": ModelMix(3.0, spread=4)}, "L2LInfClip"),
        ({"clipping": L2LInfClip(0.5, 0.3), "mixing": ModelMix(3.0, spread=4)}, "entry_bound <="),
    ],
)
def test_plans_without_a_theorem_are_refused(changes, words):
    with pytest.raises(UnsoundConfiguration, match=words):
        plan(**{"mixing": ModelMix(3.0)} | changes)


def test_other_samplings_are_refused_even_if_they_look_like_poisson():
    class Other(PoissonSampling):
        name = "like_poisson"

    with pytest.raises(UnsoundConfiguration, match="Poisson sampling alone"):
        plan(sampling=Other(), mixing=ModelMix(3.0))


@pytest.mark.parametrize(
    "make",
    [
        partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
        partial(torch.optim.SGD, lr=0.1, dampening=0.1),
        partial(torch.optim.SGD, lr=0.1, weight_decay=1e-4),
        partial(torch.optim.SGD, lr=0.1, maximize=True),
        torch.optim.Adam,
        partial(torch.optim.RMSprop, lr=0.1),
        type("Own", (torch.optim.SGD,), {}),
        lambda p: torch.optim.SGD([{"params": p[:1]}, {"params": p[1:], "momentum": 0.5}], lr=0.1),
    ],
)
def test_hidden_state_is_refused_by_what_it_was_measured_to_do(make):
    with pytest.raises(UnsoundConfiguration, match=r"delta=1e-5 was claimed, 5\.6e-3 was"):
        trainer(model(), optimizer=make)


def test_model_with_fewer_coordinates_than_the_spread_is_refused():
    a_plan = plan(clipping=L2LInfClip(0.5, 0.05), mixing=ModelMix(3.0, spread=100))
    with pytest.raises(UnsoundConfiguration, match="spread"):
        trainer(model(), a_plan)  # has 75


def test_too_coarse_formats_and_too_wide_noise_are_refused():
    with pytest.raises(UnsoundConfiguration, match="too coarse"):
        trainer(model().to(torch.bfloat16))
    with pytest.raises(UnsoundConfiguration, match="lost in rounding"):
        trainer(model(), plan(mixing=ModelMix(1e5)))


def test_drop_in_refuses_a_ledger_of_mixed_steps():
    net = model()
    gradient = PrivateGradient(net, FlatClip(0.5), scales=[0.5], expected_batch_size=12)
    with pytest.raises(UnsoundConfiguration, match="PrivateTrainer"):
        PrivateOptimizer(sgd(net), gradient, RunLedger(None, MIXED), is_mean=True)


def test_scheduler_of_the_replaced_optimizer_is_refused():
    net = model()
    optimizer = sgd(net)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    with pytest.raises(ValueError, match="a function from an optimizer"):
        trainer(net, optimizer=optimizer, scheduler=scheduler)


def test_step_without_gradients_or_with_a_closure_is_refused():
    part = nn.Parameter(torch.zeros(3))
    with pytest.raises(UnsoundConfiguration, match="no private gradient"):
        optimizer_of([part]).step()
    with pytest.raises(UnsoundConfiguration, match="closure"):
        optimizer_of([part]).step(lambda: 0.0)
    part.grad = torch.zeros(3)
    with pytest.raises(ValueError, match="lost"):
        optimizer_of([part], lr=1e-40).step()


# --- the update ----------------------------------------------------------------------------------


@given(
    newer=st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=8),
    gap=st.sampled_from([0.0, 1e-6, 1.0, 1.9999, 2.0, 2.0001, 50.0]),
    lr=st.sampled_from([1e-3, 1.0]),
)
@settings(max_examples=50)
def test_no_coordinate_is_mixed_over_less_than_the_width(newer, gap, lr):
    found = []
    for word in (b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f"):  # the two ends of the interval
        part = nn.Parameter(torch.tensor(newer, dtype=torch.float64))
        optimizer = optimizer_of([part], lr=lr)
        optimizer.state[part]["previous"] = part.detach() - gap * lr
        part.grad = torch.zeros_like(part)
        ends = int.from_bytes(word, "little", signed=True) * 2.0**-32
        optimizer._draws = lambda part=part, ends=ends: [torch.full_like(part, ends)]
        optimizer.step()
        found.append(part.detach().clone())
    assert ((found[1] - found[0]) >= max(2.0, gap) * lr * (1 - 1e-6)).all()
    middle = torch.tensor(newer, dtype=torch.float64) - gap * lr / 2
    assert torch.allclose((found[0] + found[1]) / 2, middle, atol=1e-6)


def test_draws_are_uniform_between_the_states_and_independent():
    part = nn.Parameter(torch.zeros(40_000))
    optimizer = optimizer_of([part], lr=0.5)
    tau, seen = 2.0 * 0.5 * (1 + 1e-4), [part.detach().clone()] * 2
    units = []
    for step in range(4):
        part.grad = torch.zeros_like(part)
        optimizer.param_groups[0]["lr"] = 0.5 if step < 3 else 0.05  # the width follows
        width = tau if step < 3 else tau / 10
        optimizer.step()
        older, newer = seen[-2:]
        gap = (newer - older).abs().clamp(min=width)
        seen.append(part.detach().clone())
        units.append(((seen[-1] - (older + newer) / 2) / gap).double().numpy())
    for unit in units:
        assert stats.kstest(unit, stats.uniform(-0.5, 1.0).cdf).pvalue > 1e-3
    assert abs(units[0]).max() <= 0.5 + 1e-6  # a tie at the beginning is as wide as the rest
    correlations = np.corrcoef([*units, np.roll(units[0], 1)])
    assert abs(correlations - np.eye(5)).max() < 4.5 / math.sqrt(40_000)
    assert (seen[-2] - seen[-3]).abs().median() > tau / 10  # most of the last gaps were wider


@pytest.mark.parametrize("double", [False, True])
def test_noise_of_a_run_is_gaussian_plus_uniform_in_the_units_of_the_plan(double):
    # Zeros have no gradient in the weight: what is left of a step is noise.
    net = nn.Linear(200, 100, bias=False)
    inputs = torch.zeros(60, 200)
    if double:
        net, inputs = net.double(), inputs.double()
    keep = Keep(net)
    a_plan = plan(mixing=ModelMix(WIDTH), steps=2, noise_multiplier=0.7)
    labels = torch.zeros(60, dtype=torch.long)
    trainer(net, a_plan, callbacks=[keep]).fit(TensorDataset(inputs, labels))
    first, second, third = (state.double() for state in keep.states)
    moved = (second - first).numpy() * BATCH / (LR * NORM)

    def distribution(x):
        low, high = (x - WIDTH / 2) / 0.7, (x + WIDTH / 2) / 0.7
        area = [y * stats.norm.cdf(y) + stats.norm.pdf(y) for y in (low, high)]
        return (area[1] - area[0]) * 0.7 / WIDTH

    assert stats.kstest(moved, distribution).pvalue > 1e-3
    assert moved.var() == pytest.approx(0.7**2 + WIDTH**2 / 12, rel=0.03)
    gap = (second - first).abs().clamp(min=TAU)
    rest = ((third - (first + second) / 2) * BATCH / (LR * NORM)).numpy()
    wide = (gap.numpy() * BATCH / (LR * NORM)) ** 2
    assert rest.var() == pytest.approx(0.7**2 + wide.mean() / 12, rel=0.03)


def test_gradient_is_that_of_the_unmixed_state_and_momentum_of_released_ones():
    plain, moved = (
        states(model(), plan(steps=2, mixing=ModelMix(WIDTH, momentum=m))) for m in (0.0, 0.5)
    )
    assert torch.equal(plain[1], moved[1])  # the first two states are one and the same
    expected = plain[2] + 0.5 * (plain[1] - plain[0])
    assert torch.allclose(moved[2], expected, atol=1e-6)


def test_every_trainable_coordinate_is_mixed_and_no_other():
    net = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 3))
    net[2].requires_grad_(False)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    trainer(net, plan(steps=1, mixing=ModelMix(50.0))).fit(data())
    for name, parameter in net.named_parameters():
        moved = (parameter - before[name]).abs().mean() / (50.0 * LR * NORM / BATCH)
        assert moved == 0 if name.startswith("2.") else 0.1 < moved < 0.5, name


def test_width_follows_the_schedule_of_the_learning_rate():
    net = nn.Linear(200, 100, bias=False)
    keep = Keep(net)
    dataset = TensorDataset(torch.zeros(60, 200), torch.zeros(60, dtype=torch.long))
    run = trainer(
        net,
        plan(mixing=ModelMix(WIDTH), steps=3),
        optimizer=lambda p: torch.optim.SGD(p, lr=LR),
        scheduler=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 3.0**step),
        callbacks=[keep],
    )
    run.fit(dataset)
    for step, factor in enumerate((1.0, 3.0, 9.0)):
        older, newer, found = (keep.states[max(step + i, 0)] for i in (-1, 0, 1))
        gap = (newer - older).abs().clamp(min=TAU * factor)
        moved = found - (older + newer) / 2
        expected = (gap**2).mean() / 12 + (LR * factor * NORM / BATCH) ** 2
        assert moved.var() == pytest.approx(float(expected), rel=0.03)


# --- what is kept --------------------------------------------------------------------------------


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)


def test_checkpoint_holds_released_states_and_nothing_else(tmp_path):
    net = model()
    keep = Keep(net)
    run = trainer(net, seed=None, run_dir=tmp_path, callbacks=[keep])
    run.fit(data())
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert saved["noise"] is None
    assert saved["torch"] is None
    assert json.loads(saved["loader"])[0]["generator"] is None
    state = saved["optimizer"]["state"]
    assert [list(part) for part in state.values()] == [["previous"]] * 4
    previous = torch.cat([part["previous"].flatten() for part in state.values()])
    assert torch.equal(previous, keep.states[-2])
    released = {float(x) for states in keep.states for x in states}
    for tensor in tensors_in(saved):
        assert {float(x) for x in tensor.flatten()} <= released
    assert set(saved["optimizer"]["param_groups"][0]) == {"lr", "params"}
    assert keep.gradients == [None] * len(keep.gradients)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"checkpoint.pt", "ledger.jsonl", "plan.json", "private.key", "result.json"}
    for tensor in tensors_in(vars(run.optimizer)):
        assert {float(x) for x in tensor.detach().flatten()} <= released


@pytest.mark.parametrize("seed", [5, pytest.param(None, marks=pytest.mark.slow)])
def test_resumed_run_goes_on_where_it_was(tmp_path, seed):
    options = {
        "a_plan": plan(mixing=ModelMix(WIDTH, momentum=0.3), steps=9),
        "seed": seed,
        "scheduler": lambda o: torch.optim.lr_scheduler.StepLR(o, 4),
        "ema": 0.9,
        "checkpoints": Checkpointing(every=3),
    }
    whole, cut = model(), model(seed=99)
    undisturbed = trainer(whole, run_dir=tmp_path / "whole", **options)
    undisturbed.fit(data())
    with pytest.raises(Killed):
        trainer(model(), run_dir=tmp_path / "cut", callbacks=[Kill(6)], **options).fit(data())
    resumed = trainer(cut, run_dir=tmp_path / "cut", **options)
    result = resumed.fit(data())
    assert (result.steps, result.counted_steps) == (9, 9)
    assert torch.equal(weights(cut), weights(whole)) == (seed is not None)
    with resumed.averaged(), undisturbed.averaged():
        assert torch.equal(weights(cut), weights(whole)) == (seed is not None)


@pytest.mark.parametrize("lr", [-0.1, math.nan, 1e-38])
def test_gradients_are_gone_even_if_the_learning_rate_is_refused(lr):
    net = model()
    run = trainer(
        net,
        scheduler=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda t: lr if t else 1.0),
    )
    with pytest.raises(ValueError, match=r"lr must be|is lost"):
        run.fit(data())
    assert run.step == 1
    assert all(parameter.grad is None for parameter in net.parameters())


# --- several processes ---------------------------------------------------------------------------


def refusal_of(lr, scheduler=None):
    net = model(seed=1)
    slow = torch.optim.SGD(net.parameters(), lr=lr)
    run = PrivateTrainer(
        net, LOSS, MIXED, optimizer=slow, scheduler=scheduler, logs=Logs(progress=False)
    )
    try:
        run.fit(data())
    except UnsoundConfiguration as error:
        return str(error)
    return None


def at_another_rate(rank):
    return refusal_of(0.1 * (1 + rank))


def at_another_rate_later(rank):
    schedule = torch.optim.lr_scheduler.LambdaLR
    return refusal_of(0.1, lambda o: schedule(o, lambda step: 1 + rank * (step > 0)))


@pytest.mark.slow
def test_processes_with_other_learning_rates_are_refused():
    # Two states with the same draws and other rates would be two equations for two unknowns.
    for message in in_processes(at_another_rate):
        assert "must be the same in all processes" in message
        assert "'lr': '0.1'" in message
        assert "'lr': '0.2'" in message
    for message in in_processes(at_another_rate_later):
        assert "learning rates must be the same" in message


def both_ways(_rank):
    net = model(seed=1)
    keep = Keep(net)
    run = PrivateTrainer(
        DistributedDataParallel(net),
        LOSS,
        MIXED,
        optimizer=sgd(net),
        logs=Logs(callbacks=[keep], progress=False),
    )
    run.fit(data())
    sharded = fully_shard(model(seed=1))
    try:
        PrivateTrainer(sharded, LOSS, MIXED, optimizer=sgd(sharded))
    except UnsoundConfiguration as error:
        refused = str(error)
    return weights(net), refused


@pytest.mark.slow
def test_processes_mix_alike_and_shards_are_refused():
    (first, refused), (second, _) = in_processes(both_ways)
    assert torch.equal(first, second)
    assert (first - weights(model(seed=1))).abs().min() > 0
    assert "sharded" in refused
