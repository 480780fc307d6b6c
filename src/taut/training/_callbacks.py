"""Callbacks: what happens between the steps of a training run."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut import _validate

if TYPE_CHECKING:
    from taut.training._trainer import PrivateTrainer
    from taut.training._training_result import TrainingResult

__all__ = ["CSVLog", "Callback", "StepEnd", "TensorBoardLog"]


@dataclass(frozen=True)
class StepEnd:
    """Where a run stands after a step.

    Attributes:
        step: how many updates the model has had.
        steps: how many are planned.
        epoch: how often an example was seen on average.
        epsilon: a certified upper bound on what was spent, at the plan's delta; computed now and
            then, so that it may be a few steps old, and None before the first time.
        private_loss: the mean loss of the batch, None if the batch is empty. It depends on the
            examples and no noise was added: it is for the owner of the data, not for publication.
        dropped: how many examples of the batch contributed nothing, since their gradients were not
            finite, in this process; as private as the loss.
        clipping_norm: what the next step is clipped to, if that changes from step to step; public.
    """

    step: int
    steps: int
    epoch: float
    epsilon: float | None
    private_loss: float | None
    dropped: int = 0
    clipping_norm: float | None = None


class Callback:
    """Is told about the course of a run; override what is of interest.

    What a callback does with weights is post-processing. It must not stop a run because of losses
    of private batches, or change weights by looking at examples.
    """

    def on_step_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
        """Follow an update."""

    def on_epoch_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
        """Follow the last update of an epoch."""

    def on_fit_end(self, trainer: PrivateTrainer, result: TrainingResult) -> None:
        """Follow the end of training."""


class CSVLog(Callback):
    """Appends step, epoch and epsilon to a file of comma-separated values.

    The clipping norm is added where it changes from step to step.

    Args:
        path: the file; rows are added if it exists.
        every: how many steps lie between two rows.
        private: add the loss of private batches. Such a file must not be published.

    Example:
        >>> from taut.training import CSVLog
        >>> log = CSVLog("steps.csv", every=100)
    """

    def __init__(
        self, path: str | os.PathLike[str], *, every: int = 1, private: bool = False
    ) -> None:
        self.path = Path(path)
        self.every = _validate.positive_integer(every=every)
        self.private = private

    def on_step_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
        if event.step % self.every and event.step != event.steps:
            return
        row = {"step": event.step, "epoch": f"{event.epoch:.4f}", "epsilon": event.epsilon}
        if event.clipping_norm is not None:
            row["clipping_norm"] = event.clipping_norm
        if self.private:
            row["private_loss"] = event.private_loss
        is_new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if is_new:
                writer.writeheader()
            writer.writerow(row)


class TensorBoardLog(Callback):
    """Writes epsilon against steps for TensorBoard, and nothing that depends on examples.

    Args:
        directory: where TensorBoard looks for runs.
        every: how many steps lie between two points.

    Raises:
        ImportError: when training begins, if the package tensorboard is not installed.

    Example:
        >>> from taut.training import TensorBoardLog
        >>> log = TensorBoardLog("runs/first", every=10)
    """

    def __init__(self, directory: str | os.PathLike[str], *, every: int = 1) -> None:
        self.directory = Path(directory)
        self.every = _validate.positive_integer(every=every)
        self._writer: Any = None

    def on_step_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
        if event.epsilon is None or (event.step % self.every and event.step != event.steps):
            return
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(os.fspath(self.directory))
        self._writer.add_scalar("privacy/epsilon", event.epsilon, event.step)

    def on_fit_end(self, trainer: PrivateTrainer, result: TrainingResult) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
