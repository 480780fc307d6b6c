"""Privacy reports, and pictures of losses, noise, geometry and comparisons."""

from taut._base import surface
from taut.report._plots.clip_bias import plot_clip_bias
from taut.report._plots.comparison import plot_comparison
from taut.report._plots.geometry import plot_geometry
from taut.report._plots.noise import plot_noise
from taut.report._plots.plans import plot_plans
from taut.report._plots.ranking import plot_ranking
from taut.report._plots.samplers import plot_samplers
from taut.report._privacy.report import PrivacyReport, privacy_report

__all__ = [
    "PrivacyReport",
    "plot_clip_bias",
    "plot_comparison",
    "plot_geometry",
    "plot_noise",
    "plot_plans",
    "plot_ranking",
    "plot_samplers",
    "privacy_report",
]

surface.claim(globals())
