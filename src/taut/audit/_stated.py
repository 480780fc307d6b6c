"""What a published statement claims, in one form for all kinds of statements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taut import _validate
from taut.accounting import PrivacyLoss

__all__ = ["Stated", "claimed_delta", "claimed_number"]


@dataclass(frozen=True)
class Stated:
    """A claim, and the loss that it has to cover.

    Attributes:
        epsilon: the smallest one that is claimed anywhere in the statement.
        delta: of the claim.
        loss: whose epsilon the claim must not be below.
        sampler: how batches were drawn, as the statement calls it; empty if it says nothing.
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
    sampler: str = ""
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
    if value == "Infinity":
        return math.inf
    return _validate.non_negative(**{key: value})


def claimed_delta(data: Mapping[str, Any]) -> float:
    """Return the delta of a claim.

    Raises:
        ValueError: if it is missing, or not in [0, 1).
    """
    if "delta" not in data:
        raise ValueError("the statement has no 'delta'; a claim needs epsilon and delta")
    return _validate.below_one(delta=data["delta"])
