"""What whoever waits for a comparison sees: a bar on a terminal, else nothing."""

from __future__ import annotations

import sys
from typing import Any, Self

__all__ = ["Progress"]


class Progress:
    """Counts the steps of all runs.

    Args:
        steps: number of steps of all runs together.
        wanted: whether to show anything; a bar needs rich and a terminal.
    """

    def __init__(self, steps: int, *, wanted: bool) -> None:
        self._bar: Any = None
        if wanted and sys.stderr.isatty():
            self._bar = _bar()
        self._steps = steps
        if self._bar is not None:
            self._task = self._bar.add_task("", total=steps, text="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def is_shown(self) -> bool:
        """Whether anybody sees it; what runs tell would be computed for nobody."""
        return self._bar is not None

    def add(self, steps: int) -> None:
        """Count further steps that will be taken."""
        self._steps += steps
        if self._bar is not None:
            self._bar.update(self._task, total=self._steps)

    def begin(self, text: str) -> None:
        """Say which run comes next."""
        if self._bar is not None:
            self._bar.update(self._task, text=text)

    def advance(self, steps: int) -> None:
        """Follow steps that were taken, now or before."""
        if self._bar is not None:
            self._bar.advance(self._task, steps)


def _bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Bar(*columns, TextColumn("{task.fields[text]}"), console=Console(stderr=True))
