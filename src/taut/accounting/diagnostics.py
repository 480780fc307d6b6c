"""Estimates and values at the data at hand: they explain a loss, and no guarantee is made of them.

Four estimate what a formula of a paper says about large runs or many coordinates; the others are
divergences that hold for one dataset alone, in a type that no loss accepts.
"""

from taut._base import surface
from taut.accounting._comparisons.data_dependent import (
    DataDependent,
    data_dependent_gnmax,
    data_dependent_lnmax,
    data_dependent_screening,
)
from taut.accounting._comparisons.equal_compute import estimate_many_coordinates, sampled_mean_error
from taut.accounting._comparisons.equal_variance import estimate_loss_moments, fisher_information

__all__ = [
    "DataDependent",
    "data_dependent_gnmax",
    "data_dependent_lnmax",
    "data_dependent_screening",
    "estimate_loss_moments",
    "estimate_many_coordinates",
    "fisher_information",
    "sampled_mean_error",
]

surface.claim(globals())
