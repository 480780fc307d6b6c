"""A promise as one Gaussian release, whose mu² the releases of a fit share."""

from __future__ import annotations

import math
from functools import cached_property

from taut.accounting import Adjacency, PrivacyLoss, gaussian, gaussian_mu
from taut.errors import InfeasibleBudget

__all__ = ["GaussianBudget"]

_ROOM = 1 + 1e-10  # of the noise: what an accountant rounds up must still be within the promise
_LEAST_MU = 1e-90  # scales of noise are floats then, whatever public bounds are


class GaussianBudget:
    """The mu and the loss of a promise, for frozen dataclasses that divide it.

    Raises:
        InfeasibleBudget: if no Gaussian noise within floating point keeps the promise.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    portion: float = 1.0  # of mu², where other releases have the rest

    def __post_init__(self) -> None:
        """Refuse promises that no noise keeps."""
        if not self.mu > _LEAST_MU:
            raise InfeasibleBudget(
                f"no Gaussian noise within floating point keeps epsilon={self.epsilon!r} at "
                f"delta={self.delta!r}; raise either"
            )

    @cached_property
    def mu(self) -> float:
        """The mu of all releases together."""
        return gaussian_mu(self.epsilon, self.delta) / _ROOM * math.sqrt(self.portion)

    def signal(self, records: float, coefficients: int) -> float:
        """Return how far records stand out: mu times the number of them for each coefficient.

        Args:
            records: number of records, public or released.
            coefficients: number of coefficients.
        """
        reach = 2 if self.adjacency is Adjacency.REPLACE else 1
        return self.mu * records / (reach * coefficients)

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of all releases together."""
        return gaussian(1 / self.mu, adjacency=self.adjacency)
