"""Private training with PyTorch: plan, sample, clip, add noise, step."""

from typing import TYPE_CHECKING

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "taut.training needs PyTorch; install it with: pip install 'taut[torch]'", name="torch"
    ) from None

from taut._base import surface
from taut.training import extend, features, models
from taut.training._clipping.clipping import FlatClip, NormalisedClip
from taut.training._clipping.entries import L2LInfClip
from taut.training._clipping.gep import GEPClip, RefreshedGEPClip
from taut.training._clipping.group import GroupClip
from taut.training._clipping.hybrid import HybridClip
from taut.training._clipping.quantile import QuantileClip
from taut.training._clipping.refreshed import RefreshedHybridClip
from taut.training._data.loader import PrivateLoader, check_sampler
from taut.training._gradients.public_gradients import public_gradients
from taut.training._gradients.suitable import check_model, replace_batchnorm
from taut.training._ledger.history import RunHistory
from taut.training._ledger.ledger import RunLedger
from taut.training._ledger.result import TrainingResult
from taut.training._ledger.shared import SharedLedger
from taut.training._plan.mixing import ModelMix
from taut.training._plan.plan import Plan
from taut.training._run.drop_in import make_private, make_private_with_epsilon
from taut.training._run.evaluation import Evaluation
from taut.training._run.logs.callbacks import Callback, CSVLog, StepEnd, TensorBoardLog
from taut.training._run.private_optimizer import PrivateOptimizer
from taut.training._run.trainer import PrivateTrainer
from taut.training._sampling.sampling import FixedSizeSampling, PoissonSampling
from taut.training._sampling.twice import TwiceSampling

__all__ = [
    "CSVLog",
    "Callback",
    "Evaluation",
    "FixedSizeSampling",
    "FlatClip",
    "GEPClip",
    "GroupClip",
    "HybridClip",
    "L2LInfClip",
    "ModelMix",
    "NormalisedClip",
    "Plan",
    "PoissonSampling",
    "PrivateLoader",
    "PrivateOptimizer",
    "PrivateTrainer",
    "QuantileClip",
    "RefreshedGEPClip",
    "RefreshedHybridClip",
    "RunHistory",
    "RunLedger",
    "SharedLedger",
    "StepEnd",
    "TensorBoardLog",
    "TrainingResult",
    "TwiceSampling",
    "check_model",
    "check_sampler",
    "extend",
    "features",
    "make_private",
    "make_private_with_epsilon",
    "models",
    "public_gradients",
    "replace_batchnorm",
]

surface.claim(globals())

if not TYPE_CHECKING:  # a type checker must still refuse names that do not exist
    __getattr__ = surface.pointing(__name__, extend=extend.__all__)
