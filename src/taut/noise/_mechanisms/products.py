"""Sums of products of two rows: what a gradient step of a linear model needs of the data.

The gradient of one record is r xᵀ, of a residual r for every output and of the features x. Their
sum over all records is one product of two tables, and the gradients are never written out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, Vector, real_numbers
from taut.accounting import Adjacency, PrivacyLoss, gaussian
from taut.noise._exact.grid_values import in_steps
from taut.noise._exact.release import STANDARD_NORMAL, RoundedNoise
from taut.noise._exact_sums import FixedPoint, coarse, outer_products
from taut.noise._random.sources import RandomSource, default_generator
from taut.noise._sets.balls import L2Ball
from taut.noise._sets.sets import Source
from taut.noise.recording import Release, released

__all__ = ["FixedRows", "GaussianProducts"]

_ROUNDED_UP = 1 + 1e-12  # of the length of a record in units of noise: a few products of doubles
_CLIPPED_TOGETHER = 1 << 18  # entries: what is made of them stays in the cache
_LARGEST_FACTOR = 1e100  # of clips, and one over it the least: their products stay floats


@dataclass(frozen=True, eq=False)
class FixedRows:
    """Rows scaled down to a norm, with entries of 20 bits: private, and kept for many releases.

    Args:
        rows: one row per record. A row with NaN or infinity becomes zero.
        clip: l2 norm to which rows are scaled down.

    Attributes:
        clip: the same.
        entries: rows in units of the power of two above the clip, read-only.

    **Guarantee**: every row is at most ``clip`` long, up to rounding that `GaussianProducts` allows
    for, and depends on its record alone, to the last bit.
    """

    clip: float
    entries: Matrix = field(repr=False)

    def __init__(self, rows: ArrayLike, clip: float) -> None:
        radius = validate.positive(clip=clip)
        if not 1 / _LARGEST_FACTOR <= radius <= _LARGEST_FACTOR:
            raise ValueError(f"clip must be within {_LARGEST_FACTOR:g} of one, got clip={clip!r}")
        table = real_numbers(rows, "rows")
        if table.ndim != 2:
            raise ValueError(f"rows must be a table, got shape {table.shape}")
        ball = L2Ball(table.shape[1], radius, source=Source.CLIPPED)
        entries = np.empty(table.shape)
        height = max(1, _CLIPPED_TOGETHER // max(table.shape[1], 1))
        for start in range(0, len(table), height):
            part = slice(start, start + height)
            with np.errstate(under="ignore"):  # no record may be told by a warning
                clipped = np.ldexp(ball.clip(table[part]), -math.frexp(radius)[1])
            entries[part] = coarse(clipped)
        entries.setflags(write=False)
        object.__setattr__(self, "clip", radius)
        object.__setattr__(self, "entries", entries)

    @property
    def exponent(self) -> int:
        """The binary logarithm of the unit of the entries."""
        return math.frexp(self.clip)[1]


@dataclass(frozen=True)
class GaussianProducts:
    """The sum over records of l rᵀ, for two rows of each, with Gaussian noise on every entry.

    Args:
        left_clip: l2 norm to which left rows are scaled down.
        right_clip: l2 norm to which right rows are scaled down.
        scale: standard deviation of the noise.
        adjacency: neighbouring relation.

    **Guarantee**: `loss`, that of one Gaussian release. A record moves the sum by a matrix of
    Frobenius norm left_clip right_clip at most, or by twice that if it is replaced. Entries are cut
    towards zero to 20 bits below the clips, so that their products are summed as integers, and
    noise is added exactly on a public grid (docs/theory/rounding.md).

    Raises:
        ValueError: for parameters that are not positive, or beyond floating point.

    Example:
        >>> from taut.noise import FixedRows, GaussianProducts
        >>> products = GaussianProducts(left_clip=1.0, right_clip=5.0, scale=10.0)
        >>> right = FixedRows([[3.0, 4.0], [0.0, 1.0]], clip=5.0)
        >>> products.release([[1.0], [0.5]], right).shape
        (1, 2)
        >>> round(products.loss.epsilon(delta=1e-6), 3)
        2.254
    """

    left_clip: float
    right_clip: float
    scale: float
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        """Check the parameters."""
        # Floats of fewer bits would round the length of a change down.
        object.__setattr__(self, "left_clip", validate.positive(left_clip=self.left_clip))
        object.__setattr__(self, "right_clip", validate.positive(right_clip=self.right_clip))
        object.__setattr__(self, "scale", validate.positive(scale=self.scale))
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        if not 1 / _LARGEST_FACTOR < self.mu < _LARGEST_FACTOR:
            raise ValueError(
                "scale must be within 100 orders of magnitude of left_clip * right_clip, got "
                f"scale={self.scale!r}"
            )

    @cached_property
    def mu(self) -> float:
        """The largest length of a record's change in units of the noise, rounded up."""
        reach = 2.0 if self.adjacency is Adjacency.REPLACE else 1.0
        return reach * self.left_clip * (self.right_clip / self.scale) * _ROUNDED_UP

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        return gaussian(1 / self.mu, adjacency=self.adjacency)

    def release(
        self, left: ArrayLike, right: FixedRows, generator: RandomSource | None = None
    ) -> Matrix:
        """Return the sum of products with noise, one row per column of ``left``.

        Args:
            left: one row per record.
            right: right rows, as many.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class.
        """
        validate.instance(FixedRows, right=right)
        rows = FixedRows(left, self.left_clip)
        if right.clip != self.right_clip or len(right.entries) != len(rows.entries):
            raise ValueError(
                f"right must be {len(rows.entries)} rows with clip={self.right_clip!r}, got "
                f"{len(right.entries)} with clip={right.clip!r}"
            )
        source = default_generator() if generator is None else generator
        shape = rows.entries.shape[1], right.entries.shape[1]
        sums = _flat(outer_products(rows.entries, right.entries))
        unit = rows.exponent + right.exponent
        noise = RoundedNoise(np.full(shape[0] * shape[1], self.scale), STANDARD_NORMAL)

        def draw() -> Vector:
            return noise.on_grid(in_steps(sums, noise.exponents - unit), source)

        def described() -> Release:
            return Release(
                type(self).__name__,
                np.ldexp(sums.doubles(), unit) / self.scale,
                L2Ball(noise.scales.size, self.mu, adjacency=self.adjacency),
                {"scale": self.scale},
                loss=lambda: self.loss,
                resolution=min(float(noise.grid[0] / self.scale), 1.0),
            )

        return released(draw, described, source).reshape(shape)


def _flat(sums: FixedPoint) -> FixedPoint:
    return FixedPoint(sums.limbs.reshape(len(sums.limbs), -1), sums.exponent)
