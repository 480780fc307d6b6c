"""Sums of gradients of low-rank factors, clipped and hidden in the geometry of their products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from taut.training._tensors.clipped_sum import ClippedSum
from taut.training._tensors.numbers import parts_of, positive_lengths, squared_lengths, vanishing

if TYPE_CHECKING:
    from taut.training._gradients.layers.records import Record

__all__ = ["Tangent", "TangentSum"]

_CUT = 1e-4
"""Singular values below this share of the largest count as zero. Gradients in float32 have relative
errors of some 1e-7, which an inverse makes at most 1e-3 above the cut."""


@dataclass(frozen=True)
class Tangent:
    """Orthonormal coordinates of the changes that factors B and A can make to their product B A.

    With B = left diag(left_values) left_turn^T and A = right_turn diag(right_values) right^T, the
    gradient G of the product has the coordinates left^T G and (1 - left left^T) G right, together
    as long as the projection of G onto changes of the form B dA + dB A (docs/theory/clipping.md).

    Attributes:
        left: left singular vectors of B, of shape (outputs, rank), zero where the value is.
        left_values: singular values of B, zero if they are cut.
        left_turn: right singular vectors of B, of shape (rank, rank).
        right: right singular vectors of A, of shape (inputs, rank), zero where the value is.
        right_values: singular values of A, zero if they are cut.
        right_turn: left singular vectors of A, of shape (rank, rank).
    """

    left: Tensor
    left_values: Tensor
    left_turn: Tensor
    right: Tensor
    right_values: Tensor
    right_turn: Tensor

    @classmethod
    def at(cls, a: Tensor, b: Tensor, dtype: torch.dtype) -> Self:
        """Return the coordinates at factors `a`, (rank, inputs), and `b`, (outputs, rank)."""
        return cls(*_decomposed(b, dtype), *_decomposed(a.T, dtype))

    def coordinates(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return coordinates of gradients of the factors, which have the same shapes."""
        of_a = (self.left_turn * _inverse(self.left_values)).T @ a
        of_b = self._beside(b @ (self.right_turn * _inverse(self.right_values)))
        return of_a, of_b

    def gradients(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the factors that have these coordinates."""
        of_a = (self.left_turn * self.left_values) @ a
        both = self._beside(b) + self.left @ (a @ self.right)
        return of_a, both @ (self.right_turn * self.right_values).T

    def _beside(self, b: Tensor) -> Tensor:
        return b - self.left @ (self.left.T @ b)


class TangentSum(ClippedSum):
    """Keeps the sum in coordinates of products; `restore` makes gradients of the noisy one.

    Groups with two parameters hold factors A and B; the gradients of all others are their own
    coordinates. Coordinates are those at the weights of the first physical batch of a logical one.

    Args:
        norm: bound on the length in all coordinates together.
        parameters: parameters of the model, in its order.
        groups: groups of every parameter.
        expected: the batch size that sums are divided by.
    """

    def __init__(
        self, norm: float, parameters: Sequence[Tensor], groups: Sequence[int], expected: float
    ) -> None:
        super().__init__(parameters, groups, expected)
        self._norm = norm
        members: dict[int, list[int]] = {}
        for i, group in enumerate(groups):
            members.setdefault(group, []).append(i)
        self._pairs = [tuple(pair) for pair in members.values() if len(pair) == 2]
        for a, b in self._pairs:
            if self._matrix(a).shape[0] != self._matrix(b).shape[1]:
                raise ValueError(
                    f"factors of shapes {tuple(self.parameters[a].shape)} and "
                    f"{tuple(self.parameters[b].shape)} have no product; LoRAClip is for adapters "
                    "of LoRA, give FlatClip for others"
                )
        self._sum: list[Tensor] | None = None
        self._tangents: list[Tangent] | None = None
        self._released: list[Tangent] | None = None

    def taken(self) -> list[Tensor]:
        self._released = self._tangents or self._at_weights()
        return super().taken()

    def restore(self, gradients: Sequence[Tensor]) -> None:
        assert self._released is not None
        with torch.no_grad():
            for (a, b), tangent in zip(self._pairs, self._released, strict=True):
                restored = tangent.gradients(
                    *(gradients[i].flatten(1).to(self.dtype) for i in (a, b))
                )
                for i, gradient in zip((a, b), restored, strict=True):
                    gradients[i].copy_(gradient.view(gradients[i].shape))
        self._released = None

    def _add(self, records: dict[Tensor, Record], batch: int, scale: float) -> None:
        if self._tangents is None:
            self._tangents = self._at_weights()
        numbers = sum(parameter.numel() for parameter in self.parameters)
        for part in parts_of(batch, 4 * numbers):
            rows = [records[p].rows(part).to(self.dtype) * scale for p in self.parameters]
            self._turn(rows, self._tangents)
            squares = torch.stack([squared_lengths(row) for row in rows]).sum(0)
            squares += vanishing(self.dtype, numbers)
            lost = ~squares.isfinite()
            if bool(lost.any()):
                self.dropped += int(lost.sum())
                for row in rows:
                    row[lost] = 0.0
                squares[lost] = 0.0
            weights = (self._norm / positive_lengths(squares)).clamp_(max=1.0) / self.expected
            total = [
                (weights @ row).view(p.shape) for row, p in zip(rows, self.parameters, strict=True)
            ]
            if self._sum is None:
                self._sum = total
            else:
                self._sum = [one.add_(other) for one, other in zip(self._sum, total, strict=True)]

    def _turn(self, rows: list[Tensor], tangents: Sequence[Tangent]) -> None:
        """Put coordinates in the place of gradients of factors."""
        for (a, b), tangent in zip(self._pairs, tangents, strict=True):
            of_a, of_b = tangent.coordinates(
                *(rows[i].view(-1, *self._matrix(i).shape) for i in (a, b))
            )
            rows[a], rows[b] = of_a.flatten(1), of_b.flatten(1)

    def _at_weights(self) -> list[Tangent]:
        with torch.no_grad():
            return [
                Tangent.at(self._matrix(a), self._matrix(b), self.dtype) for a, b in self._pairs
            ]

    def _matrix(self, i: int) -> Tensor:
        return self.parameters[i].detach().flatten(1)

    def _totals(self) -> list[Tensor | None]:
        return [None] * len(self.parameters) if self._sum is None else list(self._sum)

    def _forget(self) -> None:
        self._sum = self._tangents = None


def _decomposed(factor: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return singular vectors and values of a tall factor, zero where values are cut."""
    vectors, values, turn = torch.linalg.svd(factor.double(), full_matrices=False)
    rank = factor.shape[1]
    if len(values) < rank:  # a rank above the number of rows: the rest is zero
        missing = rank - len(values)
        vectors = torch.nn.functional.pad(vectors, (0, missing))
        values = torch.nn.functional.pad(values, (0, missing))
        turn = torch.nn.functional.pad(turn, (0, 0, 0, missing))
    kept = values > _CUT * values.max()
    return (vectors * kept).to(dtype), (values * kept).to(dtype), turn.T.to(dtype)


def _inverse(values: Tensor) -> Tensor:
    return torch.where(values > 0, 1.0 / values, 0.0)
