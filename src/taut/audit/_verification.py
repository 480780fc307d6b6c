"""Published statements, recomputed: does the claim follow from what was done?"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from taut._rounding import round_down, round_up
from taut.accounting import Adjacency, Bounds, PrivacyLoss
from taut.audit._stated import Stated
from taut.audit._statements import read_statement

__all__ = ["Verdict", "Verification", "verify_statement"]

SCHEMA = "taut.verification/1"
_ROUNDING = 1e-9  # relative
_LOOSE = 0.01  # from here on a claim is called looser than needed
_NEAR = 0.02  # within this factor a claim is taken to be computed for another run
_TOLERANCES = (1e-3, 1e-5)


class Verdict(StrEnum):
    """What can be said about a claim."""

    CERTIFIED = "certified"
    """No less than a certified upper bound, and hardly more."""
    LOOSE = "looser than needed"
    """True, and by more than one per cent above what could be claimed."""
    NOT_CERTIFIED = "not certified"
    """Neither shown to be true nor to be false."""
    WRONG = "wrong"
    """Below a certified lower bound, or in contradiction with itself."""


@dataclass(frozen=True)
class Verification:
    """What recomputing a statement has shown.

    Attributes:
        verdict: about the claim.
        epsilon: the smallest one that is claimed.
        delta: of the claim.
        bounds: certified bounds on the run's epsilon at `delta`; `bounds.upper` can be claimed.
        loss: behind the upper bound.
        sampler: how batches were drawn, as the statement says; empty if it does not.
        findings: what is wrong or doubtful, and what would help.

    **Guarantee**: if `holds`, the claim follows from the run that the statement describes, under
    `adjacency`, for whoever sees every update. Whether that run took place as described, a file
    cannot show.
    """

    verdict: Verdict
    epsilon: float
    delta: float
    bounds: Bounds
    loss: PrivacyLoss
    sampler: str
    findings: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the claim is true, be it loose or not."""
        return self.verdict in (Verdict.CERTIFIED, Verdict.LOOSE)

    @property
    def adjacency(self) -> Adjacency:
        """Which datasets count as neighbours."""
        return self.loss.adjacency

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "schema": SCHEMA,
            "verdict": str(self.verdict),
            "holds": self.holds,
            "claimed": {"epsilon": self.epsilon, "delta": self.delta},
            "epsilon": {"lower": self.bounds.lower, "upper": self.bounds.upper},
            "adjacency": str(self.adjacency),
            "sampler": self.sampler,
            "findings": list(self.findings),
            "loss": self.loss.to_dict(),
        }

    def __str__(self) -> str:
        lines = [
            f"{self.verdict}: epsilon {self.epsilon!r} at delta {self.delta!r} is claimed, "
            f"{round_down(self.bounds.lower, 6)} <= epsilon <= {round_up(self.bounds.upper, 6)} "
            f"was recomputed, adjacency {self.adjacency}"
        ]
        return "\n".join([*lines, *self.findings])


def verify_statement(statement: Mapping[str, Any] | str) -> Verification:
    """Recompute a published privacy statement, and compare its claim with the truth.

    Args:
        statement: JSON text, or what it holds. One of

            * what `TrainingResult.to_json` wrote; its numbers must also agree with its words,
            * `{"epsilon": ..., "delta": ..., "loss": ...}` with what `PrivacyLoss.to_dict` wrote,
            * a run that is described by hand: `epsilon`, `delta`, `noise_multiplier`, `rate` (or
              `batch_size` and `examples`), `steps` (or `epochs`), `sampler` ("poisson",
              "fixed_size", "shuffle" or "none") and, if it is not the usual one of the sampler,
              `adjacency`.

    **Guarantee**: see `Verification`. Shuffled epochs are credited with no amplification: in an
    epoch a record is in one batch, so an epoch costs one release, under zero-out and replace-one.
    A claim about them is called wrong only if it is below what one epoch surely costs.

    Raises:
        ValueError: if the statement is malformed.

    Example:
        >>> from taut.audit import verify_statement
        >>> run = {"delta": 1e-5, "noise_multiplier": 1.0, "rate": 0.01, "steps": 1_000}
        >>> print(verify_statement({**run, "epsilon": 1.84, "sampler": "poisson"}).verdict)
        certified
        >>> print(verify_statement({**run, "epsilon": 1.80, "sampler": "poisson"}).verdict)
        wrong
    """
    data = _parsed(statement) if isinstance(statement, str) else statement
    if not isinstance(data, Mapping):
        raise ValueError(f"a statement is a JSON object, got {type(data).__name__}")
    stated = read_statement(data)
    bounds = _sharpened(stated)
    verdict = _verdict(stated, bounds)
    return Verification(
        verdict=verdict,
        epsilon=stated.epsilon,
        delta=stated.delta,
        bounds=bounds,
        loss=stated.loss,
        sampler=stated.sampler,
        findings=tuple(_findings(stated, bounds, verdict)),
    )


def _sharpened(stated: Stated) -> Bounds:
    """Return bounds that decide about the claim, or the sharpest ones there are."""
    bounds = Bounds(0.0, 0.0)
    for tolerance in _TOLERANCES:
        bounds = stated.loss.epsilon_bounds(stated.delta, tolerance)
        is_decided = not bounds.lower <= stated.epsilon < bounds.upper
        is_sharp = bounds.upper - bounds.lower <= tolerance * bounds.upper
        if is_decided or not is_sharp:  # bounds of a pair that is not tight get no closer
            break
    return bounds if stated.floor is None else Bounds(stated.floor, bounds.upper)


def _verdict(stated: Stated, bounds: Bounds) -> Verdict:
    claim = stated.epsilon * (1 + _ROUNDING)
    if stated.contradictions or claim < bounds.lower:
        return Verdict.WRONG
    if stated.doubts or claim < bounds.upper:
        return Verdict.NOT_CERTIFIED
    return Verdict.LOOSE if stated.epsilon > bounds.upper * (1 + _LOOSE) else Verdict.CERTIFIED


def _findings(stated: Stated, bounds: Bounds, verdict: Verdict) -> list[str]:
    found = [*stated.contradictions, *stated.doubts]
    if stated.epsilon * (1 + _ROUNDING) < bounds.upper:
        found += _mistaken(stated, bounds)
        if not stated.doubts:
            of = f" for batches drawn by {stated.sampler!r}" if stated.sampler else ""
            best = round_up(bounds.upper, 6)
            if bounds.upper == math.inf:
                best = f"no finite epsilon at delta {stated.delta!r}"
            found.append(f"{best} can be claimed{of}, {stated.loss.adjacency} adjacency")
    elif verdict is Verdict.LOOSE:
        excess = stated.epsilon / bounds.upper - 1 if bounds.upper > 0 else math.inf
        by = f"{excess:.0%} " if excess < math.inf else ""
        found.append(f"the claim is {by}above what can be claimed: {round_up(bounds.upper, 6)}")
    return [*found, *stated.notes]


def _mistaken(stated: Stated, bounds: Bounds) -> list[str]:
    """Return which other run the claim was computed for, if there is such a run."""
    for what, loss in stated.others.items():
        other = loss.epsilon_bounds(stated.delta)
        if other.lower * (1 - _NEAR) <= stated.epsilon <= other.upper * (1 + _NEAR):
            needed = f", for which {round_up(bounds.upper, 4)} is needed"
            return [
                f"sampler mismatch: epsilon {stated.epsilon!r} is what {what} cost "
                f"({round_up(other.upper, 4)}), but the statement says {stated.sampler!r} under "
                f"{stated.loss.adjacency}{'' if stated.doubts else needed}"
            ]
    return []


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from None
    except RecursionError:
        raise ValueError("no statement: its JSON is nested too deeply") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is given twice: readers may see either value")
    return found
