"""The ledger of a run of several processes: one counts, and nobody goes on before it has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut.training._ledger.ledger import RunLedger
from taut.training._plan.plan import Plan
from taut.training._tensors.processes import Processes

__all__ = ["SharedLedger"]


class SharedLedger(RunLedger):
    """A ledger that the first process keeps for all, and that every process can read.

    Args:
        path: the file, opened by the first process alone; None keeps the count in memory.
        plan: plan, as of `RunLedger`, the same in all processes.
        block: number of steps, as of `RunLedger`.
        enforce: flag, as of `RunLedger`.
        process_group: group of processes; by default all processes, if torch.distributed is
            initialised.

    **Guarantee**: that of `RunLedger`, if every process calls `record` before the update of a step:
    it returns nowhere before the record is durable, and raises everywhere if the first process may
    not go on. A step of all processes counts once.

    Example:
        >>> from taut.training import FlatClip, Plan, SharedLedger
        >>> plan = Plan(
        ...     examples=60_000, batch_size=512, steps=1_000, noise_multiplier=1.0, delta=1e-5,
        ...     clipping=FlatClip(1.0),
        ... )
        >>> with SharedLedger(None, plan) as ledger:  # in every process
        ...     ledger.record(0)
        >>> ledger.steps
        1
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        plan: Plan,
        *,
        block: int = 16,
        enforce: bool = False,
        process_group: Any = None,
    ) -> None:
        self.processes = Processes.current(process_group)
        self.processes.check_same("the plan", plan)

        def opened() -> Any:
            super(SharedLedger, self).__init__(path, plan, block=block, enforce=enforce)
            return self._history, self._most

        found = self.processes.agreed(opened)
        if not self.processes.is_first:
            super().__init__(None, plan, block=block)
            self._history, self._most = found
            self.path = None if path is None else Path(path)

    def record(self, step: int, place: int | None = None) -> None:
        """Count one step of all processes; once this returns, no crash can undo it.

        Args:
            step: its number in the run.
            place: its number in its epoch, as of `RunLedger`.

        Raises:
            BudgetExceeded: in all processes, if the step does not fit.
        """
        self.processes.agreed(lambda: super(SharedLedger, self).record(step, place))
        if not self.processes.is_first:
            super().record(step, place)

    def include(self, runs: Mapping[str, int]) -> int:
        """Count steps whose updates are in weights that all processes go on from.

        Args:
            runs: runs, as of `RunLedger`.
        """
        include = super().include
        added = self.processes.agreed(lambda: include(runs))
        if not self.processes.is_first:
            include(runs)
        return added
