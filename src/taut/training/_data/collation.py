"""Whether a collate function keeps examples apart: the same examples, collated in other company."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration
from taut.training._tensors.draws import same_draws
from taut.training._tensors.examples import Collate

__all__ = ["check_collation", "is_same_batch"]

_TRIED = 32  # examples in a batch: some functions mix batches of more than a few alone
_TRIALS = 16  # how often half of them are exchanged: some functions mix now and then


def check_collation(dataset: Any, collate: Collate, examples: int) -> None:
    """Refuse a collate function that makes something else of an example if the others change.

    Args:
        dataset: dataset of examples, of which some are fetched.
        collate: makes a batch of a list of them.
        examples: how many there are.

    Rows may come in another order, as those that are sorted by length do, and may be padded as far
    as the longest example of the batch needs.

    Raises:
        UnsoundConfiguration: if an example changes with its company, or with the number of others.
    """
    source = secrets.SystemRandom()
    count = min(examples, _TRIED)
    if count < 2:
        return
    items = [dataset[place] for place in source.sample(range(examples), count)]
    _check_memory(collate, items)
    for trial in range(_TRIALS):
        gone = set(source.sample(range(count), count // 2))
        kept = [i for i in range(count) if i not in gone]
        others = {i: items[source.choice(kept)] for i in gone}
        company = [others.get(i, item) for i, item in enumerate(items)]
        with same_draws(trial):
            one = _rows(collate(list(items)), count)
        with same_draws(trial):
            again = _rows(collate(list(items)), count)
        with same_draws(trial):
            other = _rows(collate(company), count)
        if not all(map(_same, one[0], again[0])) or not _shared(one, again):
            raise UnsoundConfiguration(
                "collate_fn draws from a source of its own, so that it cannot be tested whether it "
                "mixes examples; draw from torch, numpy or random, or train with "
                "unchecked_isolation=True, which the statement repeats"
            )
        if not all(_same(one[0][i], other[0][i]) for i in kept):
            # Rows in another order, such as by length: those of the kept ones are still there.
            there = sum(any(_same(row, found) for found in other[0]) for row in one[0])
            if there < len(kept):
                raise _mixes()
        if not _shared(one, other):
            raise _mixes()


def is_same_batch(one: Any, other: Any, count: int) -> bool:
    """Whether two batches of so many examples hold the same, padding aside."""
    left, right = _rows(one, count), _rows(other, count)
    return all(map(_same, left[0], right[0])) and _shared(left, right)


def _check_memory(collate: Collate, items: list[Any]) -> None:
    """Refuse a function that is an object and keeps something of the first batch, for later ones.

    What functions keep elsewhere is not seen.
    """
    half = len(items) // 2
    found = []
    for shown in (items[:half], items[:half], items[half:]):
        try:
            fresh = copy.deepcopy(collate)
        except Exception:  # what cannot be copied shows nothing
            return
        with same_draws():
            fresh(list(shown))
        with same_draws():
            found.append(fresh(list(items)))
    one, again, other = found
    is_drawn = not is_same_batch(one, again, len(items))  # from a source of its own: not known
    if not is_drawn and not is_same_batch(one, other, len(items)):
        raise _mixes()


def _rows(batch: Any, count: int) -> tuple[list[list[Any]], list[Any]]:
    """Return what a batch holds of every example, and what it holds for all of them."""
    rows: list[list[Any]] = [[] for _ in range(count)]
    shared: list[Any] = []
    for leaf in pytree.tree_leaves(_plain(batch), is_leaf=lambda x: _is_column(x, count)):
        value = torch.as_tensor(leaf) if isinstance(leaf, np.ndarray) and leaf.ndim else leaf
        if _is_column(value, count):
            for i in range(count):
                rows[i].append(value[i])
        else:
            shared.append(value)
    return rows, shared


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(part) for part in value)
    return value


def _is_column(value: Any, count: int) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        return value.ndim > 0 and len(value) == count
    is_list = isinstance(value, list | tuple) and len(value) == count
    return is_list and not any(isinstance(x, Tensor | np.ndarray | list | dict) for x in value)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape == other.shape:
            return torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
        return one.dim() == other.dim() and _same_but_padding(one, other)
    return bool(one == other)


def _same_but_padding(one: Tensor, other: Tensor) -> bool:
    """Whether values agree where both have some, at either end, and all others are one value."""
    for at_end in (True, False):
        inner = tuple(
            slice(0, min(a, b)) if at_end else slice(max(0, s - min(a, b)), s)
            for a, b, s in zip(one.shape, other.shape, one.shape, strict=True)
        )
        outer = tuple(
            slice(0, min(a, b)) if at_end else slice(max(0, s - min(a, b)), s)
            for a, b, s in zip(one.shape, other.shape, other.shape, strict=True)
        )
        if torch.equal(one[inner], other[outer]) and all(
            _is_one_value(whole, part) for whole, part in ((one, inner), (other, outer))
        ):
            return True
    return False


def _is_one_value(whole: Tensor, part: tuple[slice, ...]) -> bool:
    outside = torch.ones(whole.shape, dtype=torch.bool)
    outside[part] = False
    return len(whole[outside].unique()) <= 1


def _shared(one: tuple[Any, list[Any]], other: tuple[Any, list[Any]]) -> bool:
    """Whether what is for all examples is the same; lengths may follow the longest of them."""
    if len(one[1]) != len(other[1]):
        return False
    return all(
        _same(a, b) or (isinstance(a, int) and isinstance(b, int))
        for a, b in zip(one[1], other[1], strict=True)
    )


def _mixes() -> UnsoundConfiguration:
    return UnsoundConfiguration(
        "collate_fn makes something else of an example if the others change: one example would get "
        "into the gradients of several. Leave out what mixes examples (MixUp, CutMix, statistics "
        "of the batch), and draw random numbers in an order that does not depend on them; or train "
        "with unchecked_isolation=True, which the statement repeats"
    )
