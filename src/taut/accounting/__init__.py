"""Privacy losses: releases as values that add up, with certified bounds on every answer."""

from taut._base import surface
from taut.accounting import diagnostics, renyi
from taut.accounting._adjacency import (
    Adjacency,
    Half,
)
from taut.accounting._answers.explain import Explanation
from taut.accounting._answers.gaussian_fit import GaussianFit
from taut.accounting._answers.of_pairs import Engine
from taut.accounting._budgets.allowance import budget_for, gaussian_mu
from taut.accounting._budgets.budget_file import BudgetFile
from taut.accounting._budgets.calibrate import Calibration, calibrate
from taut.accounting._budgets.filters import PrivacyFilter, PrivacyOdometer, Remaining
from taut.accounting._budgets.individual import IndividualFilter
from taut.accounting._budgets.ledger import Ledger, charge
from taut.accounting._budgets.promise import Promise
from taut.accounting._comparisons.equal_compute import (
    EqualComputePlan,
    equal_compute_plan,
)
from taut.accounting._comparisons.equal_variance import (
    MixingComparison,
    compare_mixing,
)
from taut.accounting._comparisons.samplers import (
    Mask,
    SampledRun,
    SamplerComparison,
    compare_samplers,
)
from taut.accounting._engines.bounds import Bounds
from taut.accounting._gaussian_run import GaussianRun, Sampler, samplers_of
from taut.accounting._loss import (
    PrivacyLoss,
)
from taut.accounting._mechanisms.between import between
from taut.accounting._mechanisms.coordinate_blocks import twice_sampled_blocks
from taut.accounting._mechanisms.coordinates import coordinatewise, twice_sampled
from taut.accounting._mechanisms.dp_events import from_dp_event, to_dp_event
from taut.accounting._mechanisms.given import (
    approximate,
    finite,
    from_profile,
    from_rdp,
    pure,
    zero,
)
from taut.accounting._mechanisms.log_concave import additive_noise
from taut.accounting._mechanisms.mixture import (
    group_fixed_size,
    group_poisson,
    linear_last_iterate,
    mixture_of_gaussians,
)
from taut.accounting._mechanisms.noise import (
    discrete_gaussian,
    discrete_laplace,
    gaussian,
    laplace,
    variance_pair,
)
from taut.accounting._mechanisms.screening import noisy_screening, noisy_vote, screening_rdp
from taut.accounting._mechanisms.selection import (
    best_of,
    exponential,
    permute_and_flip,
    randomized_response,
    selection_routes,
    stability_release,
)
from taut.accounting._mechanisms.uniform_noise import mixed_gaussian, mixed_laplace
from taut.accounting._releases.trials import Trials
from taut.accounting._releases.truncated import truncation_probability

__all__ = [
    "Adjacency",
    "Bounds",
    "BudgetFile",
    "Calibration",
    "Engine",
    "EqualComputePlan",
    "Explanation",
    "GaussianFit",
    "GaussianRun",
    "Half",
    "IndividualFilter",
    "Ledger",
    "Mask",
    "MixingComparison",
    "PrivacyFilter",
    "PrivacyLoss",
    "PrivacyOdometer",
    "Promise",
    "Remaining",
    "SampledRun",
    "Sampler",
    "SamplerComparison",
    "Trials",
    "additive_noise",
    "approximate",
    "best_of",
    "between",
    "budget_for",
    "calibrate",
    "charge",
    "compare_mixing",
    "compare_samplers",
    "coordinatewise",
    "diagnostics",
    "discrete_gaussian",
    "discrete_laplace",
    "equal_compute_plan",
    "exponential",
    "finite",
    "from_dp_event",
    "from_profile",
    "from_rdp",
    "gaussian",
    "gaussian_mu",
    "group_fixed_size",
    "group_poisson",
    "laplace",
    "linear_last_iterate",
    "mixed_gaussian",
    "mixed_laplace",
    "mixture_of_gaussians",
    "noisy_screening",
    "noisy_vote",
    "permute_and_flip",
    "pure",
    "randomized_response",
    "renyi",
    "samplers_of",
    "screening_rdp",
    "selection_routes",
    "stability_release",
    "to_dp_event",
    "truncation_probability",
    "twice_sampled",
    "twice_sampled_blocks",
    "variance_pair",
    "zero",
]

surface.claim(globals(), moved={"diagnostics": diagnostics.__all__})
