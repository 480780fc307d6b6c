"""Small models that train well with privacy: no layer mixes examples, gradients stay bounded."""

import taut.training._tensors  # noqa: F401 (says what to install where PyTorch is missing)
from taut._base import surface
from taut.training._gradients.layers.standardised import StandardisedConv2d
from taut.training.models._digits import TanhCNN, mlp
from taut.training.models._feature_cnn import FeatureCNN
from taut.training.models._probe import LinearProbe
from taut.training.models._residual import ResNet20, WideResNet
from taut.training.models._text import TextTransformer

__all__ = [
    "FeatureCNN",
    "LinearProbe",
    "ResNet20",
    "StandardisedConv2d",
    "TanhCNN",
    "TextTransformer",
    "WideResNet",
    "mlp",
]

surface.claim(globals())
