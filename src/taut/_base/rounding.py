"""Numbers as text, rounded to the side on which what they state stays true."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

__all__ = ["places_up", "round_down", "round_up", "scientific_down", "scientific_up"]


def round_up(value: float, digits: int) -> str:
    """Return `value` with so many significant digits; read back as a float, it is never below."""
    return f"{_rounded(value, digits, ROUND_CEILING):g}"


def round_down(value: float, digits: int) -> str:
    """Return `value` with so many significant digits; read back as a float, it is never above."""
    return f"{_rounded(value, digits, ROUND_FLOOR):g}"


def scientific_up(value: float, digits: int) -> str:
    """Return `value` as digits times a power of ten, never below it."""
    return f"{_rounded(value, digits, ROUND_CEILING):.{digits - 1}e}"


def scientific_down(value: float, digits: int) -> str:
    """Return `value` as digits times a power of ten, never above it."""
    return f"{_rounded(value, digits, ROUND_FLOOR):.{digits - 1}e}"


def places_up(value: float, places: int) -> str:
    """Return `value` with so many decimal places, never below it."""
    return str(_shortest(value).quantize(Decimal(1).scaleb(-places), ROUND_CEILING))


def _rounded(value: float, digits: int, rounding: str) -> Decimal:
    return Context(prec=digits, rounding=rounding).create_decimal(_shortest(value))


def _shortest(value: float) -> Decimal:
    # The shortest decimal that is read as this float stands for it: 0.1 has one digit, not fifty.
    return Decimal(repr(float(value)).removesuffix(".0"))
