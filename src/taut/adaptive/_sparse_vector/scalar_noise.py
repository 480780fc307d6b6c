"""Noise on one number: what the accounting of comparisons needs to know of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.floats import UP
from taut.noise import RandomSource, rounded_noise

__all__ = [
    "KINDS",
    "ScalarNoise",
    "hazard",
    "hazard_slope",
    "log_cumulative",
    "log_density",
    "log_tail",
]

KINDS = ("gaussian", "laplace", "exponential")
_ROOT = math.sqrt(2 / math.pi)
_LOG_ROOT = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class ScalarNoise:
    """Ideal noise on one number, drawn exactly: normal, Laplace or one-sided exponential.

    Attributes:
        kind: name of the distribution: ``"gaussian"``, ``"laplace"`` or ``"exponential"``.
        scale: standard deviation of normal noise, scale of the others.

    Example:
        >>> from taut.adaptive import ScalarNoise
        >>> ScalarNoise("laplace", 10.0).pure(2.0)
        0.2
    """

    kind: str
    scale: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got kind={self.kind!r}")
        object.__setattr__(self, "scale", validate.positive(scale=self.scale))

    def pure(self, shift: float) -> float:
        """Return the epsilon of hiding a shift, infinite for normal noise."""
        return math.inf if self.kind == "gaussian" else shift / self.scale

    def rdp(self, orders: Vector, shift: float) -> Vector:
        """Return Renyi divergences of the noise, shifted upwards, from itself; good to a rounding.

        Args:
            orders: real orders above one.
            shift: distance, at least zero.
        """
        e = shift / self.scale
        if self.kind == "exponential":
            # The ratio of densities is exp(e) wherever the shifted one is positive.
            return np.full(orders.shape, e)
        if self.kind == "gaussian":
            return orders * (0.5 * e * e * UP)
        # log of a/(2a-1) exp((a-1)e) + (a-1)/(2a-1) exp(-a e), from its largest term.
        rest = np.log1p((orders - 1) / orders * np.exp(-(2 * orders - 1) * e))
        whole = (orders - 1) * e + np.log(orders / (2 * orders - 1)) + rest
        # Cancellation of the three terms, near order one, costs digits of the largest of them.
        doubt = 1e-15 * (1 + (orders - 1) * e)
        return np.minimum(np.maximum(whole + doubt, 0.0) / (orders - 1), e)

    def draw(self, grid: float, size: int, source: RandomSource | None) -> NDArray[np.int64]:
        """Return independent noise, rounded to the nearest multiples of a power of two."""
        return rounded_noise(self.kind, self.scale / grid, size, generator=source)

    def tail(self, at: float) -> float:
        """Return the probability that the noise is at least ``at``."""
        return math.exp(float(log_tail(self.kind, np.array(at / self.scale))))

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return self.scale * (math.sqrt(2.0) if self.kind == "laplace" else 1.0)

    def __str__(self) -> str:
        """Return kind and scale."""
        return f"{self.kind}({self.scale:g})"


def log_tail(kind: str, x: Vector) -> Vector:
    """Return log P(noise >= x) of noise of scale one."""
    if kind == "gaussian":
        result: Vector = log_ndtr(-x)
        return result
    if kind == "exponential":
        return np.minimum(-x, 0.0)
    low = np.log1p(-0.5 * np.exp(np.minimum(x, 0.0)))
    return np.where(x < 0, low, -x - math.log(2.0))


def log_cumulative(kind: str, x: Vector) -> Vector:
    """Return log P(noise <= x) of noise of scale one, minus infinity where it is zero."""
    if kind != "exponential":
        return log_tail(kind, -x)
    with np.errstate(divide="ignore"):
        result: Vector = np.log(-np.expm1(-np.maximum(x, 0.0)))
    return result


def log_density(kind: str, x: Vector) -> Vector:
    """Return the logarithm of the density of noise of scale one, where it is positive."""
    if kind == "gaussian":
        return -0.5 * x**2 - _LOG_ROOT
    return -np.abs(x) - (math.log(2.0) if kind == "laplace" else 0.0)


def hazard(kind: str, x: Vector) -> Vector:
    """Return density over tail of symmetric, log-concave noise of scale one: it never falls."""
    if kind == "gaussian":
        with np.errstate(over="ignore"):  # far below zero the tail is one, and the rate zero
            rate: Vector = _ROOT / erfcx(x * math.sqrt(0.5))
        return rate
    half = 0.5 * np.exp(np.minimum(x, 0.0))
    return half / (1 - half)


def hazard_slope(kind: str, x: Vector) -> Vector:
    """Return the slope of the hazard: monotone over intervals on one side of zero.

    At zero, where that of Laplace noise jumps from 2 to 0, it is 2. A cell that begins or ends
    there is still enclosed by its ends.
    """
    rate = hazard(kind, x)
    if kind == "gaussian":
        return np.clip(rate * (rate - x), 0.0, 1.0)
    return np.where(x <= 0, rate * (1 + rate), 0.0)
