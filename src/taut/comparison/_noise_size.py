"""How large the noise of a step is, and what it leaves of public gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from taut._base import validate
from taut._base.arrays import Matrix
from taut._base.public_vectors import Rows
from taut.matrix import Encoder, Workload, errors, identity, sensitivity
from taut.noise.geometry import OneStep
from taut.training import Plan
from taut.training.extend import (
    BasisNoise,
    Clipping,
    CorrelatedNoise,
    IndependentNoise,
    NormClipping,
    RowClipping,
    StepNoise,
)

__all__ = ["clipped_gradients", "expected_step", "noise_std"]


def noise_std(plan: Plan, sizes: Mapping[str, int]) -> float:
    """Return the root of the expected squared length of the noise on the mean gradient.

    Uniform noise of mixing counts at its least width. Correlated noise counts as independent noise
    of the same root mean square error of running sums.
    """
    added = plan.noise(sizes)
    counted = added.independent if isinstance(added, CorrelatedNoise) else added
    variance = _total_variance(counted, list(sizes.values()))
    if isinstance(added, CorrelatedNoise):
        variance *= _error_of_sums(added.encoder) / _error_of_sums(identity(plan.steps))
    if plan.mixing is not None:
        variance *= 1 + (plan.mixing.width / plan.noise_multiplier) ** 2 / 12
    return math.sqrt(variance) / _divisor(plan, added)


def expected_step(name: str, plan: Plan, sizes: Mapping[str, int], public: Rows) -> OneStep:
    """Return what one step of the plan would do to gradients that look like the public ones.

    As `taut.noise.geometry.one_step`, for the clipping of the plan and its number of examples.
    """
    rows = public.astype(np.float64)
    clipped = clipped_gradients(plan.clipping, rows, sizes)
    true, mean = rows.mean(axis=0), clipped.mean(axis=0)
    rate = _divisor(plan, plan.noise(sizes)) / plan.examples
    spread = float(np.square(clipped).sum(axis=1).mean())
    sampling = (1 - rate) / (rate * plan.examples) * spread
    noise = noise_std(plan, sizes)
    signal = float(np.linalg.norm(mean))
    released = math.sqrt(signal**2 + sampling + noise**2)
    return OneStep(
        name,
        clip_bias=float(np.linalg.norm(mean - true)),
        sampling_variance=sampling,
        noise_variance=noise**2,
        cosine_clipped=_cosine(true, mean, signal),
        cosine_released=_cosine(true, mean, released),
        block_snr=(signal / noise,),
    )


def clipped_gradients(clipping: Clipping, rows: Matrix, sizes: Mapping[str, int]) -> Matrix:
    """Return every gradient as the clipping leaves it, coordinates in the order of parameters."""
    if isinstance(clipping, RowClipping):
        return np.asarray(clipping.clip_rows(torch.tensor(rows)).numpy())
    if not isinstance(clipping, NormClipping):
        raise validate.WrongType(f"{clipping!r} clips neither by norms nor by coordinates")
    groups = np.repeat(clipping.groups(list(sizes)), list(sizes.values()))
    members = [groups == group for group in range(max(groups) + 1)]
    squares = np.array([np.square(rows[:, inside]).sum(1) for inside in members])
    weights = clipping.weights(torch.tensor(squares)).numpy()
    return np.asarray(rows * weights[groups].T)


def _divisor(plan: Plan, noise: StepNoise) -> float:
    """Return what the sum of a step is divided by: how many gradients count in a coordinate."""
    return plan.batch_size * noise.coordinate_rate


def _error_of_sums(encoder: Encoder) -> float:
    """Return the mean square error of running sums, for independent noise of unit variance."""
    found = errors(encoder, Workload(encoder.steps)).root_mean_square
    return (found / sensitivity(encoder).value) ** 2


def _total_variance(noise: StepNoise, sizes: list[int]) -> float:
    """Return the expected squared length of the noise on the sum."""
    if isinstance(noise, IndependentNoise):
        numbers = np.bincount(noise.groups, weights=sizes)
        return float(numbers @ np.square(noise.scales))
    if isinstance(noise, BasisNoise):
        outside = noise.basis.dimension - noise.basis.size
        return float(np.dot([*noise.ranks, outside][: len(noise.scales)], np.square(noise.scales)))
    raise TypeError(f"the variance of {type(noise).__name__} is not known here")


def _cosine(true: Matrix, other: Matrix, length: float) -> float:
    scale = float(np.linalg.norm(true)) * length
    return float(true @ other) / scale if scale > 0 else 0.0
