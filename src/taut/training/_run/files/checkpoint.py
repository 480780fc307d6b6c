"""Checkpoints: what a run needs to go on after it was killed, written all or not at all."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

from taut._base.files import move_durably
from taut.training._run.settings import Checkpointing

__all__ = ["Checkpoints"]

SCHEMA = "taut.training-checkpoint/1"


class Checkpoints:
    """The checkpoint of a run directory, and when the next one is due.

    Args:
        path: the file.
        when: rule by steps and time.

    A reader finds the last checkpoint that was written completely: a new one takes its place in one
    move, after the disk has it.
    """

    def __init__(self, path: Path, when: Checkpointing) -> None:
        self.path = path
        self._when = when
        self._written = time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether to write one after `step` steps."""
        if self._when.every is not None and step % self._when.every == 0:
            return True
        return time.monotonic() - self._written >= self._when.seconds

    def write(self, state: dict[str, Any]) -> None:
        """Write a checkpoint in place of the last one."""
        temporary = self.path.with_name(self.path.name + ".part")
        with temporary.open("wb") as file:
            torch.save({"schema": SCHEMA, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        move_durably(temporary, self.path)
        self._written = time.monotonic()

    def read(self) -> dict[str, Any] | None:
        """Return the last checkpoint, None if there is none.

        Raises:
            ValueError: if the file is no checkpoint.
        """
        if not self.path.exists():
            return None
        try:
            state = torch.load(self.path, weights_only=True, map_location="cpu")
        except Exception as error:
            raise ValueError(
                f"cannot read the checkpoint {os.fspath(self.path)!r}: {error}; restore it from a "
                "copy, or move it away to begin anew (the ledger goes on counting)"
            ) from error
        found = state.get("schema") if isinstance(state, dict) else None
        if found != SCHEMA:
            raise ValueError(f"not a checkpoint: expected schema {SCHEMA!r}, got {found!r}")
        return dict(state)
