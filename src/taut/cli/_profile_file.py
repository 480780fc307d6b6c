"""Reads what one record can change from a file: CSV for a profile, JSON for any set."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from taut import noise
from taut._base.json_numbers import parsed_json
from taut._base.spelling import did_you_mean

__all__ = ["Profile", "read_profile"]


def _ranges(ranges: Any, centred: bool = False, **said: Any) -> noise.SensitivitySet:
    found = noise.Ranges(ranges, **said)
    return found.centred() if centred else found


_KINDS: Mapping[str, tuple[Callable[..., noise.SensitivitySet], tuple[str, ...]]] = {
    "widths": (noise.Box, ("widths", "l2", "l1", "allow_zero")),
    "ranks": (noise.Blocks, ("ranks", "l2", "linf", "cap", "allow_zero")),
    "radii": (noise.LpIntersection, ("dimension", "radii")),
    "vectors": (noise.FiniteSet, ("vectors",)),
    "cells": (noise.Histogram, ("cells", "per_record")),
    "ranges": (_ranges, ("ranges", "centred")),
}
_SHAPES: Mapping[str, Mapping[str, int]] = {
    "widths": {"widths": 1, "l2": 0, "l1": 0},
    "ranks": {"ranks": 1, "l2": 1, "linf": 1, "cap": 0},
    "radii": {"dimension": 0},
    "vectors": {"vectors": 2},
    "cells": {"per_record": 0},
    "ranges": {"ranges": 2},
}
"""How deep numbers lie in lists, by kind and key."""
_BESIDE = ("names", "weights", "adjacency", "source")


@dataclass(frozen=True)
class Profile:
    """A sensitivity set, and what the file says about its coordinates.

    Attributes:
        sensitivity: the set.
        names: names of the coordinates, or None.
        weights: their importance, or None.
    """

    sensitivity: noise.SensitivitySet
    names: Sequence[str] | None = None
    weights: Sequence[float] | None = None


def read_profile(path: Path) -> Profile:
    """Return the set that a file describes.

    A CSV file has one row per coordinate: a column ``width``, or ``lower`` and ``upper``, and
    ``name`` and ``weight`` if there are any; or no header and one number per row. A JSON file holds
    a list of widths, or an object with ``widths`` (``l2``, ``l1``), ``ranges`` (``centred``),
    ``cells`` (``per_record``), ``ranks`` and ``l2`` (``linf``, ``cap``), ``radii`` and
    ``dimension``, or ``vectors``; ``names``, ``weights``, ``adjacency`` and ``source`` beside them.
    Widths and ranges can be objects, with names as keys, and cells a list of names; ``parts`` is a
    list of such objects, one for every statistic.

    Raises:
        ValueError: if the file is neither, naming the line or key.
        OSError: if it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8: {error}") from None
    if path.suffix.lower() == ".json":
        return _from_json(text, path)
    return _from_csv(text.splitlines(), path)


def _from_json(text: str, path: Path) -> Profile:
    try:
        data = parsed_json(text)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if isinstance(data, list):
        data = {"widths": data}
    if not isinstance(data, dict):
        raise ValueError(f"{path} must hold a list of widths or an object, got {data!r}")
    if "weights" in data:
        _check_numbers(data["weights"], 1, f"{path}: weights")
    if not isinstance(data.get("names", []), list):
        raise ValueError(f"{path}: names must be a list, got {data['names']!r}")
    sensitivity = _product(data, path) if "parts" in data else _one_set(data, path)
    names = data.get("names", sensitivity.columns)
    return _named(Profile(sensitivity, names, data.get("weights")), path)


def _product(data: Mapping[str, Any], path: Path) -> noise.SensitivitySet:
    _check_keys(data, ("parts", "names", "weights"), path)
    parts = data["parts"]
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"{path}: parts must be a list of objects, got {parts!r}")
    try:
        return noise.Product(*(_one_set(part, path) for part in parts))
    except ValueError as error:
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def _one_set(data: Mapping[str, Any], path: Path) -> noise.SensitivitySet:
    kinds = [kind for kind in _KINDS if kind in data]
    if len(kinds) != 1:
        listed = ", ".join(_KINDS)
        raise ValueError(f"{path} must have exactly one of the keys {listed}, or parts")
    make, known = _KINDS[kinds[0]]
    _check_keys(data, (*known, *_BESIDE), path)
    for key, depth in _SHAPES[kinds[0]].items():
        if key in data:
            named = key in ("widths", "ranges") and isinstance(data[key], dict)
            numbers = list(data[key].values()) if named else data[key]
            _check_numbers(numbers, depth, f"{path}: {key}")
    arguments: dict[str, Any] = {
        key: value for key, value in data.items() if key in (*known, "adjacency", "source")
    }
    if "radii" in arguments:
        if not isinstance(arguments["radii"], dict):
            raise ValueError(f"{path}: radii must map exponents to bounds, such as {{'2': 1.0}}")
        arguments["radii"] = _radii(arguments["radii"], path)
    try:
        return make(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def _check_numbers(value: object, depth: int, where: str) -> None:
    """Raise unless there are numbers, so deep in lists of which those of a table are alike."""
    if depth == 0:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{where} must be a number, got {value!r}")
        return
    if not isinstance(value, list) or not value:
        raise ValueError(f"{where} must be a list that is not empty, got {value!r}")
    for place, entry in enumerate(value):
        _check_numbers(entry, depth - 1, f"{where}[{place}]")
        if depth > 1 and len(entry) != len(value[0]):
            raise ValueError(
                f"{where}[{place}] must have {len(value[0])} numbers as the first row has, "
                f"got {len(entry)}"
            )


def _radii(radii: Mapping[str, object], path: Path) -> dict[float, object]:
    for exponent, bound in radii.items():
        if not _is_number(exponent):
            raise ValueError(f"{path}: radii must have exponents as keys, got {exponent!r}")
        _check_numbers(bound, 0, f"{path}: radii[{exponent!r}]")
    return {float(exponent): bound for exponent, bound in radii.items()}


def _check_keys(data: Mapping[str, object], known: Sequence[str], path: Path) -> None:
    for key in data:
        if key not in known:
            hint = did_you_mean(key, known, otherwise=True)
            raise ValueError(f"{path} has an unknown key {key!r}{hint}")


def _from_csv(lines: Sequence[str], path: Path) -> Profile:
    rows = [row for row in csv.reader(lines) if any(cell.strip() for cell in row)]
    if not rows:
        raise ValueError(f"{path} is empty; it needs one row per coordinate")
    header = [cell.strip().lower() for cell in rows[0]]
    if not ("width" in header or {"lower", "upper"} <= set(header)):
        if len(header) != 1 or not _is_number(header[0]):
            raise ValueError(
                f"{path} needs a column 'width', or 'lower' and 'upper', in its first row, or one "
                f"number per row, got {rows[0]}"
            )
        header = ["width"]
        rows.insert(0, header)
    if "width" in header and {"lower", "upper"} & set(header):
        raise ValueError(f"{path} has columns 'width' and 'lower' or 'upper'; leave one out")
    columns = {
        name: [_cell(row, header.index(name), line, path) for line, row in enumerate(rows[1:], 2)]
        for name in ("width", "lower", "upper", "name", "weight")
        if name in header
    }
    numbers: dict[str, list[float]] = {
        name: [_number(cell, name, line, path) for line, cell in enumerate(columns[name], 2)]
        for name in columns
        if name != "name"
    }
    profile = Profile(_of_columns(numbers, path), columns.get("name"), numbers.get("weight"))
    return _named(profile, path)


def _of_columns(numbers: Mapping[str, Sequence[float]], path: Path) -> noise.SensitivitySet:
    if "width" in numbers:
        return noise.Box(numbers["width"])
    try:
        return noise.Ranges(list(zip(numbers["lower"], numbers["upper"], strict=True)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _cell(row: Sequence[str], place: int, line: int, path: Path) -> str:
    if place >= len(row):
        raise ValueError(f"{path}, row {line}, has {len(row)} cells where {place + 1} are needed")
    return row[place].strip()


def _number(cell: str, name: str, line: int, path: Path) -> float:
    if not _is_number(cell):
        raise ValueError(f"{path}, row {line}: {name} must be a number, got {cell!r}")
    return float(cell)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _named(profile: Profile, path: Path) -> Profile:
    """Check that the names fit the coordinates."""
    if profile.names is None:
        return profile
    if len(profile.names) != profile.sensitivity.dimension:
        raise ValueError(
            f"{path} has {len(profile.names)} names for {profile.sensitivity.dimension} coordinates"
        )
    return replace(profile, names=[str(name) for name in profile.names])
