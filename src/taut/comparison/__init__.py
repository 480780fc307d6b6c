"""Methods side by side, at equal privacy and equally many gradients: predict, train, recommend."""

from taut._base import surface
from taut.comparison._arms import Arm, ArmSkipped, Group, Hybrid, Mix, Normalised, Plain, Twice
from taut.comparison._compare import compare
from taut.comparison._intervals import Interval
from taut.comparison._prediction import ArmPrediction, Prediction, predict
from taut.comparison._result import Comparison
from taut.comparison._run_file import Run
from taut.comparison._settings import Settings
from taut.comparison._summary import ArmResult
from taut.comparison._task import Task

__all__ = [
    "Arm",
    "ArmPrediction",
    "ArmResult",
    "ArmSkipped",
    "Comparison",
    "Group",
    "Hybrid",
    "Interval",
    "Mix",
    "Normalised",
    "Plain",
    "Prediction",
    "Run",
    "Settings",
    "Task",
    "Twice",
    "compare",
    "predict",
]

surface.claim(globals())
