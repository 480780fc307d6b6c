"""The directory of a run: what its files are called."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from taut.training._plan.plan import Plan

__all__ = ["RunDirectory"]


@dataclass(frozen=True, init=False)
class RunDirectory:
    """The files of a run, in one directory; they need not exist.

    Args:
        path: the directory.

    All of them may be published but `private_losses`, `private_key` and `private_noise`;
    `checkpoint` and `model` hold the weights.

    Example:
        >>> from taut.training import RunDirectory
        >>> RunDirectory("runs/digits").ledger.as_posix()
        'runs/digits/ledger.jsonl'
    """

    path: Path

    def __init__(self, path: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "path", Path(path))

    @property
    def config(self) -> Path:
        """The configuration that the run was begun with, if it was begun from a file."""
        return self.path / "config.toml"

    @property
    def plan(self) -> Path:
        """What was planned, as `Plan.to_json` writes it."""
        return self.path / "plan.json"

    @property
    def ledger(self) -> Path:
        """What was spent, for `RunHistory.read`."""
        return self.path / "ledger.jsonl"

    @property
    def checkpoint(self) -> Path:
        """What the run needs to go on after it was killed."""
        return self.path / "checkpoint.pt"

    @property
    def result(self) -> Path:
        """What the run promises, as `TrainingResult.to_json` writes it."""
        return self.path / "result.json"

    @property
    def metrics(self) -> Path:
        """The course of the run, without anything private."""
        return self.path / "metrics.csv"

    @property
    def private_losses(self) -> Path:
        """The losses of private batches, if they were asked for; not for publication."""
        return self.path / "private.csv"

    @property
    def private_key(self) -> Path:
        """The key of the dataset's fingerprint in the ledger; not for publication."""
        return self.path / "private.key"

    @property
    def private_noise(self) -> Path:
        """The keys of noise that is correlated over steps; not for publication."""
        return self.path / "private.noise"

    @property
    def model(self) -> Path:
        """The trained weights."""
        return self.path / "model.pt"

    @property
    def audit(self) -> Path:
        """What an attack on the run's mechanism reached, if one was asked for."""
        return self.path / "audit.json"

    @property
    def report(self) -> Path:
        """The directory of the privacy report."""
        return self.path / "report"

    @property
    def begun(self) -> tuple[Path, ...]:
        """The files of which a run that was begun has at least one."""
        return self.config, self.plan, self.ledger, self.checkpoint

    @property
    def written(self) -> tuple[Path, ...]:
        """The files that a run from a configuration writes."""
        private = self.private_key, self.private_noise
        return (*self.begun, *private, self.metrics, self.model, self.result)

    def read_plan(self) -> Plan:
        """Return the plan of the run, once it is proven.

        Raises:
            ValueError: if no run was begun here, or the file is damaged.
            UnsoundConfiguration: if the promise does not follow from the rest of the plan.
        """
        if not self.plan.exists():
            raise ValueError(f"no run was begun in {str(self.path)!r}: it has no {self.plan.name}")
        return Plan.from_json(self.plan.read_text(encoding="utf-8"))
