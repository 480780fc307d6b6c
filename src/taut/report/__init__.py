"""Pictures of privacy losses; needs matplotlib."""

from taut.report._noise import plot_noise
from taut.report._samplers import plot_samplers

__all__ = ["plot_noise", "plot_samplers"]
