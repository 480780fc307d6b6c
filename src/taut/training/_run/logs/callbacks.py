"""Callbacks: what happens between the steps of a training run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taut._base import validate
from taut.training._run.logs.step_rows import StepRows

if TYPE_CHECKING:
    from taut.training._ledger.result import TrainingResult
    from taut.training._run.trainer import PrivateTrainer

__all__ = ["CSVLog", "Callback", "StepEnd", "TensorBoardLog"]


@dataclass(frozen=True)
class StepEnd:
    """Where a run stands after a step.

    Attributes:
        step: how many updates the model has had.
        steps: how many are planned.
        epoch: how often an example was seen on average.
        epsilon: a certified upper bound on what was spent after this step, at the plan's delta,
            for all steps that the ledger counts. Between a few counts it is that of the next one
            of them, by up to an eighth more than needed; after the last step it is exact.
        private_loss: the mean loss of the batch, None if the batch is empty. It depends on the
            examples and no noise was added: it is for the owner of the data, not for publication.
        dropped: how many examples of the batch contributed nothing, since their gradients were not
            finite, in this process; as private as the loss.
        clipping_norm: what the next step is clipped to, if that changes from step to step; public.
        counted: how many steps the ledger counts: more than `step` if some were taken twice.
    """

    step: int
    steps: int
    epoch: float
    epsilon: float | None
    private_loss: float | None
    dropped: int = 0
    clipping_norm: float | None = None
    counted: int | None = None


class Callback:
    """Is told about the course of a run; override what is of interest.

    What a callback does with weights is post-processing. It must not stop a run because of losses
    of private batches, or change weights by looking at examples.
    """

    def on_fit_start(self, trainer: PrivateTrainer) -> None:
        """Precede the first update of a call of `fit`, which follows update `trainer.step`."""

    def on_batch_end(self, trainer: PrivateTrainer) -> None:
        """Follow the last example of a step, before noise: the time for `PrivateTrainer.insert`."""

    def on_step_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
        """Follow an update."""

    def on_epoch_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
        """Follow the last update of an epoch."""

    def on_fit_end(self, trainer: PrivateTrainer, result: TrainingResult) -> None:
        """Follow the end of training."""

    def on_interrupt(self, trainer: PrivateTrainer) -> None:
        """Follow a stop by Ctrl-C or SIGTERM, after the checkpoint was written."""


class CSVLog(Callback):
    """Appends step, counted steps, epoch and epsilon to a file of comma-separated values.

    The clipping norm is added where it changes from step to step. A run that goes on from a
    checkpoint first cuts off the rows of later steps, whose updates it no longer has: they stay
    counted, and epsilon goes on from there. The last row states the epsilon of the result.

    Args:
        path: the file; rows are added if it exists.
        every: how many steps lie between two rows.
        private: add the loss of private batches. Such a file must not be published.

    **Guarantee**: the epsilon of a row is a certified upper bound for the steps counted in it.

    Raises:
        ValueError: when training begins, if the file is no log of steps.

    Example:
        >>> from taut.training import CSVLog
        >>> log = CSVLog("steps.csv", every=100)
    """

    def __init__(
        self, path: str | os.PathLike[str], *, every: int = 1, private: bool = False
    ) -> None:
        self.path = Path(path)
        self.every = validate.positive_integer(every=every)
        self.private = private
        self._rows: StepRows | None = None

    def on_fit_start(self, trainer: PrivateTrainer) -> None:
        """Cut off what the run no longer has."""
        rows = StepRows(self.path)
        if trainer.ledger is not None and trainer.ledger.steps:
            rows.drop_after(trainer.step)
        self._rows = StepRows(self.path)

    def on_step_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
        """Add a row, if one is due."""
        if event.step % self.every and event.step != event.steps:
            return
        row: dict[str, Any] = {
            "step": event.step,
            "counted": event.counted,
            "epoch": f"{event.epoch:.4f}",
            "epsilon": event.epsilon,
        }
        if event.clipping_norm is not None:
            row["clipping_norm"] = event.clipping_norm
        if self.private:
            row["private_loss"] = event.private_loss
        if self._rows is None:
            self._rows = StepRows(self.path)
        self._rows.append(row)

    def on_fit_end(self, trainer: PrivateTrainer, result: TrainingResult) -> None:
        """Let the last row state what the result does."""
        rows, self._rows = StepRows(self.path), None
        last = rows.last() or {}
        stated = {
            "step": str(result.steps),
            "counted": str(result.counted_steps),
            "epoch": f"{result.plan.epochs_at(result.steps):.4f}",
            "epsilon": str(result.epsilon.upper),
        }
        if last.get("step") != stated["step"]:
            rows.append(stated)
        elif last | stated != last:
            rows.drop_after(result.steps - 1)
            rows.append(last | stated)


class TensorBoardLog(Callback):
    """Writes epsilon against steps for TensorBoard, and nothing that depends on examples.

    Points of steps that a run no longer has, since it went on from an earlier checkpoint, are
    dropped by TensorBoard.

    Args:
        directory: where TensorBoard looks for runs.
        every: how many steps lie between two points.

    **Guarantee**: as that of `CSVLog`; TensorBoard keeps single precision, to which epsilon is
    rounded up.

    Raises:
        ImportError: when training begins, if the package tensorboard is not installed.

    Example:
        >>> from taut.training import TensorBoardLog
        >>> log = TensorBoardLog("runs/first", every=10)
    """

    def __init__(self, directory: str | os.PathLike[str], *, every: int = 1) -> None:
        self.directory = Path(directory)
        self.every = validate.positive_integer(every=every)
        self._writer: Any = None
        self._last: tuple[int, float] | None = None

    def on_fit_start(self, trainer: PrivateTrainer) -> None:
        """Begin to write, after the steps that the run has."""
        from torch.utils.tensorboard import SummaryWriter

        goes_on = trainer.ledger is not None and trainer.ledger.steps
        behind = trainer.step + 1 if goes_on else None
        self._writer = SummaryWriter(os.fspath(self.directory), purge_step=behind)
        self._last = None

    def on_step_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
        """Add a point, if one is due."""
        if event.epsilon is None or (event.step % self.every and event.step != event.steps):
            return
        self._add(event.step, event.epsilon)

    def on_fit_end(self, trainer: PrivateTrainer, result: TrainingResult) -> None:
        """Let the last point state what the result does."""
        if self._writer is not None and self._last != (result.steps, result.epsilon.upper):
            self._add(result.steps, result.epsilon.upper)
        self._close()

    def on_interrupt(self, trainer: PrivateTrainer) -> None:
        """Write what is still in memory."""
        self._close()

    def _add(self, step: int, epsilon: float) -> None:
        self._writer.add_scalar("privacy/epsilon", _single(epsilon), step)
        self._last = step, epsilon

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _single(epsilon: float) -> float:
    """Return the least number of single precision that is not below."""
    near = np.float32(epsilon)
    return float(near if float(near) >= epsilon else np.nextafter(near, np.float32(np.inf)))
