"""Training runs from the outside: what one can afford, one from a file, one that goes on."""

from typing import TYPE_CHECKING

from taut._base import surface
from taut.runs._config import RunConfig
from taut.runs._release_file import PromiseSection, ReleaseConfig
from taut.runs._sweep import PlanSweep, SweptPlan, sweep_plan
from taut.runs._tune_config import PlannedSearch, TuneConfig, TuneSection

if TYPE_CHECKING:
    from taut.runs._run import PreparedRun, RunOutcome, prepare, resume, train
    from taut.runs._task import read_task
    from taut.runs._tune import TuningOutcome, prepare_tuning, tune_run, tuning_options

__all__ = [
    "PlanSweep",
    "PlannedSearch",
    "PreparedRun",
    "PromiseSection",
    "ReleaseConfig",
    "RunConfig",
    "RunOutcome",
    "SweptPlan",
    "TuneConfig",
    "TuneSection",
    "TuningOutcome",
    "prepare",
    "prepare_tuning",
    "read_task",
    "resume",
    "sweep_plan",
    "train",
    "tune_run",
    "tuning_options",
]

_NEED_TORCH = {
    "taut.runs._run": ("PreparedRun", "RunOutcome", "prepare", "resume", "train"),
    "taut.runs._task": ("read_task",),
    "taut.runs._tune": ("TuningOutcome", "prepare_tuning", "tune_run", "tuning_options"),
}

surface.claim(globals(), _NEED_TORCH, needs="taut.training._tensors")
