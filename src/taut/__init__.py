"""Differential privacy without slack: the least noise for a promise, the tightest provable promise.

A release of private data has a privacy loss; composing releases adds their losses:

    >>> import taut
    >>> step = taut.gaussian(sigma=1.1).poisson(rate=0.01)  # one DP-SGD step
    >>> total = 5_000 * step + 3 * taut.laplace(scale=20)  # training, then three counts
    >>> lower, upper = total.epsilon_bounds(delta=1e-6)
    >>> lower <= upper == total.epsilon(delta=1e-6)  # the upper bound is the number to publish
    True

The names below come from `taut.accounting` and are loaded on first use, so that ``import taut``
costs nothing until a loss is built. Exceptions live in `taut.errors`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from taut import errors

if TYPE_CHECKING:
    from taut.accounting import (
        Adjacency,
        Bounds,
        Calibration,
        DataDependent,
        EqualComputePlan,
        Explanation,
        Half,
        IndividualFilter,
        Mask,
        MixingComparison,
        PrivacyFilter,
        PrivacyLoss,
        PrivacyOdometer,
        Remaining,
        SampledRun,
        SamplerComparison,
        additive_noise,
        approximate,
        budget_for,
        calibrate,
        compare_mixing,
        compare_samplers,
        coordinatewise,
        data_dependent_gnmax,
        data_dependent_lnmax,
        data_dependent_screening,
        discrete_gaussian,
        discrete_laplace,
        equal_compute_plan,
        estimate_loss_moments,
        estimate_many_coordinates,
        exponential,
        finite,
        fisher_information,
        from_dp_event,
        from_profile,
        from_rdp,
        gaussian,
        group_poisson,
        laplace,
        mixed_gaussian,
        mixed_laplace,
        mixture_of_gaussians,
        noisy_screening,
        noisy_vote,
        pure,
        randomized_response,
        renyi,
        sampled_mean_error,
        screening_rdp,
        stability_release,
        to_dp_event,
        twice_sampled,
        twice_sampled_blocks,
        variance_pair,
        zero,
    )

__version__ = "0.1.0"

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
    "__version__",
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
    "errors",
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

if not TYPE_CHECKING:  # a type checker must still refuse names that do not exist

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'taut' has no attribute {name!r}")
        value = getattr(import_module("taut.accounting"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
