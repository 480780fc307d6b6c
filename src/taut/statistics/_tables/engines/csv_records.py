"""Records of CSV files, told apart exactly: what one of them holds changes no other.

Fast readers find the ends of records by counting quotes. A lone one, as in ``5" pipe``, makes them
miss all that follows up to the next: one record then hides many others. Here a quote opens a text
only where a field begins, and stands for itself anywhere else; such records are written anew, with
the quotes that CSV wants, before an engine sees them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from taut.statistics._tables.engines.source import Unreadable

__all__ = ["blocks_of_records", "header_of"]

_BYTES = 1 << 24  # read at a time
_LONGEST = 1 << 28  # of a record in bytes: beyond it a text is taken as one that never ends
_MARK = b"\xef\xbb\xbf"  # with which some programs begin files in UTF-8

# Possessive: a text that was not closed must not be closed at one of its double quotes.
_QUOTED = rb'"(?:[^"]|"")*+"'
_FIELD = rb'(?:%b|[^",\r\n]*)' % _QUOTED
_WELL_FORMED = re.compile(rb"%b(?:,%b)*+\r?(?=\n|\Z)" % (_FIELD, _FIELD))
_TEXT = re.compile(_QUOTED)
_REST = re.compile(rb"[^,\n]*")


def header_of(path: Path) -> bytes:
    """Return the first line that is not empty; nothing behind it is looked at.

    Raises:
        Unreadable: if a name begins with a quote that is not closed, or holds the end of a line.
    """
    with path.open("rb") as file:
        line = _header_line(file).removeprefix(_MARK).rstrip(b"\r\n")
    if b"\r" in line:  # names are shown, and these would hold records
        raise Unreadable(
            "could not read the table: lines must end with a line feed, and the first one holds "
            "carriage returns alone; write the file with the ends of lines of Unix or Windows"
        )
    return _one_record(line, 0, is_last=True)[0]


def blocks_of_records(path: Path) -> Iterator[bytes]:
    """Yield whole records, some megabytes at a time, in which all quotes are where CSV has them.

    Raises:
        Unreadable: if a field begins with a quote that is never closed.
    """
    with path.open("rb") as file:
        _header_line(file)
        left, is_last = b"", False
        while not is_last:
            read = file.read(_BYTES)
            is_last = not read
            block, left = _split(left + read, is_last=is_last)
            if len(left) > _LONGEST:
                raise _unclosed()
            if block:
                yield block


def _header_line(file: IO[bytes]) -> bytes:
    return next((line for line in file if line.removeprefix(_MARK).strip(b"\r\n")), b"")


def _split(data: bytes, *, is_last: bool) -> tuple[bytes, bytes]:
    """Return the whole records of some bytes, and what is left of them."""
    pieces: list[bytes] = []
    start = 0  # of what is not among the pieces yet
    at = 0  # of a record
    while (quote := data.find(b'"', at)) >= 0:
        # There are no quotes in between, so that every line is a record.
        begin = max(data.rfind(b"\n", at, quote) + 1, at)
        whole = _WELL_FORMED.match(data, begin)
        if whole is not None and (whole.end() < len(data) or is_last):
            at = min(whole.end() + 1, len(data))
            continue
        record, end = _one_record(data, begin, is_last=is_last)
        if end < 0:
            return b"".join([*pieces, data[start:begin]]), data[begin:]
        pieces += [data[start:begin], record]
        start = end
        at = min(end + 1, len(data))
    end = len(data) if is_last else max(data.rfind(b"\n", at) + 1, at)
    return b"".join([*pieces, data[start:end]]), data[end:]


def _one_record(data: bytes, at: int, *, is_last: bool) -> tuple[bytes, int]:
    """Return a record as it should have been written, and its end; -1 if it goes on behind."""
    fields = []
    while True:
        field, at = _one_field(data, at, is_last=is_last)
        if at < 0 or (at == len(data) and not is_last):
            return b"", -1
        fields.append(field)
        if data[at : at + 1] != b",":
            return b",".join(fields), at
        at += 1


def _one_field(data: bytes, at: int, *, is_last: bool) -> tuple[bytes, int]:
    """Return a field as it should have been written, and its end; -1 if it goes on behind."""
    text = _TEXT.match(data, at)
    if text is None and data.startswith(b'"', at):
        if is_last:
            raise _unclosed()
        return b"", -1
    rest = _REST.match(data, at if text is None else text.end())
    assert rest is not None  # it may be empty
    own, end = rest.group(), rest.end()
    own, ending = (own[:-1], b"\r") if _ends_a_line(own, data, end) else (own, b"")
    if text is None and b'"' not in own:
        return own + ending, end
    inner = b"" if text is None else text.group()[1:-1]
    return b'"%b%b"%b' % (inner, own.replace(b'"', b'""'), ending), end


def _ends_a_line(own: bytes, data: bytes, end: int) -> bool:
    return own.endswith(b"\r") and data[end : end + 1] != b","


def _unclosed() -> Unreadable:
    return Unreadable(
        "could not read the table: a field begins with a quote and never ends; texts with quotes, "
        "commas or several lines need a quote at both ends, and two for every one inside"
    )
