"""What was meant by a word that is not known: one rule for keys, names and options."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]

_LIKE = 0.6  # of letters in common: generous, for a hint beside a refusal


def nearest(word: object, known: Iterable[str], *, like: float = _LIKE) -> str | None:
    """Return the known word that is spelt most like another one, None if none is near.

    Args:
        word: what was written.
        known: the words that it may stand for.
        like: the least share of letters in common, in [0, 1].
    """
    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=like)
    return close[0] if close else None


def did_you_mean(word: object, known: Iterable[str], *, otherwise: bool = False) -> str:
    """Return "; did you mean ...?" for the end of a refusal, or nothing if no known word is near.

    Args:
        word: what was written.
        known: the words that it may stand for.
        otherwise: whether all known words are named if none is near.
    """
    names = list(known)
    found = nearest(word, names)
    if found is not None:
        return f"; did you mean {found!r}?"
    return f"; known are {', '.join(names) or 'none'}" if otherwise else ""
