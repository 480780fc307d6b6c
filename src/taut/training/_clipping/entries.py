"""Clipping that bounds the length of a gradient and every entry of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from taut._base import validate
from taut.noise import LpIntersection
from taut.training._clipping.clipping import EntryBlock, RowClipping
from taut.training._sampling.masks import Masks
from taut.training._tensors.numbers import vanishing

__all__ = ["L2LInfClip"]

_ROUNDS = 64  # every one bounds further entries, or is the last; stopping early is safe


@dataclass(frozen=True)
class L2LInfClip(RowClipping):
    """Bound the gradient of an example in l2, and every entry of it.

    Gaussian noise gains nothing from the second bound, unless it makes the first impossible to
    reach (entry_bound < norm / sqrt(d)): it is for steps that sample coordinates.

    Args:
        norm: bound on the l2 norm.
        entry_bound: bound on every entry.
        exact: the Euclidean projection onto both bounds; otherwise gradients are scaled to `norm`
            and entries cut then, which is faster and leaves less of them.

    Gradients are written out for it: it costs more than clipping by norms.

    **Guarantee**: adding or removing one example changes the sum of clipped gradients by a member
    of `taut.noise.LpIntersection`, of l2 norm at most min(norm, sqrt(d) entry_bound) (Xiao, Wan and
    Devadas 2023, Corollary 4.4). Rounding as for `FlatClip`.

    Example:
        >>> import torch
        >>> from taut.training import L2LInfClip
        >>> rows = torch.tensor([[3.0, -1.0, 0.5, 0.2, 0.0]])
        >>> L2LInfClip(1.2, 0.9).clip_rows(rows)
        tensor([[ 0.9000, -0.3741,  0.1870,  0.0748,  0.0000]])
        >>> L2LInfClip(1.2, 0.9, exact=True).clip_rows(rows)
        tensor([[ 0.9000, -0.6988,  0.3494,  0.1398,  0.0000]])
    """

    name = "l2_linf"

    norm: float
    entry_bound: float
    exact: bool = False

    def __post_init__(self) -> None:
        validate.positive(norm=self.norm)
        validate.positive(entry_bound=self.entry_bound)
        if not isinstance(self.exact, bool):
            raise validate.WrongType(f"exact must be True or False, got exact={self.exact!r}")

    @classmethod
    def spread_over(cls, norm: float, spread: float = 100.0, *, exact: bool = False) -> Self:
        """Return the clipping after which a gradient of full length fills `spread` entries.

        Args:
            norm: bound on the l2 norm.
            spread: at least 1; the bound on entries is norm / sqrt(spread).
            exact: as above.
        """
        if not validate.positive(spread=spread) >= 1:
            raise ValueError(f"spread must be at least 1, got spread={spread!r}")
        return cls(norm, validate.positive(norm=norm) / math.sqrt(spread), exact)

    @property
    def entry_blocks(self) -> tuple[EntryBlock, ...]:
        return (EntryBlock(1, self.norm, self.entry_bound),)

    def clip_rows(self, rows: Tensor) -> Tensor:
        factors = self._factors(rows) if self.exact else self._shrinking(_lengths(rows))
        return (rows * factors[:, None]).clamp_(-self.entry_bound, self.entry_bound)

    def sum_rows(self, rows: Tensor, masks: Masks | None = None) -> Tensor:
        factors = self._factors(rows) if self.exact else self._shrinking(_lengths(rows))
        clipped = rows.mul_(factors[:, None]).clamp_(-self.entry_bound, self.entry_bound)
        return (clipped if masks is None else masks.cut(clipped)).sum(0)

    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> LpIntersection:
        return LpIntersection(sum(sizes), {2: self.norm, math.inf: self.entry_bound})

    def _shrinking(self, lengths: Tensor) -> Tensor:
        return (self.norm / lengths).clamp_(max=1.0)

    def _factors(self, rows: Tensor) -> Tensor:
        """Return t of the projection sign(v) min(t |v|, bound): one for rows that fit once cut.

        Entries that a factor brings to their bound leave room for the others: the next factor
        is larger, and none exceeds the right one, where no further entry arrives.
        """
        factors = self._shrinking(_lengths(rows))
        fits = _lengths(rows.clamp(-self.entry_bound, self.entry_bound)) <= self.norm
        todo = (~fits).nonzero()[:, 0]
        size, found = rows[todo].abs(), factors[todo]
        count = torch.full_like(todo, -1)
        for _ in range(_ROUNDS):
            free = size * found[:, None] < self.entry_bound
            arrived = (~free).sum(1)
            if bool((arrived == count).all()):
                break
            count = arrived
            room = (self.norm**2 - arrived.to(size.dtype) * self.entry_bound**2).clamp_(min=0.0)
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
