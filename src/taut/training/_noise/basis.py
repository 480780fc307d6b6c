"""Noise that is independent along the columns of a basis, not along parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from taut._base.arrays import Matrix
from taut.training._noise.step_noise import Draw, StepNoise

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["Basis", "BasisNoise"]


_DEFECT = 2e-5  # what rounding to single precision brings about is a tenth of it


class Basis:
    """Orthonormal columns, as a tensor of the type and in the place that a step computes in.

    Args:
        columns: orthonormal columns, in float64; their complement is never written out.

    Raises:
        ValueError: if they are not orthonormal, on which the sensitivity of blocks rests.
    """

    def __init__(self, columns: Matrix) -> None:
        self.dimension: int = columns.shape[0]
        self.size: int = columns.shape[1]
        self._columns = columns
        self._tensor: Tensor | None = None
        defect = self._defect()
        if not defect <= _DEFECT:
            raise ValueError(
                f"subspaces must have an orthonormal basis, got a defect |VᵀV - I| of {defect:.3g};"
                " make them by taut.noise.geometry.public_subspaces, or orthonormalise by "
                "numpy.linalg.qr"
            )

    def _defect(self) -> float:
        """Return how much the columns change squared lengths at most."""
        single = self._columns.astype(np.float32)
        gram = single.T @ single - np.eye(self.size, dtype=np.float32)
        return float(np.linalg.norm(gram, 2)) if np.isfinite(gram).all() else math.inf

    def on(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the columns; the last copy is kept."""
        from taut.training._tensors.numbers import column_by_column

        kept = self._tensor
        if kept is None or kept.dtype != dtype or kept.device != device:
            kept = self._tensor = column_by_column(self._columns, dtype, device)
        return kept


class BasisNoise(StepNoise):
    """Normal noise with one standard deviation per column of a basis, and one outside of it.

    Args:
        basis: orthonormal, of as many rows as there are trainable parameters, in the order of the
            model's parameters.
        ranks: how many columns every block has.
        scales: the standard deviation in every block, and last that of the complement, if the
            columns leave one.
        coordinate_rate: probability with which a coordinate of a clipped gradient takes part, where
            the noise is for such sums alone.

    Noise is V(s z) + t (I - V V^T) z', from k + d normal numbers. Where no block has less noise
    than the complement, it is drawn as t z' + V(sqrt(s^2 - t^2) z), which has the same distribution
    and needs one product.
    """

    needs_whole = True

    def __init__(
        self,
        basis: Basis,
        ranks: Sequence[int],
        scales: Sequence[float],
        coordinate_rate: float = 1.0,
    ) -> None:
        self.coordinate_rate = coordinate_rate
        self.basis = basis
        self.ranks = tuple(ranks)
        self.scales = tuple(scales)
        self._outside = scales[-1] if len(scales) > len(ranks) else 0.0

    def __repr__(self) -> str:
        masked = f", coordinate_rate={self.coordinate_rate}" if self.coordinate_rate < 1 else ""
        return f"BasisNoise(ranks={self.ranks}, scales={self.scales}{masked})"

    def check(self, groups: Sequence[int], sizes: Sequence[int]) -> None:
        if sum(sizes) != self.basis.dimension or any(groups):
            raise ValueError(
                f"noise is for {self.basis.dimension} trainable parameters in one group, the model "
                f"has {sum(sizes)} in {max(groups, default=0) + 1}"
            )

    def draw(self, shapes: Sequence[torch.Size], how: Draw) -> list[Tensor]:
        from taut.training._tensors.normal import normal

        columns = self.basis.on(how.dtype, how.device)
        outside = normal(self.basis.dimension, self._outside, how)
        inside = normal(self.basis.size, 1.0, replace(how, factor=1.0))
        if min(self.scales) >= self._outside:
            excess = [math.sqrt((s - self._outside) * (s + self._outside)) for s in self.scales]
            inside *= self._per_column(excess, inside) * how.factor
        else:
            inside *= self._per_column(self.scales, inside) * how.factor
            inside -= outside @ columns
        flat = outside.addmv_(columns, inside)
        pieces = flat.split([shape.numel() for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def _per_column(self, values: Sequence[float], like: Tensor) -> Tensor:
        return like.new_tensor(np.repeat(values[: len(self.ranks)], self.ranks))
