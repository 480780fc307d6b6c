"""The accountants that taut is compared with, each behind the same call."""

import math

import dp_accounting
import prv_accountant
import torch
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from measuring import Answer
from opacus.accountants import PRVAccountant as OpacusPRV
from opacus.accountants import RDPAccountant as OpacusRDP

torch.set_num_threads(1)

PACKAGES = ("taut", "dp-accounting", "opacus", "prv-accountant", "numpy", "scipy")


# --- dp-accounting ---------------------------------------------------------------------------


def sampled_gaussian_event(sigma, rate, steps):
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    return dp_accounting.SelfComposedDpEvent(step, steps)


def sampled_laplace_event(scale, rate, steps):
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.LaplaceDpEvent(scale))
    return dp_accounting.SelfComposedDpEvent(step, steps)


def dp_pld(event, delta, grid):
    accountant = PLDAccountant(value_discretization_interval=grid)
    return Answer(accountant.compose(event).get_epsilon(delta))


def dp_rdp(event, delta):
    return Answer(RdpAccountant().compose(event).get_epsilon(delta))


def dp_pld_mixed(gaussian, laplace, randomized_response, delta, grid):
    """Each release is (parameter, count). Randomized response has no add/remove event."""
    options = {"value_discretization_interval": grid}
    (sigma, gaussians), (scale, laplaces), (p, responses) = gaussian, laplace, randomized_response
    build = privacy_loss_distribution
    total = build.from_gaussian_mechanism(sigma, use_connect_dots=True, **options)
    total = total.self_compose(gaussians)
    noise = build.from_laplace_mechanism(scale, use_connect_dots=True, **options)
    total = total.compose(noise.self_compose(laplaces))
    answers = build.from_randomized_response(2 * (1 - p), num_buckets=2, **options)
    total = total.compose(answers.self_compose(responses))
    return Answer(total.get_epsilon_for_delta(delta))


def dp_pld_discrete_gaussian(sigma, count, delta, grid):
    one = privacy_loss_distribution.from_discrete_gaussian_mechanism(
        sigma, value_discretization_interval=grid, use_connect_dots=True
    )
    return Answer(one.self_compose(count).get_epsilon_for_delta(delta))


def dp_calibrate(rate, steps, epsilon, delta, *, grid, tolerance):
    return dp_accounting.calibrate_dp_mechanism(
        lambda: PLDAccountant(value_discretization_interval=grid),
        lambda sigma: sampled_gaussian_event(sigma, rate, steps),
        epsilon,
        delta,
        tol=tolerance,
    )


# --- Opacus ----------------------------------------------------------------------------------


def opacus_prv(sigma, rate, steps, delta):
    return _opacus(OpacusPRV(), sigma, rate, steps, delta)


def opacus_rdp(sigma, rate, steps, delta):
    return _opacus(OpacusRDP(), sigma, rate, steps, delta)


def _opacus(accountant, sigma, rate, steps, delta):
    accountant.history = [(sigma, rate, steps)]
    return Answer(float(accountant.get_epsilon(delta)))


# --- prv-accountant --------------------------------------------------------------------------


def prv(sigma, rate, steps, delta, error):
    step = prv_accountant.PoissonSubsampledGaussianMechanism(
        sampling_probability=rate, noise_multiplier=sigma
    )
    return _prv([(step, steps)], delta, error)


def prv_mixed(gaussian, laplace, randomized_response, delta, error):
    """Each release is (parameter, count)."""
    (sigma, gaussians), (scale, laplaces), (p, responses) = gaussian, laplace, randomized_response
    releases = [
        (prv_accountant.GaussianMechanism(sigma), gaussians),
        (prv_accountant.LaplaceMechanism(1 / scale), laplaces),
        (prv_accountant.PureDPMechanism(math.log(p / (1 - p))), responses),
    ]
    return _prv(releases, delta, error)


def _prv(releases, delta, error):
    mechanisms, counts = (list(column) for column in zip(*releases, strict=True))
    accountant = prv_accountant.PRVAccountant(
        prvs=mechanisms,
        eps_error=error,
        delta_error=delta / 1000,
        max_self_compositions=counts,
    )
    lower, _, upper = accountant.compute_epsilon(delta, counts)
    return Answer(float(upper), float(lower))
