"""What a reader demands of a claim, beyond that it be true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taut._base import validate
from taut._base.rounding import round_up
from taut.accounting import Adjacency, Bounds
from taut.audit._statements.stated_claim import Stated

__all__ = ["Gate", "large_delta"]

_LARGE_DELTA = 1e-2  # below 1 / records only where there are fewer than a hundred of them


@dataclass(frozen=True)
class Gate:
    """The largest epsilon and delta, and the adjacency, that a reader accepts."""

    max_epsilon: float | None
    max_delta: float | None
    adjacency: Adjacency | None

    @classmethod
    def of(cls, max_epsilon: object, max_delta: object, adjacency: object) -> Gate:
        """Return the gate; what is None is not asked for.

        Raises:
            ValueError: if a limit is no number of its range, or there is no such adjacency.
        """
        return cls(
            None if max_epsilon is None else validate.non_negative(max_epsilon=max_epsilon),
            None if max_delta is None else validate.below_one(max_delta=max_delta),
            None if adjacency is None else Adjacency(adjacency),  # type: ignore[arg-type]
        )

    def refusals(self, stated: Stated, bounds: Bounds) -> Iterator[str]:
        """Yield why a claim is not accepted, be it true or not."""
        if self.max_epsilon is not None and not stated.epsilon <= self.max_epsilon:
            remedy = ""
            if bounds.upper <= self.max_epsilon:
                remedy = f"; the run costs {round_up(bounds.upper, 6)}: claim that"
            yield (
                f"epsilon {stated.epsilon!r} is claimed, the most that is accepted is "
                f"{self.max_epsilon!r}{remedy}"
            )
        if self.max_delta is not None and not stated.delta <= self.max_delta:
            yield (
                f"delta {stated.delta!r} is claimed, the most that is accepted is "
                f"{self.max_delta!r}"
            )
        if self.adjacency is not None and stated.loss.adjacency is not self.adjacency:
            yield (
                f"adjacency {str(stated.loss.adjacency)!r} is claimed, {str(self.adjacency)!r} is "
                "asked for; an epsilon for one is none for the other"
            )


def large_delta(stated: Stated) -> list[str]:
    """Return a finding if delta allows what nobody would call private."""
    limit = _LARGE_DELTA if stated.records is None else 1 / stated.records
    if stated.delta < limit:
        return []
    count = "the number of records" if stated.records is None else f"{stated.records} records"
    return [
        f"delta {stated.delta!r} is not small: a release of whole records now and then keeps it. "
        f"Delta must be well below 1 / records; here that is 1 / ({count})"
        + ("" if stated.records is None else f" = {limit:.3g}")
    ]
