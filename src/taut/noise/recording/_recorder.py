"""Recorders: who sees releases, for as long as one block of one thread lasts."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Matrix, Vector
from taut.errors import UnsoundConfiguration

if TYPE_CHECKING:
    from taut.accounting import PrivacyLoss

__all__ = ["Bound", "Recorder", "Release", "active", "recording", "released"]

T = TypeVar("T")
_SUM_ROUNDING = 2.0**-41  # of a value: 2^12 roundings of doubles, those of a long sum


class Bound(Protocol):
    """What one record may change: a `SensitivitySet`, or anything else that measures rows."""

    def gauges(self, rows: Matrix) -> Vector:
        """Return for every row by how much the bound must be scaled to hold it."""
        ...


@dataclass(frozen=True, eq=False)
class Release:
    """What a mechanism says about one release, the value before noise among it.

    Args:
        kind: name of the mechanism.
        value: the vector that noise hides, private; it is kept in memory and shown nowhere.
        sensitivity: declared bound on what one record changes in the value.
        parameters: all else that decides about the noise, by name: numbers, arrays and strings.
        loss: a function that returns the privacy loss of the release by itself, if it has one.
        resolution: probability, nearly, that two draws of a coordinate's noise coincide, if the
            release is the value plus noise; one if it is not.
        rounding: relative error that the computation of the value may have.
        slack: part of the sensitivity that the noise allows for on top of it.
    """

    kind: str
    value: Vector = field(repr=False)
    sensitivity: Bound
    parameters: Mapping[str, Any]
    loss: Callable[[], PrivacyLoss] | None = None
    resolution: float = 1.0
    rounding: float = _SUM_ROUNDING
    slack: float = 0.0


class Recorder(ABC):
    """Sees every release of one thread while it is installed by `recording`.

    It belongs to the thread and the process that made it, and to one block: elsewhere and later it
    is as if it were not there, so that no release is ever left without its noise.

    Attributes:
        moment: the time that statements give as theirs meanwhile; two runs are alike in it.
    """

    def __init__(self) -> None:
        self.moment = datetime.now(UTC)
        self._home = (os.getpid(), threading.get_ident())
        self._has_ended = False

    @property
    def is_here(self) -> bool:
        """Whether this is the thread it belongs to, within its block."""
        return not self._has_ended and self._home == (os.getpid(), threading.get_ident())

    def end(self) -> None:
        """See nothing more, whoever still holds a reference."""
        self._has_ended = True

    @abstractmethod
    def release(self, draw: Callable[[], T], release: Release, source: object) -> T:
        """Return what a release gives out: what is drawn, or what was recorded.

        Args:
            draw: the mechanism at work.
            release: its description.
            source: source of the noise.
        """

    @abstractmethod
    def bits(self, count: int) -> bytes | None:
        """Return bytes in the place of secure ones for choices between releases, if any."""

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Draw what one run may need earlier than the other, as batches: from bits of its own."""
        yield

    @abstractmethod
    def follow(self, source: object) -> None:
        """Take note of a generator with a state before it is used."""

    @abstractmethod
    def batch(
        self, drawn: NDArray[np.int64], examples: int, *, joins: bool | None, most: int | None
    ) -> NDArray[np.int64]:
        """Return the places of a batch: those that were drawn, or those of the recorded run.

        Args:
            drawn: places that were drawn from all.
            examples: the number of all examples.
            joins: whether the record in which the data differ is put into the batch or taken out
                of it; None to leave it where it was drawn.
            most: the largest number of places, if there is one.
        """


_ACTIVE: ContextVar[Recorder | None] = ContextVar("taut.noise.recording", default=None)


def active() -> Recorder | None:
    """Return the recorder of this thread, if a replay is going on in it."""
    recorder = _ACTIVE.get()
    return recorder if recorder is not None and recorder.is_here else None


def released(draw: Callable[[], T], describe: Callable[[], Release], source: object = None) -> T:
    """Return what a mechanism draws; in a replay, let the recorder see it first.

    Args:
        draw: the mechanism at work: value and noise are put together there, and nowhere else.
        describe: a function that describes the release, called in a replay alone.
        source: source of the noise.
    """
    recorder = active()
    return draw() if recorder is None else recorder.release(draw, describe(), source)


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Install a recorder for one block; it sees nothing after that.

    Raises:
        UnsoundConfiguration: if another one is installed.
    """
    if active() is not None:
        raise UnsoundConfiguration(
            "a replay is going on in this thread; finish it before another one begins"
        )
    token = _ACTIVE.set(recorder)
    try:
        yield
    finally:
        recorder.end()
        _ACTIVE.reset(token)
