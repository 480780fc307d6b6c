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

__all__ = ["Arm", "ArmSkipped", "Group", "Hybrid", "Mix", "Normalised", "Plain", "Twice"]

surface.claim(globals())
