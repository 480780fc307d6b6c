"""A report as headings and blocks, written out as HTML and as Markdown from one source.

Text is marked up as in Markdown, and with very little of it: a backslash takes the next character
as it is, `code`, and **strong**. Words of users pass through :func:`plain` first, so that they can
say nothing but themselves.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = [
    "Block",
    "Cards",
    "Code",
    "Items",
    "Notice",
    "Paragraph",
    "Plot",
    "Section",
    "Table",
    "code",
    "inline_html",
    "markdown_of",
    "plain",
    "unmarked",
]


@dataclass(frozen=True)
class Paragraph:
    """Text."""

    text: str


@dataclass(frozen=True)
class Notice:
    """A warning that nobody should overlook."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Cards:
    """Few numbers, large: (label, value, what it means)."""

    cards: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Code:
    """Lines to copy."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows under a header; the first column names the row.

    Attributes:
        caption: what the table is about.
        header: names of columns.
        rows: cells, as many in each as in the header.
        numeric: columns that hold numbers.
        is_folded: whether readers have to ask for it.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    is_folded: bool = False


@dataclass(frozen=True)
class Plot:
    """A picture, drawn when it is needed, and what it shows for those who cannot see it."""

    name: str
    draw: Callable[[], str]
    alt: str
    caption: str


Block: TypeAlias = Paragraph | Notice | Items | Cards | Code | Table | Plot


@dataclass(frozen=True)
class Section:
    """A heading with what belongs to it."""

    id: str
    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)
    parts: Sequence[Section] = field(default_factory=tuple)


_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&]|^[-+=])")
_MARKUP = re.compile(r"\\(.)|`([^`]*)`|\*\*(.+?)\*\*")


def plain(text: str) -> str:
    """Return words of a user as text without markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(text: object) -> str:
    """Return a value as code; a backtick inside would end it."""
    return f"`{str(text).replace('`', chr(39))}`"


def inline_html(text: str) -> str:
    """Return marked-up text as HTML."""
    parts, end = [], 0
    for match in _MARKUP.finditer(text):
        parts.append(html.escape(text[end : match.start()]))
        literal, quoted, strong = match.groups()
        if literal is not None:
            parts.append(html.escape(literal))
        elif quoted is not None:
            parts.append(f"<code>{html.escape(quoted)}</code>")
        else:
            parts.append(f"<strong>{inline_html(strong)}</strong>")
        end = match.end()
    return "".join([*parts, html.escape(text[end:])])


def unmarked(text: str) -> str:
    """Return marked-up text without its markup."""
    return _MARKUP.sub(lambda m: m[1] or m[2] or (unmarked(m[3]) if m[3] else ""), text)


def markdown_of(sections: Sequence[Section], level: int = 2) -> str:
    """Return sections as Markdown; pictures are replaced by what they show."""
    parts = []
    for section in sections:
        parts.append(f"{'#' * level} {section.title}")
        parts += [_markdown(block) for block in section.blocks]
        if section.parts:
            parts.append(markdown_of(section.parts, level + 1))
    return "\n\n".join(part for part in parts if part)


def _markdown(block: Block) -> str:
    match block:
        case Paragraph(text):
            return text
        case Notice(text):
            return f"> **Take care.** {text}"
        case Items(texts):
            return "\n".join(f"- {text}" for text in texts)
        case Cards(cards):
            return "\n".join(f"- {label}: **{value}** ({note})" for label, value, note in cards)
        case Code(text):
            return f"```\n{text}\n```"
        case Plot():
            return block.alt
        case Table():
            return _markdown_table(block)


def _markdown_table(table: Table) -> str:
    rule = ["---:" if i in table.numeric else "---" for i in range(len(table.header))]
    lines = [_row(table.header), "| " + " | ".join(rule) + " |", *map(_row, table.rows)]
    return f"{table.caption}\n\n" + "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in cells) + " |"
