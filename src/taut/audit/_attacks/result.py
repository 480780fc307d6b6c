"""What an audit found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from taut._base.rounding import round_down, round_up
from taut.accounting import Adjacency
from taut.audit._attacks.attack import Evidence
from taut.audit._attacks.noise_checks import NoiseCheck
from taut.audit._verdict import Verdict, mismatch

__all__ = ["AuditResult"]

SCHEMA = "taut.audit/1"


@dataclass(frozen=True)
class AuditResult(Verdict):
    """What runs on two neighbours say about a claim.

    Attributes:
        epsilon_lower: the true epsilon at `delta` is no less than this, with `confidence`.
        claimed_epsilon: what the claim says at `delta`.
        delta: probability delta of both bounds.
        adjacency: the relation of the neighbours.
        confidence: the probability that a loop which keeps its claim passes, and of each statement.
        trials: runs on each side, in each crafted setting.
        evidence: evidence of the attack behind `epsilon_lower`.
        strongest: evidence of the attack that was to exceed what the claim allows at any delta,
        allowed_tpr: the largest true-positive rate that the claim allows it.
        noise_checks: whether noise is what was claimed, where that was asked, and batches.
        noise_failure: the p-value below which a noise check fails.

    **Guarantee**: if all runs are independent and the loop keeps its claim, `passed` is false with
    probability at most 1 - `confidence`. A pass proves nothing: it says that these attacks, on
    these datasets, with so many runs, found no fault.
    """

    epsilon_lower: float
    claimed_epsilon: float
    delta: float
    adjacency: Adjacency
    confidence: float
    trials: int
    evidence: Evidence
    strongest: Evidence
    allowed_tpr: float
    noise_checks: tuple[NoiseCheck, ...]
    noise_failure: float

    @property
    def violations(self) -> tuple[str, ...]:
        found = self._exceeded()
        if self.strongest.tpr_lower > self.allowed_tpr:
            found.append(
                f"true-positive rate at least {round_down(self.strongest.tpr_lower, 4)} at "
                f"false-positive rate at most {round_up(self.strongest.fpr_upper, 4)}, where the "
                f"claim allows {round_up(self.allowed_tpr, 4)}"
            )
        return tuple(found)

    @property
    def mismatches(self) -> tuple[str, ...]:
        return tuple(
            mismatch(check.name, check.ratio, f"p-value {check.p_value:.2g}")
            for check in self.noise_checks
            if check.p_value < self.noise_failure
        )

    def __str__(self) -> str:
        return self._in_words(
            f"audit with {self.trials} runs on each side, confidence {self.confidence:g}, "
            f"adjacency {self.adjacency}",
            f"seen in {self.strongest.craft!r} by {self.strongest.statistic!r}: "
            f"{self.strongest.hits} hits and {self.strongest.false_alarms} false alarms "
            f"in {self.strongest.trials} runs each",
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "passed": self.passed,
            "epsilon_lower": self.epsilon_lower,
            "claimed_epsilon": self.claimed_epsilon,
            "delta": self.delta,
            "adjacency": str(self.adjacency),
            "confidence": self.confidence,
            "trials": self.trials,
            "evidence": self.evidence.to_dict(),
            "strongest": self.strongest.to_dict(),
            "allowed_tpr": self.allowed_tpr,
            "noise_checks": [check.to_dict() for check in self.noise_checks],
            "noise_failure": self.noise_failure,
            "violations": list(self.violations),
            "mismatches": list(self.mismatches),
        }
