"""Interrupts: a run that is asked to stop does so between two steps, with nothing lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, NoReturn, Self

import torch

from taut.training._tensors.processes import Processes

__all__ = ["Interrupts", "leave_interrupts_to_parent"]

_NOTICE = "\nStopping after this step; once more stops at once, without a checkpoint.\n"


class Interrupts:
    """Notes SIGINT (Ctrl-C) and SIGTERM while a run goes on, so that it can stop between steps.

    Args:
        processes: processes that train together; if one of them is asked, all stop after the same
            step.
        device: device that the processes exchange gradients on.

    As a context, in the main thread, it takes the place of Python's own handlers, and puts them
    back in the end. A handler that somebody else has set, or a signal that is ignored, is left
    alone; so is every signal in another thread. A second signal stops at once, except in a run of
    several processes: those who start them send signals more than once.
    """

    def __init__(self, processes: Processes, device: torch.device) -> None:
        self._processes = processes
        self._device = device
        self._process = os.getpid()
        self._received = 0
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
            for number, handler in usual.items():
                if signal.getsignal(number) == handler:
                    self._handlers[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def stop(self) -> bool:
        """Return whether to stop now, in all processes alike; call it between steps."""
        agreed = self._processes.largest(self._received, self._device)
        if agreed:  # else a signal may have come since, which the others learn of next time
            self._received = agreed
        return agreed != 0

    @property
    def was_asked(self) -> bool:
        """Whether this process was asked to stop, or one that it has agreed with."""
        return self._received != 0

    def do(self, text: str) -> NoReturn:
        """Do what the signal would have done, once all is kept that should be.

        Raises:
            KeyboardInterrupt: with `text`, for SIGINT.
            SystemExit: with the exit code of SIGTERM, 143.
        """
        _raise(self._received, text)

    def _note(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._process:
            _leave_in_child(number)
            return
        if self._received and self._processes.size == 1:
            self._restore()
            _raise(number, "stopped at once")
        self._received = number
        if self._processes.size == 1 and sys.stderr.isatty():
            # Not print: the signal may have come in the middle of another one.
            os.write(sys.stderr.fileno(), _NOTICE.encode())

    def _restore(self) -> None:
        while self._handlers:
            number, handler = self._handlers.popitem()
            signal.signal(number, handler)


def _raise(number: int, text: str) -> NoReturn:
    if number == signal.SIGTERM:
        raise SystemExit(128 + number)
    raise KeyboardInterrupt(text)


def _leave_in_child(number: int) -> None:
    """Let a forked process end as it would have; Ctrl-C reaches its parent as well."""
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def leave_interrupts_to_parent(_: int) -> None:
    """Let a process that fetches examples go on when Ctrl-C is pressed: the step needs them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
