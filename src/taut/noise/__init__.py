"""Noise: how far one record can move a release, and the least noise that hides it.

Sensitivity sets say by how much; :func:`optimal_gaussian` and :func:`optimal_laplace` find the
noise and prove it; :func:`grouped_linf` has the least for pure promises; :func:`grid_gaussian`
draws it exactly, on a grid, from a cryptographically secure generator.
"""

from taut.noise import clipping
from taut.noise._balls import L1Ball, L2Ball, LInfBall, LpIntersection
from taut.noise._block_suggestion import BlockSuggestion
from taut.noise._blocks import Blocks
from taut.noise._boxes import Box
from taut.noise._clip_advice import ClipNormAdvice, advise_clip_norm, estimate_kappa
from taut.noise._clip_bias import ClipBias, ClipBiasReport, clipped_descent, explore_clip_bias
from taut.noise._discrete import discrete_gaussian_noise, discrete_laplace_noise
from taut.noise._disparity import Disparity, disparity, laplace_threshold, majorises
from taut.noise._finite_sets import FiniteSet, Polytope
from taut.noise._gaussian_noise import GaussianNoise
from taut.noise._geometry_report import GeometryReport, geometry_report
from taut.noise._given_covariance import gaussian_with_covariance
from taut.noise._grouped import GroupedNoise, grouped_linf
from taut.noise._histogram import Histogram
from taut.noise._integer_noise import IntegerLaplaceNoise, integer_laplace
from taut.noise._laplace_noise import LaplaceNoise, laplace_with_scales
from taut.noise._masked_noise import MaskedNoise, optimal_masked_noise
from taut.noise._mechanism import Certificate, NoiseMechanism
from taut.noise._one_step import OneStep, one_step
from taut.noise._optimal_gaussian import gaussian_with_scales, optimal_gaussian
from taut.noise._optimal_laplace import optimal_laplace
from taut.noise._products import Product
from taut.noise._public_vectors import Provenance
from taut.noise._ranges import CentredRanges, Ranges
from taut.noise._recommend import NoiseOption, Recommendation, recommend
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
from taut.noise._staircase import StaircaseNoise, staircase
from taut.noise._subspaces import Subspaces, public_subspaces

__all__ = [
    "BlockSuggestion",
    "Blocks",
    "Box",
    "CentredRanges",
    "Certificate",
    "ClipBias",
    "ClipBiasReport",
    "ClipNormAdvice",
    "Disparity",
    "FiniteSet",
    "GaussianNoise",
    "GeometryReport",
    "GridGaussian",
    "GroupedNoise",
    "Histogram",
    "IntegerLaplaceNoise",
    "L1Ball",
    "L2Ball",
    "LInfBall",
    "LaplaceNoise",
    "LpIntersection",
    "MaskedNoise",
    "NoiseMechanism",
    "NoiseOption",
    "OneStep",
    "Polytope",
    "PrivateSecondMoment",
    "Product",
    "Provenance",
    "RandomSource",
    "Ranges",
    "Recommendation",
    "SecureGenerator",
    "SeededForExperiments",
    "SensitivitySet",
    "Source",
    "StaircaseNoise",
    "Subspaces",
    "advise_clip_norm",
    "clipped_descent",
    "clipping",
    "default_generator",
    "discrete_gaussian_noise",
    "discrete_laplace_noise",
    "disparity",
    "estimate_kappa",
    "explore_clip_bias",
    "gaussian_with_covariance",
    "gaussian_with_scales",
    "geometry_report",
    "grid_gaussian",
    "grouped_linf",
    "integer_laplace",
    "laplace_threshold",
    "laplace_with_scales",
    "low_rank_project",
    "majorises",
    "one_step",
    "optimal_gaussian",
    "optimal_laplace",
    "optimal_masked_noise",
    "private_second_moment",
    "public_subspaces",
    "recommend",
    "staircase",
    "top_beta_mask",
    "top_beta_sparsify",
]
