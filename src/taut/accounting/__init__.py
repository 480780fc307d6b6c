"""Privacy losses: releases as values that add up, with certified bounds on every answer."""

from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._bank import (
    approximate,
    discrete_gaussian,
    discrete_laplace,
    exponential,
    finite,
    from_profile,
    gaussian,
    laplace,
    pure,
    randomized_response,
    stability_release,
    variance_pair,
    zero,
)
from taut.accounting._bounds import Bounds
from taut.accounting._calibrate import Calibration, calibrate
from taut.accounting._dp_events import from_dp_event, to_dp_event
from taut.accounting._explain import Explanation
from taut.accounting._loss import PrivacyLoss

__all__ = [
    "Adjacency",
    "Bounds",
    "Calibration",
    "Explanation",
    "Half",
    "PrivacyLoss",
    "approximate",
    "calibrate",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential",
    "finite",
    "from_dp_event",
    "from_profile",
    "gaussian",
    "laplace",
    "pure",
    "randomized_response",
    "stability_release",
    "to_dp_event",
    "variance_pair",
    "zero",
]
