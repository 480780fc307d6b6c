"""Tables of a configuration as dataclasses: which keys there are, and what they may hold."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from taut._base.spelling import did_you_mean

__all__ = ["check_key", "mistakes_in", "read_table", "toml_text"]

Section = TypeVar("Section")

_WORDS: Mapping[Any, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    tuple: "a list",
    list: "a list",
    dict: "a table",
}


@contextmanager
def mistakes_in(file: Path) -> Iterator[None]:
    """Name the file of TOML in whatever is wrong with it.

    Raises:
        ValueError: for a file that is no text in UTF-8, no TOML, or is refused within.
    """
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not a text in UTF-8: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: not valid TOML: {error}") from None
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def read_table(section: type[Section], table: object, where: str) -> Section:
    """Return the dataclass `section` with the values of a table.

    Args:
        section: a frozen dataclass; its annotations say what a key may hold, `choices` in the
            metadata of a field which strings, and its `__post_init__` checks values.
        table: table from TOML.
        where: how messages call the table.

    Raises:
        ValueError: for an unknown or missing key, or a value of the wrong type.
    """
    if not isinstance(table, Mapping):
        raise ValueError(f"{where} must be a table, got {table!r}")
    hints = get_type_hints(section.__init__)  # its globals are those of the defining module
    known = {field.name: field for field in fields(section)}  # type: ignore[arg-type]
    values = {}
    for key, value in table.items():
        check_key(key, known, where)
        values[key] = _checked(value, hints[key], f"{where} {key}")
        choices = known[key].metadata.get("choices")
        if choices is not None and value not in choices:
            raise ValueError(
                f"{where} {key} must be one of {', '.join(choices)}, got {value!r}"
                f"{did_you_mean(value, choices)}"
            )
    for name, field in known.items():
        if name not in values and field.default is field.default_factory is MISSING:
            choices = " or ".join(repr(choice) for choice in field.metadata.get("choices", ()))
            raise ValueError(f"{where} needs the key {name!r}{choices and ': ' + choices}")
    try:
        return section(**values)
    except ValueError as error:
        raise ValueError(f"{where} {error}") from None


def check_key(key: str, known: Iterable[str], where: str) -> None:
    """Refuse a key that is not among the known ones, and name the one that was meant.

    Raises:
        ValueError: with the nearest known key, or with all of them.
    """
    names = list(known)
    if key in names:
        return
    meant = did_you_mean(key, names, otherwise=True)
    raise ValueError(f"{where} has the unknown key {key!r}{meant}")


def _checked(value: object, hint: Any, where: str) -> object:
    """Return a value as its annotation has it: integers as floats, lists as tuples."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for kind in kinds:
        plain = get_origin(kind) or kind
        if plain is float and isinstance(value, int) and not isinstance(value, bool):
            return _as_float(value, where)
        if plain is tuple and isinstance(value, list):
            (item, _) = get_args(kind)
            return tuple(_checked(one, item, f"{where}[{i}]") for i, one in enumerate(value))
        if isinstance(value, plain) and (plain is bool or not isinstance(value, bool)):
            return value
    words = " or ".join(_WORDS[get_origin(k) or k] for k in kinds if k is not NoneType)
    quoted = isinstance(value, str) and not {int, float}.isdisjoint(kinds)
    remedy = "; write it without quotes" if quoted else ""
    raise ValueError(f"{where} must be {words}, got {value!r}{remedy}")


def _as_float(value: int, where: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{where} must be within the range of floats, got a larger one") from None


def toml_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return tables as TOML; what is None is left out."""
    parts = []
    for name, table in tables.items():
        rows = [
            f"{_toml_key(key)} = {_toml(value)}"
            for key, value in table.items()
            if value is not None
        ]
        parts.append("\n".join([f"[{name}]", *rows]))
    return "\n\n".join(parts) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")  # a JSON string is one of TOML
    if isinstance(value, Mapping):
        rows = (f"{_toml_key(key)} = {_toml(item)}" for key, item in value.items())
        return "{" + ", ".join(rows) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    raise ValueError(f"TOML cannot hold {value!r}; write a string, number, list or table")


def _toml_key(key: str) -> str:
    is_bare = key.replace("-", "").replace("_", "").isalnum() and key.isascii()
    return key if is_bare else json.dumps(key)
