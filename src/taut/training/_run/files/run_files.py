"""The directory of a run: its plan, ledger, checkpoint and result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from taut._base.files import write_atomically
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource
from taut.training._data.fingerprint import fingerprint, new_key
from taut.training._ledger.ledger import RunLedger
from taut.training._ledger.record import RunRecord
from taut.training._ledger.result import TrainingResult
from taut.training._ledger.run_directory import RunDirectory
from taut.training._noise.keyed_bits import NoiseKeys
from taut.training._plan.plan import Plan
from taut.training._run.files.checkpoint import Checkpoints
from taut.training._run.files.noise_keys import NoiseOf, keys_of_run
from taut.training._run.files.same_dataset import KEEPS_TO_STEPS, same_dataset
from taut.training._run.files.shared_ledger import SharedLedger
from taut.training._run.settings import Checkpointing
from taut.training._tensors.processes import Processes

__all__ = ["RunFiles"]


class RunFiles:
    """Where a run keeps what must survive it.

    Args:
        directory: made if it does not exist; None keeps all in memory.
        plan: the run's.
        checkpoints: when checkpoints are written.
        processes: processes that train together; the first of them reads and writes for all.

    All of these files may be published but for logs of private losses, `private.key` and
    `private.noise`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        plan: Plan,
        checkpoints: Checkpointing,
        *,
        processes: Processes,
    ) -> None:
        self._processes = processes
        self._at = None if directory is None else RunDirectory(directory)
        self._plan = plan
        self._memory: RunLedger | None = None
        self._run: str | None = None
        self._seen: tuple[bytes, str] | None = None  # key and fingerprint, of a run without files
        self._checkpoints: Checkpoints | None = None
        if self._at is not None:
            self._checkpoints = Checkpoints(self._at.checkpoint, checkpoints)

    @property
    def directory(self) -> Path | None:
        """Where the files are, None if all is kept in memory."""
        return None if self._at is None else self._at.path

    def ledger(self) -> RunLedger:
        """Return the ledger, opened by nobody else."""
        if self._at is None:
            if self._memory is None:
                self._memory = SharedLedger(None, self._plan, enforce=True)
            return self._memory
        at = self._at
        self._processes.agreed(lambda: self._check_plan(at))
        ledger = SharedLedger(at.ledger, self._plan, enforce=True)
        self._processes.agreed(lambda: self._write_plan(at))
        self._run = ledger.history.id
        return ledger

    def _check_plan(self, at: RunDirectory) -> None:
        at.path.mkdir(parents=True, exist_ok=True)
        if at.plan.exists() and at.read_plan() != self._plan:
            raise UnsoundConfiguration(
                f"the run in {str(at.path)!r} has another plan: it would not be trained as its "
                "promise says. Go on with PrivateTrainer.resume(run_dir, ...), or use another "
                "directory"
            )
        is_lost = not at.ledger.exists() or not at.ledger.stat().st_size
        if at.plan.exists() and is_lost and not at.checkpoint.exists():
            raise UnsoundConfiguration(
                f"a run was begun in {str(at.path)!r} and its ledger was lost, so that nobody "
                f"knows what it has spent; restore {at.ledger.name} from a copy, or use another "
                "directory and add the loss of the lost run"
            )

    def note_data(self, ledger: RunLedger, dataset: Any, *, may_change: bool) -> None:
        """Refuse another dataset than the run began with; the next step notes the first one.

        Args:
            ledger: ledger from `ledger`.
            dataset: dataset that is trained on.
            may_change: whether to go on with another one, which the ledger then says.
        """
        if self._at is None:
            if self._plan.keeps_to_dataset:
                self._processes.agreed(lambda: self._check_seen(ledger, dataset))
            return
        key = self._at.private_key
        said = {"otherwise": KEEPS_TO_STEPS} if self._plan.keeps_to_dataset else {}
        found = self._processes.agreed(
            lambda: same_dataset(key, ledger, dataset, may_change=may_change, **said)
        )
        if found is not None:
            fingerprint, changed = found
            ledger.note_data(fingerprint, changed=changed)

    def _check_seen(self, ledger: RunLedger, dataset: Any) -> None:
        """Refuse another dataset in memory, where it matters which steps an example is in."""
        if self._seen is None or not ledger.steps:
            key = new_key()
            self._seen = key, fingerprint(dataset, key)
        key, seen = self._seen
        if fingerprint(dataset, key) != seen:
            raise UnsoundConfiguration(
                "the dataset is not the one that this run began with, and the loss is that of "
                "examples which keep to their steps; give the same one, or make a new trainer, "
                "whose loss adds"
            )

    def noise_keys(
        self, source: RandomSource, ledger: RunLedger, parameters: Mapping[str, Tensor]
    ) -> NoiseKeys:
        """Return the keys of correlated noise, with a new one from the ledger's step on.

        Args:
            source: source of the new key.
            ledger: ledger from `ledger`, which notes the keys with its next step.
            parameters: parameters that are trained, by name and in their order.
        """
        path = None if self._at is None else self._at.private_noise
        belongs = NoiseOf(self._run, NoiseOf.layout_of(parameters), ledger.history.noise)
        return keys_of_run(path, source, ledger, belongs, self._processes)

    def _write_plan(self, at: RunDirectory) -> None:
        if not at.plan.exists():
            write_atomically(at.plan, self._plan.to_json())

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
        if self._at is None or not self._at.result.exists():
            return None
        try:
            stated = TrainingResult.from_json(self._at.result.read_text(encoding="utf-8"))
        except (ValueError, UnsoundConfiguration):  # it is written anew
            return None
        return stated.record if stated == result else None

    def save_result(self, result: TrainingResult) -> None:
        """Write down what the run promises."""
        if self._at is not None and self._processes.is_first:
            write_atomically(self._at.result, result.to_json())
