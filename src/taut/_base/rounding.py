"""Numbers as text, rounded to the side on which what they state stays true."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

__all__ = ["round_down", "round_up"]


def round_up(value: float, digits: int) -> str:
    """Return `value` with so many significant digits; read back as a float, it is never below."""
    return _rounded(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int) -> str:
    """Return `value` with so many significant digits; read back as a float, it is never above."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
    # The shortest decimal that is read as this float stands for it: 0.1 has one digit, not fifty.
    shortest = Decimal(repr(float(value)).removesuffix(".0"))
    return f"{Context(prec=digits, rounding=rounding).create_decimal(shortest):g}"
