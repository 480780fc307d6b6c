"""What a release that may be refused gives out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from taut.accounting import PrivacyLoss

__all__ = ["Outcome"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Outcome(Generic[_T]):
    """What was released, or that it was refused, and what that cost.

    Attributes:
        released: whether the test passed.
        value: the release; None if it was refused.
        loss: the privacy loss of the call, the same whether it was refused or not. It depends on
            no data, and trying again costs it again.

    A refusal is an answer, not an error: it tells about the data, and the loss pays for that. Why
    it was refused, and by how much, is in no attribute.
    """

    released: bool
    value: _T | None
    loss: PrivacyLoss

    def __bool__(self) -> bool:
        """Return whether the test passed."""
        return self.released
