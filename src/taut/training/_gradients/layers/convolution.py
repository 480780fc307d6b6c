"""Per-example gradients of convolutions, in one to three dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from taut.training._gradients.layers.records import Record, Rows
from taut.training._tensors.numbers import ALL, MOST_ROW_BYTES, parts_of, squared_lengths, without

__all__ = ["Convolution", "Geometry"]


_WEIGHTS_PER_PLACE = 256  # from which on products win, measured on CPUs


@dataclass(frozen=True)
class Geometry:
    """How a convolution slides: one number per dimension, and the number of groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def places(self, size: Sequence[int], kernel: Sequence[int]) -> list[int]:
        """Return at how many places a kernel meets an input of the given size."""
        along = zip(size, kernel, self.stride, self.padding, self.dilation, strict=True)
        return [(n + 2 * pad - gap * (k - 1) - 1) // step + 1 for n, k, step, pad, gap in along]


class Convolution(Record):
    """Gradients of a convolution's weight, written out by one grouped convolution or product.

    Args:
        parameter: the weight, of shape (out channels, in channels / groups, *kernel).
        inputs: padded as far as `geometry` does not, of shape (batch, in channels, *size).
        grads: gradients of shape (batch, out channels, *size).
        geometry: how the kernel slides.
        copies: how many rows of inputs and gradients an example has.
    """

    def __init__(
        self,
        parameter: Tensor,
        inputs: Tensor,
        grads: Tensor,
        geometry: Geometry,
        copies: int = 1,
    ) -> None:
        super().__init__(parameter, len(inputs) // copies)
        self.copies = copies
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
        scaled = self.grads * self._of_rows(weights).view(-1, *[1] * (self.grads.dim() - 1))
        return _weight_gradient(scaled, self.inputs, self.parameter, self.geometry)

    def folded(self, copies: int) -> Record:
        every = copies * self.copies
        return Convolution(self.parameter, self.inputs, self.grads, self.geometry, every)

    def drop(self, examples: Tensor) -> None:
        self.inputs = without(self.inputs, self._of_rows(examples))
        self.grads = without(self.grads, self._of_rows(examples))

    def rows(self, part: slice = ALL) -> Tensor:
        # Of shape (examples, copies, ...).
        grads, inputs = (x.unflatten(0, (-1, self.copies))[part] for x in (self.grads, self.inputs))
        if self._products_are_cheaper():
            return self._products(grads, inputs)
        rows = torch.vmap(self._gradient_of_one)(grads, inputs)
        return rows.reshape(len(grads), -1)

    def _products(self, grads: Tensor, inputs: Tensor) -> Tensor:
        flat = inputs.flatten(0, 1)
        columns = _columns(flat, self.parameter.shape[2:], grads.shape[3:], self.geometry)
        left, right = grads.flatten(3), columns.unflatten(0, (-1, self.copies))
        if self.copies == 1:
            return torch.bmm(left[:, 0], right[:, 0].transpose(1, 2)).flatten(1)
        # Copies are further places.
        joined = left.transpose(1, 2).flatten(2)
        return torch.bmm(joined, right.transpose(2, 3).flatten(1, 2)).flatten(1)

    def _gradient_of_one(self, grads: Tensor, inputs: Tensor) -> Tensor:
        return _weight_gradient(grads, inputs, self.parameter, self.geometry)

    def _of_rows(self, of_examples: Tensor) -> Tensor:
        """Return what every example has for each of its rows."""
        return of_examples.repeat_interleave(self.copies) if self.copies > 1 else of_examples

    def _products_are_cheaper(self) -> bool:
        """Whether to copy what the kernel meets and multiply, rather than to convolve.

        A convolution per example wins by far where the copy is large, and loses where kernels are
        large and places few; for a kernel of one point there is next to nothing to copy.
        """
        if self.geometry.groups > 1:
            return False
        places = self.copies * self.grads[0, 0].numel()
        point = self.parameter[0, 0].numel() == 1
        return point or places * _WEIGHTS_PER_PLACE <= self.parameter.numel()


def _columns(
    inputs: Tensor, kernel: Sequence[int], places: Sequence[int], geometry: Geometry
) -> Tensor:
    """Return what the kernel meets at every place, of shape (batch, in channels * kernel, places).

    Windows overlap, so that one view of the padded inputs shows them all before the copy.
    """
    if any(geometry.padding):
        both = [size for size in reversed(geometry.padding) for _ in range(2)]
        inputs = functional.pad(inputs, both)
    batch, channels, *along = inputs.stride()
    inside = [step * gap for step, gap in zip(along, geometry.dilation, strict=True)]
    between = [step * gap for step, gap in zip(along, geometry.stride, strict=True)]
    windows = inputs.as_strided(
        (*inputs.shape[:2], *kernel, *places), (batch, channels, *inside, *between)
    )
    return windows.reshape(len(inputs), -1, math.prod(places))


def _weight_gradient(grads: Tensor, inputs: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    free = [0] * len(geometry.stride)
    found: Tensor = torch.ops.aten.convolution_backward(
        grads, inputs, weight.detach(), None,
        geometry.stride, geometry.padding, geometry.dilation,
        False, free, geometry.groups, (False, True, False),
    )[1]  # fmt: skip
    return found
