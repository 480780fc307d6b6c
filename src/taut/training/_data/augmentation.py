"""Augmentation: random variants of examples, drawn anew whenever a batch is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.training._tensors.draws import same_draws
from taut.training._tensors.examples import batch_size, examples_of

__all__ = ["Augment", "Augmentation"]

Augment: TypeAlias = Callable[[Any], Any]
"""Takes the inputs of a batch, and returns a variant of every example."""

_LOG = logging.getLogger(__name__)
_SEED = 20_260_102  # any: two calls that are compared must draw the same
_TRIALS, _TRIED = 16, 32  # how often examples are exchanged, and among how many


class Augmentation:
    """Makes copies of every example by a function that is called once for each of them.

    Args:
        function: takes inputs as the model does, examples first, and returns as many of the same
            kind. What it makes of an example must not depend on the other examples.
        copies: how many there are of every example.

    The first batch is used to check that examples do not mix: with the same random numbers, an
    example must become the same whatever the others are. Other numbers are tried each time, since
    some functions mix now and then only.
    """

    def __init__(self, function: Augment, copies: int) -> None:
        if not callable(function):
            raise validate.WrongType(f"augment must be a function, got augment={function!r}")
        self._function = function
        self.copies = validate.positive_integer(copies=copies)
        self._is_checked = False

    @classmethod
    def of(cls, function: Augment | None, copies: int) -> Augmentation | None:
        """Return the augmentation that was asked for, or None."""
        if function is not None:
            return cls(function, copies)
        if copies != 1:
            raise ValueError(
                f"copies={copies!r} would all be the same without augment; give it, or leave "
                "copies out"
            )
        return None

    def __call__(self, inputs: Any) -> Any:
        """Return the copies of all examples, of shape (examples, copies, ...) if several."""
        batch = batch_size(inputs)
        if not self._is_checked and batch > 1:
            self._check(inputs, batch)
            self._is_checked = True
        drawn = [self._called(inputs, batch) for _ in range(self.copies)]
        if self.copies == 1:
            return drawn[0]
        return pytree.tree_map(_stacked, *drawn)

    def _called(self, inputs: Any, batch: int) -> Any:
        found = self._function(inputs)
        if batch_size(found) != batch:
            raise ValueError(
                f"augment must return as many examples as it is given, got {batch_size(found)} "
                f"for {batch}; copies={self.copies} calls it once for each copy"
            )
        return found

    def _check(self, inputs: Any, batch: int) -> None:
        """Refuse a function that looks at one example to change another."""
        with same_draws():
            together = self._called(inputs, batch)
        with same_draws():
            again = self._called(inputs, batch)
        if not _agree(together, again, slice(None)):
            _LOG.warning(
                "augment draws from a source of its own: that it does not mix examples was not "
                "checked; draw from torch, numpy or random"
            )
            return
        for chosen in (0, batch - 1):
            with same_draws():
                alike = self._called(_only(inputs, chosen), batch)
            if not _agree(together, alike, slice(chosen, chosen + 1)):
                raise _mixes()
        some = examples_of(inputs, slice(_TRIED))
        places = torch.arange(min(batch, _TRIED))
        bits = torch.Generator().manual_seed(_SEED)
        for trial in range(_TRIALS):
            # Half of them trade places, on average; the others must not notice.
            moved = torch.rand(len(places), generator=bits) < 0.5
            order = places.clone()
            order[moved] = places[moved].roll(1)
            with same_draws(trial):
                before = self._called(some, len(places))
            with same_draws(trial):
                after = self._called(_ordered(some, order), len(places))
            if not _agree(before, after, order == places):
                raise _mixes()


def _stacked(*copies: Any) -> Any:
    return torch.stack(copies, 1) if isinstance(copies[0], Tensor) else copies[0]


def _only(inputs: Any, chosen: int) -> Any:
    """Return inputs with one example in the place of every other."""

    def filled(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dim() == 0:
            return value
        return value[chosen : chosen + 1].expand_as(value).clone()

    return pytree.tree_map(filled, inputs)


def _ordered(inputs: Any, order: Tensor) -> Any:
    """Return the examples in another order."""

    def taken(value: Any) -> Any:
        is_many = isinstance(value, Tensor) and value.dim() > 0
        return value[order.to(value.device)] if is_many else value

    return pytree.tree_map(taken, inputs)


def _mixes() -> UnsoundConfiguration:
    return UnsoundConfiguration(
        "augment makes something else of an example if the others change: one example would get "
        "into the gradients of several. Leave out what mixes examples, and draw random numbers in "
        "an order that does not depend on them"
    )


def _agree(one: Any, other: Any, part: slice | Tensor) -> bool:
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True)
    return all(
        torch.allclose(a[part].double(), b[part].double(), rtol=1e-4, atol=1e-6, equal_nan=True)
        for a, b in pairs
        if isinstance(a, Tensor) and a.dim() > 0
    )
