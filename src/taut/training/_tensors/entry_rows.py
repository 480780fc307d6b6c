"""Rows of gradients bounded in l2 and in every entry."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from taut.training._tensors.numbers import vanishing

__all__ = ["projecting", "shrinking"]

_ROUNDS = 64  # every one bounds further entries, or is the last; stopping early is safe


def shrinking(rows: Tensor, norm: float) -> Tensor:
    """Return the factor of every row that brings its l2 norm down to `norm`, if it is longer."""
    return (norm / _lengths(rows)).clamp_(max=1.0)


def projecting(rows: Tensor, norm: float, entry_bound: float) -> Tensor:
    """Return t of the projection sign(v) min(t |v|, bound): one for rows that fit once cut.

    Entries that a factor brings to their bound leave room for the others: the next factor is
    larger, and none exceeds the right one, where no further entry arrives.
    """
    factors = shrinking(rows, norm)
    fits = _lengths(rows.clamp(-entry_bound, entry_bound)) <= norm
    todo = (~fits).nonzero()[:, 0]
    size, found = rows[todo].abs(), factors[todo]
    count = torch.full_like(todo, -1)
    for _ in range(_ROUNDS):
        free = size * found[:, None] < entry_bound
        arrived = (~free).sum(1)
        if bool((arrived == count).all()):
            break
        count = arrived
        room = (norm**2 - arrived.to(size.dtype) * entry_bound**2).clamp_(min=0.0)
        left = size * free
        further = torch.maximum(found, room.sqrt() / _lengths(left))
        found = torch.where(left.any(1), further, found).clamp_(max=1.0)
    factors[fits] = 1.0
    factors[todo] = found
    return factors


def _lengths(rows: Tensor) -> Tensor:
    """Return lengths that are too long rather than too short, where squares vanish."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return lengths + math.sqrt(vanishing(rows.dtype, rows.shape[1]))
