"""Rows of a log of steps in a file: whole ones, in the order of the steps that a run still has."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["StepRows"]


class StepRows:
    """A file of comma-separated values with a column `step`.

    Args:
        path: the file; it need not exist.

    Raises:
        ValueError: if the file is something else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns = self._header()

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row, with those of its values that the file has a column for."""
        is_new = self._columns is None
        if self._columns is None:
            self._columns = list(row)
        with self._path.open("a", newline="") as file:
            writer = csv.DictWriter(file, self._columns, extrasaction="ignore")
            if is_new:
                writer.writeheader()
            writer.writerow(row)

    def last(self) -> dict[str, str] | None:
        """Return the last row, None if there is none."""
        if self._columns is None:
            return None
        rows = self._path.read_bytes().splitlines()
        return None if len(rows) < 2 else self._values(rows[-1])

    def drop_after(self, step: int) -> None:
        """Cut off the last rows, as far as they are about later steps or were not written whole.

        Rows of an earlier run in the same file stay: there the steps are higher again.
        """
        if self._columns is None:
            return
        content = self._path.read_bytes()
        lines = content.splitlines(keepends=True)
        if not lines[-1].endswith(b"\n"):
            del lines[-1]
        above = math.inf
        while len(lines) > 1 and step < (found := self._step(lines[-1])) < above:
            above = found
            del lines[-1]
        kept = sum(map(len, lines))
        if kept < len(content):
            os.truncate(self._path, kept)

    def _header(self) -> list[str] | None:
        if not self._path.exists() or not self._path.stat().st_size:
            return None
        with self._path.open(newline="") as file:
            columns = next(csv.reader(file), [])
        if "step" not in columns:
            raise ValueError(
                f"{os.fspath(self._path)!r} is no log of steps: it has no column 'step'; give "
                "another path"
            )
        return columns

    def _values(self, line: bytes) -> dict[str, str]:
        assert self._columns is not None
        (values,) = csv.reader(io.StringIO(line.decode()))
        return dict(zip(self._columns, values, strict=False))

    def _step(self, line: bytes) -> float:
        """Return the step that a row is about; an unreadable one is left where it is."""
        try:
            return int(self._values(line)["step"])
        except (KeyError, ValueError):
            return -math.inf
