"""Epochs of a number of steps, in each of which every example takes part once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType

from taut._base import validate
from taut.accounting import PrivacyLoss
from taut.training._sampling.sampling import Sampling

__all__ = ["EpochSampling"]

# Relative: a batch size that divides the examples may, in floats, seem to take a step less.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class EpochSampling(Sampling):
    """Every example takes part once in an epoch, whose steps are the one parameter."""

    parameters = MappingProxyType({"steps": validate.positive_integer})

    steps: int | None = None

    def rate_of(self, batch_size: float, examples: int) -> float:
        """Return the rate of an epoch of whole steps, whose batches are no smaller on average."""
        return 1 / max(math.floor(examples / batch_size * (1 + _ROUNDING)), 1)

    def expected_batch_size(self, examples: int) -> float:
        return examples / self._steps

    def check_examples(self, planned: int, examples: int) -> None:
        """Accept any dataset: the loss depends on the number of steps alone."""

    def step_loss(self, noise_multiplier: float, examples: int) -> PrivacyLoss:
        """Return the loss of the first step of an epoch; later ones may cost more, see `loss`."""
        return self.loss(noise_multiplier, examples, 1)

    @property
    def _steps(self) -> int:
        if self.steps is None:
            raise ValueError(
                f"steps must be set before batches are drawn: {type(self).__name__}(steps=...)"
            )
        return self.steps
