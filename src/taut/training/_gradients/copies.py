"""Several copies of every example: rows of a model's batch, one vector to clip.

Values with copies have the shape (examples, copies, ...). The model sees all copies as rows of one
batch; the loss of an example is the mean over its copies, and so is its gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = ["MeanOverCopies", "OnCopies", "check_copies"]


@dataclass(frozen=True)
class OnCopies:
    """Calls a model with all copies of all examples as one batch.

    Args:
        model: what is called.
        copies: how many an example has.
    """

    model: Callable[..., Any]
    copies: int

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(self._joined, (args, kwargs))
        return self.model(*args, **kwargs)

    def _joined(self, value: Any) -> Any:
        return value.flatten(0, 1) if isinstance(value, Tensor) and value.dim() > 1 else value


@dataclass(frozen=True)
class MeanOverCopies:
    """The loss of examples, from a loss of rows.

    Args:
        loss: takes outputs and targets of rows, and returns one loss for each.
        copies: how many rows an example has; targets are the same for all of them.
    """

    loss: Callable[[Any, Any], Tensor]
    copies: int

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        values = self.loss(outputs, pytree.tree_map(self._repeated, targets))
        if values.dim() != 1 or len(values) % self.copies:
            return values  # those who asked refuse it
        of_examples: Tensor = values.unflatten(0, (-1, self.copies))
        return of_examples.mean(1)

    def _repeated(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dim() == 0:
            return value
        return value[:, None].expand(-1, self.copies, *value.shape[1:]).flatten(0, 1)


def check_copies(inputs: Any, copies: int) -> None:
    """Refuse inputs that have not so many copies of every example along their second axis."""
    for leaf in pytree.tree_leaves(inputs):
        if isinstance(leaf, Tensor) and (leaf.dim() < 2 or leaf.shape[1] != copies):
            raise ValueError(
                f"inputs must have the shape (examples, copies={copies}, ...), got "
                f"{tuple(leaf.shape)}"
            )
