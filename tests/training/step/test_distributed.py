"""Two processes train as one does: same sums, same noise, same price."""

import math
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.gradients import cross_entropy, squares
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam
from torch.utils.data import DataLoader, TensorDataset
from training.ranks import in_processes
from training.runs import append_entry, data, model, plan, sgd

from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import SecureGenerator, SeededForExperiments
from taut.training import (
    Callback,
    Checkpointing,
    FixedSizeSampling,
    FlatClip,
    Loading,
    Logs,
    PoissonSampling,
    PrivateLoader,
    PrivateTrainer,
    QuantileClip,
    RunHistory,
    RunLedger,
    SharedLedger,
    make_private,
)
from taut.training._tensors.processes import CommonBits, Processes
from taut.training.extend import CountedNoise, IndependentNoise, PrivateGradient

SIGMA, NOISE_STEPS = 3.0, 40
KINDS = ["plain", "ddp", "fsdp", "fsdp of the whole", "hybrid"]
# By rank: the physical batches of every step. Ranks have different numbers of them, also none.
PARTS = [
    [[range(7), range(7, 9)], [], [range(3, 4)]],
    [[range(30, 41)], [range(20, 25), range(50, 52), range(52, 53)], []],
]
LOADER_STEPS, EXAMPLES, RATE, SIZE = 150, 120, 0.3, 37


# --- what the processes do -------------------------------------------------------------------


def wrapped(net, kind):
    if kind == "ddp":
        return DistributedDataParallel(net)
    if kind == "plain":
        return net
    mesh = None
    if kind == "hybrid":
        mesh = dist.init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    if kind != "fsdp of the whole":
        for layer in net:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def even():
    """Return a model of which both processes keep parts of the same shapes."""
    return nn.Sequential(nn.Linear(10, 40), nn.Linear(40, 2))


def whole(tensor):
    found = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found.detach().clone()


def flat(tensors):
    return torch.cat([whole(tensor).flatten() for tensor in tensors])


def engine(net, scale=0.0, norm=0.5, **options):
    return PrivateGradient(net, FlatClip(norm), scales=[scale], expected_batch_size=10, **options)


def trained(net, steps, **options):
    """Train without noise on given physical batches; return the weights."""
    gradient = engine(net, **options)
    optimizer = sgd(net, momentum=0.5)
    inputs, labels = data().tensors
    for parts in steps:
        for part in parts:
            gradient.accumulate_batch(inputs[part], labels[part], cross_entropy)
        gradient.finish()
        optimizer.step()
    return flat(net.parameters())


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x):
        return self.scale * x


class Mixed(nn.Module):
    """Layers of every kind of record, and a matrix that two of them share."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.block = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
        self.memory = nn.LSTM(6, 6, batch_first=True)
        self.window = nn.Conv1d(6, 6, 2)
        self.scaled = Scaled()
        self.head = nn.Linear(6, 11)
        self.head.weight = self.words.weight

    def forward(self, x):
        hidden = self.memory(self.block(self.words(x)))[0]
        return self.head(self.scaled(self.window(hidden.transpose(1, 2)).mean(2)))


def gradients(net, parts, **options):
    bits = torch.Generator().manual_seed(3)
    words = torch.randint(0, 11, (8, 5), generator=bits)
    gradient = engine(net, norm=0.1, **options)
    for part in parts:
        gradient.accumulate_batch(words[part], None, squares)
    gradient.finish()
    return flat(p.grad for p in net.parameters())


def sharded_gradients(rank, dtype=None, **options):
    torch.manual_seed(0)
    net = Mixed()
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for layer in (net.block, net.memory, net.window, net.scaled, net):
        fully_shard(layer, mp_policy=policy)
    parts = [[slice(0, 5)], [slice(5, 6), slice(6, 8)]][rank]
    return gradients(net, parts, **options)


def noise(net, generator=None):
    """Return the gradients of steps without examples."""
    gradient = PrivateGradient(
        net, FlatClip(1.0), scales=[SIGMA], expected_batch_size=1, generator=generator
    )
    found = []
    for _ in range(NOISE_STEPS):
        gradient.finish()
        found.append(flat(p.grad for p in net.parameters()))
    return torch.stack(found)


def drawn(sampling, generator=None):
    loader = PrivateLoader(
        TensorDataset(torch.arange(EXAMPLES)),
        sampling,
        steps=LOADER_STEPS,
        max_physical_batch_size=10,
        generator=generator,
    )
    batches = [[] for _ in range(LOADER_STEPS)]
    for part in loader.microbatches():
        batches[part.step] += [] if part.is_empty else part.data[0].tolist()
    return batches


def counted(path):
    """Record steps until the budget ends; return what is known then, and what the file knew."""
    known = []
    with SharedLedger(path, plan(), enforce=True) as ledger:
        for step in range(plan().steps):
            ledger.record(step)
            known.append(RunHistory.read(path).steps)
        with pytest.raises(BudgetExceeded):
            ledger.record(step + 1)
        return known, ledger.steps, ledger.epsilon(1e-3)


class KeepRun(Callback):
    """Keeps the run as if it had been stopped after the fourth of six steps."""

    def on_step_end(self, trainer, event):
        if event.step == 5:
            kept = Path(f"{trainer._files.directory} kept")
            shutil.copytree(trainer._files.directory, kept)
            append_entry(kept / "ledger.jsonl", {"return": 2})


def fitted(folder):
    """Train with a seed; go on from a checkpoint in the middle."""
    options = {
        "loading": Loading(max_physical_batch_size=2),
        "checkpoints": Checkpointing(every=2),
    }
    net = wrapped(model(), "ddp")
    trainer = PrivateTrainer(
        net,
        nn.CrossEntropyLoss(),
        plan(batch_size=3),
        optimizer=sgd(net),
        run_dir=folder,
        logs=Logs(callbacks=[KeepRun()]),
        generator=SeededForExperiments(seed=5),
        **options,
    )
    result = trainer.fit(data())
    fresh = model(seed=9)
    again = PrivateTrainer.resume(
        f"{folder} kept",
        fresh,
        nn.CrossEntropyLoss(),
        optimizer=sgd(fresh),
        generator=SeededForExperiments(seed=5),
        **options,
    )
    steps = again.fit(data()).counted_steps
    names = list(trainer.model.state_dict())
    return result.epsilon.upper, steps, flat(net.parameters()), flat(fresh.parameters()), names


def looped(kind):
    """Run a loop of a user, in which batches of two on average leave processes without examples."""
    net = wrapped(model(), kind)
    before = flat(net.parameters())
    net, private, loader = make_private(
        module=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=0.01),
        data_loader=DataLoader(data(), batch_size=2),
        noise_multiplier=0.1,
        max_grad_norm=1.0,
        max_physical_batch_size=1,
    )
    calls = 0
    for x, y in loader:
        private.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        private.step()
        calls += 1
    after = flat(net.parameters())
    return calls, private.ledger.steps, private.get_epsilon(1e-3), float((after - before).norm())


def moved(kind, batches):
    """Return the bounds after steps on physical batches, without noise and with it."""
    clipping = QuantileClip(0.5, batch_size=10.0)
    silent = CountedNoise(IndependentNoise((0.0,), (0,) * 4), 0.0)
    inputs, labels = data().tensors
    found = {}
    for name, drawn_noise in {
        "silent": silent,
        "noisy": clipping.noise(list("abcd"), [1] * 4, 1.0),
    }.items():
        step = PrivateGradient(
            wrapped(model(), kind), clipping, noise=drawn_noise, expected_batch_size=10.0
        )
        found[name] = []
        for parts in batches:
            for part in parts:
                step.accumulate_batch(inputs[part], labels[part], cross_entropy)
            step.finish()
            found[name].append(step.clipping_norm)
    return found


def other_bound(rank):
    clipping = QuantileClip(0.5, batch_size=10.0)
    noise = clipping.noise(["weight", "bias"], [4, 2], 1.0)
    step = PrivateGradient(nn.Linear(2, 2), clipping, noise=noise, expected_batch_size=10.0)
    step.load_state_dict({"clipping_norm": 1.0 + rank})


def refusal(action):
    try:
        action()
    except (UnsoundConfiguration, ValueError) as error:
        return str(error)
    return "nothing was refused"


def partly_sharded():
    net = model()
    fully_shard(net[0])
    return engine(net)


def with_penalty():
    net = wrapped(model(), "fsdp")
    gradient = engine(net, self_check=False)
    inputs, labels = data().tensors
    gradient.begin()
    with gradient.tape.recording():
        losses = cross_entropy(net(inputs), labels)
    (losses.sum() + net[0].weight.square().sum()).backward()
    gradient.absorb(len(inputs))


def refusals(rank, folder):
    def loop_with(ledger, **options):
        net = model()
        make_private(
            module=net,
            optimizer=sgd(net, **options),
            data_loader=DataLoader(data(), batch_size=12),
            noise_multiplier=1.0,
            max_grad_norm=0.5,
            ledger=ledger,
        )

    def sharded_run():
        net = wrapped(model(), "fsdp")
        PrivateTrainer(net, nn.CrossEntropyLoss(), plan(), run_dir=folder)

    return {
        "other clipping": refusal(lambda: engine(model(), norm=1.0 + rank)),
        "other model": refusal(lambda: engine(nn.Linear(2 + rank, 2))),
        "other dataset": refusal(lambda: PrivateLoader(data(60 + rank), PoissonSampling(0.5))),
        "other seed": refusal(
            lambda: drawn(FixedSizeSampling(SIZE), SeededForExperiments(seed=rank))
        ),
        "ledger of one": refusal(lambda: loop_with(RunLedger(None, plan()))),
        "partly sharded": refusal(partly_sharded),
        "penalty": refusal(with_penalty),
        "other bound": refusal(lambda: other_bound(rank)),
        "sharded run": refusal(sharded_run),
        "other rate": refusal(lambda: loop_with(None, lr=0.1 + rank)),
        "other optimizer": refusal(lambda: updated_by(Adam if rank else SGD)),
        "other weights": refusal(lambda: with_other_weights(rank)),
        "other buffers": refusal(lambda: with_other_buffers(rank)),
    }


def updated_by(kind):
    net = model()
    engine(net).check_processes(kind(net.parameters(), lr=0.1))


def with_other_weights(rank):
    net = model()
    gradient = engine(net)
    gradient.check_processes(sgd(net))
    with torch.no_grad():
        net[0].weight[0, 0] += 1e-6 * rank
    gradient.check_processes(sgd(net))


def with_other_buffers(rank):
    net = model()
    net.register_buffer("frozen", torch.full((3,), rank, dtype=torch.int8))
    gradient = engine(net)
    gradient.check_processes(sgd(net))  # replicas have begun as the first one
    net.frozen[0] = rank
    gradient.check_processes(sgd(net))


def everything(rank, folder):
    found = {}
    for kind in KINDS:
        sharded = "fsdp" in kind or kind == "hybrid"
        # Replicas begin as the first process does, whatever they hold.
        net = wrapped(model(seed=1 if sharded else 1 + rank), kind)
        found["trained", kind] = trained(net, PARTS[rank])
        wide = nn.Sequential(nn.Linear(30, 41), nn.Linear(41, 1))
        found["noise", kind] = noise(wrapped(wide, kind))
        found["bounds", kind] = moved(kind, PARTS[rank])
        found["seeded noise", kind] = noise(wrapped(even(), kind), SeededForExperiments(seed=7))
    found["materialised"] = trained(model(), PARTS[rank], backend="materialised")
    with warnings.catch_warnings(action="ignore"):  # about views, which are not changed in place
        found["mixed", "bookkeeping"] = sharded_gradients(rank)
        found["mixed", "materialised"] = sharded_gradients(rank, backend="materialised")
        found["mixed", "half precision"] = sharded_gradients(rank, torch.bfloat16)
    found["poisson"] = drawn(PoissonSampling(RATE))
    found["seeded poisson"] = drawn(PoissonSampling(RATE), SeededForExperiments(seed=7))
    found["fixed"] = drawn(FixedSizeSampling(SIZE))
    found["ledger"] = counted(f"{folder}/ledger.jsonl")
    found["trainer"] = fitted(f"{folder}/run")
    for kind in ("ddp", "fsdp"):
        found["loop", kind] = looped(kind)
    found["refusals"] = refusals(rank, folder)
    alone = dist.new_group([0]), dist.new_group([1])
    found["alone"] = trained(model(), PARTS[0], process_group=alone[rank])
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What both processes found; started once, because starting takes longer than all checks."""
    return in_processes(everything, str(tmp_path_factory.mktemp("ranks")))


# --- the same sums ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_processes_train_as_one_does(ranks, kind):
    together = [a + b for a, b in zip(*PARTS, strict=True)]
    expected = trained(model(), together)
    moved = float((expected - flat(model().parameters())).norm())
    assert moved > 0.1
    for found in ranks:
        assert float((found["trained", kind] - expected).norm()) < 1e-6 * moved
    assert torch.equal(ranks[0]["trained", kind], ranks[1]["trained", kind])


def test_materialised_gradients_are_added_up_too(ranks):
    expected = trained(model(), [a + b for a, b in zip(*PARTS, strict=True)])
    torch.testing.assert_close(ranks[1]["materialised"], expected)


@pytest.mark.parametrize(
    ("how", "tolerance"), [("bookkeeping", 1e-6), ("materialised", 1e-6), ("half precision", 0.02)]
)
def test_layers_of_all_kinds_can_be_sharded(ranks, how, tolerance):
    torch.manual_seed(0)
    expected = gradients(Mixed(), [slice(0, 8)])
    for found in ranks:
        error = float((found["mixed", how] - expected).norm())
        assert error < tolerance * float(expected.norm())


def test_group_of_one_trains_alone(ranks):
    expected = trained(model(), PARTS[0])
    assert all(torch.equal(found["alone"], expected) for found in ranks)


# --- noise once ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_drawn_once_in_total(ranks, kind):
    found = ranks[0]["noise", kind].double()
    assert torch.equal(found, ranks[1]["noise", kind].double())
    # The variance of a variance: 5 deviations of sqrt(2 / n).
    assert float(found.var()) / SIGMA**2 == pytest.approx(1, abs=5 * math.sqrt(2 / found.numel()))
    per_place = found.square().sum(0) / SIGMA**2  # chi-squared with as many degrees as steps
    assert float(per_place.min()) > 8
    assert float(per_place.max()) < 110


@pytest.mark.parametrize("what", ["noise", "seeded noise"])
@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_independent_between_steps_and_places(ranks, kind, what):
    found = ranks[0][what, kind].double() / SIGMA

    def check(left, right):
        mean = float((left * right).mean())
        assert abs(mean) < 5 / math.sqrt(left.numel())

    check(found[1:], found[:-1])
    places = found.shape[1]
    for apart in (1, 2, places // 3, places // 2, places - 1):
        check(found[:, apart:], found[:, :-apart])
    # What two processes keep of the first matrix, in the same order: 20 rows each, or 21 and 20.
    if what == "noise":
        check(found[:, : 20 * 30], found[:, 21 * 30 : 41 * 30])
    else:
        check(found[:, : 20 * 10], found[:, 20 * 10 : 40 * 10])


@pytest.mark.parametrize("kind", ["plain", "ddp"])
def test_seeded_noise_is_that_of_one_process(ranks, kind):
    expected = noise(even(), SeededForExperiments(seed=7))
    assert torch.equal(ranks[1]["seeded noise", kind], expected)


# --- one bound for all ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_bound_that_follows_a_quantile_is_the_same_in_all_processes(ranks, kind):
    expected = moved("plain", [a + b for a, b in zip(*PARTS, strict=True)])["silent"]
    found = ranks[0]["bounds", kind]
    assert found == ranks[1]["bounds", kind]
    assert found["silent"] == expected
    assert len({0.5, *expected}) == len({0.5, *found["noisy"]}) == 4
    assert not set(found["noisy"]) & set(expected)


# --- batches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["poisson", "seeded poisson"])
def test_union_of_shares_is_a_poisson_sample(ranks, what):
    shares = [found[what] for found in ranks]
    taken = np.zeros((LOADER_STEPS, EXAMPLES))
    for rank, share in enumerate(shares):
        for step, batch in enumerate(share):
            assert all(place % 2 == rank for place in batch)
            np.add.at(taken[step], batch, 1)
    assert set(np.unique(taken)) == {0, 1}
    deviation = math.sqrt(RATE * (1 - RATE))
    assert taken.mean() == pytest.approx(RATE, abs=5 * deviation / math.sqrt(taken.size))
    scores = (taken - RATE) / deviation
    places = scores.mean(0) * math.sqrt(LOADER_STEPS)
    assert np.abs(places).max() < 5.5
    # Examples of different ranks, neighbours and the same place in both shares among them.
    between = scores[:, 0::2].T @ scores[:, 1::2] / math.sqrt(LOADER_STEPS)
    assert np.abs(between).max() < 6.5
    assert np.abs(np.diag(between)).mean() < 1.2  # of a normal number: 0.8
    sizes = scores.sum(1) / math.sqrt(EXAMPLES)
    assert float(np.var(sizes)) == pytest.approx(1, abs=5 * math.sqrt(2 / LOADER_STEPS))


def test_shares_of_a_batch_of_fixed_size_are_a_partition(ranks):
    batches = [sorted(a + b) for a, b in zip(*(found["fixed"] for found in ranks), strict=True)]
    assert all(len(set(batch)) == SIZE for batch in batches)
    taken = np.zeros((LOADER_STEPS, EXAMPLES))
    for step, batch in enumerate(batches):
        taken[step, batch] = 1
    rate = SIZE / EXAMPLES
    places = (taken.sum(0) - LOADER_STEPS * rate) / math.sqrt(LOADER_STEPS * rate * (1 - rate))
    assert np.abs(places).max() < 5.5
    assert len({tuple(batch) for batch in batches}) == LOADER_STEPS


@given(
    examples=st.integers(1, 60),
    world=st.integers(1, 7),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_shares_are_disjoint_and_cover_all(examples, world, share, seed):
    fixed = FixedSizeSampling(batch_size=max(round(share * examples), 1))
    expected = next(fixed.batches(examples, SeededForExperiments(seed=seed)))
    shares = [
        next(fixed.shares(examples, rank, world, SeededForExperiments(seed=seed)))
        for rank in range(world)
    ]
    assert sorted(np.concatenate(shares)) == list(expected)
    everyone = PoissonSampling(rate=1.0)
    shares = [next(everyone.shares(examples, rank, world)) for rank in range(world)]
    assert sorted(np.concatenate(shares)) == list(range(examples))


# --- the price -------------------------------------------------------------------------------


def test_steps_are_counted_once_and_before_anyone_goes_on(ranks):
    for found in ranks:
        known, steps, epsilon = found["ledger"]
        assert len(known) == steps == plan().steps
        assert all(count > step for step, count in enumerate(known))
        assert epsilon == pytest.approx(plan().epsilon, rel=1e-9)


def test_trainer_of_two_processes_keeps_one_run(ranks):
    for epsilon, steps, weights, resumed, names in (found["trainer"] for found in ranks):
        assert epsilon == pytest.approx(plan(batch_size=3).epsilon, rel=1e-9)
        assert steps == 6  # four that the ledger knew of, and two more
        assert torch.equal(weights, ranks[0]["trainer"][2])
        assert torch.equal(weights, resumed)
        assert names[0] == "0.weight"


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_loops_of_users_wait_for_each_other(ranks, kind):
    (calls, steps, epsilon, moved), (other_calls, *other) = (found["loop", kind] for found in ranks)
    assert [steps, epsilon, moved] == other
    assert steps == 30
    assert moved > 0
    assert calls + other_calls > 30


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("other clipping", "same in all processes"),
        ("other model", "the model must be the same"),
        ("other dataset", "sampling must be the same"),
        ("other seed", "the seed must be the same"),
        ("ledger of one", "open a SharedLedger"),
        ("partly sharded", "is not sharded while others are"),
        ("penalty", "gradient outside of its layer"),
        ("other bound", "the clipping norm must be the same"),
        ("sharded run", "run_dir holds whole models"),
        ("other rate", "the optimizer and its settings must be the same"),
        ("other optimizer", "the optimizer and its settings must be the same"),
        ("other weights", "the weights (by their hash) must be the same"),
        ("other buffers", "the buffers (by their hash) must be the same"),
    ],
)
def test_refusals(ranks, what, message):
    for found in ranks:
        assert message in found["refusals"][what]


def test_rank_must_be_one_of_the_processes():
    with pytest.raises(ValueError, match="rank must be below world_size=2"):
        Processes(2, 2)
    with pytest.raises(ValueError, match="before torch"):
        Processes.current("a group")


def test_errors_of_the_first_process_are_raised_as_they_are():
    def spend():
        raise BudgetExceeded("no")

    with pytest.raises(BudgetExceeded):
        Processes().agreed(spend)


def test_common_bits_are_a_function_of_key_and_calls():
    key = SecureGenerator().bytes(32)
    one, two = CommonBits(key), CommonBits(key)
    first = one.bytes(1000)
    assert first == two.bytes(1000)
    assert one.bytes(1000) != first
    assert CommonBits(SecureGenerator().bytes(32)).bytes(1000) != first
    ones = np.unpackbits(np.frombuffer(one.bytes(100_000), np.uint8)).mean()
    assert ones == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(800_000))
