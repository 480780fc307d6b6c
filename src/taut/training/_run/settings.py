"""Settings of a trainer by topic: how examples are fetched, runs are kept, people are told."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn
from torch.utils.data import default_collate

from taut._base import validate
from taut.training._data.augmentation import Augment, Augmentation
from taut.training._data.batches import inputs_and_targets
from taut.training._run.logs.callbacks import Callback
from taut.training._tensors.examples import Collate, length
from taut.training._tensors.rows_at_once import rows_at_once

__all__ = ["Checkpointing", "Loading", "Logs", "check_settings"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Loading:
    """How examples become batches.

    Args:
        max_physical_batch_size: number of rows that are computed at once; larger batches are
            computed in parts, with the same outcome. All copies of an example count, and are never
            in two parts. "auto" takes as many as should fit into a quarter of the memory that is
            free, by a trial with zeros in the shape of the first example: no value and no size of a
            batch is looked at. If examples differ in length, give a number.
        num_workers: number of processes that fetch examples; 0 fetches them in this one.
        collate_fn: function that makes a batch of a list of examples: inputs and targets.
        augment: function that takes the inputs of a batch and returns a random variant of each
            example; what becomes of one must not depend on the others.
        copies: number of variants of an example that are drawn in a step. Its gradient is the mean
            over them, clipped as one vector: they cost time, not epsilon (De et al. 2022).

    **Guarantee**: none of these changes what a plan costs. Functions that let one example change
    another are refused by the trainer, which tests them on batches.

    Raises:
        ValueError: for copies without `augment`, and for numbers out of range.

    Example:
        >>> from taut.training import Loading
        >>> Loading(max_physical_batch_size=256).num_workers
        0
    """

    max_physical_batch_size: int | Literal["auto"] | None = None
    num_workers: int = 0
    collate_fn: Collate | None = None
    augment: Augment | None = None
    copies: int = 1

    def __post_init__(self) -> None:
        validate.integer(num_workers=self.num_workers)
        Augmentation.of(self.augment, self.copies)
        if self.max_physical_batch_size not in (None, "auto"):
            validate.positive_integer(max_physical_batch_size=self.max_physical_batch_size)

    @property
    def examples_at_once(self) -> int | None:
        """The most examples whose copies are computed at once, at least one; None for all."""
        rows = self.max_physical_batch_size
        return max(rows // self.copies, 1) if isinstance(rows, int) else None

    def fitted(self, model: nn.Module, dataset: Any, processes: int) -> Loading:
        """Return these settings with a number in the place of "auto".

        Args:
            model: model that is trained.
            dataset: dataset, of whose first example only shapes and types count.
            processes: number of processes that share the memory.
        """
        if self.max_physical_batch_size != "auto":
            return self
        length(dataset)  # refuses what holds no examples
        batch = (self.collate_fn or default_collate)([dataset[0]])
        inputs, _ = inputs_and_targets(batch, next(model.parameters()).device)
        found = rows_at_once(model, inputs, processes)
        _LOG.info("computing at most %d rows at once, by a trial with zeros", found)
        return replace(self, max_physical_batch_size=found)


@dataclass(frozen=True, kw_only=True)
class Checkpointing:
    """When a run in a directory writes checkpoints, beside the one at its end.

    Args:
        every: number of steps after which a checkpoint is written; None for no such rule.
        seconds: seconds after which a checkpoint is written.

    **Guarantee**: what was spent does not depend on it, since the ledger is written at every step.
    Steps after the last checkpoint are repeated after a crash, and count again.

    Raises:
        ValueError: for numbers out of range.

    Example:
        >>> from taut.training import Checkpointing
        >>> Checkpointing(every=100)
        Checkpointing(every=100, seconds=60.0)
    """

    every: int | None = None
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.every is not None:
            validate.positive_integer(every=self.every)
        validate.non_negative(seconds=self.seconds)


@dataclass(frozen=True, kw_only=True)
class Logs:
    """Who is told about the course of a run.

    Args:
        callbacks: objects that are told about every step, by the first process alone and with the
            losses of its share.
        progress: whether the course of the run is shown, if standard error is a terminal.
        private_metrics: whether losses of private batches are written to `private.csv` in the
            directory of the run; that file must not be published.

    **Guarantee**: none: callbacks and the progress bar get losses of private batches, and belong
    to the owner of the data. `CSVLog` and `TensorBoardLog` write what may be published.

    Example:
        >>> from taut.training import CSVLog, Logs
        >>> logs = Logs(callbacks=[CSVLog("steps.csv")], progress=False)
        >>> logs.private_metrics
        False
    """

    callbacks: Sequence[Callback] = ()
    progress: bool = True
    private_metrics: bool = False


_MOVED = {
    "max_physical_batch_size": "loading=Loading(max_physical_batch_size=...)",
    "num_workers": "loading=Loading(num_workers=...)",
    "collate_fn": "loading=Loading(collate_fn=...)",
    "augment": "loading=Loading(augment=...)",
    "copies": "loading=Loading(copies=...)",
    "checkpoint_every": "checkpoints=Checkpointing(every=...)",
    "checkpoint_seconds": "checkpoints=Checkpointing(seconds=...)",
    "callbacks": "logs=Logs(callbacks=...)",
    "progress": "logs=Logs(progress=...)",
    "log_private_metrics": "logs=Logs(private_metrics=...)",
}
"""Where arguments of a trainer are now that once stood by themselves."""


def check_settings(
    loading: object, checkpoints: object, logs: object, unknown: Mapping[str, object]
) -> None:
    """Refuse settings of another type, and arguments that a trainer does not have.

    Raises:
        TypeError: for these; says what to write.
    """
    for name in unknown:
        if name in _MOVED:
            raise TypeError(f"{name} is now {_MOVED[name]}")
        raise TypeError(f"PrivateTrainer has no argument {name!r}")
    for name, value, kind in (
        ("loading", loading, Loading),
        ("checkpoints", checkpoints, Checkpointing),
        ("logs", logs, Logs),
    ):
        if not isinstance(value, kind):
            raise validate.WrongType(
                f"{name} must be a {kind.__name__}, got {name}={value!r}; write "
                f"{name}={kind.__name__}(...)"
            )
