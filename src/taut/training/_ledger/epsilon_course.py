"""The epsilon of a run while it goes on: an upper bound at every step, computed at a few."""

from __future__ import annotations

from taut.training._ledger.history import RunHistory
from taut.training._ledger.ledger import RunLedger

__all__ = ["EpsilonCourse"]

_DIGITS = 3  # binary ones: a count is rounded up by less than a quarter, epsilon by about half that


class EpsilonCourse:
    """Bounds what a run has spent after any of its steps, without an accountant in each of them.

    Args:
        ledger: ledger of the run; it says how many steps count, and how many may.
        delta: probability delta of the bounds.

    Counts are rounded up to three binary digits (1 to 8, 10, 12, 14, 16, 20, ...), and epsilon is
    computed there when the run gets near: about four times for every doubling of the steps, 47
    times in 10,000.

    **Guarantee**: `now` is a certified upper bound on epsilon for all steps that the ledger counts,
    since more steps cost no less; it never falls, and where no further step is allowed it is the
    one that `TrainingResult` states. As for every epsilon of a run that goes on, it is for a
    length that was fixed in advance.
    """

    def __init__(self, ledger: RunLedger, delta: float) -> None:
        self._ledger = ledger
        self._delta = delta
        self._counted = -1
        self._segments = 0
        self._bound = 0.0
        self._last: float | None = None

    def now(self) -> float:
        """Return an upper bound for the steps that were counted so far."""
        history, most = self._ledger.history, self._ledger.most_steps
        taken = history.segments[-1].steps
        if len(history.segments) != self._segments:  # counts begin anew
            self._segments, self._counted, self._last = len(history.segments), -1, None
        if taken > self._counted:
            self._counted = _rounded_up(taken, most)
            self._bound = max(self._bound, self._bound_at(history, self._counted))
        if most is None:
            return self._bound
        if self._last is None:
            self._last = self._bound_at(history, max(most, taken))
        # What bounds the whole run bounds every part of it.
        return self._last if taken >= most else min(self._bound, self._last)

    def _bound_at(self, history: RunHistory, count: int) -> float:
        ahead = history.counted(count - history.segments[-1].steps)
        return ahead.loss.epsilon_bounds(self._delta).upper


def _rounded_up(count: int, most: int | None) -> int:
    """Return the next count with few binary digits, or all steps if that is beyond them."""
    unit = 1 << max(count.bit_length() - _DIGITS, 0)
    up = -(-count // unit) * unit
    return up if most is None else max(min(up, most), count)
