"""Taps: places inside a layer where the gradients of its parameters can be read off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from torch import Tensor

from taut.training._records import Record

__all__ = ["Tap", "without_tap"]


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
