"""What two runs must have in common, and what is said where they do not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taut._base.arrays import Vector
from taut.accounting import Adjacency, PrivacyLoss, zero
from taut.audit._replay.bounds import excess
from taut.audit._replay.equality import where_different
from taut.audit._replay.recorders import Entry
from taut.audit._replay.result import ReplayedRelease, ReplayResult
from taut.audit._replay.wrapped_functions import as_vector
from taut.noise.recording import Release

__all__ = ["Comparison"]

_DELTAS = (1e-2, 1e-3, 1e-5, 1e-7, 1e-9)  # at which a claim is compared with what was released
_CLAIM_ERROR = 1e-6  # relative, of epsilon: a claim that was rounded is not refuted
_ALIKE = 1e-9  # relative: what is lost of noise that was added to a long value
_GRID_STEPS = 4  # by which rounding moves the same noise, added to two values, apart at most
_COMPARED = 64  # coordinates of noise: by far enough to know it again
_CHANCE = 1e-9  # of noise that seems to come back: a thousand programs with a thousand releases


@dataclass
class Comparison:
    """Findings and notes about two runs, in the order in which they were made.

    Args:
        entries: releases of the first run.
        releases: releases of the second run, and the lines that they were reached from.
        adjacency: relation of the data.
        crafted: whether numbers that depend on the data may be shown.
    """

    entries: Sequence[Entry]
    releases: Sequence[tuple[Release, str]]
    adjacency: Adjacency
    crafted: bool
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)

    @property
    def is_aligned(self) -> bool:
        """Whether both runs made the same sequence of releases."""
        return len(self.measured) == len(self.entries) == len(self.releases)

    def compare(self, *, has_failed: bool) -> None:
        """Compare release by release, up to the first of another kind or shape.

        Args:
            has_failed: whether the second run ended with an error, after fewer releases or none.
        """
        for index, (entry, (other, place)) in enumerate(
            zip(self.entries, self.releases, strict=False)
        ):
            if not self._is_same_kind(index, entry, other, place):
                return
            self._parameters(index, entry.release, other)
            if place != entry.place:
                self.notes.append(
                    f"{self._name(index)} was reached from {place} on the neighbour: look at what "
                    "that branch depends on"
                )
            self._measure(index, entry.release, other)
        if not has_failed:
            self._number()

    def add(self, finding: str) -> None:
        """Add a finding of somebody else."""
        self.findings.append(finding)

    def results(self, one: object, other: object) -> None:
        """Compare what the two runs returned."""
        places = list(dict.fromkeys(where_different(one, other)))
        if places:
            shown = ", ".join(places[:3]) + (", ..." if len(places) > 3 else "")
            self.findings.append(
                f"the result depends on the data beside its releases (it differs in {shown}): "
                "something reaches it around the mechanisms, or noise is drawn that no mechanism "
                "declares. Release it, compute it from what was released, or wrap the noise with "
                "taut.audit.recorded"
            )

    def noise(self) -> None:
        """Look at the noise of the first run: it must not come back."""
        seen: list[tuple[int, _Noise]] = []
        for index, entry in enumerate(self.entries):
            noise = _noise(entry)
            if noise is None:
                continue
            for before, known in seen:
                if _are_alike(noise, known):
                    self.findings.append(
                        f"{self._name(index)} has the noise of release {before + 1} again, or a "
                        "part or multiple of it: both together show values without any. Draw noise "
                        "for every release"
                    )
                    break
            seen.append((index, noise))
        if any(not entry.is_secure for entry in self.entries):
            self.notes.append(
                "noise came from a generator that can be predicted: for experiments alone"
            )

    def claim(self, claim: PrivacyLoss) -> None:
        """Compare what the releases that moved cost by their own declarations with a claim."""
        moved = [e.release for e, far in zip(self.entries, self.measured, strict=False) if far > 0]
        if any(release.loss is None for release in moved):
            self.notes.append(
                "the claim was not compared: releases of this program have no loss by themselves"
            )
            return
        total = sum(
            (release.loss() for release in moved if release.loss is not None),
            start=zero(adjacency=claim.adjacency),
        )
        for delta in _DELTAS:
            spent, allowed = total.epsilon_bounds(delta).lower, claim.epsilon(delta)
            if spent > allowed * (1 + _CLAIM_ERROR):
                self.findings.append(
                    f"what looks at the record, {len(moved)} of {len(self.entries)} releases, adds "
                    f"up to epsilon {spent:.4g} at delta={delta:g}, and {allowed:.4g} is claimed: "
                    "a budget was spent more than once, or noise is too small. Divide it, or claim "
                    "the sum"
                )
                return

    def result(self) -> ReplayResult:
        """Return all that was found."""
        exercised = any(far > 0 for far in self.measured)
        if not exercised and not self.findings:
            self.notes.append(
                "no release moved: the record reached none of them, and nothing was tested. "
                "Choose a record that counts, or find out why the program does not look at it"
            )
        releases = tuple(
            ReplayedRelease(
                entry.release.kind,
                entry.place,
                entry.release.value.size,
                _in_words(entry.release.sensitivity),
                measured if self.crafted else None,
            )
            for entry, measured in zip(self.entries, self.measured, strict=False)
        )
        findings = tuple(dict.fromkeys(self.findings))
        notes = tuple(dict.fromkeys(self.notes))
        return ReplayResult(not findings, findings, notes, releases, exercised)

    # --- one release -----------------------------------------------------------------------------

    def _name(self, index: int) -> str:
        entry = self.entries[index]
        return f"release {index + 1} ({entry.release.kind}, {entry.place})"

    def _is_same_kind(self, index: int, entry: Entry, other: Release, place: str) -> bool:
        if entry.release.kind != other.kind:
            self.findings.append(
                f"{self._name(index)} is one of {other.kind} at {place} on the neighbour: which "
                "mechanism is used depends on the data. Decide before looking at them"
            )
            return False
        if entry.release.value.shape != other.value.shape:
            self.findings.append(
                f"{self._name(index)} has another number of coordinates on the neighbour: the "
                "shape tells about the data. Fix it in advance, as with a list of all classes"
            )
            return False
        return True

    def _parameters(self, index: int, release: Release, other: Release) -> None:
        changed = [
            name
            for name in release.parameters
            if any(where_different(release.parameters[name], other.parameters.get(name)))
        ]
        if any(where_different(release.sensitivity, other.sensitivity)):
            changed.append("sensitivity")
        changed.sort(key=lambda name: name.startswith("argument"))  # the noise itself first
        if changed:
            self.findings.append(
                f"{self._name(index)} has another {' and '.join(changed)} on the neighbour: what "
                "hides the data must not depend on them. Fix it in advance, or release it first"
            )

    def _measure(self, index: int, release: Release, other: Release) -> None:
        far = excess(release, other, self.adjacency)
        self.measured.append(far)
        if 0 < far <= 1 and _is_silent(release):
            self.findings.append(
                f"{self._name(index)} moved, and its noise has the scale 0: the value is released "
                "as it is. Add noise in proportion to the sensitivity"
            )
        if far <= 1:
            return
        if not np.isfinite(release.value - other.value).all():
            self.findings.append(
                f"{self._name(index)} is of a value that is not finite: NaN and infinity pass "
                "most bounds. Replace them record by record before anything is summed"
            )
            return
        by = f" ({far:.4g} times as far)" if self.crafted else ""
        self.findings.append(
            f"{self._name(index)} moved by more than its declared sensitivity, "
            f"{_in_words(release.sensitivity)}{by}: clip every record to it before anything is "
            "computed, or declare what one record really changes"
        )

    def _number(self) -> None:
        ours, theirs = len(self.entries), len(self.releases)
        if ours != theirs:
            counts = f" ({ours} and {theirs})" if self.crafted else ""
            side = "more" if theirs > ours else "fewer"
            self.findings.append(
                f"there are {side} releases on the neighbour{counts}: how many there are tells "
                "about the data. Fix the number in advance, or decide by what was released"
            )


@dataclass(frozen=True)
class _Noise:
    """Noise of a release in its unit, and the probability that a coordinate comes twice."""

    values: Vector
    resolution: float
    scale: float


def _noise(entry: Entry) -> _Noise | None:
    """Return the noise of a release, if it can be told and tells one from another."""
    value = entry.release.value.reshape(-1)
    try:
        noisy = as_vector(entry.outcome)
    except (TypeError, ValueError):
        return None
    if noisy.shape != value.shape or not value.size:
        return None
    noise: Vector = noisy - value
    if not (noise.all() and np.isfinite(noise).all()):
        return None
    lost = _precision(entry.outcome) * float(np.abs(noisy).max() / np.abs(noise).mean())
    resolution = max(entry.release.resolution, lost)
    if not resolution**noise.size <= _CHANCE:
        return None
    return _Noise(noise, resolution, _scale(entry.release))


def _precision(outcome: Any) -> float:
    """Return the relative precision of numbers, or of the first tensor or array of several."""
    part = outcome[0] if isinstance(outcome, list | tuple) else outcome
    kind = getattr(part, "dtype", None)
    if hasattr(part, "detach"):
        is_rounded = part.is_floating_point() or part.is_complex()
        return float(sys.modules["torch"].finfo(kind).eps) if is_rounded else 0.0
    if kind is None or kind.kind not in "fc":
        return 0.0
    return float(np.finfo(kind).eps)


def _are_alike(one: _Noise, other: _Noise) -> bool:
    """Return whether two vectors of noise are one draw, up to a factor and rounding to a grid.

    They may begin alike and differ in length: generators of one seed draw so.
    """
    size = min(one.values.size, other.values.size, _COMPARED)
    resolution = max(one.resolution, other.resolution)
    if not resolution**size <= _CHANCE:
        return False
    ours, theirs = one.values[:size], other.values[:size]
    factors = [1.0]
    if one.scale and other.scale:
        factors.append(one.scale / other.scale)
    if resolution ** (size - 1) <= _CHANCE:  # a factor that fits takes one of them
        factors.append(abs(float(ours @ theirs)) / float(theirs @ theirs))
    near = _GRID_STEPS * resolution * float(np.abs(one.values).mean()) + _ALIKE * np.abs(ours)
    return any(
        bool((np.abs(ours - sign * factor * theirs) <= near).all())
        for factor in factors
        for sign in (1.0, -1.0)
    )


def _scale(release: Release) -> float:
    """Return the scale of the noise, 0 if it is not one number."""
    scale = release.parameters.get("scale")
    return float(scale) if isinstance(scale, int | float | np.number) else 0.0


def _is_silent(release: Release) -> bool:
    scale = release.parameters.get("scale")
    return isinstance(scale, int | float | np.number) and not scale


def _in_words(bound: object) -> str:
    text = str(bound)
    return text if len(text) <= 80 else f"{type(bound).__name__}(...)"
