"""Per-example gradients of one parameter, kept as factors until their norms are known.

A layer leaves a record for every use of a parameter in a batch. A record gives the squared norms of
its examples' gradients and their weighted sum, and writes the gradients out only where that is the
cheaper way to both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

__all__ = ["MOST_ROW_BYTES", "OuterProduct", "Record", "Rows", "squared_lengths"]

MOST_ROW_BYTES = 16 * 2**20
"""The most that one record keeps of gradients written out; more is slow to allocate anew."""

_FLOPS_PER_BYTE = 10.0  # of gradients written out and read again, measured on CPUs
_FLOPS_PER_PAIR = 30.0  # of an entry of a Gram matrix, for what is done to it elementwise
_ROWS_SLOWDOWN = 1.25  # of many small products over a large one
_DOUBT = 2.0**-21  # relative to the sum of lengths, squared: what float32 may lose to cancellation


class Record(ABC):
    """The gradients of a batch with respect to one use of one parameter.

    Attributes:
        parameter: whose gradients they are.
        batch: the number of examples.
    """

    def __init__(self, parameter: Tensor, batch: int) -> None:
        self.parameter = parameter
        self.batch = batch

    @abstractmethod
    def rows(self) -> Tensor:
        """Return the gradients, of shape (batch, parameter.numel())."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Return the squared l2 norm of every example's gradient, of shape (batch,)."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum of the gradients times the weights, of the shape of the parameter."""

    @abstractmethod
    def drop(self, examples: Tensor) -> None:
        """Make the gradients of the marked examples zero, whatever they hold; shape (batch,)."""


class Rows(Record):
    """Gradients that are written out, such as those of biases and of normalisation layers.

    Args:
        parameter: whose gradients they are.
        rows: of shape (batch, *parameter.shape).
    """

    def __init__(self, parameter: Tensor, rows: Tensor) -> None:
        super().__init__(parameter, len(rows))
        self._rows = rows.reshape(len(rows), -1)

    def rows(self) -> Tensor:
        return self._rows

    def squared_norms(self) -> Tensor:
        return squared_lengths(self._rows)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return (weights @ self._rows).view(self.parameter.shape)

    def drop(self, examples: Tensor) -> None:
        self._rows = without(self._rows, examples)


class OuterProduct(Record):
    """Gradients that are sums of outer products over positions: linear layers and embeddings.

    The gradient of example b is the sum over t of left[b, t] times right[b, t]. Its squared norm is
    the sum over pairs of positions of the product of two Gram matrices (Li et al. 2022, ghost
    clipping), and the weighted sum over examples is one matrix product.

    Args:
        parameter: a matrix of shape (p, d).
        left: of shape (batch, positions, p); or integers of shape (batch, positions), the rows that
            are meant.
        right: of shape (batch, positions, d).
    """

    def __init__(self, parameter: Tensor, left: Tensor, right: Tensor) -> None:
        super().__init__(parameter, len(left))
        self.left = left
        self.right = right
        self._written: Tensor | None = None

    @property
    def positions(self) -> int:
        """The number of positions of an example."""
        return self.right.shape[1]

    def rows(self) -> Tensor:
        if self._written is not None:
            return self._written
        left = self.left
        if left.dtype == torch.long:
            rows = self.right.new_zeros(self.batch, *self.parameter.shape)
            index = left[..., None].expand_as(self.right)
            return rows.scatter_add_(1, index, self.right).view(self.batch, -1)
        return torch.bmm(left.transpose(1, 2), self.right).view(self.batch, -1)

    def squared_norms(self) -> Tensor:
        if self.positions == 1 and self.left.dtype != torch.long:
            return squared_lengths(self.left[:, 0]) * squared_lengths(self.right[:, 0])
        if self._rows_are_cheaper():
            self._written = self.rows()
            return squared_lengths(self._written)
        return self._inner(self).sum((1, 2)) + self._doubt()

    def inner(self, other: OuterProduct) -> Tensor:
        """Return the inner products of two records of one parameter, example by example."""
        return self._inner(other).sum((1, 2))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        if self._written is not None:
            return (weights @ self._written).view(self.parameter.shape)
        right = self.right
        if self.left.dtype == torch.long:
            total = right.new_zeros(self.parameter.shape)
            return total.index_add_(
                0, self.left.flatten(), (right * weights[:, None, None]).flatten(0, 1)
            )
        p, d = self.parameter.shape
        if p < d:
            left, right = self.left * weights[:, None, None], right
        else:
            left, right = self.left, right * weights[:, None, None]
        return left.reshape(-1, p).T @ right.reshape(-1, d)

    def drop(self, examples: Tensor) -> None:
        if self.left.dtype != torch.long:
            self.left = without(self.left, examples)
        self.right = without(self.right, examples)
        if self._written is not None:
            self._written = without(self._written, examples)

    def _rows_are_cheaper(self) -> bool:
        if self.left.dtype == torch.long:
            return False
        p, d = self.parameter.shape
        size = self.batch * p * d * self.right.element_size()
        if size > MOST_ROW_BYTES:
            return False
        product = 2.0 * self.batch * self.positions * p * d
        pairs = self.batch * self.positions**2 * (2.0 * (p + d) + _FLOPS_PER_PAIR)
        return _ROWS_SLOWDOWN * product + _FLOPS_PER_BYTE * size < pairs + product

    def _inner(self, other: OuterProduct) -> Tensor:
        """Return the products of the two Gram matrices, of shape (batch, positions, positions)."""
        products = torch.bmm(self.right, other.right.transpose(1, 2))
        return products.mul_(_left_products(self.left, other.left))

    def _doubt(self) -> Tensor:
        """Return what rounding may hide of a norm: much if long contributions cancel out."""
        lengths = squared_lengths(self.right)
        if self.left.dtype != torch.long:
            lengths = lengths * squared_lengths(self.left)
        return _DOUBT * lengths.sqrt().sum(1).square()


def squared_lengths(vectors: Tensor) -> Tensor:
    """Return the squared l2 norms along the last axis."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return lengths.square()


def without(values: Tensor, examples: Tensor) -> Tensor:
    """Return the values with zeros for the marked examples."""
    marked = examples.view(-1, *[1] * (values.dim() - 1))
    return torch.where(marked, torch.zeros((), dtype=values.dtype, device=values.device), values)


def _left_products(one: Tensor, other: Tensor) -> Tensor:
    """Return the inner products of left factors, one-hot vectors given by their places."""
    if one.dtype == torch.long and other.dtype == torch.long:
        return one[:, :, None] == other[:, None, :]
    if one.dtype == torch.long:
        place = one[:, :, None].expand(-1, -1, other.shape[1])
        return other.transpose(1, 2).gather(1, place)
    if other.dtype == torch.long:
        return _left_products(other, one).transpose(1, 2)
    return torch.bmm(one, other.transpose(1, 2))
