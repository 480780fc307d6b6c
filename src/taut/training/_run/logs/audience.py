"""Those who are told about the course of a run: the progress bar and the callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from taut.training._ledger.epsilon_course import EpsilonCourse
from taut.training._ledger.ledger import RunLedger
from taut.training._plan.plan import Plan
from taut.training._run.logs.callbacks import Callback, StepEnd
from taut.training._run.logs.progress import Progress

if TYPE_CHECKING:
    from taut.training._run.trainer import PrivateTrainer

__all__ = ["Audience"]


class Audience:
    """Tells about steps what is true of each; computes nothing if nobody listens.

    Args:
        trainer: trainer whose run it is; callbacks get it.
        callbacks: callbacks of the trainer.
        plan: plan of the run.
        ledger: ledger that counts its steps.
        progress: whether to show a bar.
    """

    def __init__(
        self,
        trainer: PrivateTrainer,
        callbacks: Sequence[Callback],
        plan: Plan,
        ledger: RunLedger,
        *,
        progress: bool,
    ) -> None:
        self._trainer = trainer
        self._callbacks = callbacks
        self._plan = plan
        self._ledger = ledger
        self._course = EpsilonCourse(ledger, plan.delta)
        for callback in callbacks:
            callback.on_fit_start(trainer)
        self._progress = Progress(plan.steps, plan.batch_size, wanted=progress)

    def step_ended(self, loss: float | None, dropped: int, norm: float | None) -> None:
        """Tell about an update.

        Args:
            loss: the mean of the batch, private.
            dropped: how many examples counted for nothing, private.
            norm: what the next step is clipped to, if that changes.
        """
        if not self._callbacks and not self._progress.is_shown:
            return
        plan, step = self._plan, self._trainer.step
        event = StepEnd(
            step,
            plan.steps,
            plan.epochs_at(step),
            self._course.now(),
            loss,
            dropped,
            norm,
            self._ledger.steps,
        )
        self._progress.show(event)
        for callback in self._callbacks:
            callback.on_step_end(self._trainer, event)
        if self._ends_epoch(step):
            for callback in self._callbacks:
                callback.on_epoch_end(self._trainer, event)

    def _ends_epoch(self, step: int) -> bool:
        plan = self._plan
        if plan.rate_schedule is not None:
            return int(plan.epochs_at(step)) > int(plan.epochs_at(step - 1))
        return step % max(round(1 / plan.rate), 1) == 0

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._progress.close()
