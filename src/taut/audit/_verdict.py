"""The verdict on a claim, from however many runs and however they were looked at."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

from taut._base.rounding import round_down, round_up

__all__ = ["DRAWS", "Verdict", "mismatch"]

DRAWS = "draws in an epoch"
"""The name of the check of batches; all other checks are of noise."""


class Verdict(ABC):
    """What all audits of a claimed epsilon say alike: whether it stands, in words and as JSON."""

    epsilon_lower: float
    claimed_epsilon: float
    delta: float

    @property
    @abstractmethod
    def violations(self) -> tuple[str, ...]:
        """How the claim is refuted; empty if it is not."""

    @property
    @abstractmethod
    def mismatches(self) -> tuple[str, ...]:
        """How noise or batches differ from what was claimed; no violation by itself."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""

    @property
    def passed(self) -> bool:
        """Whether neither a violation nor a mismatch was found."""
        return not self.violations and not self.mismatches

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def _exceeded(self) -> list[str]:
        """Return what is violated if epsilon is shown to be above the claim."""
        if self.epsilon_lower <= self.claimed_epsilon:
            return []
        return [
            f"epsilon at delta {self.delta:g} is at least {round_down(self.epsilon_lower, 4)}, "
            f"{round_up(self.claimed_epsilon, 4)} was claimed"
        ]

    def _in_words(self, how: str, seen: str | None = None) -> str:
        """Return the verdict after how it was found, with what the violations were seen in."""
        verdict = "no fault found (which proves nothing)" if self.passed else "FAULT FOUND"
        found = [f"violation: {text}" for text in self.violations]
        return "\n".join(
            [
                f"{how}: {verdict}",
                f"{round_down(self.epsilon_lower, 4)} <= epsilon at delta {self.delta:g}, claimed "
                f"{round_up(self.claimed_epsilon, 4)}",
                *found,
                *([seen] if found and seen is not None else []),
                *(f"mismatch: {text}" for text in self.mismatches),
            ]
        )


def mismatch(name: str, ratio: float, weight: str) -> str:
    """Return in words that noise or batches are not what was claimed.

    Args:
        name: property that was tested.
        ratio: the mean square over what was claimed.
        weight: how strong the evidence is.
    """
    what = "batches are" if name == DRAWS else "noise is"
    return f"{what} not what was claimed ({name}): {ratio:.4g} times the expected square, {weight}"
