"""Fixed, public features of examples: computed once, before training, at no cost in privacy."""

import taut.training._tensors  # noqa: F401 (says what to install where PyTorch is missing)
from taut._base import surface
from taut.training.features._featurise import featurise
from taut.training.features._leaves import dead_leaves
from taut.training.features._scattering import Scattering2d
from taut.training.features._whitening import PublicWhitening, SignedRoot

__all__ = ["PublicWhitening", "Scattering2d", "SignedRoot", "dead_leaves", "featurise"]

surface.claim(globals())
