"""Fetching: examples by their places, whole tensors at once where the dataset allows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset, default_collate

from taut.errors import UnsoundConfiguration
from taut.training._sampling.sampling import Indices
from taut.training._tensors.examples import Collate

__all__ = ["WholeTensors", "empty_batch", "whole_tensors"]


class WholeTensors:
    """Rows of several tensors, indexed at once.

    Args:
        tensors: their first dimension counts examples.
        places: where the examples of a subset are, None for all.
    """

    def __init__(self, tensors: tuple[Tensor, ...], places: Tensor | None = None) -> None:
        self._tensors = tensors
        self._places = places

    def __call__(self, indices: Indices) -> list[Tensor]:
        """Return the rows of some examples, as torch's loader would collate them."""
        rows = torch.from_numpy(indices)
        if self._places is not None:
            rows = self._places[rows]
        return [tensor.index_select(0, rows.to(tensor.device)) for tensor in self._tensors]


def whole_tensors(dataset: Any, collate: Collate | None) -> WholeTensors | None:
    """Return how to index the tensors of a dataset at once, None if that is not the same."""
    if collate not in (None, default_collate):
        return None
    places: Tensor | None = None
    while type(dataset) is Subset:
        chosen = torch.as_tensor(dataset.indices)
        places = chosen if places is None else chosen[places]
        dataset = dataset.dataset
    return WholeTensors(dataset.tensors, places) if type(dataset) is TensorDataset else None


def empty_batch(dataset: Any, collate: Collate | None) -> Any:
    """Return a batch without rows, in the shape of a batch of one.

    Raises:
        UnsoundConfiguration: if something of that one would remain: it was not sampled.
    """
    return _without_rows((collate or default_collate)([dataset[0]]))


def _without_rows(value: Any) -> Any:
    if value is None or (isinstance(value, Tensor | np.ndarray) and value.ndim > 0):
        return None if value is None else value[:0]
    if isinstance(value, Mapping):
        return {name: _without_rows(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        if all(isinstance(part, str | bytes | int | float) for part in value):
            return type(value)()
        parts = [_without_rows(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    raise UnsoundConfiguration(
        f"no batch without examples can be made of a {type(value).__name__} in a collated batch; "
        "return tensors from collate_fn, or iterate over loader.microbatches() and skip the "
        "forward pass of an empty one"
    )
