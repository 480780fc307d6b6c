"""Per-example gradients of convolutions, in one to three dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from taut.training._records import (
    ALL,
    MOST_ROW_BYTES,
    Record,
    Rows,
    parts_of,
    squared_lengths,
    without,
)

__all__ = ["Convolution", "Geometry"]


@dataclass(frozen=True)
class Geometry:
    """How a convolution slides: one number per dimension, and the number of groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


class Convolution(Record):
    """Gradients of a convolution's weight, written out by one grouped convolution per batch.

    Args:
        parameter: the weight, of shape (out channels, in channels / groups, *kernel).
        inputs: padded as far as `geometry` does not, of shape (batch, in channels, *size).
        grads: of shape (batch, out channels, *size).
        geometry: how the kernel slides.
    """

    def __init__(
        self, parameter: Tensor, inputs: Tensor, grads: Tensor, geometry: Geometry
    ) -> None:
        super().__init__(parameter, len(inputs))
        self.inputs = inputs
        self.grads = grads
        self.geometry = geometry

    def cheapest(self) -> Record:
        whole = self.parameter.numel() * self.grads.element_size() * self.batch
        return Rows(self.parameter, self.rows()) if whole <= MOST_ROW_BYTES else self

    def squared_norms(self) -> Tensor:
        parts = parts_of(self.batch, self.parameter.numel() * self.grads.element_size())
        return torch.cat([squared_lengths(self.rows(part)) for part in parts])

    def weighted_sum(self, weights: Tensor) -> Tensor:
        scaled = self.grads * weights.view(-1, *[1] * (self.grads.dim() - 1))
        return _weight_gradient(scaled, self.inputs, self.parameter, self.geometry)

    def drop(self, examples: Tensor) -> None:
        self.inputs = without(self.inputs, examples)
        self.grads = without(self.grads, examples)

    def rows(self, part: slice = ALL) -> Tensor:
        grads, inputs = self.grads[part], self.inputs[part]
        if self._is_pointwise():
            rows = self._pointwise(grads, inputs)
        else:
            rows = torch.vmap(self._gradient_of_one)(grads, inputs)
        return rows.reshape(len(grads), -1)

    def _gradient_of_one(self, grad: Tensor, single: Tensor) -> Tensor:
        return _weight_gradient(grad[None], single[None], self.parameter, self.geometry)

    def _is_pointwise(self) -> bool:
        kernel = self.parameter.shape[2:]
        alone = all(size == 1 for size in kernel) and not any(self.geometry.padding)
        return alone and self.geometry.groups == 1

    def _pointwise(self, grads: Tensor, inputs: Tensor) -> Tensor:
        """Return the gradients of a kernel of one point, by a matrix product."""
        steps = [slice(None, None, step) for step in self.geometry.stride]
        met = inputs[(slice(None), slice(None), *steps)]
        return torch.bmm(grads.flatten(2), met.flatten(2).transpose(1, 2))


def _weight_gradient(grads: Tensor, inputs: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    free = [0] * len(geometry.stride)
    found: Tensor = torch.ops.aten.convolution_backward(
        grads, inputs, weight, None,
        geometry.stride, geometry.padding, geometry.dilation,
        False, free, geometry.groups, (False, True, False),
    )[1]  # fmt: skip
    return found
