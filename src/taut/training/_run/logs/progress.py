"""What the owner of a run sees while it goes on: a bar on a terminal, else nothing."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from taut._base.rounding import places_up
from taut.training._run.logs.callbacks import StepEnd

__all__ = ["Progress"]

_SECONDS_PER_LINE = 10.0


class Progress:
    """Shows step, loss, epsilon and speed.

    Args:
        steps: how many there will be.
        batch_size: the expected one: realised sizes are secrets.
        wanted: whether to show anything.

    With rich installed, a bar; without, a line every ten seconds; nothing unless standard error is
    a terminal, since logs are kept and the loss of private batches must not be.
    """

    def __init__(self, steps: int, batch_size: float, *, wanted: bool) -> None:
        self._batch_size = batch_size
        self._began = self._printed = time.monotonic()
        self._first: int | None = None
        self._bar: Any = None
        self._task: Any = None
        self._lines = False
        if wanted and sys.stderr.isatty():
            self._bar = _bar()
            self._lines = self._bar is None
        if self._bar is not None:
            self._task = self._bar.add_task("", total=steps, text="")
            self._bar.start()

    @property
    def is_shown(self) -> bool:
        """Whether there is anything to see."""
        return self._bar is not None or self._lines

    def show(self, event: StepEnd) -> None:
        """Follow a step."""
        if self._first is None:
            self._first = event.step - 1
        if self._bar is not None:
            self._bar.update(self._task, completed=event.step, text=self._text(event))
        elif self._lines and time.monotonic() - self._printed > _SECONDS_PER_LINE:
            self._printed = time.monotonic()
            line = f"step {event.step}/{event.steps}  {self._text(event)}"
            print(line, file=sys.stderr)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()

    def _text(self, event: StepEnd) -> str:
        done = event.step - (self._first or 0)
        speed = done * self._batch_size / max(time.monotonic() - self._began, 1e-9)
        parts = [] if event.private_loss is None else [f"loss {event.private_loss:.4f} (private)"]
        if event.epsilon is not None:
            parts.append(f"epsilon {_rounded_up(event.epsilon)}")
        return "  ".join([*parts, f"{speed:.0f} examples/s expected"])


def _rounded_up(epsilon: float) -> str:
    """Return three decimal places, never below what they state."""
    if not math.isfinite(epsilon):
        return str(epsilon)
    return places_up(epsilon, 3)


def _bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[text]}"))
    return Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True))
