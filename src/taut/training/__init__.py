"""Private training with PyTorch: plan, sample, clip, add noise, step."""

from taut.training._check_model import check_model
from taut.training._clipping import Clipping, FlatClip
from taut.training._loader import MicroBatch, PrivateLoader, check_sampler
from taut.training._plan import Plan
from taut.training._private_gradient import PrivateGradient
from taut.training._replace import replace_batchnorm
from taut.training._run_history import RunHistory, Segment
from taut.training._run_ledger import RunLedger
from taut.training._sampling import FixedSizeSampling, PoissonSampling, Sampling

__all__ = [
    "Clipping",
    "FixedSizeSampling",
    "FlatClip",
    "MicroBatch",
    "Plan",
    "PoissonSampling",
    "PrivateGradient",
    "PrivateLoader",
    "RunHistory",
    "RunLedger",
    "Sampling",
    "Segment",
    "check_model",
    "check_sampler",
    "replace_batchnorm",
]
