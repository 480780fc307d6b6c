"""Argument checks, written so that NaN fails and the message shows value and remedy.

Each check takes exactly one keyword argument, whose name becomes part of the message::

    sigma = validate.positive(sigma=sigma)

A dataclass names the domains of its fields instead, and has them all checked at once::

    sigma: Positive
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from numbers import Integral, Number, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

__all__ = [
    "BelowOne",
    "Finite",
    "NonNegative",
    "Positive",
    "PositiveInteger",
    "Probability",
    "WrongType",
    "below_one",
    "fields",
    "finite",
    "flag",
    "instance",
    "integer",
    "non_negative",
    "positive",
    "positive_integer",
    "probability",
    "told",
]


_PLAIN = (int, float)
_FEW = 4  # entries of a list that is shown
_BOOLEANS = ("bool", "bool_")  # of NumPy, by the names that its versions give them
_MOST = 10**18  # beyond it counts times losses leave the precision of floats


class WrongType(TypeError, ValueError):
    """An argument of the wrong type, for callers that expect either exception."""


def finite(**argument: object) -> float:
    """Return the argument as a finite float."""
    name, value = _only(argument)
    number = _real(name, value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {name}={value!r}")
    return number


def positive(**argument: object) -> float:
    """Return the argument as a finite float above zero."""
    name, value = _only(argument)
    number = _real(name, value)
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name} must be finite and greater than 0, got {name}={value!r}")
    return number


def non_negative(**argument: object) -> float:
    """Return the argument as a finite float, at least zero."""
    name, value = _only(argument)
    number = _real(name, value)
    if not 0.0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and at least 0, got {name}={value!r}")
    return number


def probability(**argument: object) -> float:
    """Return the argument as a float in [0, 1]."""
    name, value = _only(argument)
    number = _real(name, value)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{name} must be a probability in [0, 1], got {name}={value!r}")
    return number


def below_one(**argument: object) -> float:
    """Return the argument as a float in [0, 1)."""
    name, value = _only(argument)
    number = _real(name, value)
    if not 0.0 <= number < 1.0:
        raise ValueError(
            f"{name} must be in [0, 1), got {name}={value!r}; "
            "a usual choice is well below 1 / (number of records)"
        )
    return number


def integer(**argument: object) -> int:
    """Return the argument as an int, at least zero; booleans are refused."""
    return _at_least(0, *_only(argument))


def positive_integer(**argument: object) -> int:
    """Return the argument as an int, at least one; booleans are refused."""
    return _at_least(1, *_only(argument))


Finite = Annotated[float, finite]
Positive = Annotated[float, positive]
NonNegative = Annotated[float, non_negative]
Probability = Annotated[float, probability]
BelowOne = Annotated[float, below_one]
PositiveInteger = Annotated[int, positive_integer]


def flag(**argument: object) -> bool:
    """Return the argument as True or False; the text "no" is neither, though it counts as true.

    Raises:
        WrongType: for anything else, numbers among it.
    """
    name, value = _only(argument)
    if not isinstance(value, bool) and type(value).__name__ not in _BOOLEANS:
        raise WrongType(f"{name} must be True or False, got {name}={told(value)}")
    return bool(value)


def instance(kind: type, **arguments: object) -> None:
    """Raise unless all arguments are of this class, before one of them is asked for anything.

    Args:
        kind: class that is wanted.
        arguments: the arguments by their names.

    Raises:
        WrongType: for another one, of which it names the class only: it may be private data.
    """
    for name, value in arguments.items():
        if not isinstance(value, kind):
            raise WrongType(
                f"{name} must be of class {kind.__name__}, got one of class {type(value).__name__}"
            )


def fields(of: Any) -> None:
    """Check every field of a dataclass whose annotation names a domain, or a domain or None.

    Numbers of other libraries become Python's: their fractions and their JSON are exact.
    """
    for name, check, optional in _domains(of.__class__):
        value = getattr(of, name)
        if value is not None or not optional:
            checked = check(**{name: value})
            if type(checked) in _PLAIN and type(value) not in _PLAIN:
                object.__setattr__(of, name, checked)


@cache
def _domains(kind: type) -> tuple[tuple[str, Callable[..., object], bool], ...]:
    """Return what checks a field, and whether it may be None, for all fields with a domain."""
    found = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        for choice in choices:
            if get_origin(choice) is Annotated:
                found.append((name, choice.__metadata__[0], NoneType in choices))
    return tuple(found)


def told(value: object) -> str:
    """Return numbers and texts as they are, one or a few, and the class of anything else.

    What was given in place of an argument may be the data, records and all.
    """
    few = value if isinstance(value, list | tuple) and len(value) <= _FEW else [value]
    if all(one is None or isinstance(one, str | bytes | Number) for one in few):
        return repr(value)
    return f"one of class {type(value).__name__}"


def _only(argument: dict[str, object]) -> tuple[str, object]:
    ((name, value),) = argument.items()
    return name, value


def _real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise WrongType(
            f"{name} must be a real number, got {name}={told(value)}; convert it with float(...)"
        )
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be within the range of floats, got a larger one") from None


def _at_least(least: int, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise WrongType(
            f"{name} must be an integer, got {name}={told(value)}; convert it with int(...)"
        )
    number = int(value)
    if number > _MOST:
        raise ValueError(f"{name} must be at most 10^18, got {name}={value!r}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {name}={value!r}")
    return number
