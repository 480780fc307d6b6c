"""Batches as models and losses see them: rows of examples, and how to take some of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import (
    DataLoader,
    IterableDataset,
)

from taut.errors import UnsoundConfiguration

__all__ = ["Collate", "LossFunction", "apply", "batch_size", "copied", "examples_of", "length"]


LossFunction: TypeAlias = Callable[[Any, Any], Tensor]
"""Takes a model's outputs and the targets, and returns one loss per example."""


def apply(model: Callable[..., Any], inputs: Any) -> Any:
    """Call a model with its inputs: a tuple by position, a mapping by keyword, or a single one."""
    if isinstance(inputs, dict):
        return model(**inputs)
    if isinstance(inputs, tuple | list):
        return model(*inputs)
    return model(inputs)


def batch_size(inputs: Any) -> int:
    """Return the number of examples, which all tensors must share as their first axis."""
    sizes = {len(x) for x in pytree.tree_leaves(inputs) if isinstance(x, Tensor) and x.dim() > 0}
    if len(sizes) != 1:
        raise UnsoundConfiguration(
            f"inputs must share one first axis, that of examples; found sizes {sorted(sizes)}"
        )
    return sizes.pop()


def examples_of(values: Any, part: slice) -> Any:
    """Return some examples of inputs or targets, in whatever structure."""
    return pytree.tree_map(lambda x: x[part] if isinstance(x, Tensor) and x.dim() else x, values)


def copied(values: Any) -> Any:
    """Return values whose tensors may be written to: some models change their inputs in place."""
    return pytree.tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, values)


def length(dataset: Any) -> int:
    """Return the number of examples, or say what to do about a dataset that has none."""
    if isinstance(dataset, DataLoader):
        raise UnsoundConfiguration(
            "a DataLoader draws batches in its own way, and private sampling needs the examples: "
            "give its dataset (loader.dataset); batches are those of the plan"
        )
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise UnsoundConfiguration(
            f"{type(dataset).__name__} can only be read in its own order, so that no example can "
            "be sampled; use a dataset with __len__ and __getitem__, for example list(dataset)"
        )
    try:
        examples = len(dataset)
    except (TypeError, NotImplementedError):
        raise UnsoundConfiguration(
            f"{type(dataset).__name__} has no length, so that there is no rate to sample with; "
            "define __len__, or use a list"
        ) from None
    if examples == 0:
        raise ValueError("dataset must hold at least one example, got an empty one")
    return examples


Collate: TypeAlias = Callable[[list[Any]], Any]
