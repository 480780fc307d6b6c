"""Privacy reports, and pictures of losses, noise, geometry and comparisons."""

from taut.report._clip_bias import plot_clip_bias
from taut.report._comparison import plot_comparison
from taut.report._geometry import plot_geometry
from taut.report._noise import plot_noise
from taut.report._plans import plot_plans
from taut.report._privacy_report import PrivacyReport, privacy_report
from taut.report._samplers import plot_samplers

__all__ = [
    "PrivacyReport",
    "plot_clip_bias",
    "plot_comparison",
    "plot_geometry",
    "plot_noise",
    "plot_plans",
    "plot_samplers",
    "privacy_report",
]
