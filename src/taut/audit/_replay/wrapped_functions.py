"""Foreign code that takes part in replays: functions that add noise."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting import PrivacyLoss, gaussian, laplace
from taut.audit._replay.bounds import as_bound
from taut.audit._replay.equality import labels
from taut.noise.recording import Release, active

__all__ = ["FOREIGN_RESOLUTION", "KINDS", "as_vector", "foreign_release", "recorded"]

F = TypeVar("F", bound=Callable[..., Any])
KINDS = {"gaussian": 2.0, "laplace": 1.0}
"""The norms in which sensitivities of usual noise are given."""
FOREIGN_RESOLUTION = 2.0**-40
"""The probability that two draws of noise in doubles coincide: their mantissa has 52 bits."""


def recorded(
    function: F | None = None,
    *,
    sensitivity: object,
    scale: object = None,
    kind: str = "noise",
    norm: float | None = None,
) -> Any:
    """Let a function that adds noise take part in replays; nothing else about it changes.

    Args:
        function: a function whose first argument is a value, and which returns it with noise. Left
            out, a decorator is returned. Other arguments, if they are numbers, arrays or text, must
            not depend on the data.
        sensitivity: what one record may change in the value: a sensitivity set, or a length. A
            function is called with the arguments, for a sensitivity that is one of them.
        scale: standard deviation or scale of the noise, which must not depend on the data; also as
            a function of the arguments.
        kind: name of the mechanism. For ``"gaussian"`` and ``"laplace"`` with a scale and a length,
            the loss is known, so that `replay` can compare a claim with it.
        norm: exponent of the norm of a length, by default 1 for ``"laplace"`` and 2 otherwise.

    **Guarantee**: outside of a replay the function is called as it is.

    Example:
        >>> import numpy as np
        >>> from taut.audit import recorded, replay
        >>> draw = np.random.default_rng()
        >>> @recorded(sensitivity=1.0, scale=2.0, kind="laplace")
        ... def noisy(value):
        ...     return value + draw.laplace(0.0, 2.0)
        >>> ages = [31.0, 47.0, 25.0]
        >>> replay(lambda rows: noisy(sum(rows)), ages, ages[:-1], crafted=True).passed
        False
        >>> replay(lambda rows: noisy(sum(min(x, 1.0) for x in rows)), ages, ages[:-1]).passed
        True
    """
    if function is None:
        return lambda given: recorded(
            given, sensitivity=sensitivity, scale=scale, kind=kind, norm=norm
        )
    if not callable(function):
        raise validate.WrongType(f"function must be callable, got function={function!r}")
    order = KINDS.get(kind, 2.0) if norm is None else validate.positive(norm=norm)
    called = function

    @wraps(called)
    def wrapped(value: Any, *arguments: Any, **named: Any) -> Any:
        recorder = active()
        if recorder is None:
            return called(value, *arguments, **named)

        def told(setting: object) -> object:
            known = not callable(setting)
            return setting if known else setting(value, *arguments, **named)  # type: ignore[operator]

        others = _plain({**dict(enumerate(arguments, 2)), **named})
        release = foreign_release(kind, value, told(sensitivity), told(scale), order, others)
        return recorder.release(lambda: called(value, *arguments, **named), release, None)

    return wrapped


def _plain(arguments: Mapping[Any, Any]) -> dict[str, Any]:
    """Return those that are numbers, arrays or text: what a function adds may depend on them."""
    return {
        f"argument {name}": np.array(given) if isinstance(given, np.ndarray) else given
        for name, given in arguments.items()
        if isinstance(given, int | float | complex | str | bytes | np.generic | np.ndarray)
    }


def foreign_release(
    kind: str,
    value: Any,
    sensitivity: object,
    scale: object,
    norm: float,
    others: Mapping[str, Any] = types.MappingProxyType({}),
) -> Release:
    """Return what a replay is told of a release of another package."""
    bound = as_bound(sensitivity, norm)
    radius = getattr(bound, "radius", None)
    loss = None
    if kind in KINDS and norm == KINDS[kind] and radius and _is_number(scale):
        loss = _loss_of(kind, float(scale) / radius)  # type: ignore[arg-type]
    settings = {"scale": scale, "kind": kind, **labels(value), **others}
    return Release(
        kind, as_vector(value), bound, settings, loss=loss, resolution=FOREIGN_RESOLUTION
    )


def _loss_of(kind: str, multiplier: float) -> Callable[[], PrivacyLoss] | None:
    if not multiplier > 0:
        return None
    return lambda: gaussian(multiplier) if kind == "gaussian" else laplace(multiplier)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def as_vector(value: Any) -> Vector:
    """Return numbers, an array or tensors as one vector of doubles; complex ones as two each."""
    if isinstance(value, list | tuple) and value and hasattr(value[0], "detach"):
        return np.concatenate([as_vector(part) for part in value])
    if hasattr(value, "detach"):
        plain = value.detach().cpu().resolve_conj()
        value = (plain if plain.is_complex() else plain.double()).numpy()
    if isinstance(value, np.ma.MaskedArray):
        value = value.filled(0)
    try:
        if np.iscomplexobj(value):
            value = np.stack([np.real(value), np.imag(value)], axis=-1)
        return np.array(value, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise validate.WrongType(
            f"a value that gets noise must be made of numbers, got {type(value).__name__}"
        ) from None
