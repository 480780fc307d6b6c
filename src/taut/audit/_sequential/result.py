"""What a sequential audit found."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from taut._base.rounding import round_down, round_up
from taut.accounting import Adjacency
from taut.audit._attacks.draw_check import DRAWS

__all__ = ["RunningCheck", "SequentialResult"]

SCHEMA = "taut.sequential_audit/1"


@dataclass(frozen=True)
class RunningCheck:
    """Evidence against one property of what is random, so far.

    Attributes:
        name: property that is tested, as in :class:`NoiseCheck`.
        ratio: the mean square over what was claimed; one if all is as claimed.
        log_evidence: the natural logarithm of the evidence that it is not.
    """

    name: str
    ratio: float
    log_evidence: float


@dataclass(frozen=True)
class SequentialResult:
    """What runs say about a claim, looked at one by one.

    Attributes:
        epsilon_lower: epsilon at `delta` is no less than this, but with probability `level`.
        claimed_epsilon: what the claim says at `delta`.
        delta: probability delta of both bounds.
        adjacency: the relation of the neighbours.
        level: the probability that a loop which keeps its claim is ever refuted.
        runs: runs in all, on both sides and in all settings.
        most_runs: number of runs after which it stopped at the latest.
        log_evidence: the natural logarithm of the evidence against the claim.
        needed: what it must reach for a violation.
        craft: the setting of the last bet, None if there was none,
        statistic: statistic of that bet.
        checks: evidence against noise and batches, where these were asked about.
        check_needed: the logarithm that the evidence of a check must reach for a mismatch.

    **Guarantee**: if a fair coin decides in every run about the canary, and the loop keeps its
    claim in every run whatever came before, `passed` is false with probability at most `level`,
    whenever and for whatever reason one stops to look (docs/theory/sequential.md). A pass proves
    nothing.
    """

    epsilon_lower: float
    claimed_epsilon: float
    delta: float
    adjacency: Adjacency
    level: float
    runs: int
    most_runs: int
    log_evidence: float
    needed: float
    craft: str | None
    statistic: str | None
    checks: tuple[RunningCheck, ...]
    check_needed: float

    @property
    def violations(self) -> tuple[str, ...]:
        """How the claim is refuted; empty if it is not."""
        found = []
        if self.log_evidence >= self.needed:
            found.append(
                f"runs that were {_times(self.log_evidence)} times likelier than the claim lets "
                f"any be, seen in {self.craft!r} by {self.statistic!r}"
            )
        if self.epsilon_lower > self.claimed_epsilon:
            found.append(
                f"epsilon at delta {self.delta:g} is at least {round_down(self.epsilon_lower, 4)}, "
                f"{round_up(self.claimed_epsilon, 4)} was claimed"
            )
        return tuple(found)

    @property
    def mismatches(self) -> tuple[str, ...]:
        """How noise or batches differ from what was claimed; no violation by itself."""
        return tuple(
            f"{'batches are' if check.name == DRAWS else 'noise is'} not what was claimed "
            f"({check.name}): {check.ratio:.4g} times the expected square, evidence "
            f"{_times(check.log_evidence)}"
            for check in self.checks
            if check.log_evidence >= self.check_needed
        )

    @property
    def passed(self) -> bool:
        """Whether neither a violation nor a mismatch was found."""
        return not self.violations and not self.mismatches

    def __str__(self) -> str:
        verdict = "no fault found (which proves nothing)" if self.passed else "FAULT FOUND"
        lines = [
            f"audit of {self.runs} runs one by one, level {self.level:g}, adjacency "
            f"{self.adjacency}: {verdict}",
            f"{round_down(self.epsilon_lower, 4)} <= epsilon at delta {self.delta:g}, claimed "
            f"{round_up(self.claimed_epsilon, 4)}",
        ]
        lines += [f"violation: {text}" for text in self.violations]
        return "\n".join([*lines, *(f"mismatch: {text}" for text in self.mismatches)])

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        fields = asdict(self) | {"adjacency": str(self.adjacency), "checks": []}
        fields["checks"] = [asdict(check) for check in self.checks]
        return {
            "schema": SCHEMA,
            "passed": self.passed,
            **fields,
            "violations": list(self.violations),
            "mismatches": list(self.mismatches),
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)


def _times(log_evidence: float) -> str:
    return f"{math.exp(log_evidence):.3g}" if log_evidence < 700 else "over 1e300"
