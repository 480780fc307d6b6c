"""Statistics: numbers that tell runs with the canary from runs without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Candidate", "Runs", "Statistic", "StepValues", "candidates", "fitted_statistics"]

Runs: TypeAlias = NDArray[np.float64]
"""Observations, of shape (runs, steps, coordinates)."""
StepValues: TypeAlias = float | NDArray[np.float64]
"""A number that all steps have, or one for every step."""
Statistic: TypeAlias = Callable[[Runs], NDArray[np.float64]]
"""One number for every run; which sign speaks for the canary is found out."""

_RIDGE = 1e-2
_LEARNED = ("distance", "discriminant")
_MOST_FEATURES = 400  # a discriminant on more has nothing to learn from so few runs


@dataclass(frozen=True)
class Candidate:
    """A statistic, and how it looks on runs that did not teach it.

    Attributes:
        statistic: the one that judges, learned from all runs at hand if it learns.
        taught: its values on these runs, with the canary and without, each of shape (runs,).
        fair: the same, from statistics that were learned from other runs.
    """

    statistic: Statistic
    taught: tuple[NDArray[np.float64], NDArray[np.float64]]
    fair: tuple[NDArray[np.float64], NDArray[np.float64]]


def candidates(
    without: Runs, including: Runs, given: Mapping[str, Statistic]
) -> dict[str, Candidate]:
    """Return candidates with values that are fair to compare.

    A discriminant of many coordinates separates the few runs that it was fitted to, whether there
    is a difference or not, and would be chosen for that. So the values of a statistic that learns
    come from two fits: either half of the runs is looked at with what the other half taught.
    """
    whole = fitted_statistics(without, including, given)
    folds = [fitted_statistics(without[part::2], including[part::2], given) for part in (0, 1)]
    found = {}
    for name, statistic in whole.items():
        taught = statistic(including), statistic(without)
        if name not in _LEARNED:
            found[name] = Candidate(statistic, taught, taught)
        elif all(name in fold for fold in folds):
            fair = np.empty(len(including)), np.empty(len(without))
            for part in (0, 1):
                for values, runs in zip(fair, (including, without), strict=True):
                    values[part::2] = folds[1 - part][name](runs[part::2])
            found[name] = Candidate(statistic, taught, fair)
    return found


def fitted_statistics(
    without: Runs, including: Runs, given: Mapping[str, Statistic]
) -> dict[str, Statistic]:
    """Return the candidates: those given, simple ones, and two that are learned from these runs.

    Whatever they are, an attack with them is valid as long as other runs judge it.
    """
    found: dict[str, Statistic] = {
        **given,
        "total": lambda runs: runs[:, :, 0].sum(1),
        "largest": lambda runs: runs[:, :, 0].max(1),
        "spread": lambda runs: np.ptp(runs[:, :, 0], axis=1),
        "energy": lambda runs: np.square(runs).sum((1, 2)),
        "distance": _distance(without),
    }
    if 1 < without[0].size <= min(_MOST_FEATURES, len(without)):  # of one number it is the total
        found["discriminant"] = _discriminant(without, including)
    return found


def _distance(without: Runs) -> Statistic:
    """Return the squared distance from the mean run, which is small where noise repeats itself."""
    centre = without.mean(0)
    return lambda runs: np.square(runs - centre).sum((1, 2))


def _discriminant(without: Runs, including: Runs) -> Statistic:
    """Return the linear discriminant of Fisher (1936), with a ridge.

    Its direction has length one and its zero lies between the means, so that values of two fits
    can be compared.
    """
    shape = without.shape[1:]
    samples = [runs.reshape(len(runs), -1) for runs in (without, including)]
    means = [sample.mean(0) for sample in samples]
    centred = np.concatenate([s - m for s, m in zip(samples, means, strict=True)])
    covariance = centred.T @ centred / len(centred)
    gap, numbers = means[1] - means[0], np.finfo(np.float64)
    # Runs without noise are told apart along the gap, which divided by almost nothing overflows.
    ridge = max(_RIDGE * np.trace(covariance) / len(covariance), numbers.eps * gap @ gap)
    weights = np.linalg.solve(covariance + (ridge + numbers.tiny) * np.eye(len(gap)), gap)
    weights = weights / (np.abs(weights).max() + numbers.tiny)
    weights = weights / (np.linalg.norm(weights) + numbers.tiny)
    direction, middle = weights.reshape(shape), float(weights @ (means[0] + means[1])) / 2
    return lambda runs: np.asarray(np.tensordot(runs, direction, 2) - middle)
