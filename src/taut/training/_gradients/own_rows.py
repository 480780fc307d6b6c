"""Several examples of every owner: rows of a model's batch, one vector to clip.

This is what copies of an example are, with examples that differ: the rows of an owner lie next to
each other, its loss is the mean over them, and its gradient is folded into one before the clip. But
where copies share one target, every row of an owner has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = ["MeanOverOwn", "by_owner", "by_row", "without_owners"]


@dataclass(frozen=True)
class MeanOverOwn:
    """The loss of owners, from a loss of rows.

    Args:
        loss: takes outputs and targets of rows, and returns one loss for each.
        examples: how many examples an owner has; targets are of shape (owners, examples, ...).
        copies: how many augmented copies every example has, which share its target.
    """

    loss: Callable[[Any, Any], Tensor]
    examples: int
    copies: int = 1

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        values = self.loss(outputs, pytree.tree_map(self._of_rows, targets))
        rows = self.examples * self.copies
        if values.dim() != 1 or len(values) % rows:
            return values  # those who asked refuse it
        of_owners: Tensor = values.unflatten(0, (-1, rows))
        return of_owners.mean(1)

    def _of_rows(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dim() < 2:
            return value
        return value.flatten(0, 1).repeat_interleave(self.copies, 0)


def by_owner(values: Any, owners: int, copies: int = 1) -> Any:
    """Return rows by owner: of shape (owners, rows of an owner, ...).

    Args:
        values: inputs or targets in whatever structure, rows first, owner after owner.
        owners: number of owners.
        copies: number of copies of every row, along the second axis, which become rows.
    """

    def grouped(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dim() == 0:
            return value
        if copies > 1:
            value = value.flatten(0, 1)
        return value.unflatten(0, (owners, -1))

    return pytree.tree_map(grouped, values)


def by_row(values: Any) -> Any:
    """Return rows of owners one after the other, the inverse of `by_owner`."""

    def flat(value: Any) -> Any:
        return value.flatten(0, 1) if isinstance(value, Tensor) and value.dim() > 1 else value

    return pytree.tree_map(flat, values)


def without_owners(values: Any, examples: int) -> Any:
    """Return tensors without rows as those of no owner, with so many examples of each."""

    def grouped(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dim() == 0:
            return value
        return value.new_empty(0, examples, *value.shape[1:])

    return pytree.tree_map(grouped, values)
