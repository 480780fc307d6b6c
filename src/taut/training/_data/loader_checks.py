"""Which loaders and datasets can be trusted to draw what was accounted for."""

from __future__ import annotations

from typing import Any, Never

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.training._plan.plan import Plan
from taut.training._sampling.sampling import Sampling
from taut.training._tensors.examples import length

__all__ = ["check_replaceable", "check_size", "fitted", "refuse_loader"]


def refuse_loader(loader: object, sampling: Sampling) -> Never:
    """Say why a loader that is not private cannot serve a plan, and what can."""
    how = "in a way that is not known"
    sampler = getattr(loader, "sampler", None)
    if isinstance(sampler, RandomSampler):
        how = "by shuffling"
    elif isinstance(sampler, SequentialSampler):
        how = "in their order"
    raise UnsoundConfiguration(
        f"the loader {type(loader).__name__} goes through examples {how}, but the plan accounts "
        f"for {sampling.name} sampling; an epsilon for one says nothing about the other. Use "
        "PrivateLoader.from_data_loader(loader, plan)"
    )


def check_replaceable(loader: DataLoader[Any]) -> None:
    """Refuse a sampler that restricts or weights examples: replacing it would change the task."""
    if not isinstance(loader, DataLoader):
        raise validate.WrongType(f"loader must be a DataLoader of torch, got {loader!r}")
    if isinstance(loader.dataset, IterableDataset):
        length(loader.dataset)
    if loader.batch_sampler is None:
        raise UnsoundConfiguration(
            "the loader has batch_size=None: its dataset makes batches of its own, where examples "
            "cannot be sampled one by one; use a dataset of single examples"
        )
    sampler = loader.sampler
    usual = type(loader.batch_sampler) is BatchSampler
    whole = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement
    )
    if not usual or not whole:
        name = type(sampler if usual else loader.batch_sampler).__name__
        raise UnsoundConfiguration(
            f"the loader's {name} picks examples in its own way, which private sampling cannot "
            "keep; restrict the data with torch.utils.data.Subset(dataset, indices) instead, and "
            "weight losses instead of examples"
        )


def check_size(plan: Plan, examples: int) -> None:
    """Refuse a dataset that is more than a hundredth larger or smaller than was planned for.

    Poisson sampling costs the same for every size, but the gradient would be divided by another
    number than the expected batch size, and the statement would speak of another dataset. A size
    that may be private is planned for by a nearby number, which a neighbour's size is, too.
    """
    if abs(examples - plan.examples) > max(1, plan.examples // 100):
        given = f"examples={examples}"
        if plan.unit is not None:
            given = f"unit=Owners({examples}, examples_each={plan.unit.examples_each})"
        raise UnsoundConfiguration(
            f"the plan is for {plan.units}={plan.examples}, the dataset has {examples}; make the "
            f"plan with {given}"
        )
    plan.sampling.check_examples(plan.examples, examples)


def fitted(sampling: object) -> Sampling:
    if not isinstance(sampling, Sampling):
        raise validate.WrongType(f"sampling must be a Plan or a Sampling, got {sampling!r}")
    if not sampling.is_fitted:
        raise ValueError(f"sampling={sampling!r} has no batch size; give it one, or give a plan")
    return sampling
