"""Noise: how far one record can move a release, and the least noise that hides it.

Sensitivity sets say by how much; :func:`optimal_gaussian` and :func:`optimal_laplace` find the
noise and prove it; :func:`grouped_linf` has the least for pure promises; :func:`grid_gaussian`
draws it exactly, on a grid, from a cryptographically secure generator. Beside them,
`taut.noise.clipping` clips rows, `taut.noise.geometry` looks at public vectors, and
`taut.noise.recording` is the door through which `taut.audit.replay` sees releases.
"""

from taut._base import surface
from taut.noise import clipping, geometry, recording
from taut.noise._disparity import Disparity, disparity, laplace_threshold, majorises
from taut.noise._exact.rounded_draws import rounded_noise
from taut.noise._mechanisms.gaussian import GaussianNoise
from taut.noise._mechanisms.grid_gaussian import GridGaussian, grid_gaussian
from taut.noise._mechanisms.laplace import LaplaceNoise, laplace_with_scales
from taut.noise._mechanisms.mechanism import Certificate, NoiseMechanism
from taut.noise._mechanisms.products import FixedRows, GaussianProducts
from taut.noise._mechanisms.second_moment import (
    GaussianMoments,
    exact_moments,
    gaussian_moments,
)
from taut.noise._optimal.gaussian import gaussian_with_scales, optimal_gaussian
from taut.noise._optimal.given_covariance import gaussian_with_covariance
from taut.noise._optimal.grouped import GroupedNoise, grouped_linf
from taut.noise._optimal.integer_laplace import IntegerLaplaceNoise, integer_laplace
from taut.noise._optimal.laplace import optimal_laplace
from taut.noise._optimal.masked import MaskedBlocks, MaskedNoise, optimal_masked_noise
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

__all__ = [
    "Blocks",
    "Box",
    "CentredRanges",
    "Certificate",
    "Disparity",
    "FiniteSet",
    "FixedRows",
    "GaussianMoments",
    "GaussianNoise",
    "GaussianProducts",
    "GridGaussian",
    "GroupedNoise",
    "Histogram",
    "IntegerLaplaceNoise",
    "L1Ball",
    "L2Ball",
    "LInfBall",
    "LaplaceNoise",
    "LpIntersection",
    "MaskedBlocks",
    "MaskedNoise",
    "NoiseMechanism",
    "NoiseOption",
    "Polytope",
    "Product",
    "RandomSource",
    "Ranges",
    "Recommendation",
    "SecureGenerator",
    "SeededForExperiments",
    "SensitivitySet",
    "Source",
    "StaircaseNoise",
    "clipping",
    "default_generator",
    "discrete_gaussian_noise",
    "discrete_laplace_noise",
    "disparity",
    "exact_moments",
    "gaussian_moments",
    "gaussian_with_covariance",
    "gaussian_with_scales",
    "geometry",
    "grid_gaussian",
    "grouped_linf",
    "integer_laplace",
    "laplace_threshold",
    "laplace_with_scales",
    "majorises",
    "optimal_gaussian",
    "optimal_laplace",
    "optimal_masked_noise",
    "recommend",
    "recording",
    "rounded_noise",
    "staircase",
]

surface.claim(globals(), moved={"geometry": geometry.__all__})
