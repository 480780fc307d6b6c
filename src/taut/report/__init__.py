"""Pictures of privacy losses and of public vectors; needs matplotlib."""

from taut.report._geometry import plot_geometry
from taut.report._samplers import plot_samplers

__all__ = ["plot_geometry", "plot_samplers"]
