"""Pearson-Vajda divergences chi_j(P || Q) = E_Q (p/q - 1)^j, in exact or sufficient precision.

They are alternating sums of moments that cancel almost entirely, so no float takes part before the
end: finite pairs are computed with fractions, the closed forms with as many decimals as it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, Overflow, localcontext
from fractions import Fraction
from numbers import Rational, Real

from taut._base import validate

__all__ = ["pearson_vajda", "pearson_vajda_gaussian", "pearson_vajda_laplace"]

_GUARD_DIGITS = 20  # decimals that must survive the cancellation: a float has 17
_LARGEST_ORDER = 5_000  # some seconds; mechanisms are asked for a few hundred
_LARGEST_DECIMAL_EXPONENT = (
    10**15
)  # of a decimal: moments up to exp(2e15) neither over- nor underflow


def pearson_vajda(p: Sequence[float], q: Sequence[float], largest_order: int) -> dict[int, float]:
    """Return chi_j(p || q) for j = 2, ..., ``largest_order`` of two finite distributions.

    Args:
        p: probabilities of the outcomes, floats or fractions, scaled to sum to one.
        q: the same for the other distribution, over the same outcomes.
        largest_order: an integer from 2 on.

    Returns:
        The divergences by order, correctly rounded; infinite if ``p`` has an outcome that ``q``
        has not.

    Raises:
        ValueError: if the vectors differ in length, are empty, or hold what is not a weight.
        TypeError: if ``largest_order`` is not an integer, or an entry not a number.

    Zhu and Wang (2019) prove the exact sum for Poisson sampling when all odd divergences are
    non-negative in both directions. :func:`poisson` does not need that (docs/theory/renyi.md);
    this is a diagnostic. Randomized response is ``pearson_vajda([x, 1 - x], [1 - x, x], n)``.

    Example:
        >>> from taut.accounting import renyi
        >>> renyi.pearson_vajda([0.75, 0.25], [0.25, 0.75], 3)
        {2: 1.3333333333333333, 3: 1.7777777777777777}
    """
    n = _largest(largest_order)
    first, second = _distribution(p, "p"), _distribution(q, "q")
    if len(first) != len(second):
        raise ValueError(f"p and q must have one entry per outcome, got {len(p)} and {len(q)}")
    if any(a > 0 and b == 0 for a, b in zip(first, second, strict=True)):
        return dict.fromkeys(range(2, n + 1), math.inf)
    ratios = [(b, a / b - 1) for a, b in zip(first, second, strict=True) if b > 0]
    return {
        j: _float(sum((b * ratio**j for b, ratio in ratios), Fraction(0))) for j in range(2, n + 1)
    }


def pearson_vajda_gaussian(
    sigma: float, largest_order: int, sensitivity: float = 1.0
) -> dict[int, float]:
    """Return chi_j for j = 2, ..., ``largest_order`` of two Gaussians ``sensitivity`` apart.

    All are positive. From the moments exp(k (k-1) sensitivity^2 / (2 sigma^2)).

    Example:
        >>> from taut.accounting import renyi
        >>> renyi.pearson_vajda_gaussian(sigma=1.0, largest_order=2)  # e - 1
        {2: 1.7182818284590453}
    """
    n = _largest(largest_order)
    s = Decimal(validate.positive(sigma=sigma))
    d = Decimal(validate.positive(sensitivity=sensitivity))
    return _by_order(lambda k: (k * (k - 1) * (d / s) ** 2 / 2).exp(), n)


def pearson_vajda_laplace(
    scale: float, largest_order: int, sensitivity: float = 1.0
) -> dict[int, float]:
    """Return chi_j for j = 2, ..., ``largest_order`` of two Laplace laws ``sensitivity`` apart.

    All are positive. From the moments (k e^((k-1) r) + (k-1) e^(-k r)) / (2k - 1), where r is
    ``sensitivity`` over ``scale``.

    Example:
        >>> from taut.accounting import renyi
        >>> all(x > 0 for x in renyi.pearson_vajda_laplace(scale=2.0, largest_order=9).values())
        True
    """
    n = _largest(largest_order)
    b = Decimal(validate.positive(scale=scale))
    d = Decimal(validate.positive(sensitivity=sensitivity))

    def moment(k: int) -> Decimal:
        r = d / b
        return (k * ((k - 1) * r).exp() + (k - 1) * (-k * r).exp()) / (2 * k - 1)

    return _by_order(moment, n)


def _by_order(moment: Callable[[int], Decimal], largest: int) -> dict[int, float]:
    """Return the alternating sums of moments at orders 2 to ``largest``."""
    digits = 50
    while True:
        with localcontext(
            Context(prec=digits, Emin=-_LARGEST_DECIMAL_EXPONENT, Emax=_LARGEST_DECIMAL_EXPONENT)
        ):
            try:
                moments = [moment(k) for k in range(largest + 1)]
            except Overflow:
                raise ValueError(
                    "the noise is so small that divergences exceed all numbers; give more of it"
                ) from None
            found = {j: _difference(moments, j, digits) for j in range(2, largest + 1)}
        if None not in found.values():
            return {j: float(x) for j, x in found.items() if x is not None}
        digits *= 2


def _difference(moments: list[Decimal], j: int, digits: int) -> Decimal | None:
    """Return the j-th difference at zero, or None if too few digits survive."""
    terms = [(-1) ** (j - k) * math.comb(j, k) * moments[k] for k in range(j + 1)]
    value, size = sum(terms, Decimal(0)), sum(map(abs, terms), Decimal(0))
    return value if abs(value) > size.scaleb(_GUARD_DIGITS - digits) else None


def _distribution(weights: Sequence[float], name: str) -> list[Fraction]:
    """Return the weights as fractions that sum to one."""
    exact = [_fraction(weight, name) for weight in weights]
    total = sum(exact, Fraction(0))
    if total == 0 or min(exact) < 0:
        raise ValueError(
            f"{name} must be probabilities, not negative and not all 0, got {weights!r}"
        )
    return [weight / total for weight in exact]


def _fraction(weight: object, name: str) -> Fraction:
    if isinstance(weight, bool) or not isinstance(weight, Real):
        raise TypeError(f"{name} must hold real numbers, got {weight!r}")
    if isinstance(weight, Rational):
        return Fraction(weight)
    number = float(weight)
    if not math.isfinite(number):
        raise ValueError(f"{name} must hold finite probabilities, got {weight!r}")
    return Fraction(number)


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:  # only upwards: ratios are at least zero
        return math.inf


def _largest(largest_order: int) -> int:
    n = validate.positive_integer(largest_order=largest_order)
    if n < 2:
        raise ValueError(f"largest_order must be at least 2, got largest_order={n}")
    if n > _LARGEST_ORDER:
        raise ValueError(
            f"largest_order must be at most {_LARGEST_ORDER}, got largest_order={n}: sums "
            "alternate, and digits and time grow with its square"
        )
    return n
