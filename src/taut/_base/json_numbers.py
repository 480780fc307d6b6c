"""Numbers that JSON has no word for: infinities by name, and null for what is no number."""

from __future__ import annotations

import math
from collections.abc import Mapping

__all__ = ["INFINITY", "json_numbers"]

INFINITY = "Infinity"
"""How an infinite epsilon is written, and read."""


def json_numbers(data: object) -> object:
    """Return `data` with "Infinity" and null where JSON has no number, at any depth."""
    if isinstance(data, Mapping):
        return {key: json_numbers(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [json_numbers(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None if math.isnan(data) else INFINITY if data > 0 else f"-{INFINITY}"
    return data
