"""Samplers that hide in which steps an example takes part; each has a theorem of its own."""

from dataclasses import dataclass

from taut._base import validate
from taut._base.validate import PositiveInteger, Probability

__all__ = ["BallsInBins", "CyclicAllocation", "CyclicPoisson", "PoissonRounds", "SecretSampler"]


@dataclass(frozen=True)
class SecretSampler:
    """A way to draw the steps of every example that nobody sees.

    Examples are drawn independently of each other, and sums are divided by a number that does not
    depend on the draws. What was drawn must stay secret.
    """

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.fields(self)


@dataclass(frozen=True)
class PoissonRounds(SecretSampler):
    """Every example takes part in every step with probability ``rate``, independently.

    **Guarantee**: zero-out or add/remove; any lower-triangular encoder, adaptive inputs
    (Choquette-Choo, Ganesh, Steinke and Thakurta 2024, Theorem 4.3, with the tails, orders and
    factors of docs/theory/amplified.md).

    Attributes:
        rate: probability of taking part in a step.
    """

    rate: Probability


@dataclass(frozen=True)
class CyclicPoisson(SecretSampler):
    """Examples are in ``groups`` fixed groups; step i samples group i modulo their number.

    The literature calls it "b-min-sep" sampling, a name that a different sampler has as well.

    **Guarantee**: zero-out; add/remove if every example is put into its group independently of the
    others. Choquette-Choo, Ganesh, Steinke and Thakurta 2024, Theorem D.1, with pairs of steps
    counted as they are used (docs/errata.md). Exact for at most as many bands as groups.

    Attributes:
        groups: number of groups, b, the least distance of two steps of one example.
        rate: probability with which the examples of the group of a step take part in it.
    """

    groups: PositiveInteger
    rate: Probability


@dataclass(frozen=True)
class CyclicAllocation(SecretSampler):
    """Examples are in ``groups`` fixed groups; step i is one of group i modulo their number.

    In every epoch of ``groups * slots`` steps an example takes part in exactly one of the ``slots``
    steps of its group, which it draws uniformly, anew in every epoch. With one group it is random
    allocation, for independent noise; with more, two steps of an example are ``groups`` or more
    apart, for as many bands.

    **Guarantee**: zero-out; the loss of every epoch is that of random allocation among ``slots``
    Gaussian releases (docs/theory/amplified.md#allocated, after Feldman and Shenfeld 2025).

    Attributes:
        groups: number of groups, the least distance of two steps of one example.
        slots: number of steps of an epoch that one example draws from.
    """

    groups: PositiveInteger
    slots: PositiveInteger


@dataclass(frozen=True)
class BallsInBins(SecretSampler):
    """Every example draws one of ``bins`` bins, once, and takes part in every bins-th step from it.

    All epochs have ``bins`` steps and use one draw. It is what to use instead of a shuffled order.

    **Guarantee**: zero-out or add/remove; the ratio of a mixture over bins is ordered by the inner
    products of their columns (docs/theory/amplified.md).

    Attributes:
        bins: number of bins, b: the steps of an epoch.
    """

    bins: PositiveInteger
