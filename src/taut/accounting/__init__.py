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
    sampled_mean_error,
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
from taut.accounting._coordinate_blocks import twice_sampled_blocks
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
from taut.accounting._given import approximate, finite, from_profile, from_rdp, pure, zero
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
from taut.accounting._mixing import (
    MixingComparison,
    compare_mixing,
    estimate_loss_moments,
    fisher_information,
)
from taut.accounting._mixture import (
    group_poisson,
    mixture_of_gaussians,
)
from taut.accounting._primitives import (
    discrete_gaussian,
    discrete_laplace,
    gaussian,
    laplace,
    variance_pair,
)
from taut.accounting._samplers import (
    Mask,
    SampledRun,
    SamplerComparison,
    compare_samplers,
)
from taut.accounting._screening import (
    noisy_screening,
    noisy_vote,
    screening_rdp,
)
from taut.accounting._selection import exponential, randomized_response, stability_release

__all__ = [
    "Adjacency",
    "Bounds",
    "Calibration",
    "DataDependent",
    "EqualComputePlan",
    "Explanation",
    "Half",
    "IndividualFilter",
    "Mask",
    "MixingComparison",
    "PrivacyFilter",
    "PrivacyLoss",
    "PrivacyOdometer",
    "Remaining",
    "SampledRun",
    "SamplerComparison",
    "additive_noise",
    "approximate",
    "budget_for",
    "calibrate",
    "compare_mixing",
    "compare_samplers",
    "coordinatewise",
    "data_dependent_gnmax",
    "data_dependent_lnmax",
    "data_dependent_screening",
    "discrete_gaussian",
    "discrete_laplace",
    "equal_compute_plan",
    "estimate_loss_moments",
    "estimate_many_coordinates",
    "exponential",
    "finite",
    "fisher_information",
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
    "sampled_mean_error",
    "screening_rdp",
    "stability_release",
    "to_dp_event",
    "twice_sampled",
    "twice_sampled_blocks",
    "variance_pair",
    "zero",
]
