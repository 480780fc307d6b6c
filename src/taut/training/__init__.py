"""Private training with PyTorch: plan, sample, clip, add noise, step."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "taut.training needs PyTorch; install it with: pip install 'taut[torch]'", name="torch"
    ) from None

from taut.training._basis_noise import BasisNoise
from taut.training._callbacks import Callback, CSVLog, StepEnd, TensorBoardLog
from taut.training._check_model import check_model, replace_batchnorm
from taut.training._clipping import (
    Clipping,
    EntryBlock,
    FlatClip,
    NormalisedClip,
    NormClipping,
    RowClipping,
)
from taut.training._drop_in import make_private, make_private_with_epsilon
from taut.training._entry_clip import L2LInfClip
from taut.training._evaluation import Evaluation
from taut.training._gep_clip import GEPClip, RefreshedGEPClip
from taut.training._group_clip import GroupClip, GroupShare
from taut.training._hybrid_clip import HybridClip
from taut.training._loader import MicroBatch, PrivateLoader, check_sampler
from taut.training._mixing import ModelMix
from taut.training._optimizer import PrivateOptimizer
from taut.training._plan import Plan
from taut.training._private_gradient import PrivateGradient
from taut.training._public_gradients import public_gradients
from taut.training._quantile_clip import CountedNoise, QuantileClip
from taut.training._refresh import Refresh
from taut.training._refreshed_clip import RefreshedClipping, RefreshedHybridClip
from taut.training._run_history import RunHistory, Segment
from taut.training._run_ledger import RunLedger
from taut.training._sampling import FixedSizeSampling, PoissonSampling, Sampling
from taut.training._shared_ledger import SharedLedger
from taut.training._step_noise import IndependentNoise, StepNoise
from taut.training._trainer import PrivateTrainer
from taut.training._training_result import TrainingResult
from taut.training._twice_sampling import TwiceSampling

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
    "make_private",
    "make_private_with_epsilon",
    "public_gradients",
    "replace_batchnorm",
]
