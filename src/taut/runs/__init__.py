"""Training runs from the outside: what one can afford, one from a file, one that goes on."""

from typing import TYPE_CHECKING

from taut._base import surface
from taut.runs._config import RunConfig
from taut.runs._sweep import PlanSweep, SweptPlan, sweep_plan

if TYPE_CHECKING:
    from taut.runs._run import PreparedRun, RunOutcome, prepare, resume, train
    from taut.runs._task import read_task

__all__ = [
    "PlanSweep",
    "PreparedRun",
    "RunConfig",
    "RunOutcome",
    "SweptPlan",
    "prepare",
    "read_task",
    "resume",
    "sweep_plan",
    "train",
]

_NEED_TORCH = {
    "taut.runs._run": ("PreparedRun", "RunOutcome", "prepare", "resume", "train"),
    "taut.runs._task": ("read_task",),
}

surface.claim(globals(), _NEED_TORCH, needs="taut.training._tensors")
