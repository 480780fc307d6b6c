"""Plain tables: aligned for a terminal, valid as Markdown."""

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Row = dict[str, object]


@dataclass
class Table:
    """Rows of one comparison, and how its columns are headed and written."""

    key: str
    title: str
    columns: dict[str, tuple[str, Callable[[object], str]]]
    rows: list[Row]
    note: str = ""

    def __str__(self) -> str:
        """Return title, note and aligned rows."""
        head = [title for title, _ in self.columns.values()]
        body = [
            [self._cell(row.get(name), write) for name, (_, write) in self.columns.items()]
            for row in self.rows
        ]
        for line, before in itertools.pairwise(reversed(body)):  # name each group once
            line[0] = "" if line[0] == before[0] else line[0]
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
        lines = [head, ["-" * width for width in widths], *body]
        text = "\n".join(
            "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
            for line in lines
        )
        return "\n\n".join(part for part in (f"## {self.title}", self.note, text) if part)

    @staticmethod
    def _cell(value: object, write: Callable[[object], str]) -> str:
        return "" if value is None else write(value)


def epsilon(value: float) -> str:
    return f"{value:.8g}"


def relative(value: float) -> str:
    return f"{value:+.1e}" if math.isfinite(value) else "inf"


def gap(value: float) -> str:
    return f"{value:.1e}"


def seconds(value: float) -> str:
    return f"{value:.4f}" if value < 1 else f"{value:.2f}"


def ratio(value: float) -> str:
    return f"{value:.1f}x" if value < 100 else f"{value:.0f}x"


def megabytes(value: float) -> str:
    return f"{value:.0f}"


def yes_no(value: bool) -> str:
    return "yes" if value else "**no**"


def write_part(page: Path, part: str, text: str) -> None:
    """Write the part of a page that one benchmark makes, and keep those of the others."""
    mark = "<!-- written by benchmarks/{}.py -->\n"
    pieces = re.split(mark.format(r"(\w+)"), page.read_text()) if page.exists() else [""]
    parts = dict(zip(pieces[1::2], pieces[2::2], strict=True)) | {part: text}
    marked = (f"{mark.format(name)}\n{body.strip()}\n" for name, body in parts.items())
    page.write_text("\n".join(marked))
