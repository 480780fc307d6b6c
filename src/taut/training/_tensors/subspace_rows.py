"""Rows of gradients clipped in subspaces, and in what these leave."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from taut.training._tensors.numbers import vanishing

if TYPE_CHECKING:
    from taut.training._sampling.masks import Masks

__all__ = ["SubspaceRows"]

_SLACK = 1e-3  # of a squared length: far above what single precision loses in differences of them


@dataclass(frozen=True)
class SubspaceRows:
    """How rows are clipped along the columns of a basis, block by block.

    With coefficients a = V^T g of a gradient and clipping factors f_j, t, a clipped gradient is
    V(f a) + t (g - V a), so that the sum over examples is that of t g and V times that of
    (f - t) a: the complement is written out only if entries are bounded.

    Args:
        columns: the orthonormal basis V, of the type and in the place of the rows.
        ranks: the number of columns in every block.
        bounds: the largest l2 norm in every block, that of the complement last, if there is one.
        entry_bounds: the largest magnitude of an entry in every block; None for no such bound.
    """

    columns: Tensor
    ranks: tuple[int, ...]
    bounds: tuple[float, ...]
    entry_bounds: tuple[float, ...] | None

    def clipped(self, rows: Tensor) -> Tensor:
        """Return clipped rows, in the coordinates of the model."""
        if self.entry_bounds is not None:
            within, rest = self._cut(rows, self.entry_bounds)
            kept = within @ self.columns.T
            return kept if rest is None else kept + rest - (rest @ self.columns) @ self.columns.T
        found, inside, outside = self._factors(rows)
        kept = (found * inside) @ self.columns.T
        if outside is None:
            return kept
        return kept + outside[:, None] * (rows - found @ self.columns.T)

    def summed(self, rows: Tensor, masks: Masks | None) -> Tensor:
        """Return what the sum has beside gradients scaled as their residuals, and those.

        With bounds on entries: the sums of coordinates in the subspaces, and of residuals.
        """
        if self.entry_bounds is not None:
            parts = [part for part in self._cut(rows, self.entry_bounds) if part is not None]
            return torch.cat([(p if masks is None else masks.cut(p)).sum(0) for p in parts])
        found, inside, outside = self._factors(rows)
        if outside is None:
            return (found * inside).sum(0)
        return torch.cat([(found * (inside - outside[:, None])).sum(0), outside @ rows])

    def restored(self, total: Tensor) -> Tensor:
        """Return a sum of what `summed` returned, in the coordinates of the model."""
        size = self.columns.shape[1]
        inside, outside = total[:size], total[size:]
        if self.entry_bounds is not None and outside.numel():
            inside = inside - outside @ self.columns
        if outside.numel():
            return torch.addmv(outside, self.columns, inside)
        return self.columns @ inside

    @property
    def _has_complement(self) -> bool:
        return self.columns.shape[1] < self.columns.shape[0]

    def _cut(self, rows: Tensor, entry_bounds: tuple[float, ...]) -> tuple[Tensor, Tensor | None]:
        """Return coordinates in the subspaces and residuals, each clipped in l2 and by entries."""
        lost = ~torch.linalg.vector_norm(rows, dim=1).square_().isfinite()
        if bool(lost.any()):
            rows = rows.masked_fill(lost[:, None], 0.0)
        found = rows @ self.columns
        rest = None
        if self._has_complement:
            rest = torch.addmm(rows, found, self.columns.T, alpha=-1.0)
        parts = [*found.split(list(self.ranks), 1), *([] if rest is None else [rest])]
        for part, bound, entry in zip(parts, self.bounds, entry_bounds, strict=True):
            lengths = torch.linalg.vector_norm(part, dim=1)
            part.mul_(_shrinking(lengths, bound, rows.shape[1])[:, None]).clamp_(-entry, entry)
        return found, rest

    def _factors(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return coefficients, what they are multiplied with, and the factor of residuals."""
        squares = torch.linalg.vector_norm(rows, dim=1).square_()
        lost = ~squares.isfinite()  # too long to be squared: as if the gradient was not finite
        if bool(lost.any()):
            rows = rows.masked_fill(lost[:, None], 0.0)
        found = rows @ self.columns
        parts = found.split(list(self.ranks), 1)
        lengths = [torch.linalg.vector_norm(part, dim=1) for part in parts]
        inside = [
            _shrinking(length, bound, rows.shape[1])[:, None].expand_as(part)
            for part, length, bound in zip(parts, lengths, self.bounds, strict=False)
        ]
        if not self._has_complement:
            return found, torch.cat(inside, 1), None
        rest = squares - torch.stack(lengths).square_().sum(0)
        rest = rest.clamp_(min=0.0).add_(squares, alpha=_SLACK).sqrt_()
        outside = _shrinking(rest, self.bounds[-1], rows.shape[1]).masked_fill_(lost, 0.0)
        return found, torch.cat(inside, 1), outside


def _shrinking(lengths: Tensor, bound: float, numbers: int) -> Tensor:
    # A length of so many numbers may be too short, since squares of short ones vanish.
    least = math.sqrt(vanishing(lengths.dtype, numbers))
    return (bound / (lengths + least)).clamp_(max=1.0)
