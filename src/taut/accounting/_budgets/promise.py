"""A promise: a privacy loss at a delta, as it is published beside what was released."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from taut._base import validate
from taut._base.rounding import round_down, round_up
from taut.accounting._engines.bounds import Bounds
from taut.accounting._loss import PrivacyLoss

__all__ = ["Promise"]


@dataclass(frozen=True)
class Promise:
    """What may be published about a release: its loss, and epsilon at a delta.

    Args:
        loss: privacy loss of all that was released.
        delta: probability delta of the promise.
        is_secure: whether all noise came from the secure generator.

    **Guarantee**: `epsilon` brackets the least epsilon of the loss at ``delta``; its upper end is
    the number to publish, under ``loss.adjacency``. With noise from a seed nothing is promised to
    those who know the seed, and the words say so.

    Example:
        >>> import taut
        >>> print(taut.accounting.Promise(taut.gaussian(sigma=4), delta=1e-6))
        epsilon <= 1.061 at delta = 1e-06 (add_remove, certified; at least 1.060)
    """

    loss: PrivacyLoss
    delta: float
    is_secure: bool = True

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not isinstance(self.loss, PrivacyLoss):
            raise validate.WrongType(f"loss must be a PrivacyLoss, got {type(self.loss).__name__}")
        object.__setattr__(self, "delta", validate.below_one(delta=self.delta))

    @cached_property
    def epsilon(self) -> Bounds:
        """Certified bounds on epsilon at `delta`."""
        return self.loss.epsilon_bounds(delta=self.delta)

    @property
    def statement(self) -> dict[str, Any]:
        """The promise, for `taut.audit.verify_statement` and ``taut verify``."""
        return {
            "epsilon": {"lower": self.epsilon.lower, "upper": self.epsilon.upper},
            "delta": self.delta,
            "adjacency": str(self.loss.adjacency),
            "loss": self.loss.to_dict(),
            "is_secure": self.is_secure,
        }

    def __str__(self) -> str:
        """Return a line for people."""
        line = (
            f"epsilon <= {round_up(self.epsilon.upper, 4)} at delta = {self.delta:g} "
            f"({self.loss.adjacency}, certified; at least {round_down(self.epsilon.lower, 4)})"
        )
        return line if self.is_secure else f"{line}; noise from a seed: publish nothing of it"
