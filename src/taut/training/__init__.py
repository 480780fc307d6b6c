"""Private training with PyTorch: plan, sample, clip, add noise, step.

Plans, ledgers, results, and the descriptions of what they hold need no PyTorch; other names are
imported on first use, and say what to install if it is missing.
"""

from typing import TYPE_CHECKING

from taut._base import surface
from taut.training import extend
from taut.training._clipping.clipping import FlatClip, NormalisedClip
from taut.training._clipping.entries import L2LInfClip
from taut.training._clipping.gep import GEPClip, RefreshedGEPClip
from taut.training._clipping.group import GroupClip
from taut.training._clipping.hybrid import HybridClip
from taut.training._clipping.lora import LoRAClip
from taut.training._clipping.quantile import QuantileClip
from taut.training._clipping.refreshed import RefreshedHybridClip
from taut.training._ledger.history import RunHistory
from taut.training._ledger.ledger import RunLedger
from taut.training._ledger.result import TrainingResult
from taut.training._ledger.run_directory import RunDirectory
from taut.training._ledger.statement_words import TrainingWords
from taut.training._plan.mixing import ModelMix
from taut.training._plan.owners import Owners
from taut.training._plan.plan import Plan
from taut.training._sampling.allocation import RandomAllocation
from taut.training._sampling.fixed_order import FixedOrderSampling
from taut.training._sampling.keyed import (
    BallsInBinsSampling,
    CyclicAllocationSampling,
    CyclicPoissonSampling,
)
from taut.training._sampling.sampling import FixedSizeSampling, PoissonSampling
from taut.training._sampling.truncated import TruncatedPoissonSampling
from taut.training._sampling.twice import TwiceSampling

if TYPE_CHECKING:
    from taut.training import features, models
    from taut.training._data.language_losses import causal_lm_loss, masked_lm_loss, seq2seq_loss
    from taut.training._data.loader import PrivateLoader, check_sampler
    from taut.training._gradients.public_gradients import public_gradients
    from taut.training._gradients.suitable import check_model, replace_batchnorm
    from taut.training._run.drop_in import make_private, make_private_with_epsilon
    from taut.training._run.evaluation import Evaluation
    from taut.training._run.files.shared_ledger import SharedLedger
    from taut.training._run.hugging_face import make_trainer_private
    from taut.training._run.logs.callbacks import Callback, CSVLog, StepEnd, TensorBoardLog
    from taut.training._run.private_optimizer import PrivateOptimizer
    from taut.training._run.settings import Checkpointing, Loading, Logs
    from taut.training._run.trainer import PrivateTrainer

__all__ = [
    "BallsInBinsSampling",
    "CSVLog",
    "Callback",
    "Checkpointing",
    "CyclicAllocationSampling",
    "CyclicPoissonSampling",
    "Evaluation",
    "FixedOrderSampling",
    "FixedSizeSampling",
    "FlatClip",
    "GEPClip",
    "GroupClip",
    "HybridClip",
    "L2LInfClip",
    "LoRAClip",
    "Loading",
    "Logs",
    "ModelMix",
    "NormalisedClip",
    "Owners",
    "Plan",
    "PoissonSampling",
    "PrivateLoader",
    "PrivateOptimizer",
    "PrivateTrainer",
    "QuantileClip",
    "RandomAllocation",
    "RefreshedGEPClip",
    "RefreshedHybridClip",
    "RunDirectory",
    "RunHistory",
    "RunLedger",
    "SharedLedger",
    "StepEnd",
    "TensorBoardLog",
    "TrainingResult",
    "TrainingWords",
    "TruncatedPoissonSampling",
    "TwiceSampling",
    "causal_lm_loss",
    "check_model",
    "check_sampler",
    "extend",
    "features",
    "make_private",
    "make_private_with_epsilon",
    "make_trainer_private",
    "masked_lm_loss",
    "models",
    "public_gradients",
    "replace_batchnorm",
    "seq2seq_loss",
]

_NEED_TORCH = {
    "taut.training.features": (),
    "taut.training.models": (),
    "taut.training._data.language_losses": ("causal_lm_loss", "masked_lm_loss", "seq2seq_loss"),
    "taut.training._data.loader": ("PrivateLoader", "check_sampler"),
    "taut.training._gradients.public_gradients": ("public_gradients",),
    "taut.training._gradients.suitable": ("check_model", "replace_batchnorm"),
    "taut.training._run.drop_in": ("make_private", "make_private_with_epsilon"),
    "taut.training._run.evaluation": ("Evaluation",),
    "taut.training._run.files.shared_ledger": ("SharedLedger",),
    "taut.training._run.hugging_face": ("make_trainer_private",),
    "taut.training._run.logs.callbacks": ("CSVLog", "Callback", "StepEnd", "TensorBoardLog"),
    "taut.training._run.private_optimizer": ("PrivateOptimizer",),
    "taut.training._run.settings": ("Checkpointing", "Loading", "Logs"),
    "taut.training._run.trainer": ("PrivateTrainer",),
}

surface.claim(
    globals(), _NEED_TORCH, needs="taut.training._tensors", moved={"extend": extend.__all__}
)
