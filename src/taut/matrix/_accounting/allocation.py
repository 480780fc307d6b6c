"""Random allocation within groups: one secret step per epoch, at a least distance from the last."""

from taut.accounting import Adjacency, PrivacyLoss, gaussian
from taut.errors import UnsoundConfiguration
from taut.matrix._accounting.samplers import CyclicAllocation
from taut.matrix._encoders.encoder import Encoder

__all__ = ["cyclic_allocation_loss"]

_NORM_ERROR = 1e-12  # relative, of norms: sums of some ten thousand squares


def cyclic_allocation_loss(
    encoder: Encoder, sampler: CyclicAllocation, sigma: float, relation: Adjacency
) -> PrivacyLoss:
    """Return the loss of a run in which every epoch allocates examples within their groups.

    Exact where columns do not grow, as in a Toeplitz matrix, up to the shorter columns of the last
    steps (docs/theory/amplified.md#allocated).

    Raises:
        UnsoundConfiguration: for more bands than groups.
    """
    if encoder.reach > sampler.groups:
        raise UnsoundConfiguration(
            f"columns of the encoder overlap over {encoder.reach} steps, and steps of one example "
            f"may be groups={sampler.groups} apart; use at most as many bands as groups, or "
            "BallsInBins"
        )
    norm = float(encoder.column_norms().max()) * (1 + _NORM_ERROR)
    release = gaussian(sigma, norm, adjacency=relation)
    epochs, rest = divmod(encoder.steps, sampler.groups * sampler.slots)
    total = epochs * release.allocated(sampler.slots)
    if rest:  # the first group has had most of its steps
        total = total + release.allocated(sampler.slots, -(-rest // sampler.groups))
    return total
