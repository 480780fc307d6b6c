"""What noise is usually added: equal on all coordinates, or in proportion to their widths."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from taut.noise._mechanisms.gaussian import GaussianNoise
from taut.noise._mechanisms.laplace import LaplaceNoise
from taut.noise._mechanisms.mechanism import NoiseMechanism
from taut.noise._optimal.gaussian import gaussian_along_axes
from taut.noise._optimal.laplace import optimal_laplace
from taut.noise._sets.sets import SensitivitySet

__all__ = ["iid_gaussian", "iid_laplace", "spr_gaussian", "spr_laplace"]

_Noise = TypeVar("_Noise", GaussianNoise, LaplaceNoise)


def iid_gaussian(sensitivity: SensitivitySet, *, epsilon: float, delta: float) -> GaussianNoise:
    """Return equal Gaussian noise: max_l2 / mu on every coordinate, of least worst variance."""
    return _named(
        gaussian_along_axes(sensitivity, epsilon=epsilon, delta=delta, objective="worst"), "iid"
    )


def spr_gaussian(sensitivity: SensitivitySet, *, epsilon: float, delta: float) -> GaussianNoise:
    """Return Gaussian noise in proportion to the widths: scale, perturb, rescale."""
    return _named(
        gaussian_along_axes(sensitivity, epsilon=epsilon, delta=delta, objective="relative"), "spr"
    )


def iid_laplace(sensitivity: SensitivitySet, *, epsilon: float) -> LaplaceNoise:
    """Return equal Laplace noise: the largest l1 norm over epsilon on every coordinate."""
    return _named(optimal_laplace(sensitivity, epsilon=epsilon, objective="worst"), "iid")


def spr_laplace(sensitivity: SensitivitySet, *, epsilon: float) -> LaplaceNoise:
    """Return Laplace noise in proportion to the widths: scale, perturb, rescale."""
    return _named(optimal_laplace(sensitivity, epsilon=epsilon, objective="relative"), "spr")


def _named(noise: _Noise, name: str) -> _Noise:
    """Measure the mechanism by its total variance, for which it is not optimal."""
    proof = replace(
        noise.certificate,
        error=_total(noise),
        lower_bound=0.0,
        statement="a baseline: private, and not made for the total error",
    )
    return replace(noise, objective=name, certificate=proof)


def _total(noise: NoiseMechanism) -> float:
    return noise.total_variance
