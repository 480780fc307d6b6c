"""Losses where the steps of an example are no secret: one Gaussian release in all."""

from __future__ import annotations

from taut._base import validate
from taut.accounting import Adjacency, PrivacyLoss, gaussian
from taut.errors import UnsoundConfiguration
from taut.matrix._encoders.encoder import Encoder
from taut.matrix._participation import FixedOrder, Participation
from taut.matrix._sensitivity import sensitivity

__all__ = ["unamplified_loss"]


def unamplified_loss(
    encoder: Encoder,
    participation: Participation,
    sigma: float,
    *,
    adjacency: Adjacency | str = "zero_out",
) -> PrivacyLoss:
    """Return the loss of a whole run of correlated noise, if steps of examples are no secret.

    Args:
        encoder: matrix that correlates the noise.
        participation: rule that the steps of every example obey.
        sigma: standard deviation of the independent noise, for contributions of norm at most one.
            The noise multiplier is ``sigma / sensitivity(encoder, participation).value``.
        adjacency: zero-out; add/remove if the steps of others do not depend on the record; or
            replace-one, which doubles the sensitivity.

    **Guarantee**: the run is one Gaussian release of that sensitivity, also if contributions depend
    on earlier outputs, since encoders are lower-triangular (Denisov, McMahan, Rush, Smith and
    Thakurta 2022, Theorem 2.1). Exact where the sensitivity is.

    Raises:
        ValueError: if ``sigma`` is not positive.
        UnsoundConfiguration: for a fixed order under add/remove, where all steps would move.

    Example:
        >>> from taut.matrix import SingleParticipation, Workload, square_root, unamplified_loss
        >>> encoder = square_root(Workload(1_000))
        >>> loss = unamplified_loss(encoder, SingleParticipation(), sigma=8.0)
        >>> round(loss.epsilon(delta=1e-6), 2)
        0.95
    """
    validate.instance(Encoder, encoder=encoder)
    validate.instance(Participation, participation=participation)
    noise = validate.positive(sigma=sigma)
    relation = Adjacency(adjacency)
    exchange = relation is Adjacency.REPLACE
    if isinstance(participation, FixedOrder) and relation not in (
        Adjacency.ZERO_OUT,
        Adjacency.REPLACE,
    ):
        raise UnsoundConfiguration(
            f"a fixed order has no theorem for adjacency={str(relation)!r}: without the record all "
            "later examples move to other steps. Use adjacency='zero_out' or 'replace'"
        )
    size = sensitivity(encoder, participation).value * (2 if exchange else 1)
    return gaussian(noise, size, adjacency=relation)
