"""Privacy reports, and pictures of privacy losses, noise and geometry; pictures need matplotlib."""

from taut.report._geometry import plot_geometry
from taut.report._noise import plot_noise
from taut.report._privacy_report import PrivacyReport, privacy_report
from taut.report._samplers import plot_samplers

__all__ = ["PrivacyReport", "plot_geometry", "plot_noise", "plot_samplers", "privacy_report"]
