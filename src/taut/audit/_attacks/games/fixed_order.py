"""The game of correlated noise: a run in a fixed order, encoded again, so that noise is white."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from taut.audit._attacks.crafted import Craft
from taut.audit._attacks.statistics import Statistic

if TYPE_CHECKING:
    from taut.training import Plan

__all__ = ["FixedOrderGame"]

_LONG = 64.0  # clipping norms: long enough that what is not clipped stands out


@dataclass(frozen=True)
class FixedOrderGame:
    """How a run with correlated noise is seen.

    Attributes:
        crafts: neighbours under zero-out adjacency: the first example has a long gradient, or none.
        decoded: matrix that turns releases, of shape (steps, coordinates), into encoded sums with
            standard normal noise that is independent over steps.
        pattern: how far the canary moves every step of them, in the first coordinate.
    """

    crafts: tuple[Craft, Craft]
    decoded: NDArray[np.float64]
    pattern: NDArray[np.float64]

    @classmethod
    def of(cls, plan: Plan, sizes: Mapping[str, int]) -> FixedOrderGame:
        """Return the game of a plan with an encoder.

        Raises:
            ValueError: for noise of several deviations.
        """
        noise: Any = plan.noise(sizes)
        scales: tuple[float, ...] = getattr(noise.independent, "scales", ())
        if len(scales) != 1 or plan.encoder is None:
            raise ValueError(
                "plan must have the same noise in all coordinates, got "
                f"clipping={plan.clipping!r}; audit a plan with a clipping by norms"
            )
        norm = scales[0] / plan.noise_multiplier
        encoder = np.asarray(plan.encoder.matrix(), dtype=np.float64)
        # The first example is in the first step of every epoch, where it is seen for longest.
        period = round(1 / plan.rate)
        taken = (np.arange(plan.steps) % period == 0) * norm
        crafts = tuple(
            _craft(name, others, plan.examples, norm, sum(sizes.values()))
            for name, others in (("silent", 0.0), ("opposed", -norm))
        )
        decoded = encoder * (plan.batch_size / scales[0])
        return cls((crafts[0], crafts[1]), decoded, encoder @ taken / scales[0])

    def statistics(self, craft: Craft) -> Mapping[str, Statistic]:
        """Return the likelihood ratio, which is known exactly, as the order is public."""
        if craft.name != "silent":
            return {}
        return {"likelihood ratio": lambda runs: np.asarray(runs[:, :, 0] @ self.pattern)}


def _craft(name: str, others: float, examples: int, norm: float, dimension: int) -> Craft:
    without = np.zeros((examples, dimension))
    without[1:, 0] = others
    including = without.copy()
    including[0, 0] = _LONG * norm
    return Craft(name, without, including)
