"""The ways to train that a comparison puts side by side."""

from taut._base import surface
from taut.comparison.arms._arms import (
    Arm,
    ArmSkipped,
    Group,
    Hybrid,
    Mix,
    Normalised,
    Plain,
    Twice,
)
from taut.comparison.arms._correlated import Banded, Buffered, Inverse

__all__ = [
    "Arm",
    "ArmSkipped",
    "Banded",
    "Buffered",
    "Group",
    "Hybrid",
    "Inverse",
    "Mix",
    "Normalised",
    "Plain",
    "Twice",
]

surface.claim(globals())
