"""Losses as JSON, so that an epsilon can be recomputed years later."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from taut._base import validate
from taut._base.json_numbers import parsed_json
from taut.accounting._adjacency import Adjacency
from taut.accounting._releases.release import Release

__all__ = ["SCHEMA", "decode", "dumps", "encode", "loads"]

SCHEMA = "taut.privacy-loss/1"


def encode(adjacency: Adjacency, terms: Iterable[tuple[Release, int]]) -> dict[str, Any]:
    """Return a JSON-ready description of a sum of releases."""
    return {
        "schema": SCHEMA,
        "adjacency": str(adjacency),
        "terms": [{"count": count, "release": _encode(release)} for release, count in terms],
    }


def decode(data: Mapping[str, Any]) -> tuple[Adjacency, list[tuple[Release, int]]]:
    """Return the relation and the terms described by ``data``.

    Raises:
        ValueError: if the schema, a kind or a field is unknown or missing.
    """
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
        raise ValueError(f"not a privacy loss: expected schema {SCHEMA!r}, got {found!r}")
    try:
        adjacency = Adjacency(data["adjacency"])
        terms = [
            (_decode(term["release"]), validate.integer(count=term["count"]))
            for term in data["terms"]
        ]
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"malformed privacy loss: {error!r}") from None
    except RecursionError:
        raise ValueError("malformed privacy loss: releases are nested too deeply") from None
    return adjacency, terms


def dumps(data: Mapping[str, Any]) -> str:
    """Return indented JSON text."""
    return json.dumps(data, indent=2)


def loads(text: str) -> Any:
    """Return parsed JSON, or a ``ValueError`` that says where it breaks."""
    return parsed_json(text)


def _encode(release: Release) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": release.kind}
    for field in fields(release):
        data[field.name] = _plain(getattr(release, field.name))
    return data


def _plain(value: Any) -> Any:
    """Return a field as JSON has it: releases as objects, also inside of tuples."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return _encode(value) if isinstance(value, Release) else value


def _decode(data: Mapping[str, Any]) -> Release:
    kind = data["kind"]
    kinds = Release.kinds()
    if kind not in kinds:
        raise ValueError(f"unknown release kind {kind!r}; known: {', '.join(sorted(kinds))}")
    values = {name: _frozen(value) for name, value in data.items() if name != "kind"}
    return kinds[kind](**values)


def _frozen(value: Any) -> Any:
    """Return a field as a release has it, the inverse of ``_plain``."""
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return _decode(value) if isinstance(value, Mapping) else value
