"""What a sequential audit found."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from taut.accounting import Adjacency
from taut.audit._verdict import Verdict, mismatch

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
class SequentialResult(Verdict):
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
        found = []
        if self.log_evidence >= self.needed:
            found.append(
                f"runs that were {_times(self.log_evidence)} times likelier than the claim lets "
                f"any be, seen in {self.craft!r} by {self.statistic!r}"
            )
        return (*found, *self._exceeded())

    @property
    def mismatches(self) -> tuple[str, ...]:
        return tuple(
            mismatch(check.name, check.ratio, f"evidence {_times(check.log_evidence)}")
            for check in self.checks
            if check.log_evidence >= self.check_needed
        )

    def __str__(self) -> str:
        return self._in_words(
            f"audit of {self.runs} runs one by one, level {self.level:g}, adjacency "
            f"{self.adjacency}"
        )

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(self) | {"adjacency": str(self.adjacency), "checks": []}
        fields["checks"] = [asdict(check) for check in self.checks]
        return {
            "schema": SCHEMA,
            "passed": self.passed,
            **fields,
            "violations": list(self.violations),
            "mismatches": list(self.mismatches),
        }


def _times(log_evidence: float) -> str:
    return f"{math.exp(log_evidence):.3g}" if log_evidence < 700 else "over 1e300"
