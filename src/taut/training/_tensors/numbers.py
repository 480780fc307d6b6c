"""Numbers of tensors: lengths, parts that fit the cache, what precision leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from taut._base.arrays import Matrix

__all__ = [
    "ALL",
    "MOST_ROW_BYTES",
    "column_by_column",
    "in_full_precision",
    "parts_of",
    "positive_lengths",
    "squared_lengths",
    "vanishing",
    "without",
]


ALL = slice(None)
"""All examples of a batch."""


MOST_ROW_BYTES = 16 * 2**20
"""The most memory for gradients that are written out; more is slow to allocate anew."""


def parts_of(batch: int, row_bytes: int, most: int = MOST_ROW_BYTES) -> Iterator[slice]:
    """Yield parts of a batch whose rows take no more than `most` bytes, if one row does not."""
    step = max(1, most // max(1, row_bytes))
    yield from (slice(i, i + step) for i in range(0, batch, step))


def column_by_column(columns: Matrix, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a matrix whose columns lie one after the other in memory.

    A product with a vector reads such a matrix twice as fast.
    """
    return torch.tensor(columns.T, dtype=dtype, device=device).contiguous().T


def positive_lengths(squared_norms: Tensor) -> Tensor:
    """Return the roots of squared norms, none of them zero, so that one may divide by them."""
    return squared_norms.sqrt().clamp_(min=torch.finfo(squared_norms.dtype).tiny)


def squared_lengths(vectors: Tensor) -> Tensor:
    """Return the squared l2 norms along the last axis."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return lengths.square()


def vanishing(dtype: torch.dtype, numbers: int) -> float:
    """Return what the sum of the squares of so many numbers may lack because squares vanished."""
    return numbers * torch.finfo(dtype).tiny


def without(values: Tensor, examples: Tensor) -> Tensor:
    """Return the values with zeros for the marked examples."""
    marked = examples.view(-1, *[1] * (values.dim() - 1))
    return torch.where(marked, torch.zeros((), dtype=values.dtype, device=values.device), values)


def in_full_precision(device_type: str) -> AbstractContextManager[object]:
    """Return a context in which autocast does not round: norms and sums are in float32."""
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return _AS_IT_IS


_AS_IT_IS = nullcontext()
