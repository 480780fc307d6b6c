"""The state of a run between two steps: what a checkpoint holds, and how a run goes on from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource, SeededForExperiments
from taut.training._data.loader import PrivateLoader
from taut.training._ledger.history import RunHistory
from taut.training._ledger.ledger import RunLedger
from taut.training._plan.plan import Plan
from taut.training._run.refresh import Refresh
from taut.training._step.moving_average import MovingAverage
from taut.training._step.private_gradient import PrivateGradient
from taut.training._tensors.examples import LossFunction
from taut.training._tensors.processes import Processes

__all__ = ["RunState"]


@dataclass(frozen=True)
class RunState:
    """The parts of a run that change from step to step.

    **Guarantee**: `saved` holds released weights, what an optimizer made of noisy gradients, the
    clipping norm that was released, and counts. The states of generators are in it for experiments
    with a seed alone.
    """

    plan: Plan
    ledger: RunLedger
    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    average: MovingAverage | None
    loader: PrivateLoader
    noise: RandomSource
    processes: Processes
    gradient: PrivateGradient
    refresh: Refresh | None = None
    losses: LossFunction | None = None

    def saved(self, step: int) -> dict[str, Any]:
        """Return what a checkpoint holds after `step` updates, which all processes have had alike.

        Raises:
            UnsoundConfiguration: if processes have different optimizers or weights.
        """
        self.gradient.check_processes(self.optimizer)
        seeded = isinstance(self.noise, SeededForExperiments)
        return {
            "step": step,
            "plan": self.plan.to_json(),
            "runs": self.ledger.history.runs,
            "ledger_hash": self.ledger.history.head,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "gradient": self.gradient.state_dict(),
            "refresh": None if self.refresh is None else self.refresh.state_dict(),
            "loader": json.dumps(self.processes.gathered(self.loader.state_dict())),
            "noise": json.dumps(self.noise.state_dict()) if seeded else None,  # type: ignore[attr-defined]
            "masks": self._states_of_masks() if seeded else None,
            "torch": self.processes.gathered(torch.get_rng_state()) if seeded else None,
        }

    def check(self, saved: Mapping[str, Any]) -> None:
        """Refuse a checkpoint of another plan, or one that knows of steps the ledger does not.

        Counting up to what the checkpoint knows would not do: updates that were seen after it
        would be forgotten.
        """
        if Plan.from_json(saved["plan"]) != self.plan:
            raise UnsoundConfiguration(
                "the checkpoint belongs to a run with another plan; use another directory"
            )
        if self.ledger.history.missing(saved["runs"]):
            raise UnsoundConfiguration(
                f"the ledger counts {self.ledger.steps} steps and the checkpoint knows of "
                f"{sum(saved['runs'].values())}: the ledger was lost or cut off, and nobody knows "
                "what was spent after the checkpoint. Restore ledger.jsonl from a copy. Without "
                f"one the model in the checkpoint is ({self.plan.epsilon:g}, {self.plan.delta:g})-"
                "private, as planned, since the ledger had let no further step pass; train it no "
                "further, and begin a new run in another directory, whose loss adds to that"
            )
        path, head = self.ledger.path, saved.get("ledger_hash")
        if path is None or head is None:
            return
        if not self.processes.agreed(lambda: RunHistory.passed(path, head)):
            raise UnsoundConfiguration(
                f"no line of {path.name} has the hash that it ended with when the checkpoint was "
                "written: lines were changed since, or it is the ledger of another run. Restore "
                "it from a copy"
            )

    def load(self, saved: Mapping[str, Any]) -> int:
        """Go on from a checkpoint; return how many updates it has had."""
        given = {"scheduler": self.scheduler, "average": self.average}
        for name, part in given.items():
            if (saved[name] is None) != (part is None):
                argument = "ema" if name == "average" else name
                raise ValueError(
                    f"{argument} must be given again if and only if the run began with one"
                )
        if self.refresh is not None and saved["refresh"]["step"] is not None:
            assert self.losses is not None
            self.refresh.load_state_dict(saved["refresh"], self.losses)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(saved["scheduler"])
        if self.average is not None:
            self.average.load_state_dict(saved["average"])
        self.gradient.load_state_dict(saved["gradient"])
        self.loader.load_state_dict(self._own(json.loads(saved["loader"])))
        if saved["noise"] is not None and isinstance(self.noise, SeededForExperiments):
            self.noise.load_state_dict(json.loads(saved["noise"]))
            torch.set_rng_state(saved["torch"][self.processes.rank])
            if self.gradient.masks is not None and saved.get("masks") is not None:
                self.gradient.masks.load_state_dict(json.loads(saved["masks"])[self.processes.rank])
        return int(saved["step"])

    def _states_of_masks(self) -> str | None:
        """Return where every process's masks stand; alone they share the noise's source."""
        if self.gradient.masks is None or self.processes.group is None:
            return None
        return json.dumps(self.processes.gathered(self.gradient.masks.state_dict()))

    def _own(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the state of this process's loader."""
        if len(states) != self.processes.size and states[0]["generator"] is not None:
            raise ValueError(
                f"the experiment was begun with {len(states)} processes and a seed, and can be "
                f"repeated with as many only; there are {self.processes.size}"
            )
        return states[min(self.processes.rank, len(states) - 1)]
