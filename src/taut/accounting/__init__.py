"""Privacy losses: releases as values that add up, with certified bounds on every answer."""

from taut.accounting import renyi
from taut.accounting._additive import (
    additive_noise,
)
from taut.accounting._adjacency import (
    Adjacency,
    Half,
)
from taut.accounting._asymptotics import (
    EqualComputePlan,
    equal_compute_plan,
    estimate_many_coordinates,
)
from taut.accounting._bank import (
    approximate,
    discrete_gaussian,
    discrete_laplace,
    exponential,
    finite,
    from_profile,
    from_rdp,
    gaussian,
    laplace,
    pure,
    randomized_response,
    stability_release,
    variance_pair,
    zero,
)
from taut.accounting._bounds import (
    Bounds,
)
from taut.accounting._budgets import (
    budget_for,
)
from taut.accounting._calibrate import (
    Calibration,
    calibrate,
)
from taut.accounting._coordinates import (
    coordinatewise,
    twice_sampled,
)
from taut.accounting._data_dependent import (
    DataDependent,
    data_dependent_gnmax,
    data_dependent_lnmax,
    data_dependent_screening,
)
from taut.accounting._dp_events import (
    from_dp_event,
    to_dp_event,
)
from taut.accounting._explain import (
    Explanation,
)
from taut.accounting._filters import (
    PrivacyFilter,
    PrivacyOdometer,
    Remaining,
)
from taut.accounting._individual import (
    IndividualFilter,
)
from taut.accounting._loss import (
    PrivacyLoss,
)
from taut.accounting._mixed_noise import (
    mixed_gaussian,
    mixed_laplace,
)
from taut.accounting._mixture import (
    group_poisson,
    mixture_of_gaussians,
)
from taut.accounting._screening import (
    noisy_screening,
    noisy_vote,
    screening_rdp,
)

__all__ = [
    "Adjacency",
    "Bounds",
    "Calibration",
    "DataDependent",
    "EqualComputePlan",
    "Explanation",
    "Half",
    "IndividualFilter",
    "PrivacyFilter",
    "PrivacyLoss",
    "PrivacyOdometer",
    "Remaining",
    "additive_noise",
    "approximate",
    "budget_for",
    "calibrate",
    "coordinatewise",
    "data_dependent_gnmax",
    "data_dependent_lnmax",
    "data_dependent_screening",
    "discrete_gaussian",
    "discrete_laplace",
    "equal_compute_plan",
    "estimate_many_coordinates",
    "exponential",
    "finite",
    "from_dp_event",
    "from_profile",
    "from_rdp",
    "gaussian",
    "group_poisson",
    "laplace",
    "mixed_gaussian",
    "mixed_laplace",
    "mixture_of_gaussians",
    "noisy_screening",
    "noisy_vote",
    "pure",
    "randomized_response",
    "renyi",
    "screening_rdp",
    "stability_release",
    "to_dp_event",
    "twice_sampled",
    "variance_pair",
    "zero",
]
