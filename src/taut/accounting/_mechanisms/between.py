"""A release that is known from above, in each direction by a proof of its own, and from below."""

from __future__ import annotations

from dataclasses import dataclass

from taut._base import validate
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.given import Pure
from taut.accounting._pairs.bracketed import BracketedPair
from taut.accounting._pairs.pair import Pair
from taut.accounting._releases.release import Base, Release
from taut.accounting._releases.renyi_only import refuse_renyi_only
from taut.accounting._releases.sums import as_one

__all__ = ["Between", "between"]


@dataclass(frozen=True)
class Between(Release):
    """Dominated by ``removal`` and by ``addition`` in their directions; it reaches ``reached``."""

    kind = "between"
    no_exchange = (
        "between(...) knows what removing and what adding a record does, and has no pair "
        "under adjacency='replace'; use adjacency='add_remove' or 'zero_out'"
    )
    removal: Base
    addition: Base
    reached: Base
    name: str

    def check_fields(self) -> None:
        """Check the parameters."""
        for release in (self.removal, self.addition, self.reached):
            refuse_renyi_only(
                release,
                "between(...) needs losses with dominating pairs, and one is known by its Renyi "
                "divergences only",
            )

    def pair(self, half: Half) -> Pair:
        """Return the pair of the direction, with the one that is reached inside."""
        above = self.removal if half is Half.REMOVE else self.addition
        return BracketedPair(above.pair(half), self.reached.pair(half).reached)

    def __str__(self) -> str:
        """Return the name alone."""
        return self.name


def between(
    removal: PrivacyLoss,
    addition: PrivacyLoss,
    reached: PrivacyLoss,
    *,
    name: str,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of a release that dominates one loss and is dominated by others.

    Args:
        removal: loss that dominates where the first dataset has the record; only its direction
            ``remove`` is used.
        addition: loss that dominates where the second dataset has it; only ``add`` is used.
        reached: loss that some release of the kind has at least, in both directions. Lower bounds
            are its own, where they are not above upper ones: then one of the losses is wrong.
        name: words that stand for the release where losses are printed.
        adjacency: add/remove, one of its halves, or zero-out.

    **Guarantee**: upper bounds are those of ``removal`` and ``addition``, under composition and
    sampling too, since domination at all thresholds survives both (Zhu, Dong and Wang 2022,
    Theorems 10 and 11); lower bounds are those of ``reached``.

    Raises:
        UnsoundConfiguration: under replace-one, and for losses known by Renyi divergences only.

    Example:
        >>> from taut.accounting import between, gaussian
        >>> loss = between(gaussian(1.0), gaussian(1.0), gaussian(1.1), name="about one")
        >>> lower, upper = loss.epsilon_bounds(delta=1e-5)
        >>> round(lower, 2), round(upper, 2)
        (3.92, 4.38)
    """
    validate.instance(PrivacyLoss, removal=removal, addition=addition, reached=reached)
    losses = (removal, addition, reached)
    above, beyond, below = (as_one(loss.terms) or Pure(0.0) for loss in losses)
    return PrivacyLoss([(Between(above, beyond, below, name), 1)], adjacency)
