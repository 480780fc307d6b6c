"""Random allocation within groups: one secret step per epoch, at a least distance from the last."""

from dataclasses import dataclass

from taut._base import validate
from taut._base.validate import PositiveInteger
from taut.accounting import Adjacency, PrivacyLoss, gaussian
from taut.errors import UnsoundConfiguration
from taut.matrix._accounting.samplers import SecretSampler
from taut.matrix._encoders.encoder import Encoder

__all__ = ["CyclicAllocation", "allocated_loss"]

_NORM_ERROR = 1e-12  # relative, of norms: sums of some ten thousand squares


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


def allocated_loss(
    encoder: Encoder,
    sampler: CyclicAllocation,
    sigma: float,
    *,
    adjacency: Adjacency | str = "zero_out",
) -> PrivacyLoss:
    """Return the loss of a run in which every epoch allocates examples within their groups.

    Args:
        encoder: matrix that correlates the noise, of at most as many bands as there are groups.
        sampler: groups, and steps to draw from.
        sigma: standard deviation of the independent noise, for contributions of norm at most one.
        adjacency: zero-out; add/remove if every example is put into its group independently of the
            others.

    **Guarantee**: an upper bound for inputs that may depend on earlier outputs
    (docs/theory/amplified.md#allocated), exact where columns do not grow, as in a Toeplitz matrix,
    up to the shorter columns of the last steps.

    Raises:
        ValueError: if ``sigma`` is not positive.
        UnsoundConfiguration: for more bands than groups, or under replace-one.

    Example:
        >>> from taut.matrix import CyclicAllocation, Workload, allocated_loss, square_root
        >>> encoder = square_root(Workload(512), bands=8)
        >>> loss = allocated_loss(encoder, CyclicAllocation(groups=8, slots=16), sigma=2.0)
        >>> loss.epsilon(delta=1e-6) < 4.5
        True
    """
    noise = validate.positive(sigma=sigma)
    relation = Adjacency(adjacency)
    if relation is Adjacency.REPLACE:
        raise UnsoundConfiguration(
            "secret steps have no theorem for adjacency='replace'; use 'zero_out' or 'add_remove'"
        )
    if encoder.reach > sampler.groups:
        raise UnsoundConfiguration(
            f"columns of the encoder overlap over {encoder.reach} steps, and steps of one example "
            f"may be groups={sampler.groups} apart; use at most as many bands as groups, or "
            "BallsInBins"
        )
    norm = float(encoder.column_norms().max()) * (1 + _NORM_ERROR)
    release = gaussian(noise, norm, adjacency=relation)
    epochs, rest = divmod(encoder.steps, sampler.groups * sampler.slots)
    total = epochs * release.allocated(sampler.slots)
    if rest:  # the first group has had most of its steps
        total = total + release.allocated(sampler.slots, -(-rest // sampler.groups))
    return total
