"""Toeplitz encoders with the least error: banded, with a banded inverse, and buffered."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit, softmax

from taut._base import validate
from taut._base.arrays import Vector
from taut.matrix._encoders.objective import Objective, ToeplitzObjective, minimised
from taut.matrix._encoders.toeplitz import BufferedEncoder, InverseToeplitzEncoder, ToeplitzEncoder
from taut.matrix._participation import ONCE, Participation
from taut.matrix._series import correlation, padded, product, quotient
from taut.matrix._workloads import Workload

__all__ = ["banded_inverse", "banded_toeplitz", "buffered"]

_MOST_BANDS = 256  # unknowns of a search; square roots serve for more, and differ little then
_MOST_BUFFERS = 8  # beyond five nothing is gained at a million steps
_SLOWEST_DECAY = 0.3  # of a buffer at the start, in units of 1 / steps
_FASTEST_DECAY = 0.5  # of a buffer at the start; faster ones act as bands do


def banded_toeplitz(
    workload: Workload,
    bands: int,
    participation: Participation = ONCE,
    *,
    goal: str = "root_mean_square",
) -> ToeplitzEncoder:
    """Return the banded Toeplitz matrix with the least error.

    Args:
        workload: answers that are wanted; learning rates are taken for equal.
        bands: number of diagonals, 256 at most. With as many as the separation, an example's
            columns stay orthogonal, which samplers that hide its steps need.
        participation: rule about the steps of one example.
        goal: error that is minimised, "root_mean_square" over the steps or the "maximum".

    The class is that of McKenna 2024. No optimum is certified: a search from the square root stops
    at a minimum.

    Example:
        >>> from taut.matrix import Workload, banded_toeplitz, errors, square_root
        >>> sums = Workload(64)
        >>> best, root = banded_toeplitz(sums, 8), square_root(sums, 8)
        >>> errors(best, sums).root_mean_square < errors(root, sums).root_mean_square
        True
    """
    validate.instance(Workload, workload=workload)
    validate.instance(Participation, participation=participation)
    count = min(_few_bands(bands), workload.steps)
    value = _of_bands(ToeplitzObjective(workload, participation, goal), workload.steps)
    best = minimised(value, workload.root_coefficients()[1:count])
    return ToeplitzEncoder(workload.steps, np.append(1.0, best).tolist())


def banded_inverse(
    workload: Workload,
    bands: int,
    participation: Participation = ONCE,
    *,
    goal: str = "root_mean_square",
) -> InverseToeplitzEncoder:
    """Return the matrix with a banded Toeplitz inverse that has the least error (BandInvMF).

    Args:
        workload: answers that are wanted; learning rates are taken for equal.
        bands: number of diagonals of the inverse, 256 at most; two are DP-lambda-CGD with the best
            share.
        participation: rule about the steps of one example.
        goal: error that is minimised, "root_mean_square" over the steps or the "maximum".

    The class is that of Kalinin, McKenna, Upadhyay and Lampert 2025. No optimum is certified.

    Example:
        >>> from taut.matrix import Workload, banded_inverse, errors, inverse_square_root
        >>> sums = Workload(64)
        >>> best, root = banded_inverse(sums, 4), inverse_square_root(sums, 4)
        >>> errors(best, sums).root_mean_square < errors(root, sums).root_mean_square
        True
    """
    validate.instance(Workload, workload=workload)
    validate.instance(Participation, participation=participation)
    count = min(_few_bands(bands), workload.steps)
    objective = ToeplitzObjective(workload, participation, goal)
    value = _of_bands(objective, workload.steps, inverse=True)
    # With few bands the root is far from the best: more of them start from what fewer have found.
    root = workload.root_coefficients(inverse=True)
    best, size = minimised(value, root[1 : min(2, count)]), 2
    while size < count:
        size = min(2 * size, count)
        starts = padded(best, size - 1), root[1:size]
        best = minimised(value, min(starts, key=lambda start: value(start)[0]))
    return InverseToeplitzEncoder(workload.steps, np.append(1.0, best).tolist())


def _of_bands(objective: ToeplitzObjective, steps: int, *, inverse: bool = False) -> Objective:
    """Return the error, and its derivatives, by the bands below the diagonal of C or its inverse.

    The other one follows, and so does what it does to the error: 1 / (c + dc) = 1 / c - dc / c^2.
    """
    unit = padded(np.ones(1), steps)

    def value(unknown: Vector) -> tuple[float, Vector]:
        banded = padded(np.append(1.0, unknown), steps)
        full = quotient(unit, banded)
        pair = (full, banded) if inverse else (banded, full)
        found, *derivatives = objective.value(*pair)
        by_full, by_banded = derivatives if inverse else derivatives[::-1]
        with np.errstate(over="ignore", invalid="ignore"):
            total = by_banded - correlation(by_full, product(full, full))
        return _within_floats(found, total[1 : 1 + unknown.size])

    return value


def buffered(
    workload: Workload,
    buffers: int = 4,
    participation: Participation = ONCE,
    *,
    goal: str = "root_mean_square",
) -> BufferedEncoder:
    """Return the buffered linear Toeplitz matrix with the least error (BLT).

    Args:
        workload: answers that are wanted; learning rates are taken for equal.
        buffers: number of buffers, each of the size of the model, 8 at most. Four are within a
            few per mille of the best for thousands of steps.
        participation: rule about the steps of one example.
        goal: error that is minimised, "root_mean_square" over the steps or the "maximum".

    The class is that of Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024; the search over
    several participations that of McMahan, Xu and Zhang 2024. No optimum is certified.

    Example:
        >>> from taut.matrix import Workload, buffered, errors
        >>> sums = Workload(1024)
        >>> round(errors(buffered(sums, buffers=2), sums).root_mean_square, 2)
        3.08
    """
    validate.instance(Workload, workload=workload)
    validate.instance(Participation, participation=participation)
    count = validate.positive_integer(buffers=buffers)
    if count > _MOST_BUFFERS:
        raise ValueError(f"buffers must be at most {_MOST_BUFFERS}, got buffers={buffers!r}")
    steps = workload.steps
    objective = ToeplitzObjective(workload, participation, goal)
    ages = np.arange(float(steps - 1))

    def encoder(unknown: Vector) -> BufferedEncoder:
        used = unknown.size // 2
        total, shares = expit(unknown[0]), softmax(unknown[1 : used + 1])
        # Within (0, 1) where the logistic function is rounded to its ends.
        weights = np.maximum(total * shares * (1 - 1e-15), 1e-300)  # above zero, and below one
        decays = np.minimum(expit(unknown[used + 1 :]), 1 - 1e-15)  # below one
        return BufferedEncoder(steps, weights.tolist(), decays.tolist())

    def value(unknown: Vector) -> tuple[float, Vector]:
        made = encoder(unknown)
        inverse = made.inverse_coefficients
        found, by_series, by_inverse = objective.value(made.coefficients, inverse)
        by_series = by_series - correlation(by_inverse, product(inverse, inverse))
        weights, decays = np.array(made.weights), np.array(made.decays)
        powers = decays[:, None] ** ages
        slopes = np.zeros_like(powers)
        slopes[:, 1:] = ages[1:] * powers[:, :-1]
        by_weights = powers @ by_series[1:]
        by_decays = weights * (slopes @ by_series[1:])
        total, mean = expit(unknown[0]), float(weights @ by_weights)
        gradient = [
            np.array([mean * (1 - total)]),
            weights * by_weights - weights / total * mean,
            by_decays * decays * (1 - decays),
        ]
        return _within_floats(found, np.concatenate(gradient))

    best = minimised(value, _start(workload, 1))
    for used in range(2, count + 1):
        starts = [*_with_another(best), _start(workload, used)]
        best = min((minimised(value, start) for start in starts), key=lambda at: value(at)[0])
    return encoder(best)


def _with_another(unknown: Vector) -> list[Vector]:
    """Return starts with one more buffer, of little weight, slower or faster than all others."""
    used = unknown.size // 2
    total, weights, decays = np.split(unknown, [1, used + 1])
    faint = weights.max() - 4.0
    ends = (decays.max() + 2.0, decays.min() - 2.0)
    return [np.concatenate([total, weights, [faint], decays, [decay]]) for decay in ends]


def _start(workload: Workload, buffers: int) -> Vector:
    """Return decays spread from the whole run to a few steps, with weights that fit the root."""
    slow = min(_SLOWEST_DECAY / workload.steps, _FASTEST_DECAY / 2)
    decays = 1 - np.geomspace(slow, _FASTEST_DECAY, buffers)
    if buffers == 1:
        decays = np.array([1 - slow**0.5])
    root = workload.root_coefficients()
    ages = np.arange(float(workload.steps - 1))
    scale = np.sqrt(1 + ages)  # each age counts alike, not the many late ones
    if ages.size == 0:
        return np.concatenate([np.zeros(1 + buffers), logit(decays)])
    from scipy.optimize import nnls

    weights, _ = nnls((decays[:, None] ** ages * scale).T, root[1:] * scale)
    weights = np.maximum(weights, 1e-3 / buffers)
    total = min(float(weights.sum()), 0.95)
    return np.concatenate([[logit(total)], np.log(weights), logit(decays)])


def _few_bands(bands: int) -> int:
    count = validate.positive_integer(bands=bands)
    if count > _MOST_BANDS:
        raise ValueError(
            f"bands must be at most {_MOST_BANDS} to be searched, got bands={bands!r}; "
            "square_root and inverse_square_root serve any number"
        )
    return count


def _within_floats(value: float, gradient: Vector) -> tuple[float, Vector]:
    """Return a value that a search can retreat from, where coefficients overflow."""
    if np.isfinite(value) and np.isfinite(gradient).all():
        return value, gradient
    return 1e10, np.zeros_like(gradient)  # far above every error that a search has met
