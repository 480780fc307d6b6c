"""Private training with PyTorch: plan, sample, clip, add noise, step."""

from taut.training._check_model import check_model
from taut.training._clipping import Clipping, FlatClip
from taut.training._private_gradient import PrivateGradient
from taut.training._replace import replace_batchnorm

__all__ = ["Clipping", "FlatClip", "PrivateGradient", "check_model", "replace_batchnorm"]
