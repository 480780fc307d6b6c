"""Files of strangers: read whole or refused, and never executed."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut._base.json_numbers import parsed_json
from taut.audit._settings.document import Document, Signature
from taut.audit._settings.source import read_source
from taut.audit._settings.tables import read_tables

__all__ = ["read_document"]

_MOST_BYTES = 1 << 20  # of one file: a long training script has a tenth of it
_DEEPEST = 40  # tables inside of tables, or events inside of events; real ones have about eight
_MAGIC = re.compile(r"\s*%%(\w*)")
_PYTHON = frozenset({"time", "timeit", "capture", "prun"})  # what notebooks run as Python
_KINDS = (
    ".py (read, never run), .ipynb, .json, .toml, and .txt with the text of a dp-accounting event"
)


def read_document(path: Path, known: Mapping[str, Signature]) -> Document:
    """Return what a file of settings holds.

    Args:
        path: a Python file, a notebook, JSON, TOML, or the text of an event.
        known: the functions and classes that are looked for, by name.

    Raises:
        OSError: if it cannot be opened.
        ValueError: if it is no regular file, too large, no text, or not well formed.
    """
    text = _text(path)
    kind = path.suffix.lower()
    if kind in (".yaml", ".yml"):
        raise ValueError(f"{path}: YAML is not read; write the same settings as JSON or TOML")
    if kind == ".toml":
        return read_tables(_toml(path, text), known, deepest=_DEEPEST)
    if kind in (".json", ".ipynb"):
        data = _json(path, text)
        if isinstance(data, Mapping) and isinstance(data.get("cells"), list):
            return read_source(_cells(data["cells"]), known, str(path), deepest=_DEEPEST)
        return read_tables(data, known, deepest=_DEEPEST)
    if kind in (".py", ".txt", ""):
        return read_source(text, known, str(path), deepest=_DEEPEST)
    raise ValueError(f"{path}: files that are read are {_KINDS}")


def _text(path: Path) -> str:
    # Without O_NONBLOCK a pipe would keep the reader waiting before it can be refused.
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise ValueError(f"{path} is no regular file")
        data = opened.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{path} has more than {_MOST_BYTES} bytes, the most that is read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8: {error}") from None
    if "\0" in text:
        raise ValueError(f"{path} is no text: it holds NUL bytes")
    return text


def _json(path: Path, text: str) -> Any:
    try:
        return parsed_json(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _toml(path: Path, text: str) -> Any:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"{path}: not valid TOML: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: not valid TOML: {error}") from None


def _cells(cells: list[Any]) -> str:
    """Return the code of a notebook, without what only notebooks understand."""
    lines: list[str] = []
    for cell in cells:
        if isinstance(cell, Mapping) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            parts = source if isinstance(source, list) else [source]
            code = "".join(part for part in parts if isinstance(part, str))
            if (cell_magic := _MAGIC.match(code)) is not None:
                code = code[cell_magic.end() :] if cell_magic[1] in _PYTHON else ""
                code = code.partition("\n")[2]
            lines += (_plain(line) for line in code.splitlines())
    return "\n".join(lines)


def _plain(line: str) -> str:
    inner = line.lstrip()
    if not inner.startswith(("%", "!")):
        return line
    word, _, rest = inner[1:].partition(" ")
    code = rest.lstrip() if word in _PYTHON and not rest.lstrip().startswith("-") else ""
    return line[: len(line) - len(inner)] + (code or "pass")
