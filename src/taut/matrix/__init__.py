"""Correlated noise: matrices that make later noise take back earlier noise, and what they cost.

A :class:`Workload` says which running sums are wanted, an :class:`Encoder` how noise is correlated;
:func:`errors` compares encoders at equal privacy, :func:`sensitivity` and
:func:`unamplified_loss` account for them, :func:`amplified_loss` where steps are secret;
:func:`optimize` finds the encoder and sampler with the least error at a promise.
"""

from taut._base import surface
from taut.matrix._accounting.amplified import amplified_loss
from taut.matrix._accounting.estimates import AmplifiedEstimate, estimate_balls_in_bins
from taut.matrix._accounting.samplers import (
    BallsInBins,
    CyclicAllocation,
    CyclicPoisson,
    PoissonRounds,
    SecretSampler,
)
from taut.matrix._accounting.shuffled import shuffled_tree_bounds
from taut.matrix._accounting.unamplified import unamplified_loss
from taut.matrix._encoders.dense import BandedEncoder, DenseEncoder
from taut.matrix._encoders.encoder import Encoder, NoiseStream
from taut.matrix._encoders.factories import (
    identity,
    inverse_square_root,
    lambda_cgd,
    square_root,
)
from taut.matrix._encoders.factorised import DenseOptimum, banded, optimal_dense
from taut.matrix._encoders.optimised import banded_inverse, banded_toeplitz, buffered
from taut.matrix._encoders.toeplitz import (
    BufferedEncoder,
    InverseToeplitzEncoder,
    ToeplitzEncoder,
)
from taut.matrix._encoders.tree import TreeEncoder
from taut.matrix._errors import Errors, errors
from taut.matrix._participation import (
    FixedOrder,
    MinimumSeparation,
    Participation,
    SingleParticipation,
)
from taut.matrix._planning.optimize import optimize
from taut.matrix._planning.ranking import RankedNoise, Ranking
from taut.matrix._sensitivity import Sensitivity, sensitivity
from taut.matrix._workloads import Workload

__all__ = [
    "AmplifiedEstimate",
    "BallsInBins",
    "BandedEncoder",
    "BufferedEncoder",
    "CyclicAllocation",
    "CyclicPoisson",
    "DenseEncoder",
    "DenseOptimum",
    "Encoder",
    "Errors",
    "FixedOrder",
    "InverseToeplitzEncoder",
    "MinimumSeparation",
    "NoiseStream",
    "Participation",
    "PoissonRounds",
    "RankedNoise",
    "Ranking",
    "SecretSampler",
    "Sensitivity",
    "SingleParticipation",
    "ToeplitzEncoder",
    "TreeEncoder",
    "Workload",
    "amplified_loss",
    "banded",
    "banded_inverse",
    "banded_toeplitz",
    "buffered",
    "errors",
    "estimate_balls_in_bins",
    "identity",
    "inverse_square_root",
    "lambda_cgd",
    "optimal_dense",
    "optimize",
    "sensitivity",
    "shuffled_tree_bounds",
    "square_root",
    "unamplified_loss",
]

surface.claim(globals())
