"""What a replay found: a verdict, its reasons, and the releases that it saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ReplayResult", "ReplayedRelease"]


@dataclass(frozen=True)
class ReplayedRelease:
    """One release that both runs made.

    Attributes:
        kind: name of the mechanism.
        place: the line of the program that it was reached from.
        dimension: number of coordinates.
        declared: bound on what one record may change, in words.
        measured: how far the value moved, in units of the declared bound; None unless the data
            were said to be crafted, since it tells something about them.
    """

    kind: str
    place: str
    dimension: int
    declared: str
    measured: float | None


@dataclass(frozen=True)
class ReplayResult:
    """The verdict of a replay on one pair of datasets.

    **Guarantee**: two runs, in which only noise was drawn at random. A finding is a fact about this
    pair: the program, with the same outcome of every release, behaves differently on neighbouring
    data in a way that its noise does not hide. That nothing was found is a fact about this
    pair too, and no proof for others. Findings and notes hold no number that depends on the data
    unless they were said to be crafted; the verdict itself does.

    Attributes:
        passed: whether there are no findings.
        findings: what contradicts the declarations, with the way out.
        notes: what is no contradiction, and worth a look.
        releases: releases that both runs made, in their order.
        exercised: whether the record reached a release: nothing was tested otherwise.
    """

    passed: bool
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    releases: tuple[ReplayedRelease, ...]
    exercised: bool

    def __str__(self) -> str:
        """Return the verdict, one finding or note in a line."""
        count = len(self.releases)
        verdict = "no fault found (which proves nothing)" if self.passed else "faults found"
        head = f"replay of {count} release{'' if count == 1 else 's'}: {verdict}"
        findings = [f"- {text}" for text in self.findings]
        return "\n".join([head, *findings, *(f"  note: {text}" for text in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON-ready dictionary."""
        return {
            "passed": self.passed,
            "exercised": self.exercised,
            "findings": list(self.findings),
            "notes": list(self.notes),
            "releases": [
                {
                    "kind": release.kind,
                    "place": release.place,
                    "dimension": release.dimension,
                    "declared": release.declared,
                    "measured": release.measured,
                }
                for release in self.releases
            ],
        }
