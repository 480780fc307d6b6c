"""Noise: how far one record can move a release, and the least noise that hides it.

Sensitivity sets say by how much; :func:`optimal_gaussian` finds the noise and proves it;
:func:`grid_gaussian` draws it exactly, on a grid, from a cryptographically secure generator.
"""

from taut.noise._balls import L1Ball, L2Ball, LInfBall, LpIntersection
from taut.noise._block_suggestion import BlockSuggestion
from taut.noise._blocks import Blocks
from taut.noise._boxes import Box
from taut.noise._discrete import discrete_gaussian_noise, discrete_laplace_noise
from taut.noise._finite_sets import FiniteSet, Polytope
from taut.noise._gaussian_noise import GaussianNoise
from taut.noise._geometry_report import GeometryReport, geometry_report
from taut.noise._mechanism import Certificate, NoiseMechanism
from taut.noise._one_step import OneStep, one_step
from taut.noise._optimal_gaussian import gaussian_with_scales, optimal_gaussian
from taut.noise._public_vectors import Provenance
from taut.noise._reductions import low_rank_project, top_beta_mask, top_beta_sparsify
from taut.noise._rounded import GridGaussian, grid_gaussian
from taut.noise._second_moment import PrivateSecondMoment, private_second_moment
from taut.noise._secure import (
    RandomSource,
    SecureGenerator,
    SeededForExperiments,
    default_generator,
)
from taut.noise._sets import SensitivitySet, Source
from taut.noise._subspaces import Subspaces, public_subspaces

__all__ = [
    "BlockSuggestion",
    "Blocks",
    "Box",
    "Certificate",
    "FiniteSet",
    "GaussianNoise",
    "GeometryReport",
    "GridGaussian",
    "L1Ball",
    "L2Ball",
    "LInfBall",
    "LpIntersection",
    "NoiseMechanism",
    "OneStep",
    "Polytope",
    "PrivateSecondMoment",
    "Provenance",
    "RandomSource",
    "SecureGenerator",
    "SeededForExperiments",
    "SensitivitySet",
    "Source",
    "Subspaces",
    "default_generator",
    "discrete_gaussian_noise",
    "discrete_laplace_noise",
    "gaussian_with_scales",
    "geometry_report",
    "grid_gaussian",
    "low_rank_project",
    "one_step",
    "optimal_gaussian",
    "private_second_moment",
    "public_subspaces",
    "top_beta_mask",
    "top_beta_sparsify",
]
