"""What a search must remember and nobody may see: how many trials, which, and the best so far."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from taut._base.files import lock, write_atomically
from taut.errors import RunInUse, UnsoundConfiguration

__all__ = ["PrivateState"]

_FILE = "search.json"
_KEPT, _DROPPED = "kept", "dropped"  # what becomes of the files of a trial that has ended


class PrivateState:
    """The memory of a search, in a directory that only its owner can read, or in none.

    All draws are made once, before the first trial, and written before anything else: a search
    that was killed goes on with the same number of trials and the same settings. Nothing else
    would have the law of the theorem.

    Trials work in one directory, one after the other: a number in its name would get into outputs
    that tell their path, and the place of the winner says that there were as many trials at least.
    """

    def __init__(self, directory: Path | None, search: dict[str, Any]) -> None:
        """Open the memory of a search.

        Args:
            directory: where it is kept; None for a search in memory.
            search: what identifies it: the promise, the law, the space.
        """
        self.directory = directory
        self._search = search
        self._known: dict[str, Any] = {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Have the directory for this process alone.

        Raises:
            RunInUse: if another process searches there.
            UnsoundConfiguration: if it holds another search.
            ValueError: if it holds files that a search would remove, or is damaged.
        """
        if self.directory is None:
            yield
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        file = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not lock(file):
                raise RunInUse(f"another process searches in {self.directory}; wait for it to end")
            self._read()
            yield
        finally:
            os.close(file)

    def _read(self) -> None:
        assert self.directory is not None
        path = self.directory / _FILE
        if not path.exists():
            self._refuse_others()
            return
        try:
            self._known = json.loads(path.read_text(encoding="utf-8"))
            before = self._known["search"]
            _ = self.is_secure, self.is_charged, self.has_begun and self._known["files"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path} is damaged; a search without it cannot go on") from None
        if before != json.loads(json.dumps(self._search)):
            raise UnsoundConfiguration(
                f"{self.directory} holds a search of another space, law or promise, and its trials "
                "are spent: undo the change, or begin another search in a new directory, whose "
                "loss adds up with this one"
            )

    def _refuse_others(self) -> None:
        """Leave files alone that trials would go on with, and the end of the search remove."""
        assert self.directory is not None
        others = [path.name for path in (self._trial, self._winner) if path.exists()]
        if others:
            raise ValueError(
                f"{self.directory} has {others[0]!r}, but no {_FILE} of a search that made it; "
                "choose a directory of its own for the search"
            )

    @property
    def _trial(self) -> Path:
        assert self.directory is not None
        return self.directory / "trial"

    @property
    def _winner(self) -> Path:
        assert self.directory is not None
        return self.directory / "winner"

    def _write(self) -> None:
        if self.directory is not None:
            write_atomically(self.directory / _FILE, json.dumps(self._known))
            (self.directory / _FILE).chmod(0o600)

    @property
    def winner(self) -> dict[str, Any] | None:
        """What a finished search has found."""
        return self._known.get("winner")

    @property
    def has_begun(self) -> bool:
        """Whether the settings of all trials are drawn."""
        return "settings" in self._known

    def begin(self, settings: list[dict[str, Any]], *, is_secure: bool, is_charged: bool) -> None:
        """Keep the settings of all trials.

        Args:
            settings: those of all trials; JSON can hold them if files are kept.
            is_secure: whether they were drawn by a secure generator.
            is_charged: whether a ledger has taken the loss of the search.
        """
        self._known = {
            "search": self._search,
            "is_secure": is_secure,
            "is_charged": is_charged,
            "settings": settings,
            "ended": 0,
            "best": None,
            "files": None,
        }
        self._write()

    @property
    def is_secure(self) -> bool:
        """Whether the trials were drawn by a secure generator, whatever goes on with them."""
        return self._known["is_secure"] is True

    @property
    def is_charged(self) -> bool:
        """Whether a ledger has taken the loss of the search."""
        return self._known["is_charged"] is True

    def charged(self) -> None:
        """Keep that a ledger has taken the loss of a search that was begun without one."""
        self._known["is_charged"] = True
        self._write()

    @property
    def left(self) -> list[tuple[int, dict[str, Any]]]:
        """The trials that have not ended, with their numbers."""
        settings = list(enumerate(self._known["settings"]))
        return settings[self._known["ended"] :]

    def ended(self, number: int, trial: dict[str, Any]) -> None:
        """Keep a trial and its files if it is the best so far, and forget them else."""
        best = self._known["best"]
        is_best = best is None or trial["score"] > best["score"]
        if is_best:
            self._known["best"] = trial
        # The end of the trial and what becomes of its files are written at once, so that a kill
        # anywhere in what follows leaves what the next process needs to do the same.
        self._known |= {"ended": number + 1, "files": _KEPT if is_best else _DROPPED}
        self._write()
        self._settle_files()

    def place(self) -> Path | None:
        """Return the directory of the next trial, empty unless that was interrupted."""
        if self.directory is None:
            return None
        self._settle_files()
        self._trial.mkdir(exist_ok=True)
        return self._trial

    def finish(self) -> dict[str, Any]:
        """Return the best trial, or nothing; how many there were is forgotten."""
        self._settle_files()
        found: dict[str, Any] = self._known["best"] or {}
        kept = ("search", "is_secure", "is_charged")
        self._known = {key: self._known[key] for key in kept} | {"winner": found}
        self._write()
        return found

    def _settle_files(self) -> None:
        """Move the files of the last trial in the place of the best one's, or remove them."""
        if self.directory is None or self._known["files"] is None:
            return
        if self._known["files"] == _KEPT and self._trial.exists():
            if self._winner.exists():
                shutil.rmtree(self._winner)
            self._trial.replace(self._winner)
        elif self._trial.exists():
            shutil.rmtree(self._trial)
        self._known["files"] = None
        self._write()
