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
        stays: of shape (batch,).
        scaled: whether floats are multiplied, so that they are like none of the batch.
    """
    batch = len(stays)
    kept, gone = stays.nonzero()[:, 0], (~stays).nonzero()[:, 0]
    sources = kept[torch.arange(len(gone)) % len(kept)]
    factors = torch.tensor(_FACTORS)[torch.arange(len(gone)) % len(_FACTORS)]

    def other(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim() and len(value) == batch:
            taken = value.detach()[sources.to(value.device)]
            if scaled and value.is_floating_point():
                shape = -1, *[1] * (value.dim() - 1)
                taken = taken * factors.to(value).view(shape)
            made = value.detach().clone()
            made[gone.to(value.device)] = taken
            return made
        if isinstance(value, list) and len(value) == batch and not _has_tensors(value):
            made_list = list(value)
            for place, source in zip(gone.tolist(), sources.tolist(), strict=True):
                made_list[place] = value[source]
            return made_list
        return value

    return pytree.tree_map(
        other, values, is_leaf=lambda x: isinstance(x, list) and not _has_tensors(x)
    )


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


def _has_tensors(values: list[Any]) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(values))
