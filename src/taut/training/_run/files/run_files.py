"""The directory of a run: its plan, ledger, checkpoint and result."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taut._base.files import write_atomically
from taut.errors import UnsoundConfiguration
from taut.training._ledger.ledger import RunLedger
from taut.training._ledger.record import RunRecord
from taut.training._ledger.result import TrainingResult
from taut.training._plan.plan import Plan
from taut.training._run.files.checkpoint import Checkpoints
from taut.training._run.files.shared_ledger import SharedLedger
from taut.training._tensors.processes import Processes

__all__ = ["RunFiles"]


class RunFiles:
    """Where a run keeps what must survive it.

    Args:
        directory: made if it does not exist; None keeps all in memory.
        plan: the run's.
        every: how many steps lie between checkpoints.
        seconds: how much time lies between checkpoints.
        processes: processes that train together; the first of them reads and writes for all.

    All of these files may be published but for logs of private losses.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        plan: Plan,
        *,
        every: int | None,
        seconds: float,
        processes: Processes,
    ) -> None:
        self._processes = processes
        self.directory = None if directory is None else Path(directory)
        self._plan = plan
        self._memory: RunLedger | None = None
        self._checkpoints: Checkpoints | None = None
        if self.directory is not None:
            self._checkpoints = Checkpoints(
                self.directory / "checkpoint.pt", every=every, seconds=seconds
            )

    @staticmethod
    def plan_of(directory: str | os.PathLike[str]) -> Plan:
        """Return the plan of the run in a directory."""
        path = Path(directory) / "plan.json"
        if not path.exists():
            raise ValueError(f"no run was begun in {os.fspath(directory)!r}: it has no plan.json")
        return Plan.from_json(path.read_text(encoding="utf-8"))

    def ledger(self) -> RunLedger:
        """Return the ledger, opened by nobody else."""
        if self.directory is None:
            if self._memory is None:
                self._memory = SharedLedger(None, self._plan, enforce=True)
            return self._memory
        self._processes.agreed(self._check_plan)
        ledger = SharedLedger(self.directory / "ledger.jsonl", self._plan, enforce=True)
        self._processes.agreed(self._write_plan)
        return ledger

    def _check_plan(self) -> None:
        assert self.directory is not None
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "plan.json"
        if path.exists() and self.plan_of(self.directory) != self._plan:
            raise UnsoundConfiguration(
                f"the run in {os.fspath(self.directory)!r} has another plan: it would not be "
                "trained as its promise says. Go on with PrivateTrainer.resume(run_dir, ...), or "
                "use another directory"
            )
        ledger, checkpoint = self.directory / "ledger.jsonl", self.directory / "checkpoint.pt"
        is_lost = not ledger.exists() or not ledger.stat().st_size
        if path.exists() and is_lost and not checkpoint.exists():
            raise UnsoundConfiguration(
                f"a run was begun in {os.fspath(self.directory)!r} and its ledger was lost, so "
                "that nobody knows what it has spent; restore ledger.jsonl from a copy, or use "
                "another directory and add the loss of the lost run"
            )

    def _write_plan(self) -> None:
        assert self.directory is not None
        path = self.directory / "plan.json"
        if not path.exists():
            write_atomically(path, self._plan.to_json())

    def close(self, ledger: RunLedger, *, interrupted_after: int | None) -> None:
        """Let go of the ledger; one in memory is kept for the next time.

        Args:
            ledger: ledger from `ledger`.
            interrupted_after: step, as of `RunLedger.close`.
        """
        if ledger is not self._memory:
            ledger.close(interrupted_after=interrupted_after)

    def checkpoint(self) -> dict[str, Any] | None:
        """Return the last checkpoint, if there is one."""
        return None if self._checkpoints is None else self._processes.agreed(self._checkpoints.read)

    def save(self, step: int, state: Callable[[], dict[str, Any]], *, now: bool = False) -> None:
        """Write a checkpoint if one is due."""
        checkpoints = self._checkpoints
        if checkpoints is None:
            return
        if now or self._processes.agreed(lambda: checkpoints.is_due(step)):
            whole = state()
            self._processes.agreed(lambda: checkpoints.write(whole))

    def finished(self, result: TrainingResult) -> RunRecord | None:
        """Return when and with what a run ended, if its result was written down before."""
        path = None if self.directory is None else self.directory / "result.json"
        if path is None or not path.exists():
            return None
        try:
            stated = TrainingResult.from_json(path.read_text(encoding="utf-8"))
        except (ValueError, UnsoundConfiguration):  # it is written anew
            return None
        return stated.record if stated == result else None

    def save_result(self, result: TrainingResult) -> None:
        """Write down what the run promises."""
        if self.directory is not None and self._processes.is_first:
            write_atomically(self.directory / "result.json", result.to_json())
