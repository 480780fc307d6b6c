"""How many trials a private selection makes: a random number with a law of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from typing import Self

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR, UP

__all__ = ["Trials"]

_LAWS = ("negative_binomial", "poisson")
_BITS = 192  # of a uniform number that decides a draw
# Digits of the probabilities that it is compared with: more than its bits can tell, so that a draw
# is within 1e-40 of the law, far below any delta.
_DIGITS = 70
_MOST_TRIALS = 10**6  # in one draw; `_LEAST_STOP` makes more of them impossible, but for 1e-43
_LARGEST_MEAN = 1e4  # of trials: what is beyond cannot be meant, and tails would cost memory
_LARGEST_CAP = 1_000  # of trials: rounding of sums over all numbers up to it grows with its square
_LARGEST_SHAPE = 20.0  # with the least gamma, one trial has a probability above 1e-84
_SHAPE_DIGITS = 330  # that a power of the least shape, 5e-324, loses when one is subtracted
_LARGEST_POISSON = 500.0  # mean: one trial has a probability above 1e-215, well within floats
_LEAST_STOP = 1e-4  # of gamma: more than a million trials then have a probability below exp(-100)


@dataclass(frozen=True)
class Trials:
    """The law of the number of trials: the choice that makes a private selection cheap.

    Made by `geometric`, `logarithmic`, `negative_binomial` and `poisson`. A number that is fixed
    would cost almost as much as publishing all trials; a random one, kept secret, costs little
    (Liu and Talwar 2019; Papernot and Steinke 2022).

    Attributes:
        law: "negative_binomial" (truncated: there is always a trial) or "poisson", which may make
            no trial at all.
        parameter: probability gamma of stopping, or the mean of a Poisson number.
        shape: eta of the negative binomial law: 1 is geometric, 0 logarithmic. Smaller shapes cost
            less, and have more often few trials, and seldom very many.
        cap: most trials that are made, whatever was drawn; None for no limit.

    Example:
        >>> from taut.accounting import Trials
        >>> trials = Trials.geometric(mean=10)
        >>> round(trials.probability(1), 3), round(trials.capped(30).expected, 3)
        (0.1, 9.576)
    """

    law: str
    parameter: float
    shape: float = 1.0
    cap: int | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.law not in _LAWS:
            raise ValueError(f"law must be one of {', '.join(_LAWS)}, got law={self.law!r}")
        validate.finite(shape=self.shape)
        if self.law == "poisson":
            if not 0 < validate.positive(parameter=self.parameter) <= _LARGEST_POISSON:
                raise ValueError(
                    f"the mean of a Poisson number must be at most {_LARGEST_POISSON:g}, got "
                    f"{self.parameter!r}"
                )
        else:
            validate.probability(parameter=self.parameter)
            if not self.parameter >= _LEAST_STOP:
                raise ValueError(
                    f"parameter must be a probability of stopping of at least {_LEAST_STOP:g}, "
                    f"got parameter={self.parameter!r}"
                )
            if not -1 < self.shape <= _LARGEST_SHAPE:
                raise ValueError(
                    f"shape must be in (-1, {_LARGEST_SHAPE:g}], got shape={self.shape!r}"
                )
        if self.cap is not None and validate.positive_integer(cap=self.cap) > _LARGEST_CAP:
            raise ValueError(
                f"cap must be at most {_LARGEST_CAP} trials, got cap={self.cap!r}; leave it out"
            )
        if not self._uncapped_mean <= _LARGEST_MEAN:
            raise ValueError(
                f"the mean must be at most {_LARGEST_MEAN:g} trials, got {self._uncapped_mean:g}"
            )

    # --- makers --------------------------------------------------------------------------------

    @classmethod
    def geometric(cls, mean: float) -> Self:
        """Return the law of trying until a coin says stop; every number is possible."""
        return cls.negative_binomial(mean, 1.0)

    @classmethod
    def logarithmic(cls, mean: float) -> Self:
        """Return the law of shape zero: cheaper than `geometric`, with one trial more often."""
        return cls.negative_binomial(mean, 0.0)

    @classmethod
    def negative_binomial(cls, mean: float, shape: float) -> Self:
        """Return the truncated negative binomial law of a mean and a shape eta > -1."""
        wanted = validate.positive(mean=mean)
        if not 1 <= wanted <= _LARGEST_MEAN:
            raise ValueError(
                f"mean must be from 1 to {_LARGEST_MEAN:g} trials, got mean={mean!r}; there is "
                "always one trial"
            )
        eta = validate.finite(shape=shape)
        if wanted == 1:
            return cls("negative_binomial", 1.0, eta)
        low = cls("negative_binomial", 1.0, eta)._mean_at
        if not low(_LEAST_STOP) > wanted:
            raise ValueError(f"no law of shape={shape!r} has mean={mean!r}; choose a larger shape")
        few, many = _LEAST_STOP, 1.0
        while many > few * (1 + 4 * RELATIVE_ERROR):
            middle = math.sqrt(few * many)
            few, many = (middle, many) if low(middle) > wanted else (few, middle)
        return cls("negative_binomial", many, eta)

    @classmethod
    def poisson(cls, mean: float) -> Self:
        """Return a Poisson number of trials; none are made with probability exp(-mean)."""
        return cls("poisson", validate.positive(mean=mean))

    def capped(self, most: int) -> Trials:
        """Return the law of the smaller of the number of trials and ``most``."""
        cap = validate.positive_integer(most=most)
        return Trials(self.law, self.parameter, self.shape, cap)

    # --- the law -------------------------------------------------------------------------------

    @property
    def expected(self) -> float:
        """The mean number of trials."""
        if self.cap is None:
            return self._uncapped_mean
        return float(np.arange(1, self.cap + 1) @ self._masses)

    @property
    def never(self) -> float:
        """The probability that no trial is made."""
        return math.exp(-self.parameter) if self.law == "poisson" else 0.0

    def probability(self, count: int) -> float:
        """Return the probability of ``count`` trials."""
        k = validate.integer(count=count)
        if k == 0:
            return self.never
        if self.cap is not None:
            return float(self._masses[k - 1]) if k <= self.cap else 0.0
        return float(self._listed(k)[k - 1])

    def at_most(self, count: int) -> float:
        """Return the probability of ``count`` trials or fewer."""
        k = validate.integer(count=count)
        if k == 0 or (self.cap is not None and k >= self.cap):
            return self.never if k == 0 else 1.0
        return min(self.never + float(self._listed(k).sum()), 1.0)

    def draw(self, bits: Callable[[int], int]) -> int:
        """Return a number of trials.

        Args:
            bits: source of uniformly random integers of so many bits, such as
                ``secrets.randbits``.

        **Guarantee**: within 1e-40 of the law in total variation. The number must stay secret:
        the theorem is about the best trial, not about how many there were.
        """
        with localcontext() as context:
            context.prec = _DIGITS
            left = (Decimal(bits(_BITS)) + Decimal("0.5")) / Decimal(2**_BITS)
            most = _MOST_TRIALS if self.cap is None else self.cap
            k, mass = self._first_decimal
            while left >= mass and k < most:
                left -= mass
                mass *= self._decimal_ratio(k)
                k += 1
        return k

    # --- for bounds ----------------------------------------------------------------------------

    @property
    def slope_error(self) -> float:
        """Bound on the relative error of `slope`: powers, exponents, sums over capped numbers.

        Probabilities of capped numbers are off by some roundings each, and what is left for the
        last one by as many as all of them, times the number itself.
        """
        exponent = self.parameter if self.law == "poisson" else 4 * abs(self.shape)
        return RELATIVE_ERROR * (16 + exponent + 10 * (self.cap or 0) ** 2)

    @property
    def steepness(self) -> float:
        """Bound on f'' / f' at one: how much of a rounding there becomes one of f'."""
        without = self.parameter if self.law == "poisson" else (1 + self.shape) / self.parameter
        return without if self.cap is None else float(self.cap)

    def slope(self, at: Vector) -> Vector:
        """Return the derivative of the generating function on [0, 1], shape of ``at``."""
        if self.cap is not None:
            weighted = np.arange(1, self.cap + 1) * self._masses
            return np.polynomial.polynomial.polyval(at, weighted).astype(float)
        if self.law == "poisson":
            rising: Vector = self.parameter * np.exp(self.parameter * (at - 1))
            return rising
        gamma = self.parameter
        power: Vector = (gamma / (gamma + (1 - gamma) * (1 - at))) ** (1 + self.shape)
        return self._uncapped_mean * power

    def failure(self, delta: float) -> float:
        """Return the probability that one of the trials fails, if each does with ``delta``."""
        if self.cap is not None:
            counts = np.arange(1, self.cap + 1)
            kept = math.log1p(-delta) if delta < 1 else -math.inf
            value = -float(self._masses @ np.expm1(counts * kept))
        elif self.law == "poisson":
            value = -math.expm1(-self.parameter * delta)
        else:
            gamma, eta = self.parameter, self.shape
            log = math.log1p((1 - gamma) * delta / gamma)
            if gamma == 1:
                value = delta
            else:
                whole = -math.log(gamma)
                value = log / whole * _mean_slope(-eta * log) / _mean_slope(-eta * whole)
        return min(value * (1 + 64 * RELATIVE_ERROR), 1.0)

    def closed_cost(self, epsilon: float) -> float | None:
        """Return log max f'(p) / f'(q) where every trial is ``epsilon``-DP, if not capped."""
        if self.cap is not None:
            return None
        small = math.exp(-epsilon)
        if self.law == "poisson":
            return self.parameter * (1 - small) / (1 + small)
        gamma = self.parameter
        return (1 + self.shape) * (math.log1p(gamma * small) - math.log(small + gamma)) * UP

    # --- inside --------------------------------------------------------------------------------

    @property
    def _uncapped_mean(self) -> float:
        return self.parameter if self.law == "poisson" else self._mean_at(self.parameter)

    def _mean_at(self, gamma: float) -> float:
        """Return eta (1 - gamma) / (gamma (1 - gamma^eta)), without cancellation."""
        if gamma == 1:
            return 1.0
        log = math.log(gamma)
        return (1 - gamma) / (gamma * -log * _mean_slope(self.shape * log))

    @cached_property
    def _masses(self) -> Vector:
        """Probabilities of 1, 2, ... trials under a cap, which takes all that is beyond."""
        assert self.cap is not None
        masses = self._listed(self.cap)
        some = -math.expm1(-self.parameter) if self.law == "poisson" else 1.0
        rest = some - math.fsum(masses[:-1].tolist())
        # Where the rest is lost in rounding the probability of the cap itself is most of it.
        masses[-1] = max(rest, float(masses[-1]))
        return masses

    def _listed(self, most: int) -> Vector:
        """Return probabilities of 1 to ``most`` trials without a cap, shape (most,)."""
        k = np.arange(1, most)
        if self.law == "poisson":
            logs = np.log(self.parameter) - np.log1p(k)
            first = math.log(self.parameter) - self.parameter
        else:
            gamma = self.parameter
            if gamma == 1:
                return np.append(1.0, np.zeros(most - 1))
            logs = math.log1p(-gamma) + np.log((k + self.shape) / (k + 1))
            # The slope at zero is the probability of one trial.
            first = math.log(float(Trials(self.law, gamma, self.shape).slope(np.zeros(1))[0]))
        return np.exp(first + np.append(0.0, np.cumsum(logs)))

    @cached_property
    def _first_decimal(self) -> tuple[int, Decimal]:
        """The least number of trials with its probability, to as many digits as are in use."""
        parameter = Decimal(self.parameter)
        if self.law == "poisson":
            return 0, (-parameter).exp()
        if parameter == 1:
            return 1, Decimal(1)
        eta = Decimal(self.shape)
        if eta == 0:
            return 1, (1 - parameter) / -parameter.ln()
        with localcontext() as context:
            context.prec += _SHAPE_DIGITS
            return 1, eta * (1 - parameter) / (parameter ** (-eta) - 1)

    def _decimal_ratio(self, count: int) -> Decimal:
        """Return the probability of one more trial than ``count``, over that of ``count``."""
        if self.law == "poisson":
            return Decimal(self.parameter) / (count + 1)
        return (1 - Decimal(self.parameter)) * (count + Decimal(self.shape)) / (count + 1)

    def __str__(self) -> str:
        """Return the call that makes this law."""
        name = f"mean {self._uncapped_mean:g}"
        kind = "poisson" if self.law == "poisson" else f"negative binomial of shape {self.shape:g}"
        return f"{kind}, {name}{'' if self.cap is None else f', at most {self.cap}'}"


def _mean_slope(x: float) -> float:
    """Return (exp(x) - 1) / x, also where x has no digits left."""
    # Below, 1 + x / 2 is right to all digits.
    return math.expm1(x) / x if abs(x) > 1e-12 else 1 + x / 2
