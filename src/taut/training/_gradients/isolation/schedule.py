"""When examples are exchanged: at first, after a change, and as often as a share of time allows."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn

from taut.training._gradients.isolation.checks import Extent
from taut.training._gradients.isolation.structure import Attributes, Structure
from taut.training._gradients.suitable import check_model

__all__ = ["Schedule"]

_SHARE = 0.0075
"""Of the time of a run, what tests at random take; those that a change or the number of batches
asks for are as many as its logarithm, and are paid for from the same account."""

_LARGER = 1.25
"""By which factor a batch is larger than all that were tested, to be tested: some code mixes large
batches alone. Sizes of Poisson batches grow so much once or twice in a run."""

_ONE_IN = 4  # batches once there is time for a test: nobody can say which one it will be


class Schedule:
    """Says which batches are tested.

    Args:
        model: what is trained.
        active: whether any batch is.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        active: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self.active = active
        """Whether batches are tested at all."""
        self._clock = clock
        self._tested: int | None = None
        self._structure: Structure | None = None
        self._attributes: Attributes | None = None
        self._batches = 0
        self._began = self._spent = 0.0
        self._costs: dict[Extent, float] = {"half": 0.0, "few": 0.0}

    def due(self, batch: int) -> Extent | None:
        """Return how a batch is to be tested, None if it is not.

        One example has no company. A model that was changed since is looked at again.

        Raises:
            UnsoundConfiguration: if the change was to put in a layer that mixes examples.
        """
        if not self.active:
            return None
        if self._structure is None or self._structure.has_changed():
            check_model(self._model)
            self._structure = Structure(self._model)
            self._tested = self._attributes = None
        if batch < 2:
            return None
        if self._tested is None:
            return "whole"
        if self._attributes is None:
            self._attributes = Attributes(self._model)
        elif self._attributes.changed():
            return "half"
        self._batches += 1
        if batch >= _LARGER * self._tested:
            return "half"
        if self._batches & (self._batches - 1) == 0 and self._batches.bit_length() % 2:
            return "few"  # 1, 4, 16, 64, ...
        return self._at_random()

    def _at_random(self) -> Extent | None:
        left = _SHARE * (self._clock() - self._began) - self._spent
        if left <= 0 or secrets.randbelow(_ONE_IN):
            return None
        chosen: Extent = "half" if secrets.randbelow(2) else "few"
        return chosen if self._costs[chosen] <= left else None

    @contextmanager
    def testing(self, how: Extent) -> Iterator[None]:
        """Take note of a test of a batch, and of the time that it takes."""
        began = self._clock()
        yield
        now = self._clock()
        if how == "whole":
            self._began, self._spent = now, 0.0  # the first test is none of the tests at random
            return
        self._costs[how] = now - began
        self._spent += now - began

    def passed(self, batch: int) -> None:
        """Take note of a batch that was tested."""
        self._tested = max(batch, self._tested or 0)
