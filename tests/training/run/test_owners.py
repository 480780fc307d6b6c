"""Training that protects owners of several examples: sampling, clipping, counting, stating."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from taut.audit import verify_statement
from taut.errors import AdjacencyMismatch, UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import (
    FixedSizeSampling,
    FlatClip,
    Loading,
    Owners,
    Plan,
    PrivateLoader,
    PrivateTrainer,
    RandomAllocation,
    RunHistory,
    RunLedger,
    TrainingResult,
)
from taut.training._data.owned_examples import OwnedExamples
from taut.training._gradients.own_rows import MeanOverOwn, by_owner
from taut.training._step.reduction import Alone
from taut.training.extend import PrivateGradient

_CLIP = 0.5


def _plan(count, each=3, **changes):
    arguments = {
        "batch_size": 6,
        "steps": 4,
        "noise_multiplier": 1.0,
        "delta": 1e-3,
        "clipping": FlatClip(_CLIP),
    }
    return Plan(unit=Owners(count, examples_each=each), **{**arguments, **changes})


def _data(sizes=(1, 2, 3, 5, 7, 4, 1, 6), seed=0):
    """Return a dataset, and the owners of its examples in an order without a system."""
    bits = torch.Generator().manual_seed(seed)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    order = torch.randperm(len(owners), generator=bits).numpy()
    inputs = torch.randn(len(owners), 4, generator=bits)
    targets = torch.randint(0, 2, (len(owners),), generator=bits)
    return TensorDataset(inputs, targets), owners[order]


def _model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def _by_loop(model, part, each):
    """Return the sum over owners of clipped mean gradients, by plain autograd."""
    inputs, targets = part
    parameters = list(model.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    for start in range(0, len(inputs), each):
        own = slice(start, start + each)
        loss = nn.functional.cross_entropy(model(inputs[own]), targets[own])
        grads = torch.autograd.grad(loss, parameters)
        norm = torch.cat([g.flatten() for g in grads]).norm()
        for sum_, grad in zip(total, grads, strict=True):
            sum_ += grad * min(1.0, _CLIP / float(norm))
    return torch.cat([t.flatten() for t in total])


def _check_sums(sums, parts, model):
    for found, part in zip(sums, parts, strict=True):
        wanted = _by_loop(model, part, 3) if part else torch.zeros_like(found)
        assert torch.allclose(found * _plan(8).batch_size, wanted, rtol=1e-4, atol=1e-5)


def _sums(dataset, owners, plan, monkeypatch, *, loading=None, seed=5):
    """Return the sums that the steps of a run release before noise, and the data of each."""
    found, parts, step = [], [], []

    def caught(self, totals, *_):
        found.append(torch.cat([t.flatten() for t in totals]).clone())
        parts.append([torch.cat(column) for column in zip(*step, strict=True)] if step else None)
        step.clear()
        for parameter in self.trained.values():
            parameter.grad = torch.zeros_like(parameter)  # weights stay as they are

    monkeypatch.setattr(Alone, "finish", caught)
    trainer = PrivateTrainer(
        _model(),
        nn.CrossEntropyLoss(),
        plan,
        generator=SeededForExperiments(seed=seed),
        loading=loading or Loading(),
    )
    inside = trainer._accumulate
    trainer._accumulate = lambda part: (
        step.append([values.flatten(0, 1) for values in part.data]) if part.size else None,
        inside(part),
    )[1]
    trainer.fit(dataset, owners=owners)
    return found, parts, trainer.model


@pytest.mark.parametrize("rows", [None, 7])
def test_sum_is_that_of_clipped_means_over_the_examples_of_owners(monkeypatch, rows):
    dataset, owners = _data()
    sums, parts, model = _sums(
        dataset, owners, _plan(8), monkeypatch, loading=Loading(max_physical_batch_size=rows)
    )
    assert len(sums) == 4
    _check_sums(sums, parts, model)


def test_one_owner_moves_the_sum_by_no_more_than_the_norm():
    dataset, owners = _data()
    model = _model()
    plan = _plan(8, each=4)
    inputs, targets = dataset.tensors
    inputs = inputs * 50  # every gradient is longer than the norm
    owned = OwnedExamples(owners, len(owners), 4)
    rows = owned.rows(np.arange(8), SeededForExperiments(seed=1))

    def summed(drawn):
        gradient = PrivateGradient(
            copy.deepcopy(model), plan.clipping, scales=[1e-12], expected_batch_size=1.0, copies=4
        )
        places = torch.from_numpy(rows[drawn].reshape(-1))
        loss = MeanOverOwn(lambda o, t: nn.functional.cross_entropy(o, t, reduction="none"), 4)
        gradient.accumulate_batch(
            by_owner(inputs[places], len(drawn)), by_owner(targets[places], len(drawn)), loss
        )
        gradient.finish()
        return torch.cat([p.grad.flatten() for p in gradient.parameters])

    everyone = summed(list(range(8)))
    for gone in range(8):
        moved = everyone - summed([i for i in range(8) if i != gone])
        assert float(moved.norm()) <= _CLIP * (1 + 1e-3)


def test_owners_are_drawn_with_the_rate_however_many_examples_they_have():
    dataset, owners = _data(sizes=(1, 40, 2, 9))
    plan = _plan(4, each=2, batch_size=1, steps=3_000)
    loader = PrivateLoader(dataset, plan, owners=owners, generator=SeededForExperiments(seed=3))
    counts = np.zeros(4)
    for step in range(3_000):
        drawn = owners[loader._batch(step).indices]
        assert (drawn[:, :1] == drawn).all()
        counts[drawn[:, 0]] += 1
    # Five deviations of a binomial count of mean 750.
    assert np.abs(counts - 750).max() < 5 * np.sqrt(3_000 * 0.25 * 0.75)


@pytest.mark.parametrize(("size", "each"), [(3, 2), (3, 3), (3, 4), (1, 5), (2, 7)])
def test_examples_of_an_owner_have_equal_shares(size, each):
    owned = OwnedExamples(["a"] * size, size, each)
    source = SeededForExperiments(seed=2)
    rows = owned.rows(np.zeros(2_000, dtype=np.int64), source)
    counts = np.stack([np.bincount(row, minlength=size) for row in rows])
    assert (counts.max(1) - counts.min(1) <= 1).all()
    assert np.allclose(counts.mean(0), each / size, atol=5 * 0.5 / np.sqrt(2_000))


@pytest.mark.parametrize("sampling", [RandomAllocation(), FixedSizeSampling(), "poisson"])
def test_other_samplings_draw_owners(sampling):
    dataset, owners = _data()
    plan = _plan(8, batch_size=4, sampling=sampling)
    loader = PrivateLoader(dataset, plan, owners=owners, max_physical_batch_size=5)
    for part in loader.microbatches():
        assert part.size <= 1  # three rows each
        assert part.is_empty or part.data[0].shape[:2] == (part.size, 3)


def test_statement_says_owners_and_is_verified():
    dataset, owners = _data()
    trainer = PrivateTrainer(_model(), nn.CrossEntropyLoss(), _plan(8))
    trainer.check(dataset, owners=owners)
    result = trainer.fit(dataset, owners=owners)
    assert "out of 8 owners" in result.statement
    assert "mean over 3 of its examples" in result.statement
    again = TrainingResult.from_json(result.to_json())
    assert again == result
    assert again.statement == result.statement
    assert verify_statement(json.loads(result.to_json())).holds


def test_a_run_goes_on_with_the_same_owners_alone(tmp_path):
    dataset, owners = _data()
    PrivateTrainer(_model(), nn.CrossEntropyLoss(), _plan(8), run_dir=tmp_path).fit(
        dataset, owners=[f"name-{i}" for i in owners]
    )
    assert RunHistory.read(tmp_path / "ledger.jsonl").segments[0].plan.unit == Owners(8, 3)
    for file in tmp_path.iterdir():
        assert b"name-" not in file.read_bytes()
    others = [f"name-{i}" for i in owners[::-1]]
    trainer = PrivateTrainer.resume(tmp_path, _model(), nn.CrossEntropyLoss())
    with pytest.raises(UnsoundConfiguration, match="not the one that this run began with"):
        trainer.fit(dataset, owners=others)


def test_copies_and_owners_go_together(monkeypatch):
    dataset, owners = _data()
    loading = Loading(augment=lambda x: x.clone(), copies=2)
    twice, parts, model = _sums(dataset, owners, _plan(8), monkeypatch, loading=loading)
    _check_sums(twice, parts, model)


def test_plans_round_trip_and_old_ones_are_written_as_before():
    plan = _plan(50, each=4)
    data = plan.to_dict()
    assert data["schema"] == "taut.training-plan/3"
    assert Plan.from_json(plan.to_json()) == plan
    same = Plan(
        examples=50, batch_size=6, steps=4, noise_multiplier=1.0, delta=1e-3, clipping=FlatClip(0.5)
    )
    assert same.epsilon == plan.epsilon
    assert same != plan
    assert "unit" not in same.to_dict()
    assert "owners out of 50" in str(plan)
    for change in (
        {"schema": "taut.training-plan/1"},
        {"unit": {"name": "owners"}},
        {"unit": {"name": "houses", "examples_each": 2}},
        {"unit": {"name": "owners", "examples_each": 0}},
    ):
        with pytest.raises(ValueError, match=r"unit|examples_each"):
            Plan.from_dict({**data, **change})
    with pytest.raises(ValueError, match="unit"):
        Plan.from_dict({k: v for k, v in data.items() if k != "unit"})


def test_a_ledger_adds_up_one_unit_alone(tmp_path):
    plan = _plan(50)
    same = Plan(
        examples=50, batch_size=6, steps=4, noise_multiplier=1.0, delta=1e-3, clipping=FlatClip(0.5)
    )
    with pytest.raises(AdjacencyMismatch, match="owners"):
        RunHistory().begun(plan, 1).begun(same, 1)
    with RunLedger(tmp_path / "ledger.jsonl", plan):
        pass


@pytest.mark.parametrize(
    ("arguments", "kind", "match"),
    [
        ({"unit": None, "examples": None}, ValueError, "either examples"),
        ({"examples": 8}, ValueError, "either examples"),
        ({"unit": "owners"}, TypeError, "unit must be Owners"),
    ],
)
def test_plans_name_one_unit(arguments, kind, match):
    given = {"unit": Owners(8, 2), "batch_size": 2, "steps": 1, "epsilon": 1.0, "delta": 1e-3}
    with pytest.raises(kind, match=match):
        Plan(**{**given, **arguments}, clipping=FlatClip(1.0))


@pytest.mark.parametrize(("count", "each"), [(0, 1), (3, 0), (3, 1.5), (float("nan"), 1)])
def test_owners_are_counted_in_positive_numbers(count, each):
    with pytest.raises((ValueError, TypeError), match=r"count|examples_each"):
        Owners(count, examples_each=each)


@pytest.mark.parametrize(
    ("owners", "kind", "match"),
    [
        ([1, 2], ValueError, "one owner for each of 3 examples"),
        ([1.0, 2.0, float("nan")], TypeError, "integers, or all strings"),
        (np.array([1.0, 2.0, np.nan]), TypeError, "integers or strings"),
        ([1, "1", 2], TypeError, "all be integers"),
        ([1, None, 2], TypeError, "without an owner"),
        (["a", "", "b"], ValueError, "empty names"),
        (["nan", "a", "nan"], ValueError, "gaps"),
        (np.array(["a", "None", "b"]), ValueError, "gaps"),
        (np.ma.array([1, 2, 3], mask=[False, True, False]), ValueError, "gaps"),
        (np.array([True, False, True]), TypeError, "integers or strings"),
        ([True, False, True], TypeError, "integers"),
        ([(1, 2), (1,), (2,)], UnsoundConfiguration, "several owners"),
        (np.zeros((3, 2), dtype=int), UnsoundConfiguration, "several owners"),
        ("abc", TypeError, "an array or a list"),
        ({1: 2}, TypeError, "an array or a list"),
    ],
)
def test_owners_are_names_of_one_owner_each(owners, kind, match):
    with pytest.raises(kind, match=match):
        OwnedExamples(owners, 3, 2)


def test_names_may_be_tensors_arrays_and_lists():
    for names in (torch.tensor([5, 7, 5]), np.array(["x", "y", "x"]), ["x", "y", "x"]):
        owned = OwnedExamples(names, 3, 2)
        assert owned.count == 2
        assert sorted(owned.first_rows(2)[0]) == [0, 2]


@pytest.mark.parametrize(
    "names",
    [
        [2**63, 2**63 + 1, -1],  # one type of NumPy for all three would round them
        np.array([2**63, 2**63 + 1, -1], dtype=object),
        [2**70, 2**70 + 1, 0],
        ["a\0", "a", "b"],  # which NumPy would cut off
        ["Nan", "nan ", "none"],
    ],
)
def test_names_are_told_apart_exactly(names):
    assert OwnedExamples(names, 3, 2).count == 3


def test_processes_have_the_same_owners():
    owned = OwnedExamples(["x", "y", "x", "z"], 4, 2)
    others = OwnedExamples([3, 7, 3, 9], 4, 2), OwnedExamples(["x", "x", "y", "z"], 4, 2)

    class Two:
        """A process beside one that says what it was told before."""

        said = None

        def gathered(self, value):
            self.said, before = value, self.said
            return [value, value if before is None else before]

    both = Two()
    owned.check_same(both)
    others[0].check_same(both)  # which names is of no matter
    with pytest.raises(UnsoundConfiguration, match="the same in all processes"):
        others[1].check_same(both)


def test_a_loop_of_ones_own_clips_owners_as_well():
    dataset, owners = _data()
    inputs, targets = dataset.tensors
    dataset = TensorDataset(inputs * 50, targets)
    plan = _plan(8, sampling=FixedSizeSampling(), batch_size=1, steps=8)
    model = _model()
    gradient = PrivateGradient(model, plan.clipping, scales=[1e-12], expected_batch_size=1.0)

    def loss(outputs, targets):
        each = nn.functional.cross_entropy(
            outputs.flatten(0, 1), targets.flatten(), reduction="none"
        )
        return each.view(targets.shape).mean(1)

    for part in PrivateLoader(dataset, plan, owners=owners, steps=8).microbatches():
        assert part.data[0].shape == (1, 3, 4)
        gradient.accumulate_batch(*part.data, loss)
        gradient.finish()
        moved = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
        assert float(moved) <= _CLIP * (1 + 1e-3)


def test_a_batch_without_owners_has_their_shape():
    dataset, owners = _data()
    plan = _plan(8, batch_size=None, rate=1e-9, steps=1)
    inputs, targets = next(iter(PrivateLoader(dataset, plan, owners=owners, steps=1)))
    assert inputs.shape == (0, 3, 4)
    assert targets.shape == (0, 3)


def test_plans_and_owners_belong_together():
    dataset, owners = _data()
    with pytest.raises(UnsoundConfiguration, match="who owns which example"):
        PrivateLoader(dataset, _plan(8))
    with pytest.raises(UnsoundConfiguration, match=r"unit=Owners\(8"):
        PrivateLoader(dataset, _plan(20), owners=owners)
    single = Plan(
        examples=len(owners),
        batch_size=4,
        steps=2,
        noise_multiplier=1.0,
        delta=1e-3,
        clipping=FlatClip(1.0),
    )
    with pytest.raises(UnsoundConfiguration, match="protects single examples"):
        PrivateLoader(dataset, single, owners=owners)
