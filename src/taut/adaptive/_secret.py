"""Quantities that depend on the data, and must not leave the process by accident."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

from taut.errors import UnsoundConfiguration

__all__ = ["Secret", "SecretState", "reveal"]

_T = TypeVar("_T")


class Secret(Generic[_T]):
    """A value that depends on the data: it can be handed on, but not shown, stored or compared.

    A loss at the data at hand, or how far the data are from a worse one, tells about the data as
    much as the data do. Neither ``print``, a log line, a format, a pickle, a copy, ``json``, a
    comparison, ``if`` nor a tool that lists attributes sees what is inside; mechanisms of this room
    do, and add noise.

    **Guarantee.** None: a secret has no privacy guarantee at all, which is why it is one. It
    guards against accidents, not against code that means to look.
    """

    __slots__ = ("__open",)

    def __init__(self, value: _T) -> None:
        """Hide a value.

        Args:
            value: the quantity that depends on the data.
        """
        # Behind a function: whoever walks through attributes, a debugger or a serialiser that
        # knows slots, finds no number.
        opened: Callable[[], _T] = lambda: value  # noqa: E731
        object.__setattr__(self, "_Secret__open", opened)

    def __repr__(self) -> str:
        return "Secret(depends on the data)"

    def __format__(self, _: str) -> str:
        return repr(self)

    def _refuse(self, *_: object) -> NoReturn:
        raise UnsoundConfiguration(
            "a secret depends on the data and has no guarantee: it cannot be stored, copied, "
            "compared or computed with; hand it to a mechanism, which adds noise"
        )

    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse
    __setattr__ = __delattr__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __bool__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __array__ = _refuse
    __contains__ = __getitem__ = __round__ = __bytes__ = __complex__ = _refuse
    __hash__ = _refuse

    def __init_subclass__(cls, **_: Any) -> NoReturn:
        raise TypeError("a secret is not subclassed: a subclass could show what is inside")


def reveal(secret: Secret[_T]) -> _T:
    """Return what a secret holds, for mechanisms that add noise to it."""
    opened: Callable[[], _T] = secret._Secret__open  # type: ignore[attr-defined]
    return opened()


class SecretState:
    """What answers with one secret draw: it is neither copied nor used in another process.

    Two of them would give answers of the same noise, twice as many as were paid for.
    """

    def __init__(self) -> None:
        """Note the process that made it."""
        self.__home = os.getpid()

    def _check_process(self) -> None:
        """Refuse to answer in a process that was forked from that of the draw."""
        if os.getpid() != self.__home:
            raise UnsoundConfiguration(
                "this sparse vector was made by another process: answers of both would share one "
                "noisy threshold. Make one in every process, at its own price"
            )

    def _refuse(self, *_: object) -> NoReturn:
        raise UnsoundConfiguration(
            "a sparse vector holds a secret threshold and spends one budget: it cannot be stored "
            "or copied; make another one, at its own price"
        )

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = _refuse
