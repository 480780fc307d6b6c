"""Per-example gradients of one parameter, kept as factors until their norms are known.

A layer leaves a record for every use of a parameter in a batch. A record gives the squared norms of
its examples' gradients and their weighted sum, and writes the gradients out only where that is the
cheaper way to both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from taut.training._tensors.numbers import ALL, MOST_ROW_BYTES, parts_of, squared_lengths, without
from taut.training._tensors.products import inner_products, product_of_transposed

__all__ = ["Blocks", "OuterProduct", "Record", "Rows", "Sum", "Tap", "merged", "without_tap"]


_FLOPS_PER_BYTE = 25.0  # of gradients written out to fresh memory and read, measured on CPUs
_FLOPS_PER_PAIR = 30.0  # of an entry of a Gram matrix, for what is done to it elementwise
_ROWS_SLOWDOWN = 1.25  # of many small products over a large one
_DOUBT = 4.0  # roundings, relative to the sum of lengths, squared: the least that may be hidden


class Record(ABC):
    """The gradients of a batch with respect to one use of one parameter.

    Attributes:
        parameter: parameter whose gradients they are.
        batch: the number of examples.
    """

    def __init__(self, parameter: Tensor, batch: int) -> None:
        self.parameter = parameter
        self.batch = batch

    def cheapest(self) -> Record:
        """Return the same gradients written out, if that is the cheaper way, or this record."""
        return self

    @abstractmethod
    def rows(self, part: slice = ALL) -> Tensor:
        """Return the gradients of a part of the batch, of shape (examples, parameter.numel())."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Return the squared l2 norm of every example's gradient, of shape (batch,)."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum of the gradients times the weights, of the shape of the parameter."""

    @abstractmethod
    def folded(self, copies: int) -> Record:
        """Return the gradients of examples of which each has `copies` rows here, one by one."""

    @abstractmethod
    def drop(self, examples: Tensor) -> None:
        """Make the gradients of the marked examples zero, whatever they hold; shape (batch,)."""


class Rows(Record):
    """Gradients that are written out, such as those of biases and of normalisation layers.

    Args:
        parameter: parameter whose gradients they are.
        rows: gradients of shape (batch, *parameter.shape).
    """

    def __init__(self, parameter: Tensor, rows: Tensor) -> None:
        super().__init__(parameter, len(rows))
        self._rows = rows.reshape(len(rows), -1)

    def rows(self, part: slice = ALL) -> Tensor:
        return self._rows[part]

    def squared_norms(self) -> Tensor:
        return squared_lengths(self._rows)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return (weights @ self._rows).view(self.parameter.shape)

    def folded(self, copies: int) -> Record:
        return Rows(self.parameter, self._rows.unflatten(0, (-1, copies)).sum(1))

    def drop(self, examples: Tensor) -> None:
        self._rows = without(self._rows, examples)


class OuterProduct(Record):
    """Gradients that are sums of outer products over positions: linear layers and embeddings.

    The gradient of example b is the sum over t of left[b, t] times right[b, t]. Its squared norm is
    the sum over pairs of positions of the product of two Gram matrices (Li et al. 2022, ghost
    clipping), and the weighted sum over examples is one matrix product.

    Args:
        parameter: a matrix of shape (p, d).
        left: left factors of shape (batch, positions, p); or integers of shape (batch, positions),
            the rows that are meant.
        right: right factors of shape (batch, positions, d).
        shared: place for the inner products of left factors, if other records have the same ones.
    """

    def __init__(
        self, parameter: Tensor, left: Tensor, right: Tensor, shared: list[Tensor] | None = None
    ) -> None:
        super().__init__(parameter, len(left))
        self.left = left
        self.right = right
        self._shared = shared

    @property
    def positions(self) -> int:
        """The number of positions of an example."""
        return self.right.shape[1]

    @property
    def is_sparse(self) -> bool:
        """Whether the left factors are places of a one."""
        return self.left.dtype == torch.long

    def rows(self, part: slice = ALL) -> Tensor:
        left, right = self.left[part], self.right[part]
        if self.is_sparse:
            rows = right.new_zeros(len(left), *self.parameter.shape)
            index = left[..., None].expand_as(right)
            return rows.scatter_add_(1, index, right).view(len(left), -1)
        return torch.bmm(left.transpose(1, 2), right).view(len(left), -1)

    def squared_norms(self) -> Tensor:
        if self.positions == 1 and not self.is_sparse:
            left, right = squared_lengths(self.left[:, 0]), squared_lengths(self.right[:, 0])
            return left * right + self._lost(left, right)
        return self._inner(self).sum((1, 2)).clamp_(min=0.0) + self.doubt()

    def inner(self, other: OuterProduct) -> Tensor:
        """Return the inner products of two records of one parameter, example by example."""
        return self._inner(other).sum((1, 2))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        right = self.right
        if self.is_sparse:
            total = right.new_zeros(self.parameter.shape)
            return total.index_add_(
                0, self.left.flatten(), (right * weights[:, None, None]).flatten(0, 1)
            )
        p, d = self.parameter.shape
        if p < d:
            left, right = self.left * weights[:, None, None], right
        else:
            left, right = self.left, right * weights[:, None, None]
        return product_of_transposed(left.reshape(-1, p), right.reshape(-1, d))

    def folded(self, copies: int) -> Record:
        # Copies are further positions: their contributions add up.
        left, right = (
            factor.reshape(-1, copies * self.positions, *factor.shape[2:])
            for factor in (self.left, self.right)
        )
        return OuterProduct(self.parameter, left, right)

    def drop(self, examples: Tensor) -> None:
        self._shared = None
        if not self.is_sparse:
            self.left = without(self.left, examples)
        self.right = without(self.right, examples)

    def cheapest(self) -> Record:
        if self.is_sparse or self.positions == 1 or not self._rows_are_cheaper():
            return self
        return Rows(self.parameter, self.rows())

    def _rows_are_cheaper(self) -> bool:
        p, d = self.parameter.shape
        size = self.batch * p * d * self.right.element_size()
        if size > MOST_ROW_BYTES:
            return False
        product = 2.0 * self.batch * self.positions * p * d
        pairs = self.batch * self.positions**2 * (2.0 * (p + d) + _FLOPS_PER_PAIR)
        return _ROWS_SLOWDOWN * product + _FLOPS_PER_BYTE * size < pairs + product

    def _inner(self, other: OuterProduct) -> Tensor:
        """Return the products of the two Gram matrices, of shape (batch, positions, positions)."""
        products = inner_products(self.right, other.right)
        if self._shared is None or other is not self:
            return products.mul_(_left_products(self.left, other.left))
        if not self._shared:
            self._shared.append(_left_products(self.left, self.left))
        return products.mul_(self._shared[0])

    def doubt(self) -> Tensor:
        """Return what rounding may hide of a norm: much if long contributions cancel out.

        Roundings of an inner product add up like a random walk along its factors.
        """
        right = squared_lengths(self.right)
        left = torch.ones_like(right) if self.is_sparse else squared_lengths(self.left)
        roundings = max(_DOUBT, math.sqrt(max(self.parameter.shape)))
        doubt = (left * right).sqrt().sum(1).square() * (roundings * torch.finfo(right.dtype).eps)
        return doubt + self._lost(left.sqrt().sum(1).square(), right.sqrt().sum(1).square())

    def _lost(self, left: Tensor, right: Tensor) -> Tensor:
        """Return what a squared norm may lack because products of small factors vanished.

        It is much where the other factors are huge. Gram matrices of n numbers are off by at most n
        of the least normal numbers, also where smaller ones are taken for zero.

        Args:
            left: the squared sum over positions of the lengths of left factors.
            right: the same of right factors.
        """
        p, d = self.parameter.shape
        lost = (d * left if self.is_sparse else d * left + p * right) * torch.finfo(
            right.dtype
        ).tiny
        if bool(left.all()) and bool(right.all()):
            return lost
        # Examples without a gradient lack nothing: that of another must not seem to reach them.
        is_there = self.right.flatten(1).any(1)
        if not self.is_sparse:
            is_there &= self.left.flatten(1).any(1)
        return torch.where(is_there, lost, 0.0)


class Blocks(Record):
    """Gradients of a matrix of which every record knows some rows, without overlap and in order.

    Args:
        parameter: the whole matrix.
        parts: one record for every block of rows.
    """

    def __init__(self, parameter: Tensor, parts: Sequence[Record]) -> None:
        super().__init__(parameter, parts[0].batch)
        self.parts = parts

    def rows(self, part: slice = ALL) -> Tensor:
        return torch.cat([block.rows(part) for block in self.parts], 1)

    def cheapest(self) -> Record:
        return Blocks(self.parameter, [block.cheapest() for block in self.parts])

    def squared_norms(self) -> Tensor:
        return torch.stack([block.squared_norms() for block in self.parts]).sum(0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return torch.cat([block.weighted_sum(weights) for block in self.parts])

    def folded(self, copies: int) -> Record:
        return Blocks(self.parameter, [block.folded(copies) for block in self.parts])

    def drop(self, examples: Tensor) -> None:
        for block in self.parts:
            block.drop(examples)


class Sum(Record):
    """Gradients of a parameter that was used several times.

    Args:
        uses: the records of its uses.
    """

    def __init__(self, uses: Sequence[Record]) -> None:
        super().__init__(uses[0].parameter, uses[0].batch)
        self.uses = uses

    def rows(self, part: slice = ALL) -> Tensor:
        first, *rest = (use.rows(part) for use in self.uses)
        return sum(rest, start=first)

    def squared_norms(self) -> Tensor:
        products = [use for use in self.uses if isinstance(use, OuterProduct)]
        if len(products) < len(self.uses):
            size = self.parameter.numel() * self.parameter.element_size()
            return torch.cat([squared_lengths(self.rows(p)) for p in parts_of(self.batch, size)])
        total = torch.stack([use.squared_norms() for use in products]).sum(0)
        for i, one in enumerate(products):
            for other in products[:i]:
                total += 2 * one.inner(other)
        # Uses may cancel each other out: the squared sum of lengths is below that of squares, times
        # their number.
        doubt = torch.stack([use.doubt() for use in products]).sum(0)
        return total.clamp_(min=0.0) + len(products) * doubt

    def weighted_sum(self, weights: Tensor) -> Tensor:
        first, *rest = (use.weighted_sum(weights) for use in self.uses)
        return sum(rest, start=first)

    def folded(self, copies: int) -> Record:
        return Sum([use.folded(copies) for use in self.uses])

    def drop(self, examples: Tensor) -> None:
        for use in self.uses:
            use.drop(examples)


def merged(uses: Sequence[Record]) -> Record:
    """Return one record for all uses of a parameter in a batch.

    Outer products become one over the positions of all uses: a cell that is called at every step of
    a sequence costs as much as a layer that is called once with the sequence.
    """
    if len(uses) == 1:
        return uses[0]
    products = [use for use in uses if isinstance(use, OuterProduct)]
    rows = [use for use in uses if isinstance(use, Rows)]
    found = [use for use in uses if not isinstance(use, OuterProduct | Rows)]
    for sparse in (False, True):
        alike = [use for use in products if use.is_sparse == sparse]
        if alike:
            left = torch.cat([use.left for use in alike], 1)
            right = torch.cat([use.right for use in alike], 1)
            found.append(OuterProduct(alike[0].parameter, left, right).cheapest())
    if rows:
        found.append(Rows(rows[0].parameter, torch.stack([use.rows() for use in rows]).sum(0)))
    return found[0] if len(found) == 1 else Sum(found)


def _left_products(one: Tensor, other: Tensor) -> Tensor:
    """Return the inner products of left factors, one-hot vectors given by their places."""
    if one.dtype == torch.long and other.dtype == torch.long:
        return one[:, :, None] == other[:, None, :]
    if one.dtype == torch.long:
        place = one[:, :, None].expand(-1, -1, other.shape[1])
        return other.transpose(1, 2).gather(1, place)
    if other.dtype == torch.long:
        return _left_products(other, one).transpose(1, 2)
    return inner_products(one, other)


class Tap(Protocol):
    """Lets a value through, and turns the gradient that comes back into records."""

    def __call__(
        self, value: Tensor, records: Callable[[Tensor], Iterator[Record]], *inputs: Tensor
    ) -> Tensor:
        """Return the value; `inputs` are what the records will read, and must stay as they are."""


def without_tap(
    value: Tensor, records: Callable[[Tensor], Iterator[Record]], *inputs: Tensor
) -> Tensor:
    """Return the value alone, for those who use a rewritten layer without a tape."""
    del records, inputs
    return value
