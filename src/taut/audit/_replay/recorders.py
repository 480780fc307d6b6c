"""The two runs of a replay: one that is recorded, one in which all that was released is frozen."""

from __future__ import annotations

import copy
import hashlib
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from taut.audit._replay.circumstances import set_state, set_states, state_of, states
from taut.noise.recording import Recorder, Release

__all__ = ["Diverged", "Entry", "FirstRun", "SecondRun", "frozen"]

T = TypeVar("T")
Places = NDArray[np.int64]
_AHEAD = 1 << 63  # beyond all counts of releases: bits of batches are those of no release
_IMPORTED = (
    str(Path(__file__).parents[2]),  # the package itself
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)


class Diverged(BaseException):
    """The second run released something else, so that there is nothing to go on with.

    No `Exception`: a program that catches everything must not go on either.
    """


@dataclass
class Entry:
    """One release of the first run, and the states of generators after it."""

    release: Release = field(repr=False)
    outcome: Any = field(repr=False)
    place: str
    states: dict[str, Any] = field(repr=False)
    source_state: Any = field(repr=False)
    is_secure: bool


class _Run(Recorder):
    """What both runs share: choices between releases come from one stream of bits.

    The stream begins anew after every release, so that a run which asks for fewer bits here has
    the same ones as the other after the next release.
    """

    def __init__(self, key: bytes, differs_at: int) -> None:
        super().__init__()
        self._key, self._differs_at = key, differs_at
        self._count = self._calls = 0
        self._is_drawing = False
        self._ahead = 0

    @contextmanager
    def ahead(self) -> Iterator[None]:
        # A batch that is empty in one run alone is followed by the next before its release.
        kept, self._ahead = (self._count, self._calls), self._ahead + 1
        self._count, self._calls = _AHEAD + self._ahead, 0
        try:
            yield
        finally:
            self._count, self._calls = kept

    def bits(self, count: int) -> bytes | None:
        if self._is_drawing:  # noise is as secure as ever
            return None
        self._calls += 1
        place = self._count.to_bytes(8, "little") + self._calls.to_bytes(8, "little")
        return hashlib.shake_256(self._key + place).digest(count)

    def _next(self) -> int:
        self._count, self._calls = self._count + 1, 0
        return self._count - 1


class FirstRun(_Run):
    """Draws as always, and remembers."""

    def __init__(self, key: bytes, differs_at: int) -> None:
        super().__init__(key, differs_at)
        self.entries: list[Entry] = []
        self.batches: list[tuple[Places, int]] = []
        self.sources: dict[int, tuple[object, Any]] = {}

    def release(self, draw: Callable[[], T], release: Release, source: object) -> T:
        if self._is_drawing:  # a release that another one is made of
            return draw()
        self._is_drawing = True
        try:
            outcome = draw()
        finally:
            self._is_drawing = False
        self._next()
        is_secure = bool(getattr(source, "secure", source is None))
        entry = Entry(release, frozen(outcome), _caller(), states(), state_of(source), is_secure)
        self.entries.append(entry)
        return outcome

    def follow(self, source: object) -> None:
        # Kept as well, so that no other generator takes its identity.
        self.sources.setdefault(id(source), (source, state_of(source)))

    def batch(
        self, drawn: Places, examples: int, *, joins: bool | None, most: int | None
    ) -> Places:
        record = self._differs_at % max(examples, 1)
        if joins is False:
            drawn = drawn[drawn != record]
        elif joins and examples and record not in drawn:
            kept = drawn if most is None or len(drawn) < most else drawn[:-1]
            drawn = np.sort(np.append(kept, record)).astype(np.int64)
        self.batches.append((drawn, examples))
        return drawn


class SecondRun(_Run):
    """Draws no noise: every release gives out what it gave out in the first run.

    Args:
        first: the run that was recorded.
        key: key of the bits between releases, that of the first run.
        differs_at: place of the record in which the data differ.
    """

    def __init__(self, first: FirstRun, key: bytes, differs_at: int) -> None:
        super().__init__(key, differs_at)
        self._first = first
        self.moment = first.moment
        self._batches = iter(first.batches)
        self._followed: set[int] = set()
        self.releases: list[tuple[Release, str]] = []
        self.wrong_pair: ValueError | None = None

    def release(self, draw: Callable[[], T], release: Release, source: object) -> T:
        index = self._next()
        self.releases.append((release, _caller()))
        if index >= len(self._first.entries):
            raise Diverged
        entry = self._first.entries[index]
        if entry.release.kind != release.kind or entry.release.value.shape != release.value.shape:
            raise Diverged
        set_states(entry.states)
        if entry.source_state is not None and state_of(source) is not None:
            set_state(source, entry.source_state)
        outcome: T = frozen(entry.outcome)
        return outcome

    def follow(self, source: object) -> None:
        if id(source) in self._followed:
            return
        self._followed.add(id(source))
        known = self._first.sources.get(id(source))
        if known is not None:
            set_state(source, known[1])

    def batch(
        self, drawn: Places, examples: int, *, joins: bool | None, most: int | None
    ) -> Places:
        recorded, before = next(self._batches, (drawn, examples))
        if examples == before:
            return recorded
        if abs(examples - before) != 1:
            self.wrong_pair = ValueError(
                f"data and neighbour must differ in one record, got {before} and {examples}"
            )
            raise Diverged
        record = self._differs_at % max(examples, before)
        if examples < before:
            kept = recorded[recorded != record]
            moved = kept - (kept > record)
        else:
            moved = recorded + (recorded >= record)
            if joins and (most is None or len(moved) < most):
                moved = np.sort(np.append(moved, record))
        places: Places = moved.astype(np.int64)
        return places


def frozen(outcome: Any) -> Any:
    """Return a copy that neither run can change."""
    if hasattr(outcome, "detach") and hasattr(outcome, "clone"):
        return outcome.detach().clone()
    if isinstance(outcome, tuple) and hasattr(outcome, "_make"):  # with names
        return outcome._make(frozen(part) for part in outcome)
    if isinstance(outcome, list | tuple):
        return type(outcome)(frozen(part) for part in outcome)
    return copy.deepcopy(outcome)


def _caller() -> str:
    """Return the line that a release is reached from: of the program, not of what it imports."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_IMPORTED):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
