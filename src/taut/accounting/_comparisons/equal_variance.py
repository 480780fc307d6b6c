"""Mixed noise beside Gaussian noise: the fair comparison, and diagnostics that are no guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting._adjacency import halves
from taut.accounting._budgets.calibrate import least
from taut.accounting._comparisons.equal_compute import renyi_epsilon
from taut.accounting._engines.bounds import Bounds
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.uniform_moments import NARROW, log_window
from taut.accounting._mechanisms.uniform_noise import MixedGaussian
from taut.errors import InfeasibleBudget

__all__ = ["MixingComparison", "compare_mixing", "estimate_loss_moments", "fisher_information"]

_SIGMA_ACCURACY = 1e-7  # relative: more digits than anybody reads of a ratio of variances
_EDGES_APART = 100.0  # deviations between two edges: from here on each has information of its own
_DENSITY_STEP = 0.02  # of the trapezoid rule, in deviations: exp(-2 pi^2 / 0.02^2) is no error


@dataclass(frozen=True)
class MixingComparison:
    """Mixed noise beside Gaussian noise.

    From :func:`compare_mixing`, all epsilons come from Renyi divergences alike; the results of
    training runs have those that plans promise.

    Attributes:
        epsilon: epsilon of the mixed noise.
        injected_std: standard deviation of the mixed noise, per coordinate.
        gaussian_std: standard deviation of the Gaussian noise that has the same epsilon.
        variance_ratio: how much more variance the mixed noise has than that Gaussian.
        epsilon_equal_variance: epsilon of a Gaussian with the standard deviation ``injected_std``.
        epsilon_without_mixing: epsilon of the Gaussian part alone.
        delta: at which all hold.
    """

    epsilon: float
    injected_std: float
    gaussian_std: float
    variance_ratio: float
    epsilon_equal_variance: float
    epsilon_without_mixing: float
    delta: float


def compare_mixing(
    loss: PrivacyLoss, delta: float, *, conversion: str = "improved"
) -> MixingComparison:
    """Return what mixed noise costs beside Gaussian noise, in variance and in epsilon.

    By the Cramer-Rao bound the ratio of variances is above 1 whenever the noise is mixed.

    Args:
        loss: repetitions of one ``mixed_gaussian`` release.
        delta: probability delta of the guarantee, in (0, 1).
        conversion: rule that turns divergences into epsilon, as for ``epsilon_from_rdp``.

    **Guarantee**: the epsilons are upper bounds under the relation of ``loss``; the comparison is
    between bounds of one kind. Gaussian noise alone has better ones (a dominating pair).

    Raises:
        ValueError: if ``loss`` is not a multiple of one mixed Gaussian release.

    Example:
        >>> from taut.accounting._mechanisms.uniform_noise import mixed_gaussian
        >>> step = mixed_gaussian(0.335, 11.25, sensitivity_inf=0.1, rate=0.03)
        >>> found = compare_mixing(3400 * step, delta=1e-5, conversion="classic")
        >>> round(found.epsilon, 2), round(found.variance_ratio, 1)
        (8.0, 5.3)
    """
    validate.instance(PrivacyLoss, loss=loss)
    release, count = loss.terms[0] if len(loss.terms) == 1 else (None, 0)
    if not isinstance(release, MixedGaussian):
        raise ValueError(f"loss must be a multiple of one mixed_gaussian, got loss={loss!r}")
    mixed, directions = release, halves(loss.adjacency)

    def gaussian(sigma: float) -> float:
        alone = MixedGaussian(sigma, 0.0, mixed.sensitivity, mixed.sensitivity, None, mixed.rate)
        return renyi_epsilon(alone, count, directions, delta, conversion)

    epsilon = renyi_epsilon(mixed, count, directions, delta, conversion)
    injected = math.hypot(mixed.sigma, mixed.width / math.sqrt(12))
    equal = _equal_sigma(gaussian, epsilon, delta, (mixed.sigma, injected))
    return MixingComparison(
        epsilon,
        injected,
        equal,
        (injected / equal) ** 2,
        gaussian(injected),
        gaussian(mixed.sigma),
        delta,
    )


def _equal_sigma(
    epsilon_at: Callable[[float], float],
    epsilon: float,
    delta: float,
    bracket: tuple[float, float],
) -> float:
    """Return the sigma whose epsilon is that of the mixed noise.

    Where the order that decides is so small that the Gaussian part alone is known best, mixing
    gains nothing, and that part has the same epsilon.
    """
    if epsilon_at(min(bracket)) <= epsilon:
        return min(bracket)

    def bounds_at(sigma: float, _: float) -> Bounds:
        value = epsilon_at(sigma)
        return Bounds(value, value)

    try:
        return least(bounds_at, epsilon, delta, _SIGMA_ACCURACY, bracket)[0]
    except InfeasibleBudget:  # so little is mixed in that both ends are the same but for rounding
        return max(bracket)


def fisher_information(sigma: float, width: float) -> float:
    """Return the Fisher information of the location of mixed Gaussian noise.

    For ever smaller bounds on coordinates the noise acts as a Gaussian of standard deviation
    1 / sqrt(information), which is at most that of the mixed noise itself (Cramer-Rao). Beyond the
    largest double it is infinite.
    """
    sigma, width = validate.positive(sigma=sigma), validate.non_negative(width=width)
    if width / sigma < NARROW:
        return 1 / sigma / sigma
    wide = width / sigma
    w = min(wide, _EDGES_APART)
    x, log_density, step = _lattice(w)
    low, high = x - w / 2, x + w / 2
    slope = np.exp(-(low**2) / 2) - np.exp(-(high**2) / 2)
    score = slope / math.sqrt(2 * math.pi) * np.exp(-log_density)
    return float(step * np.sum(np.exp(log_density) * score**2)) / wide / sigma / sigma


def estimate_loss_moments(sigma: float, width: float, shift: float) -> tuple[float, float]:
    """Return mean and variance of the loss of one coordinate moved by ``shift``: an estimate.

    For widths far above sigma both fall as 1 / width. Sums of losses are not normal at the tails
    that matter, so no epsilon follows from these numbers.
    """
    sigma, width = validate.positive(sigma=sigma), validate.non_negative(width=width)
    v = validate.positive(shift=shift) / sigma
    if width / sigma < NARROW:
        return v**2 / 2, v**2
    w = width / sigma
    x, log_density, step = _lattice(w)
    loss = log_density - log_window(x - v - w / 2, x - v + w / 2)
    weights = step * np.exp(log_density) / w
    mean = float(np.sum(weights * loss))
    return mean, float(np.sum(weights * loss**2)) - mean**2


def _lattice(width: float) -> tuple[Vector, Vector, float]:
    """Return points, log(width times density) there, and their distance, in units of sigma."""
    reach = width / 2 + 12
    step = _DENSITY_STEP * max(1.0, reach / 2000)
    x: Vector = np.arange(-math.ceil(reach / step), math.ceil(reach / step) + 1.0) * step
    return x, log_window(x - width / 2, x + width / 2), step
