"""A promise as one Gaussian release, whose mu² the releases of a fit share."""

from __future__ import annotations

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
        return gaussian_mu(self.epsilon, self.delta) / _ROOM

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of all releases together."""
        return gaussian(1 / self.mu, adjacency=self.adjacency)
