"""What public vectors tell: subspaces, blocks, clipping norms, and what clipping does to a step.

Nothing here looks at private records: vectors are declared public, or released by a mechanism such
as :func:`private_second_moment`.
"""

from taut._base import surface
from taut._base.public_vectors import Provenance
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
    "ClipBias",
    "ClipBiasReport",
    "ClipNormAdvice",
    "GeometryReport",
    "OneStep",
    "PrivateSecondMoment",
    "Provenance",
    "Subspaces",
    "advise_clip_norm",
    "clipped_descent",
    "estimate_kappa",
    "explore_clip_bias",
    "geometry_report",
    "low_rank_project",
    "one_step",
    "private_second_moment",
    "public_subspaces",
    "top_beta_mask",
    "top_beta_sparsify",
]

surface.claim(globals())
