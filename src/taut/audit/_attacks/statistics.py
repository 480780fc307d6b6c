"""Statistics: numbers that tell runs with the canary from runs without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Runs", "Statistic", "StepValues", "fitted_statistics"]

Runs: TypeAlias = NDArray[np.float64]
"""Observations, of shape (runs, steps, coordinates)."""
StepValues: TypeAlias = float | NDArray[np.float64]
"""A number that all steps have, or one for every step."""
Statistic: TypeAlias = Callable[[Runs], NDArray[np.float64]]
"""One number for every run; which sign speaks for the canary is found out."""

_RIDGE = 1e-2
_MOST_FEATURES = 400  # a discriminant on more has nothing to learn from so few runs


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
    if without[0].size <= min(_MOST_FEATURES, len(without)):
        found["discriminant"] = _discriminant(without, including)
    return found


def _distance(without: Runs) -> Statistic:
    """Return the squared distance from the mean run, which is small where noise repeats itself."""
    centre = without.mean(0)
    return lambda runs: np.square(runs - centre).sum((1, 2))


def _discriminant(without: Runs, including: Runs) -> Statistic:
    """Return the linear discriminant of Fisher (1936), with a ridge."""
    shape = without.shape[1:]
    samples = [runs.reshape(len(runs), -1) for runs in (without, including)]
    means = [sample.mean(0) for sample in samples]
    centred = np.concatenate([s - m for s, m in zip(samples, means, strict=True)])
    covariance = centred.T @ centred / len(centred)
    ridge = _RIDGE * np.trace(covariance) / len(covariance) + np.finfo(np.float64).tiny
    weights = np.linalg.solve(covariance + ridge * np.eye(len(covariance)), means[1] - means[0])
    direction = weights.reshape(shape)
    return lambda runs: np.tensordot(runs, direction, 2)
