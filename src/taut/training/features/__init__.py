"""Fixed, public features of examples: computed once, before training, at no cost in privacy."""

from taut.training.features._featurise import featurise
from taut.training.features._scattering import Scattering2d

__all__ = ["Scattering2d", "featurise"]
