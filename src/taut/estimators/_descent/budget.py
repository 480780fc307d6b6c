"""How the budget of coordinate descent is shared: one mu² for curvatures and all steps.

Every release is Gaussian, so that mu² adds up (docs/theory/coordinate-descent.md), and what is left
after the curvatures is spent on whichever number of passes they suggest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Vector
from taut.accounting import Adjacency
from taut.errors import UnsoundConfiguration
from taut.estimators._contract.gaussian_budget import GaussianBudget
from taut.noise import Box, GaussianNoise, Ranges, Source, gaussian_with_scales, optimal_gaussian

__all__ = ["CURVATURE_SHARE", "NOISE", "Budget"]

_SPLIT = 1 + 1e-10  # of the noise of every part: mechanisms round up, and are checked once more
CURVATURE_SHARE = 0.1
"""The usual share of mu² for curvatures: a relative error below one in them matters little."""

NOISE = ("curvature", "coefficient")
"""What noise is least for: the objective, by its curvatures, or the squared coefficients."""


@dataclass(frozen=True)
class Budget(GaussianBudget):
    """A promise, shared between curvatures and steps.

    Args:
        epsilon: epsilon of the promise.
        delta: probability delta of the promise.
        share: share of mu² for the curvatures.
        adjacency: neighbouring relation.
        portion: portion of the mu² of the promise that is spent here.

    **Guarantee**: `loss` bounds that of one release of `curvatures` and, in view of it, of any
    number of `passes` over mechanisms that `steps` returned for this number.

    Raises:
        InfeasibleBudget: if no Gaussian noise within floating point keeps the promise.
    """

    epsilon: float
    delta: float
    share: float
    adjacency: Adjacency
    portion: float = 1.0

    def curvatures(self, bounds: Vector) -> GaussianNoise:
        """Return what releases sums of squares, each with noise in proportion to its bound.

        Args:
            bounds: largest magnitude of the entries of every column.
        """
        largest = np.square(bounds) * (1 + 1e-15)  # squares of smaller entries round no higher
        squares = Ranges(np.stack([np.zeros_like(largest), largest], axis=1), source=Source.CLIPPED)
        return optimal_gaussian(
            squares.differences() if self.adjacency is Adjacency.REPLACE else squares,
            multiplier=_SPLIT / (self.mu * math.sqrt(self.share)),
            objective="relative",
        )

    def steps(
        self, clips: Vector, curvatures: Vector, passes: int, noise: str
    ) -> list[GaussianNoise]:
        """Return what releases the clipped sum of derivatives by every coefficient, in one pass.

        A step divides its sum by the curvature h, so that noise s on the sum is s / h on the
        coefficient, and (s / h)² h / 2 on the objective.

        Args:
            clips: bounds on the derivatives of one record.
            curvatures: second derivatives of the objective, released.
            passes: number of times that every mechanism is used.
            noise: what is made least: one of `NOISE`.
        """
        relative = clips / clips.max(), curvatures / curvatures.max()
        weights = relative[1] ** (-1.0 if noise == "curvature" else -2.0)
        whole = Box(relative[0], source=Source.CLIPPED)
        spread = optimal_gaussian(
            _contributions(whole, self.adjacency),
            multiplier=_SPLIT * math.sqrt(passes / (1 - self.share)) / self.mu,
            weights=weights,
        )
        scales = spread.scales * clips.max() * _SPLIT
        mechanisms = [
            gaussian_with_scales(
                _contributions(Box([clip], source=Source.CLIPPED), self.adjacency), [scale]
            )
            for clip, scale in zip(clips.tolist(), scales.tolist(), strict=True)
        ]
        self._check(mechanisms, passes)
        return mechanisms

    def _check(self, mechanisms: list[GaussianNoise], passes: int) -> None:
        """Recompute from the mechanisms that are returned what they cost."""
        each = math.fsum(1 / mechanism.multiplier**2 for mechanism in mechanisms)
        if not passes * each <= self.mu**2 * (1 - self.share):
            raise UnsoundConfiguration(
                f"{passes} passes cost mu² = {passes * each!r}, above the {1 - self.share!r} of "
                f"{self.mu**2!r} that is left for them"
            )


def _contributions(box: Box, adjacency: Adjacency) -> Box:
    return box.differences() if adjacency is Adjacency.REPLACE else box
