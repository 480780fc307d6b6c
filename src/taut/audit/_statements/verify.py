"""Published statements, recomputed: does the claim follow from what was done?"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from taut._base.json_numbers import parsed_json
from taut._base.rounding import round_down, round_up
from taut.accounting import Adjacency, Bounds, PrivacyLoss
from taut.audit._statements.gate import Gate, large_delta
from taut.audit._statements.stated_claim import Stated
from taut.audit._statements.statement import read_statement

__all__ = ["Verdict", "Verification", "verify_statement"]

SCHEMA = "taut.verification/1"
_ROUNDING = 1e-9  # relative
_LOOSE = 0.01  # from here on a claim is called looser than needed
_NEAR = 0.02  # within this factor a claim is taken to be computed for another run
_TOLERANCES = (1e-3, 1e-5)
_FEW = 20  # distinct releases; more of them take minutes to the sharper tolerance
_MOST_BYTES = (
    1 << 24
)  # of JSON; those that taut writes have a few thousand, with subspaces a million
_DEEPEST = 40  # objects inside of objects; those that taut writes have about eight

_NOT_SHOWN = (
    "that this run took place, that its code, data and noise were as described, and who wrote the "
    "file: a statement bears no signature"
)


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
        epsilon: the one that is claimed.
        delta: probability delta of the claim.
        bounds: certified bounds on the run's epsilon at `delta`; `bounds.upper` can be claimed.
        loss: behind the upper bound.
        sampler: how batches were drawn, as the statement says; empty if it does not.
        findings: what is wrong or doubtful, and what would help.
        refusals: how the claim, true or not, is beyond what the reader asked for.

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
    refusals: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the claim is true, be it loose or not."""
        return self.verdict in (Verdict.CERTIFIED, Verdict.LOOSE)

    @property
    def passes(self) -> bool:
        """Whether the claim is true, and within what the reader asked for."""
        return self.holds and not self.refusals

    @property
    def not_shown(self) -> str:
        """What neither this nor any other computation can show."""
        return _NOT_SHOWN

    @property
    def recomputed(self) -> tuple[str, str]:
        """Both bounds as text, with as many digits as it takes to compare them with the claim."""
        lower, upper = self.bounds
        return _on_its_side(lower, self.epsilon, round_down), _on_its_side(
            upper, self.epsilon, round_up
        )

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
            "passes": self.passes,
            "claimed": {"epsilon": self.epsilon, "delta": self.delta},
            "epsilon": {"lower": self.bounds.lower, "upper": self.bounds.upper},
            "adjacency": str(self.adjacency),
            "sampler": self.sampler,
            "findings": list(self.findings),
            "refusals": list(self.refusals),
            "not_shown": self.not_shown,
            "loss": self.loss.to_dict(),
        }

    def __str__(self) -> str:
        lower, upper = self.recomputed
        lines = [
            f"{self.verdict}: epsilon {self.epsilon!r} at delta {self.delta!r} is claimed, "
            f"{lower} <= epsilon <= {upper} was recomputed, adjacency {self.adjacency}",
            *self.findings,
            *(f"refused: {refusal}" for refusal in self.refusals),
            f"not shown: {self.not_shown}",
        ]
        return "\n".join(lines)


def verify_statement(
    statement: Mapping[str, Any] | str,
    *,
    max_epsilon: float | None = None,
    max_delta: float | None = None,
    adjacency: Adjacency | str | None = None,
    subspaces: str | os.PathLike[str] | None = None,
) -> Verification:
    """Recompute a published privacy statement, and compare its claim with the truth.

    Args:
        statement: JSON text, or what it holds. One of

            * what `TrainingResult.to_json` wrote; its words must be those that its numbers give,
            * `{"epsilon": ..., "delta": ..., "loss": ...}` with what `PrivacyLoss.to_dict` wrote,
            * a run that is described by hand: `epsilon`, `delta`, `noise_multiplier`, `rate` (or
              `batch_size` and `examples`), `steps` (or `epochs`), `sampler` ("poisson",
              "truncated_poisson" with its `cap`, "allocation", "fixed_size", "shuffle" or "none")
              and, if it is not the usual one of
              the sampler, `adjacency`.
        max_epsilon: the largest claim that the reader accepts.
        max_delta: the largest delta that the reader accepts.
        adjacency: the only relation that the reader accepts. One direction of add/remove is
            certified only if it is asked for here.
        subspaces: the reader's own copy of the file that a clipping in subspaces names. No file
            that a statement names is ever opened; what depends on one is not certified.

    **Guarantee**: see `Verification`. Shuffled epochs are credited with no amplification: in an
    epoch a record is in one batch, so an epoch costs one release, under zero-out and replace-one.
    A claim about them is called wrong only if it is below what one epoch surely costs.

    Raises:
        ValueError: if the statement is malformed, nested deeper than 40 levels, longer than 16 MiB,
            or has more than 250 distinct releases.
        UnsoundConfiguration: if its plan is one that no theorem covers, or `subspaces` are not
            those that it names.

    Example:
        >>> from taut.audit import verify_statement
        >>> run = {"delta": 1e-5, "noise_multiplier": 1.0, "rate": 0.01, "steps": 1_000}
        >>> print(verify_statement({**run, "epsilon": 1.84, "sampler": "poisson"}).verdict)
        certified
        >>> print(verify_statement({**run, "epsilon": 1.80, "sampler": "poisson"}).verdict)
        wrong
        >>> run["sampler"] = "poisson"
        >>> verify_statement({**run, "epsilon": 1.84}, max_epsilon=1.0).passes
        False
    """
    gate = Gate.of(max_epsilon, max_delta, adjacency)
    data = _parsed(statement) if isinstance(statement, str) else statement
    if not isinstance(data, Mapping):
        raise ValueError(f"a statement is a JSON object, got {type(data).__name__}")
    _check_depth(data)
    own = None if subspaces is None else Path(subspaces)
    stated = read_statement(data, asked=gate.adjacency, subspaces=own)
    bounds = _sharpened(stated)
    if stated.lower > bounds.upper * (1 + _ROUNDING):
        above = f"its lower bound {stated.lower!r} is above what the run costs"
        stated = replace(stated, contradictions=(*stated.contradictions, above))
    verdict = _verdict(stated, bounds)
    return Verification(
        verdict=verdict,
        epsilon=stated.epsilon,
        delta=stated.delta,
        bounds=bounds,
        loss=stated.loss,
        sampler=stated.sampler,
        findings=tuple(_findings(stated, bounds, verdict)),
        refusals=tuple(gate.refusals(stated, bounds)),
    )


def _on_its_side(bound: float, claim: float, rounded: Callable[[float, int], str]) -> str:
    """Return a bound in six digits, or as many as it takes to be above the claim only if it is."""
    for digits in range(6, 17):
        shown = rounded(bound, digits)
        if (bound <= claim) == (float(shown) <= claim) and (bound >= claim) == (
            float(shown) >= claim
        ):
            return shown
    return repr(bound)


def _sharpened(stated: Stated) -> Bounds:
    """Return bounds that decide about the claim, or the sharpest ones there are."""
    bounds = Bounds(0.0, 0.0)
    for tolerance in _TOLERANCES:
        bounds = stated.loss.epsilon_bounds(stated.delta, tolerance)
        is_decided = not bounds.lower <= stated.epsilon < bounds.upper
        is_sharp = bounds.upper - bounds.lower <= tolerance * bounds.upper
        # Bounds of a pair that is not tight get no closer, and those of many are slow to.
        if is_decided or not is_sharp or len(stated.loss.terms) > _FEW:
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
    return [*found, *large_delta(stated), *stated.notes]


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


def _check_depth(data: Any) -> None:
    """Refuse what is nested so deeply that reading it would exhaust the stack."""
    layer, depth = [data], 0
    while layer:
        if depth > _DEEPEST:
            raise ValueError(f"no statement: it is nested too deeply, beyond {_DEEPEST} levels")
        inside = [v.values() if isinstance(v, Mapping) else v for v in layer]
        layer = [v for part in inside for v in part if isinstance(v, Mapping | list | tuple)]
        depth += 1


def _parsed(text: str) -> Any:
    if len(text) > _MOST_BYTES:
        raise ValueError(f"no statement: it has {len(text)} characters, more than {_MOST_BYTES}")
    return parsed_json(text, _without_repeats)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is given twice: readers may see either value")
    return found
