"""What a published statement claims, in one form for all kinds of statements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taut._base import validate
from taut._base.json_numbers import INFINITY
from taut.accounting import PrivacyLoss
from taut.audit._statements.keys import unknown

__all__ = [
    "LARGEST_LOSS",
    "MOST_RELEASES",
    "Stated",
    "beside_bounds",
    "claimed_delta",
    "claimed_lower",
    "claimed_number",
    "read_loss",
]

MOST_RELEASES = 250
"""Distinct releases of a loss that is recomputed: some seconds, where 3,000 took a minute."""
LARGEST_LOSS = 1e4
"""Epsilon of a single release that is recomputed: its nodes take 90 megabytes, those of 10^6 five
gigabytes, and a ratio of exp(10^4) hides nothing."""
_MOST_NUMBERS = 5_000  # in lists of a loss, such as the shifts of a mixture: some seconds again


@dataclass(frozen=True)
class Stated:
    """A claim, and the loss that it has to cover.

    Attributes:
        epsilon: the one that is claimed.
        delta: probability delta of the claim.
        lower: the lower bound on epsilon that is claimed beside it; 0 without.
        loss: privacy loss whose epsilon the claim must not be below.
        sampler: how batches were drawn, as the statement calls it; empty if it says nothing.
        records: how many there are, if the statement says so.
        floor: a lower bound on the true epsilon, if that of `loss` is none: it may be the loss of
            a theorem that is not tight.
        contradictions: how the statement disagrees with itself.
        doubts: why no number can be certified, whatever it is.
        notes: what else a reader should know.
        others: runs that the claim may have been computed for by mistake, by what they are.
    """

    epsilon: float
    delta: float
    loss: PrivacyLoss
    lower: float = 0.0
    sampler: str = ""
    records: int | None = None
    floor: float | None = None
    contradictions: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    others: Mapping[str, PrivacyLoss] = field(default_factory=dict)


def claimed_number(data: Mapping[str, Any], key: str) -> float:
    """Return a claimed number: itself, the "upper" of an object, or "Infinity".

    Raises:
        ValueError: if it is missing, or no number.
    """
    if key not in data:
        raise ValueError(f"the statement has no {key!r}; a claim needs epsilon and delta")
    value = data[key]
    if isinstance(value, Mapping):
        value = value.get("upper")
    if value == INFINITY:
        return math.inf
    return validate.non_negative(**{key: value})


def claimed_lower(data: Mapping[str, Any]) -> float:
    """Return the lower bound on epsilon that is claimed beside the upper one; 0 without.

    Raises:
        ValueError: if it is no number.
    """
    bounds = data.get("epsilon")
    if not isinstance(bounds, Mapping) or "lower" not in bounds:
        return 0.0
    return claimed_number({"epsilon.lower": bounds["lower"]}, "epsilon.lower")


def beside_bounds(data: Mapping[str, Any]) -> list[str]:
    """Return a doubt for whatever else an epsilon of two bounds holds."""
    return unknown(data.get("epsilon"), ("lower", "upper"), "its epsilon")


def claimed_delta(data: Mapping[str, Any]) -> float:
    """Return the delta of a claim.

    Raises:
        ValueError: if it is missing, or not in [0, 1).
    """
    if "delta" not in data:
        raise ValueError("the statement has no 'delta'; a claim needs epsilon and delta")
    return validate.below_one(delta=data["delta"])


def read_loss(data: Any, beside: tuple[str, ...] = ()) -> tuple[PrivacyLoss, list[str]]:
    """Return a loss in a statement, and what is doubtful about how it is written.

    Args:
        data: what `PrivacyLoss.to_dict` wrote.
        beside: keys that may stand beside those of a loss.

    Raises:
        ValueError: if it is malformed, or has more distinct releases than are recomputed.
    """
    loss = PrivacyLoss.from_dict(data)
    count = len(loss.terms) + _listed(data)
    if count > MOST_RELEASES:
        raise ValueError(
            f"its loss has {count} distinct releases, and statements are recomputed up "
            f"to {MOST_RELEASES}; compute it yourself with PrivacyLoss.from_dict(...).epsilon("
            "delta), which takes some time"
        )
    if _numbers(data) > _MOST_NUMBERS:
        raise ValueError(
            f"its loss has lists of {_numbers(data)} numbers, and statements are recomputed up to "
            f"{_MOST_NUMBERS}"
        )
    if (largest := _largest(data)) > LARGEST_LOSS:
        raise ValueError(
            f"a single release of its loss has epsilon {largest:.3g}, which hides nothing; "
            f"statements are recomputed up to {LARGEST_LOSS:g}"
        )
    doubts = unknown(data, ("schema", "adjacency", "terms", *beside), "its loss")
    for place, term in enumerate(data["terms"], 1):
        doubts += unknown(term, ("count", "release"), f"term {place} of its loss")
    return loss, doubts


def _largest(data: Any) -> float:
    """Return the largest epsilon of a release whose loss is spread over an interval."""
    if isinstance(data, list | tuple):
        return max(map(_largest, data), default=0.0)
    if not isinstance(data, Mapping):
        return 0.0
    own = 0.0
    if data.get("kind") in ("laplace", "discrete_laplace"):
        own = data.get("sensitivity", 1) / data["scale"]
    elif data.get("kind") in ("exponential", "permute_and_flip", "stability_release"):
        own = data["epsilon"]
    return max(own, *map(_largest, data.values()), 0.0)


def _listed(data: Any) -> int:
    """Return how many releases stand in lists, as those do that a release chooses from."""
    if isinstance(data, Mapping):
        return sum(map(_listed, data.values()))
    if isinstance(data, list | tuple):
        return sum((isinstance(v, Mapping) and "kind" in v) + _listed(v) for v in data)
    return 0


def _numbers(data: Any) -> int:
    """Return how many numbers there are in lists, at any depth."""
    if isinstance(data, Mapping):
        return sum(_numbers(value) for value in data.values())
    if isinstance(data, list | tuple):
        return sum(_numbers(v) if isinstance(v, Mapping | list | tuple) else 1 for v in data)
    return 0
