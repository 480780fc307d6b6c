"""Methods side by side, at equal privacy and equally many gradients: predict, train, recommend."""

from taut._base import surface
from taut.comparison import arms
from taut.comparison._compare import compare
from taut.comparison._intervals import Interval
from taut.comparison._prediction import ArmPrediction, Prediction, predict
from taut.comparison._result import Comparison
from taut.comparison._run_file import Run
from taut.comparison._settings import Settings
from taut.comparison._summary import ArmResult
from taut.comparison._task import Task

__all__ = [
    "ArmPrediction",
    "ArmResult",
    "Comparison",
    "Interval",
    "Prediction",
    "Run",
    "Settings",
    "Task",
    "arms",
    "compare",
    "predict",
]

surface.claim(globals(), moved={"arms": arms.__all__})
