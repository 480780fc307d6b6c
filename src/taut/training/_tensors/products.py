"""Matrix products of gradients, by the faster of two libraries that torch has on CPUs.

Products of float32 go to MKL, which uses half of what processors of other makers can do. oneDNN
uses all of it, and serves recurrent layers and convolutions in torch as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["affine", "inner_products", "linear_map", "product_of_transposed"]

_ONEDNN: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
"""A linear layer by oneDNN on plain tensors: what `torch.compile` makes of `nn.Linear`."""

_LEAST_WORK = 2e6
"""Multiplications that a product must have to be worth a call of its own: 20 microseconds."""


def affine(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return what a linear layer does to inputs of shape (rows, width); autograd sees nothing."""
    if not _is_served(inputs, weight):
        return torch.nn.functional.linear(inputs, weight, bias)
    result: Tensor = _ONEDNN(inputs, weight, bias, "none", [], "")
    return result


def linear_map(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what multiplies rows with a matrix, many times, for rows of its type and place."""
    if not _is_served(weight):
        return lambda rows: torch.nn.functional.linear(rows, weight)
    return lambda rows: _ONEDNN(rows, weight, None, "none", [], "")


def product_of_transposed(left: Tensor, right: Tensor) -> Tensor:
    """Return the sum over rows of outer products, of shape (p, d).

    Args:
        left: vectors of shape (rows, p).
        right: vectors of shape (rows, d).
    """
    (rows, p), d = left.shape, right.shape[1]
    if not (_is_served(left, right) and _are_in_one_piece(left, right)):
        return left.T @ right
    if d < p <= rows:  # the narrow side first is faster, and turning the result costs little
        return affine(right.T, left.T).T.contiguous()
    return affine(left.T, right.T)


def inner_products(one: Tensor, other: Tensor) -> Tensor:
    """Return all inner products of the vectors of two sequences, example by example.

    Args:
        one: vectors of shape (batch, positions, width).
        other: vectors of shape (batch, further positions, width).
    """
    work = one.shape[1] * other.shape[1] * one.shape[2]
    if work < _LEAST_WORK or not (_is_served(one, other) and _are_in_one_piece(one, other)):
        return torch.bmm(one, other.transpose(1, 2))
    found = one.new_empty(len(one), one.shape[1], other.shape[1])
    for place, first, second in zip(found, one, other, strict=True):
        place.copy_(_ONEDNN(first, second, None, "none", [], ""))
    return found


def _is_served(*tensors: Tensor) -> bool:
    """Whether oneDNN is at hand, and these are plain tensors of its kind."""
    return (
        _ONEDNN is not None
        and bool(torch.backends.mkldnn.enabled)
        and all(
            tensor.dtype == torch.float32 and tensor.device.type == "cpu" and tensor.numel() > 0
            for tensor in tensors
        )
    )


def _are_in_one_piece(*tensors: Tensor) -> bool:
    return all(tensor.is_contiguous() for tensor in tensors)
