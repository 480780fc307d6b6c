"""Lines that name what came before them: a change of one shows in all that follow.

The hash of a line is SHA-256 over the hash of the line before it and its own content. The first
line holds the plan, so every hash is tied to it. Without a secret a chain is no seal: whoever can
rewrite the whole file can compute all hashes again. It shows accidents, edits of single lines, and
files that were mixed up; and a hash that was published, or is in a checkpoint, fixes every line up
to it for whoever has kept it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from taut._base.json_numbers import parsed_json

__all__ = ["HASH", "hash_after", "hashes", "parsed"]

HASH = "sha256"
"""The name under which a line holds its own hash."""

_DOMAIN = "taut.run-ledger"  # hashes of other things that are JSON mean nothing here


def hash_after(before: str | None, entry: Mapping[str, Any]) -> str:
    """Return the hash of a line.

    Args:
        before: hash of the line before it; None for the first.
        entry: content of the line; a hash in it does not count.

    The content counts, not its spaces or the order of its names, which some tools change.
    """
    content = {name: value for name, value in entry.items() if name != HASH}
    text = json.dumps([_DOMAIN, before, content], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def parsed(line: bytes) -> Mapping[str, Any] | None:
    """Return the object in a line, None if it was cut off."""
    try:
        entry = parsed_json(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def hashes(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield the hash of every line that can be read, whether the line holds it or not."""
    before: str | None = None
    for line in lines:
        entry = parsed(line)
        if entry is not None:
            before = hash_after(before, entry)
            yield before
