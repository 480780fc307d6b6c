"""Clipping that bounds the length of a gradient and every entry of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from taut._base import validate
from taut.noise import LpIntersection
from taut.training._clipping.clipping import EntryBlock, RowClipping

if TYPE_CHECKING:
    from torch import Tensor

    from taut.training._sampling.masks import Masks

__all__ = ["L2LInfClip"]


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
            exact: flag of `entry_noise`, as above.
        """
        if not validate.positive(spread=spread) >= 1:
            raise ValueError(f"spread must be at least 1, got spread={spread!r}")
        return cls(norm, validate.positive(norm=norm) / math.sqrt(spread), exact)

    @property
    def entry_blocks(self) -> tuple[EntryBlock, ...]:
        return (EntryBlock(1, self.norm, self.entry_bound),)

    def clip_rows(self, rows: Tensor) -> Tensor:
        return self._cut(rows * self._factors(rows)[:, None])

    def sum_rows(self, rows: Tensor, masks: Masks | None = None) -> Tensor:
        clipped = self._cut(rows.mul_(self._factors(rows)[:, None]))
        return (clipped if masks is None else masks.cut(clipped)).sum(0)

    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> LpIntersection:
        return LpIntersection(sum(sizes), {2: self.norm, math.inf: self.entry_bound})

    def _factors(self, rows: Tensor) -> Tensor:
        from taut.training._tensors.entry_rows import projecting, shrinking

        if self.exact:
            return projecting(rows, self.norm, self.entry_bound)
        return shrinking(rows, self.norm)

    def _cut(self, rows: Tensor) -> Tensor:
        return rows.clamp_(-self.entry_bound, self.entry_bound)
