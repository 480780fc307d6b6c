"""Batches in which some examples stay where they are, and the others become something else."""

from __future__ import annotations

import secrets
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = ["exchanged", "half_of", "is_other", "rows_of"]

_FACTORS = (-2.0, 0.0, 8.0)  # of floats: means, deviations, largest and least values all change


def half_of(batch: int) -> Tensor:
    """Return whether each example stays: every second one of them, in a secret random order."""
    order = torch.tensor(secrets.SystemRandom().sample(range(batch), batch))
    stays = torch.zeros(batch, dtype=torch.bool)
    stays[order[: (batch + 1) // 2]] = True
    return stays


def exchanged(values: Any, stays: Tensor, *, scaled: bool) -> Any:
    """Return values with examples that stay in the place of those that do not.

    Args:
        values: inputs or targets, in whatever structure.
        stays: mask of the rows that stay, of shape (batch,).
        scaled: whether floats are multiplied, so that they are like none of the batch.
    """
    batch = len(stays)
    kept, gone = stays.nonzero()[:, 0], (~stays).nonzero()[:, 0]
    order, factors = torch.arange(batch), torch.ones(batch)
    order[gone] = kept[torch.arange(len(gone)) % len(kept)]
    factors[gone] = torch.tensor(_FACTORS)[torch.arange(len(gone)) % len(_FACTORS)]

    def other(value: Any) -> Any:
        if isinstance(value, list) and len(value) == batch:
            return [value[place] for place in order.tolist()]
        if not isinstance(value, Tensor) or not value.dim() or len(value) != batch:
            return value
        taken = value.detach()[order.to(value.device)]
        if scaled and value.is_floating_point():
            return taken * factors.to(value).view(-1, *[1] * (value.dim() - 1))
        return taken

    return pytree.tree_map(other, values, is_leaf=_is_list_of_values)


def is_other(one: Any, two: Any) -> bool:
    """Whether two batches of one form differ."""
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(two), strict=True)
    return any(
        not torch.equal(a, b) for a, b in pairs if isinstance(a, Tensor) and isinstance(b, Tensor)
    )


def rows_of(values: Any, places: Tensor, batch: int) -> Any:
    """Return some examples of a batch, in whatever structure."""

    def taken(value: Any) -> Any:
        is_many = isinstance(value, Tensor) and value.dim() > 0 and len(value) == batch
        return value[places.to(value.device)] if is_many else value

    return pytree.tree_map(taken, values)


def _is_list_of_values(value: Any) -> bool:
    leaves = pytree.tree_leaves(value) if isinstance(value, list) else [torch.empty(0)]
    return not any(isinstance(leaf, Tensor) for leaf in leaves)
