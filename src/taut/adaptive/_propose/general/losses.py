"""What a mechanism behind a test costs, whatever form its own loss is known in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from taut._base import validate
from taut._base.floats import UP
from taut.accounting import PrivacyLoss, approximate, from_rdp, pure
from taut.adaptive._propose.distance_test import DistanceTest
from taut.errors import AdjacencyMismatch, UnsoundConfiguration

__all__ = ["behind_distance", "behind_release", "checked_within", "point_of", "renyi_of"]

_SUM_ERROR = 1 + 1e-12  # covers sums of rounded losses


def behind_distance(test: DistanceTest, within: PrivacyLoss, direction: str) -> PrivacyLoss:
    """Return the loss of a release that a distance test guards.

    Args:
        test: what guards it.
        within: loss that it has, by itself, at data of distance 1 or more.
        direction: ``"both"`` if that bounds both directions between the data and a neighbour,
            ``"forward"`` if only the divergence from the data to a neighbour.
    """
    curve, point = renyi_of(within), point_of(within)
    if curve is not None:
        noisy = pure(test.epsilon, adjacency=test.adjacency)
        spent = {order: noisy.rdp(order) * _SUM_ERROR for order in curve}
        return _approximate_renyi(spent, curve, test.failure, within)
    if point is not None and (direction == "forward" or point[1] > 0):
        # Either the mechanism fails or the test does, never both for one pair of neighbours.
        return approximate(
            (test.epsilon + point[0]) * _SUM_ERROR,
            max(point[1], test.failure),
            adjacency=test.adjacency,
        )
    if direction == "forward":
        raise UnsoundConfiguration(
            "a bound on one direction alone is no curve that composes: give within as "
            "approximate(epsilon, delta), pure(epsilon) or from_rdp(...), or show that the loss "
            "holds in both directions"
        )
    return test.loss + within


def behind_release(
    noise: PrivacyLoss, noise_delta: float, within: PrivacyLoss, failure: float, *, fixed: bool
) -> PrivacyLoss:
    """Return the loss of a release that is decided, or calibrated, by another release.

    Args:
        noise: loss of the first release.
        noise_delta: probability at which its epsilon is taken, unless all is known in orders.
        within: loss of the second one, wherever the first one is right.
        failure: probability that the first one is wrong, at most.
        fixed: whether the first one decides only whether, not how, the second is made.
    """
    curve, point = renyi_of(within), point_of(within)
    if curve is not None:
        spent = {order: noise.rdp(order) * _SUM_ERROR for order in curve}
        return _approximate_renyi(spent, curve, failure, within)
    if point is None:
        raise UnsoundConfiguration(
            "within must be approximate(epsilon, delta), pure(epsilon) or from_rdp(...): a release "
            "that another one decides about has no proven curve"
        )
    spent_before = noise.epsilon(noise_delta)
    if math.isinf(spent_before):
        raise ValueError(
            f"noise_delta must be so large that the noise has a finite epsilon at it, got "
            f"noise_delta={noise_delta!r}; Gaussian noise needs one above 0"
        )
    delta = max(point[1], failure) if fixed else point[1] + failure
    return approximate(
        (spent_before + point[0]) * _SUM_ERROR,
        (noise_delta + delta) * UP,
        adjacency=within.adjacency,
    )


def _approximate_renyi(
    spent: Mapping[float, float], curve: Mapping[float, float], failure: float, within: PrivacyLoss
) -> PrivacyLoss:
    """Return failure with a probability, and the sum of divergences given that there is none."""
    # Given no failure, masses are larger by 1 / (1 - failure).
    given = -math.log1p(-failure) * UP
    total = {
        order: (spent[order] + curve[order]) * _SUM_ERROR + order / (order - 1) * given * UP
        for order in curve
    }
    adjacency = within.adjacency
    return approximate(0.0, failure, adjacency=adjacency) + from_rdp(total, adjacency=adjacency)


def point_of(within: PrivacyLoss) -> tuple[float, float] | None:
    """Return epsilon and delta of a loss that is nothing else."""
    release = _only(within)
    if release is None or release.kind not in ("pure", "approximate"):
        return None
    return float(release.epsilon), float(getattr(release, "delta", 0.0))


def renyi_of(within: PrivacyLoss) -> dict[float, float] | None:
    """Return divergences by order of a loss that is nothing else."""
    release = _only(within)
    if release is None or release.kind != "rdp":
        return None
    return dict(zip(release.orders, release.divergences, strict=True))


def _only(within: PrivacyLoss) -> Any:
    return within.terms[0][0] if len(within.terms) == 1 and within.terms[0][1] == 1 else None


def checked_within(within: PrivacyLoss, adjacency: str, direction: str) -> None:
    """Refuse what is no loss, a loss for another relation, and directions that do not exist."""
    if not isinstance(within, PrivacyLoss):
        raise validate.WrongType(
            f"within must be a PrivacyLoss, such as taut.approximate(0.5, 1e-6), got {within!r}"
        )
    if within.adjacency != adjacency:
        raise AdjacencyMismatch(
            f"within must be for adjacency={str(adjacency)!r}, as the test is, "
            f"got {str(within.adjacency)!r}"
        )
    if direction not in ("both", "forward"):
        raise ValueError(f"direction must be 'both' or 'forward', got direction={direction!r}")
