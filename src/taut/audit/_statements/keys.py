"""Keys that a statement has and that nothing is known about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from taut._base import spelling

__all__ = ["free_words", "misspelt", "nearest", "not_checked", "odd_versions", "unknown"]

_LIKE = 0.8  # a share of letters in common: "adjacancy" is meant to be "adjacency", "unit" nothing
_PACKAGES = ("taut", "python", "torch", "numpy")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*[a-z0-9.+-]{0,40}", re.ASCII)


def nearest(key: object, known: Iterable[str]) -> str | None:
    """Return the known key that was meant, if one is spelt much like it."""
    return spelling.nearest(key, known, like=_LIKE)


def misspelt(data: Mapping[str, Any], known: Iterable[str], where: str = "it") -> list[str]:
    """Return a sentence for every unknown key that is spelt much like a known one."""
    return [
        f"{where} has the unknown key {key!r}; did you mean {near!r}?"
        for key in data
        if key not in known and (near := nearest(key, known)) is not None
    ]


def unknown(data: Any, known: Iterable[str], where: str) -> list[str]:
    """Return a sentence for every key of an object that no version of taut writes."""
    if not isinstance(data, Mapping):
        return []
    rest = [
        f"{where} has the unknown key {key!r}, which was not checked"
        for key in data
        if key not in known and nearest(key, known) is None
    ]
    return misspelt(data, known, where) + rest


def not_checked(data: Mapping[str, Any], known: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence with the keys that no check has looked at, if there are any."""
    others = [repr(k) for k in data if k not in known and nearest(k, known) is None]
    return (f"not checked: {', '.join(others)}",) if others else ()


def odd_versions(versions: Any) -> bool:
    """Say whether something else than versions of the packages that taut records is in their place.

    Whatever else stands there is text of whoever wrote the file, and may claim anything.
    """
    named = versions if isinstance(versions, Mapping) else {"taut": versions}
    return not all(
        name in _PACKAGES and isinstance(version, str) and _VERSION.fullmatch(version)
        for name, version in named.items()
    )


def free_words(data: Mapping[str, Any]) -> list[str]:
    """Return a doubt about words that no version of taut wrote, and no program can read."""
    if not data.get("statement"):
        return []
    return [
        "not checked: 'statement' is free text, which may claim anything; only words that taut "
        "wrote for a training result are compared. Leave it out, and let the numbers speak"
    ]
