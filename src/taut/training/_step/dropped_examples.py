"""Examples whose gradient is not finite: they count for nothing, and their owner is told."""

from __future__ import annotations

import logging

__all__ = ["warn_of_dropped"]

_LOG = logging.getLogger(__name__)


def warn_of_dropped(before: int, now: int) -> int:
    """Return how many were dropped in all, after a word about the first ones of a run."""
    if now and not before:
        _LOG.warning(
            "%d examples of a batch had gradients that are not finite and contributed nothing; "
            "later ones are counted silently. The count depends on the data; do not publish it",
            now,
        )
    return before + now
