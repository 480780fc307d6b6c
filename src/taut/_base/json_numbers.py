"""JSON: numbers that it has no word for, and texts of strangers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["INFINITY", "json_numbers", "parsed_json"]

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


def parsed_json(
    text: str | bytes, hook: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """Return what JSON holds; whatever is wrong with it is a `ValueError` that says so.

    Args:
        text: text of anybody: cut off, nested without end, or with numbers of endless digits.
        hook: what makes an object of its pairs, by default a dictionary.
    """
    try:
        return json.loads(text, object_pairs_hook=hook)
    except RecursionError:
        raise ValueError("not valid JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from None
