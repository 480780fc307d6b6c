"""Vector releases on a public grid: what leaves has no low-order bits that could tell anything.

Noise in floating point leaves holes among the doubles, and the holes depend on the exact value
(Mironov 2012). Here the value is first rounded to multiples of a public power of two, and the
noise is an integer number of grid steps, drawn exactly. What rounding adds to the sensitivity is
part of the loss (docs/theory/rounding.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut.accounting import Adjacency, PrivacyLoss, discrete_gaussian, from_rdp
from taut.noise._exact.grid_values import MOST_STEPS
from taut.noise._random.discrete import discrete_gaussian_noise
from taut.noise._random.sources import RandomSource
from taut.noise._sets.balls import L2Ball
from taut.noise.recording import Release, released

__all__ = ["GridGaussian", "grid_gaussian", "largest_squared_steps"]


_EXACT_SCALE = 10_000  # grid steps of sigma up to which an exact pair is quickly asked
_EXACT_INTEGERS = 2**53  # up to here every integer is a double


@dataclass(frozen=True)
class GridGaussian:
    """Discrete Gaussian noise on a vector that is rounded to a public grid.

    Made by ``grid_gaussian``, which documents the fields. ``release`` clips, rounds and adds noise;
    ``loss`` is what one call of it costs.
    """

    sigma: float
    sensitivity: float
    dimension: int
    grid: float
    bound: float
    on_grid: bool = False
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    generator: RandomSource | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.positive(sigma=self.sigma)
        validate.positive(sensitivity=self.sensitivity)
        validate.positive_integer(dimension=self.dimension)
        _check_grid(self.grid)
        if not self.grid / 2 <= validate.positive(bound=self.bound) <= self.grid * MOST_STEPS:
            raise ValueError(
                f"bound must lie between half a grid step and 2^52 steps of {self.grid!r}, got "
                f"bound={self.bound!r}; choose another grid"
            )
        if self.on_grid and self.bound % self.grid != 0:
            raise ValueError(
                f"bound must be a multiple of the grid {self.grid!r} if values are, "
                f"got bound={self.bound!r}"
            )
        if not 2.0**-50 <= self.sigma / self.grid <= 2.0**50:
            raise ValueError(
                f"sigma must lie between 2^-50 and 2^50 grid steps, got sigma={self.sigma!r} and "
                f"grid={self.grid!r}; choose another grid"
            )
        if not 1e-100 < self.sensitivity / self.sigma < 1e100:  # as of `taut.gaussian`
            raise ValueError(
                "sensitivity / sigma must lie between 1e-100 and 1e100, got "
                f"sensitivity={self.sensitivity!r} and sigma={self.sigma!r}"
            )

    @property
    def squared_steps(self) -> int:
        """The largest squared l2-distance between the rounded vectors of neighbours, in steps."""
        ratio = Fraction(self.sensitivity) / Fraction(self.grid)
        if self.on_grid:
            # In one dimension the distance itself is an integer.
            return math.floor(ratio) ** 2 if self.dimension == 1 else math.floor(ratio**2)
        return largest_squared_steps(ratio, self.dimension)

    @property
    def expected_squared_error(self) -> float:
        """A bound on the expected squared l2-error: noise, and half a step of rounding."""
        rounding = 0.0 if self.on_grid else self.grid / 2
        return self.dimension * (self.sigma**2 + rounding**2)

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The loss of one release, rounding included."""
        steps, scale = self.squared_steps, self.sigma / self.grid
        if steps == 0:
            return PrivacyLoss((), self.adjacency)
        if scale <= _EXACT_SCALE and steps < _EXACT_SCALE**2:
            if self.dimension == 1:
                return discrete_gaussian(scale, math.isqrt(steps), adjacency=self.adjacency)
            if steps < 4:
                # No coordinate can move by two, so that many move by one at most.
                moved = min(steps, self.dimension)
                return moved * discrete_gaussian(scale, 1, adjacency=self.adjacency)
        return _concentrated(Fraction(steps) / (2 * Fraction(scale) ** 2), self.adjacency)

    def release(self, value: ArrayLike) -> Vector:
        """Return ``value``, clipped to the bound and rounded to the grid, plus exact noise.

        Every coordinate is clipped to [-bound, bound]. NaN, infinities and wrong shapes are refused
        before any noise is drawn, and so are values off the grid where ``on_grid`` rules them out.

        Args:
            value: ``dimension`` numbers; a plain number will do for one.

        Raises:
            TypeError: if ``value`` is no array of real numbers of at most 64 bits.
            ValueError: if its shape is wrong, a number is not finite, or not on the grid.
        """
        given = _checked(value, self.dimension)
        steps = self._steps(given)

        def draw() -> Vector:
            noise = discrete_gaussian_noise(
                self.sigma / self.grid, size=self.dimension, generator=self.generator
            )
            return self.grid * (steps + noise.reshape(steps.shape)).astype(np.float64)

        def described() -> Release:
            return Release(
                type(self).__name__,
                np.clip(given, -self.bound, self.bound).reshape(self.dimension),
                L2Ball(self.dimension, self.sensitivity, adjacency=self.adjacency),
                {"sigma": self.sigma, "grid": self.grid, "bound": self.bound},
                loss=lambda: self.loss,
            )

        return released(draw, described, self.generator)

    def _steps(self, value: Vector) -> NDArray[np.int64]:
        """Return the nearest multiples of the grid; halves go up, so that shifts stay shifts."""
        scaled = np.clip(value, -self.bound, self.bound) / self.grid
        whole = np.floor(scaled)
        rest = scaled - whole
        if self.on_grid and rest.any():
            raise ValueError(
                f"value must be on the grid of {self.grid!r}, as on_grid=True declares; "
                "round it before its sensitivity is bounded, or leave on_grid out"
            )
        return whole.astype(np.int64) + (rest >= 0.5)


def grid_gaussian(
    sigma: float,
    sensitivity: float,
    dimension: int = 1,
    *,
    grid: float | None = None,
    bound: float | None = None,
    on_grid: bool = False,
    adjacency: Adjacency | str = "add_remove",
    generator: RandomSource | None = None,
) -> GridGaussian:
    """Return the mechanism that releases a vector on a public grid with discrete Gaussian noise.

    Args:
        sigma: scale of the noise, in the units of the value.
        sensitivity: largest l2-distance between the vectors of two neighbours, as they are given to
            ``release``: rounding errors of the computation before belong to it.
        dimension: number of coordinates.
        grid: spacing of the grid, a power of two that does not depend on the data. By default so
            fine that rounding adds at most a thousandth to the sensitivity (in one dimension, a
            64th at most where that makes the loss exact).
        bound: every coordinate is clipped to [-bound, bound], by default 2^52 grid steps.
        on_grid: declares that exact values are multiples of the grid, as counts are of 1. Then
            rounding adds nothing, and other values are refused.
        adjacency: the relation for which ``sensitivity`` holds.
        generator: the source of randomness, by default the secure one.

    **Guarantee**: clipping moves no two vectors apart, and rounding by at most the steps of
    docs/theory/rounding.md. In one dimension, and where the squared distance is below four
    steps, the loss is exact for that distance; else rho-zCDP with rho = steps / (2 (sigma/grid)^2)
    (Canonne, Kamath and Steinke 2020, Proposition 5, coordinate by coordinate). The output is a
    multiple of the grid, drawn without rounding error.

    Raises:
        ValueError: for parameters that are not positive and finite, a grid that is no power of two,
            or a bound or sigma of too many steps.

    Example:
        >>> from taut.noise import grid_gaussian
        >>> counts = grid_gaussian(sigma=4, sensitivity=1, dimension=3, grid=1, on_grid=True)
        >>> released = counts.release([10, 20, 30])
        >>> bool((released % 1 == 0).all()), round(counts.loss.epsilon(delta=1e-6), 4)
        (True, 1.0634)
    """
    sigma = validate.positive(sigma=sigma)
    sensitivity = validate.positive(sensitivity=sensitivity)
    dimension = validate.positive_integer(dimension=dimension)
    step = _default_grid(sigma, sensitivity, dimension) if grid is None else _check_grid(grid)
    reach = step * MOST_STEPS if bound is None else validate.positive(bound=bound)
    relation = Adjacency(adjacency)
    return GridGaussian(
        sigma, sensitivity, dimension, step, reach, bool(on_grid), relation, generator
    )


def largest_squared_steps(ratio: Fraction, dimension: int) -> int:
    """Return a bound on the squared l2-distance of rounded vectors, in grid steps.

    Args:
        ratio: the l2-distance of the vectors before rounding, in grid steps.
        dimension: number of coordinates.

    Returns:
        ceil(ratio)^2 in one dimension, the exact value. Else the value of the relaxed problem in
        which coordinate i pays (k_i - 1)^2 of a budget below ratio^2 for its k_i steps; never more
        than (ratio + sqrt(dimension))^2 (docs/theory/rounding.md).
    """
    if dimension == 1:
        return math.ceil(ratio) ** 2
    budget = math.ceil(ratio**2) - 1
    level = math.isqrt(budget // dimension)
    gain = Fraction(2 * level + 3, 2 * level + 1)
    return math.floor(dimension * (level + 1) ** 2 + gain * (budget - level**2 * dimension))


def _concentrated(rho: Fraction, adjacency: Adjacency) -> PrivacyLoss:
    """Return the loss of Renyi divergences of at most rho times the order, which is rho-zCDP."""
    # One float up, and the rounding of a product with an order.
    safe = math.nextafter(float(rho), math.inf) * (1 + 1e-15)
    return from_rdp(lambda orders: safe * orders, adjacency=adjacency)


def _default_grid(sigma: float, sensitivity: float, dimension: int) -> float:
    """Return the power of two below the wanted spacing."""
    spacing = sensitivity / (1024 * math.sqrt(dimension))
    if dimension == 1:
        spacing = max(spacing, min(sigma / 2048, sensitivity / 64))
    return math.ldexp(1.0, math.frexp(spacing)[1] - 1)


def _check_grid(grid: float) -> float:
    step = validate.positive(grid=grid)
    mantissa, exponent = math.frexp(step)
    if mantissa != 0.5 or not -900 <= exponent <= 900:
        near = math.ldexp(1.0, max(-900, min(exponent, 900)) - 1)
        raise ValueError(
            f"grid must be a power of two, so that rounding to it is exact, got grid={grid!r}; "
            f"use {near!r}, or count in other units, such as cents, with grid=1"
        )
    return step


def _checked(value: ArrayLike, dimension: int) -> Vector:
    """Return the value as finite doubles of the right shape, or refuse it."""
    result = real_numbers(value, "value")
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise validate.WrongType(
            f"value must hold real numbers of at most 64 bits, got dtype {array.dtype}; "
            "convert it with numpy.asarray(value, dtype=float)"
        )
    if array.shape != (dimension,) and not (dimension == 1 and array.shape == ()):
        raise ValueError(f"value must have shape ({dimension},), got shape {array.shape}")
    if array.dtype.kind != "f" and np.any(np.abs(array.astype(object)) > _EXACT_INTEGERS):
        raise ValueError(
            "value holds integers beyond 2^53, which floats round; count in other units"
        )
    if not np.isfinite(result).all():
        raise ValueError("value must be finite, got NaN or infinity; nothing was released")
    return result
