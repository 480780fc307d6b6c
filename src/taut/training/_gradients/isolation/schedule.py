"""When examples are exchanged: with the first batch, after a change, and now and then in secret."""

from __future__ import annotations

import secrets
from typing import Any, Literal

from torch import nn

from taut.training._gradients.isolation.structure import structure_of
from taut.training._gradients.suitable import check_model

__all__ = ["Schedule"]

_ONE_IN = 128
"""Batches per test at random: it takes one more pass, so that a run gets 0.8 % longer."""

_LARGER = 1.25
"""By which factor a batch is larger than all that were tested, to be tested: some code mixes large
batches alone. Sizes of Poisson batches grow so much once or twice in a run."""


class Schedule:
    """Says which batches are tested.

    Args:
        model: what is trained.
        active: whether any batch is.
    """

    def __init__(self, model: nn.Module, *, active: bool = True) -> None:
        self._model = model
        self.active = active
        """Whether batches are tested at all."""
        self._tested: int | None = None
        self._structure: tuple[Any, ...] | None = None

    def due(self, batch: int) -> Literal["whole", "half"] | None:
        """Return how a batch is to be tested, None if it is not.

        One example has no company. A model that was changed since is looked at again.

        Raises:
            UnsoundConfiguration: if the change was to put in a layer that mixes examples.
        """
        if not self.active:
            return None
        structure = structure_of(self._model)
        if structure != self._structure:
            check_model(self._model)
            self._structure, self._tested = structure, None
        if batch < 2:
            return None
        if self._tested is None:
            return "whole"
        if batch >= _LARGER * self._tested or secrets.randbelow(_ONE_IN) == 0:
            return "half"
        return None

    def passed(self, batch: int) -> None:
        """Take note of a batch that was tested."""
        self._tested = max(batch, self._tested or 0)
