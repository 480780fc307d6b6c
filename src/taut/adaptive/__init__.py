"""Data-adaptive release: noise that fits the data at hand, and choices that are paid for.

Propose-test-release (`ProposedMedian` and its neighbours) spends a part of the budget to find out
whether the data allow less noise than the worst ones; :class:`SparseVector` answers many questions
about a threshold at the price of the few that pass; :func:`tune` publishes the best of many private
runs, paid for as a whole. Quantities that depend on the data are a
:class:`Secret` until a mechanism has added noise.
"""

from taut._base import surface
from taut.adaptive._propose.boundary import check_distance, check_losses
from taut.adaptive._propose.classic.candidates import SearchedMedian
from taut.adaptive._propose.classic.histogram import StableHistogram
from taut.adaptive._propose.classic.median import ProposedMedian
from taut.adaptive._propose.classic.smooth_median import SmoothMedian
from taut.adaptive._propose.classic.stability import StableMode, StableRelease
from taut.adaptive._propose.classic.uniform_bound import BoundedRelease
from taut.adaptive._propose.distance_test import DistanceTest
from taut.adaptive._propose.general.proposal import ProposedRelease
from taut.adaptive._propose.general.smooth_loss import SmoothLossRelease, smooth_noise_rdp
from taut.adaptive._propose.general.statistics import CalibratedRelease
from taut.adaptive._propose.general.vote import ProposedVote, vote_losses
from taut.adaptive._propose.outcome import Outcome
from taut.adaptive._secret import Secret
from taut.adaptive._selection.planning import TuningOption, TuningPlan, plan_tuning
from taut.adaptive._selection.space import Range, Setting, Space
from taut.adaptive._selection.tune import Trial, Tuned, tune
from taut.adaptive._sparse_vector.design import SparseVectorDesign
from taut.adaptive._sparse_vector.ex_post.design import ExPostDesign
from taut.adaptive._sparse_vector.ex_post.mechanism import ExPostSparseVector
from taut.adaptive._sparse_vector.mechanism import SparseVector
from taut.adaptive._sparse_vector.plan import SparseVectorOption, SparseVectorPlan, plan_svt
from taut.adaptive._sparse_vector.scalar_noise import ScalarNoise
from taut.adaptive._sparse_vector.variants.between import BetweenDesign, BetweenThresholds
from taut.adaptive._sparse_vector.variants.holdout import CheckedGuess, ReusableHoldout
from taut.adaptive._sparse_vector.variants.labelling import PrivateLabels
from taut.adaptive._sparse_vector.variants.stages import SparseVectorStages, StagedSparseVector

__all__ = [
    "BetweenDesign",
    "BetweenThresholds",
    "BoundedRelease",
    "CalibratedRelease",
    "CheckedGuess",
    "DistanceTest",
    "ExPostDesign",
    "ExPostSparseVector",
    "Outcome",
    "PrivateLabels",
    "ProposedMedian",
    "ProposedRelease",
    "ProposedVote",
    "Range",
    "ReusableHoldout",
    "ScalarNoise",
    "SearchedMedian",
    "Secret",
    "Setting",
    "SmoothLossRelease",
    "SmoothMedian",
    "Space",
    "SparseVector",
    "SparseVectorDesign",
    "SparseVectorOption",
    "SparseVectorPlan",
    "SparseVectorStages",
    "StableHistogram",
    "StableMode",
    "StableRelease",
    "StagedSparseVector",
    "Trial",
    "Tuned",
    "TuningOption",
    "TuningPlan",
    "check_distance",
    "check_losses",
    "plan_svt",
    "plan_tuning",
    "smooth_noise_rdp",
    "tune",
    "vote_losses",
]

surface.claim(globals())
