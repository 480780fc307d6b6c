"""Loaders hand out exactly the batches that were drawn, empty ones included."""

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import SeededForExperiments, default_generator
from taut.training import (
    FixedSizeSampling,
    FlatClip,
    Plan,
    PoissonSampling,
    PrivateLoader,
    check_sampler,
)

TENSORS = TensorDataset(torch.arange(100.0), torch.arange(100) % 10)


class Items(Dataset):
    """Examples that are fetched one by one."""

    def __init__(self, n=100):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"x": torch.tensor([float(i), 1.0]), "name": f"example {i}"}


def plan(**changes):
    arguments = {"examples": 100, "batch_size": 10, "steps": 25, "delta": 1e-5} | changes
    return Plan(**arguments, noise_multiplier=1.0, clipping=FlatClip(1.0))


def places(batch):
    """Return which examples a batch holds."""
    if batch.is_empty:
        return []
    data = batch.data
    return (data[0] if isinstance(data, list) else data["x"][:, 0]).int().tolist()


def logical(batches):
    """Return the members of every logical batch, from its parts."""
    found, current = [], []
    for batch in batches:
        current += places(batch)
        if batch.is_last:
            found.append(current)
            current = []
    assert not current
    return found


def drawn(sampling, n, steps, seed):
    source = SeededForExperiments(seed)
    return [sampling.draw(n, source).tolist() for _ in range(steps)]


@pytest.mark.parametrize("dataset", [TENSORS, Items()], ids=["tensors", "items"])
@pytest.mark.parametrize("physical", [None, 1, 3, 1_000])
@pytest.mark.parametrize("sampling", [PoissonSampling(0.012), FixedSizeSampling(9)])
def test_parts_make_up_what_was_drawn(dataset, physical, sampling):
    loader = PrivateLoader(
        dataset,
        sampling,
        steps=60,
        max_physical_batch_size=physical,
        generator=SeededForExperiments(1),
    )
    batches = list(loader.microbatches())
    assert logical(batches) == drawn(sampling, 100, 60, seed=1)
    assert all(batch.size == len(places(batch)) for batch in batches)
    assert max(batch.size for batch in batches) <= (physical or 100)
    assert [batch.step for batch in batches if batch.is_last] == list(range(60))


def test_parts_are_of_nearly_equal_size():
    loader = PrivateLoader(TENSORS, FixedSizeSampling(9), steps=1, max_physical_batch_size=8)
    assert [batch.size for batch in loader.microbatches()] == [5, 4]


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_fetch_the_same_batches_in_order(workers):
    sampling = PoissonSampling(0.015)
    loader = PrivateLoader(
        Items(),
        sampling,
        steps=40,
        max_physical_batch_size=2,
        num_workers=workers,
        persistent_workers=True,
        generator=SeededForExperiments(2),
    )
    both = logical(loader.microbatches()) + logical(loader.microbatches())
    assert both == drawn(sampling, 100, 80, seed=2)
    assert [] in both


class Noisy(Dataset):
    """Examples with random augmentation."""

    def __len__(self):
        return 40

    def __getitem__(self, i):
        secure = int(default_generator().integers_u64(1)[0] >> np.uint64(1))
        return torch.rand(()).item(), np.random.rand(), secure  # noqa: NPY002


def test_workers_do_not_repeat_each_others_randomness():
    loader = PrivateLoader(Noisy(), FixedSizeSampling(20), steps=4, num_workers=2)
    columns = zip(*(batch for _ in range(2) for batch in loader), strict=True)
    for column in columns:
        values = torch.cat(column)
        assert values.unique().numel() == values.numel() == 160


def test_empty_batches_are_steps():
    loader = PrivateLoader(TENSORS, PoissonSampling(1e-9), steps=5)
    batches = list(loader.microbatches())
    assert [(b.data, b.size, b.is_last, b.is_empty) for b in batches] == [(None, 0, True, True)] * 5
    for x, y in loader:
        assert x.shape == y.shape == (0,)
        assert loader.current.is_empty
    assert loader.steps_taken == 10


def test_empty_batches_keep_the_structure_of_others():
    (batch,) = PrivateLoader(Items(), PoissonSampling(1e-9), steps=1)
    assert batch["x"].shape == (0, 2)
    assert batch["name"] == []


def test_empty_batch_that_would_keep_an_example_is_refused():
    def collate(items):
        return {"x": torch.stack([item["x"] for item in items]), "total": 7.0}

    loader = PrivateLoader(Items(), PoissonSampling(1e-9), steps=1, collate_fn=collate)
    with pytest.raises(UnsoundConfiguration, match="of a float in a collated batch"):
        next(iter(loader))


def test_plain_iteration_says_what_it_yielded():
    loader = PrivateLoader(TENSORS, FixedSizeSampling(8), max_physical_batch_size=5, steps=2)
    seen = [(len(x), loader.current.is_last, loader.current.step) for x, _ in loader]
    assert seen == [(4, False, 0), (4, True, 0), (4, False, 1), (4, True, 1)]


def test_tensors_at_once_equal_tensors_one_by_one():
    inner = Subset(TENSORS, [5, 3, 8, 1, 9, 90])
    nested = Subset(inner, [0, 2, 4])
    for dataset in (TENSORS, inner, nested):
        fast, slow = (
            PrivateLoader(
                dataset, PoissonSampling(0.5), steps=6, generator=SeededForExperiments(3), **options
            )
            for options in (
                {},
                {"collate_fn": lambda items: torch.utils.data.default_collate(items)},
            )
        )
        for one, other in zip(fast.microbatches(), slow.microbatches(), strict=True):
            assert one[1:] == other[1:]
            assert one.is_empty or all(map(torch.equal, one.data, other.data))


def test_lists_are_datasets():
    loader = PrivateLoader([1.0, 2.0, 3.0], PoissonSampling(1.0), steps=1)
    assert [batch.tolist() for batch in loader] == [[1.0, 2.0, 3.0]]


# --- how many steps ----------------------------------------------------------------------------


def test_a_pass_is_an_epoch_unless_told_otherwise():
    assert len(PrivateLoader(TENSORS, PoissonSampling(0.1))) == 10
    assert len(PrivateLoader(TENSORS, FixedSizeSampling(30))) == 4
    assert len(PrivateLoader(TENSORS, plan())) == 10
    assert len(PrivateLoader(TENSORS, plan(), steps=3)) == 3


def test_passes_end_with_the_steps_of_the_plan():
    loader = PrivateLoader(TENSORS, plan())
    assert [len(logical(loader.microbatches())) for _ in range(3)] == [10, 10, 5]
    assert loader.steps_taken == 25
    with pytest.raises(BudgetExceeded, match="all 25 steps"):
        next(iter(loader))


def test_an_abandoned_pass_counts_what_was_handed_out():
    loader = PrivateLoader(TENSORS, plan())
    batches = loader.microbatches()
    for _ in range(4):
        next(batches)
    assert loader.steps_taken == 4
    assert next(loader.microbatches()).step == 4
    with pytest.raises(UnsoundConfiguration, match="another pass"):
        next(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_seeded_run_resumes_where_it_stopped(workers):
    def loader(seed):
        return PrivateLoader(
            Items(),
            PoissonSampling(0.03),
            steps=12,
            num_workers=workers,
            generator=SeededForExperiments(seed),
        )

    whole = logical(loader(4).microbatches())
    first = loader(4)
    batches = first.microbatches()
    begun = logical(next(batches) for _ in range(5))
    second = loader(99)
    second.load_state_dict(first.state_dict())
    rest = logical(second.microbatches())
    assert begun + rest[:7] == whole


def test_secure_run_resumes_with_its_count():
    first, second = PrivateLoader(TENSORS, plan()), PrivateLoader(TENSORS, plan())
    list(first)
    second.load_state_dict(first.state_dict())
    assert second.steps_taken == 10
    seeded = PrivateLoader(TENSORS, plan(), generator=SeededForExperiments(1)).state_dict()
    with pytest.raises(UnsoundConfiguration, match="a run with a seed"):
        second.load_state_dict(seeded)


# --- loaders of torch --------------------------------------------------------------------------


def collate_to_sum(items):
    return torch.stack([x for x, _ in items]).sum()


def test_data_loader_hands_over_its_fetching():
    theirs = DataLoader(
        TENSORS, batch_size=10, shuffle=True, num_workers=1, collate_fn=collate_to_sum
    )
    ours = PrivateLoader.from_data_loader(
        theirs, plan(sampling=FixedSizeSampling()), steps=2, unchecked_isolation=True
    )
    assert ours.dataset is TENSORS
    assert all(batch.ndim == 0 for batch in ours)
    alone = PrivateLoader.from_data_loader(theirs, plan(), num_workers=0, collate_fn=None)
    assert logical(alone.microbatches())
    plain = PrivateLoader.from_data_loader(DataLoader(TENSORS, batch_size=4), plan())
    assert logical(plain.microbatches())


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": SubsetRandomSampler(range(50))},
        {"sampler": WeightedRandomSampler([1.0] * 100, 100)},
        {"batch_sampler": [[1, 2], [3, 4]]},
        {"batch_size": None},
    ],
    ids=["subset", "weighted", "own batches", "no batches"],
)
def test_data_loader_that_picks_examples_is_refused(options):
    with pytest.raises(UnsoundConfiguration, match=r"Subset|single examples"):
        PrivateLoader.from_data_loader(DataLoader(TENSORS, **options), plan())


def test_only_data_loaders_are_taken_over():
    with pytest.raises(ValueError, match="DataLoader of torch"):
        PrivateLoader.from_data_loader([1, 2], plan())


@pytest.mark.parametrize(
    ("loader", "how"),
    [
        (DataLoader(TENSORS, batch_size=10, shuffle=True), "by shuffling"),
        (DataLoader(TENSORS, batch_size=10), "in their order"),
        (DataLoader(TENSORS, batch_sampler=BatchSampler(range(100), 4, False)), "in their order"),
        ([[1, 2], [3]], "not known"),
    ],
)
def test_loader_without_poisson_sampling_is_refused(loader, how):
    with pytest.raises(UnsoundConfiguration, match=f"(?s){how}.*from_data_loader"):
        check_sampler(loader, PoissonSampling(0.1))


def test_private_loader_must_draw_as_planned():
    check_sampler(PrivateLoader(TENSORS, plan()), plan().sampling)
    with pytest.raises(UnsoundConfiguration, match="accounts for PoissonSampling"):
        check_sampler(PrivateLoader(TENSORS, FixedSizeSampling(10)), plan().sampling)


# --- bad input ---------------------------------------------------------------------------------


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


class Endless(Dataset):
    def __getitem__(self, i):
        return i


@pytest.mark.parametrize(
    ("dataset", "error", "message"),
    [
        (Stream(), UnsoundConfiguration, "read in its own order.*list"),
        (iter([1, 2]), UnsoundConfiguration, "read in its own order"),
        (Endless(), UnsoundConfiguration, "has no length.*__len__"),
        ([], ValueError, "at least one example"),
    ],
)
def test_datasets_that_cannot_be_sampled(dataset, error, message):
    with pytest.raises(error, match=message):
        PrivateLoader(dataset, PoissonSampling(0.1))


def test_dataset_of_another_size_than_planned():
    with pytest.raises(UnsoundConfiguration, match="examples=100, the dataset has 98"):
        PrivateLoader(Subset(TENSORS, range(98)), plan())
    neighbour = Subset(TENSORS, range(99))
    PrivateLoader(neighbour, plan())
    with pytest.raises(UnsoundConfiguration, match="examples=100, the dataset has 99"):
        PrivateLoader(neighbour, plan(sampling=FixedSizeSampling()))


@pytest.mark.parametrize("name", ["batch_size", "shuffle", "sampler", "drop_last"])
def test_options_that_choose_examples_are_refused(name):
    with pytest.raises(UnsoundConfiguration, match="would choose examples"):
        PrivateLoader(TENSORS, plan(), **{name: 1})


def test_bad_arguments():
    with pytest.raises(TypeError, match="no option 'colour'"):
        PrivateLoader(TENSORS, plan(), colour="red")
    with pytest.raises(ValueError, match="a Plan or a Sampling"):
        PrivateLoader(TENSORS, 0.1)
    with pytest.raises(ValueError, match="has no batch size"):
        PrivateLoader(TENSORS, PoissonSampling())
    with pytest.raises(ValueError, match="max_physical_batch_size must be at least 1"):
        PrivateLoader(TENSORS, plan(), max_physical_batch_size=0)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        PrivateLoader(TENSORS, plan(), steps=0)
