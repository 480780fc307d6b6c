"""Training runs from the outside: what one can afford, one from a file, one that goes on."""

from taut._base import surface
from taut.runs._config import RunConfig
from taut.runs._run import PreparedRun, RunOutcome, prepare, resume, train
from taut.runs._sweep import PlanSweep, SweptPlan, sweep_plan

__all__ = [
    "PlanSweep",
    "PreparedRun",
    "RunConfig",
    "RunOutcome",
    "SweptPlan",
    "prepare",
    "resume",
    "sweep_plan",
    "train",
]

surface.claim(globals())
