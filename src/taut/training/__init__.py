"""Private training with PyTorch: plan, sample, clip, add noise, step."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "taut.training needs PyTorch; install it with: pip install 'taut[torch]'", name="torch"
    ) from None

from taut.training import features, models
from taut.training._clipping.clipping import (
    Clipping,
    EntryBlock,
    FlatClip,
    NormalisedClip,
    NormClipping,
    RowClipping,
)
from taut.training._clipping.entries import L2LInfClip
from taut.training._clipping.gep import GEPClip, RefreshedGEPClip
from taut.training._clipping.group import GroupClip, GroupShare
from taut.training._clipping.hybrid import HybridClip
from taut.training._clipping.quantile import CountedNoise, QuantileClip
from taut.training._clipping.refreshed import RefreshedClipping, RefreshedHybridClip
from taut.training._data.loader import MicroBatch, PrivateLoader, check_sampler
from taut.training._gradients.public_gradients import public_gradients
from taut.training._gradients.suitable import check_model, replace_batchnorm
from taut.training._ledger.history import RunHistory, Segment
from taut.training._ledger.ledger import RunLedger
from taut.training._ledger.result import TrainingResult
from taut.training._ledger.shared import SharedLedger
from taut.training._noise.basis import BasisNoise
from taut.training._noise.step_noise import IndependentNoise, StepNoise
from taut.training._plan.mixing import ModelMix
from taut.training._plan.plan import Plan
from taut.training._run.drop_in import make_private, make_private_with_epsilon
from taut.training._run.evaluation import Evaluation
from taut.training._run.logs.callbacks import Callback, CSVLog, StepEnd, TensorBoardLog
from taut.training._run.private_optimizer import PrivateOptimizer
from taut.training._run.refresh import Refresh
from taut.training._run.trainer import PrivateTrainer
from taut.training._sampling.sampling import FixedSizeSampling, PoissonSampling, Sampling
from taut.training._sampling.twice import TwiceSampling
from taut.training._step.private_gradient import PrivateGradient

__all__ = [
    "BasisNoise",
    "CSVLog",
    "Callback",
    "Clipping",
    "CountedNoise",
    "EntryBlock",
    "Evaluation",
    "FixedSizeSampling",
    "FlatClip",
    "GEPClip",
    "GroupClip",
    "GroupShare",
    "HybridClip",
    "IndependentNoise",
    "L2LInfClip",
    "MicroBatch",
    "ModelMix",
    "NormClipping",
    "NormalisedClip",
    "Plan",
    "PoissonSampling",
    "PrivateGradient",
    "PrivateLoader",
    "PrivateOptimizer",
    "PrivateTrainer",
    "QuantileClip",
    "Refresh",
    "RefreshedClipping",
    "RefreshedGEPClip",
    "RefreshedHybridClip",
    "RowClipping",
    "RunHistory",
    "RunLedger",
    "Sampling",
    "Segment",
    "SharedLedger",
    "StepEnd",
    "StepNoise",
    "TensorBoardLog",
    "TrainingResult",
    "TwiceSampling",
    "check_model",
    "check_sampler",
    "features",
    "make_private",
    "make_private_with_epsilon",
    "models",
    "public_gradients",
    "replace_batchnorm",
]
