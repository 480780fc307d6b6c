"""Noise: how far one record can move a release, and the least noise that hides it.

Sensitivity sets say by how much; :func:`optimal_gaussian` and :func:`optimal_laplace` find the
noise and prove it; :func:`grouped_linf` has the least for pure promises; :func:`grid_gaussian`
draws it exactly, on a grid, from a cryptographically secure generator.
"""

from taut._base.public_vectors import Provenance
from taut.noise import clipping
from taut.noise._disparity import Disparity, disparity, laplace_threshold, majorises
from taut.noise._mechanisms.gaussian import GaussianNoise
from taut.noise._mechanisms.grid_gaussian import GridGaussian, grid_gaussian
from taut.noise._mechanisms.laplace import LaplaceNoise, laplace_with_scales
from taut.noise._mechanisms.mechanism import Certificate, NoiseMechanism
from taut.noise._optimal.gaussian import gaussian_with_scales, optimal_gaussian
from taut.noise._optimal.given_covariance import gaussian_with_covariance
from taut.noise._optimal.grouped import GroupedNoise, grouped_linf
from taut.noise._optimal.integer_laplace import IntegerLaplaceNoise, integer_laplace
from taut.noise._optimal.laplace import optimal_laplace
from taut.noise._optimal.masked import MaskedNoise, optimal_masked_noise
from taut.noise._optimal.staircase import StaircaseNoise, staircase
from taut.noise._random.discrete import discrete_gaussian_noise, discrete_laplace_noise
from taut.noise._random.sources import (
    RandomSource,
    SecureGenerator,
    SeededForExperiments,
    default_generator,
)
from taut.noise._recommend import NoiseOption, Recommendation, recommend
from taut.noise._sets.balls import L1Ball, L2Ball, LInfBall, LpIntersection
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.boxes import Box
from taut.noise._sets.finite import FiniteSet, Polytope
from taut.noise._sets.histogram import Histogram
from taut.noise._sets.products import Product
from taut.noise._sets.ranges import CentredRanges, Ranges
from taut.noise._sets.sets import SensitivitySet, Source
from taut.noise.geometry._block_suggestion import BlockSuggestion
from taut.noise.geometry._clip_advice import ClipNormAdvice, advise_clip_norm, estimate_kappa
from taut.noise.geometry._clip_bias import (
    ClipBias,
    ClipBiasReport,
    clipped_descent,
    explore_clip_bias,
)
from taut.noise.geometry._one_step import OneStep, one_step
from taut.noise.geometry._reductions import low_rank_project, top_beta_mask, top_beta_sparsify
from taut.noise.geometry._report import GeometryReport, geometry_report
from taut.noise.geometry._second_moment import PrivateSecondMoment, private_second_moment
from taut.noise.geometry._subspaces import Subspaces, public_subspaces

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
