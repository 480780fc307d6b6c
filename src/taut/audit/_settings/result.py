"""What settings promise: certified bounds under every reading, and what is left unsaid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taut._base.rounding import round_down, round_up
from taut.accounting import Adjacency, Bounds

__all__ = ["CheckedSetting", "SettingsCheck", "SettingsReading"]

SCHEMA = "taut.settings-check/1"
_DIGITS = 4


@dataclass(frozen=True)
class SettingsReading:
    """One way to read settings, and what they promise then.

    Attributes:
        name: the sampler, or the mechanism, in words.
        adjacency: the relation between neighbouring datasets.
        assumes: what has to hold for the bounds.
        bounds: certified bounds on epsilon at the delta of the setting; None if something that
            they need is missing. An infinite upper bound says that none is known.
        accounted: whether the tool's own accountant reads the settings so.

    **Guarantee**: under `adjacency` and `assumes`, epsilon of what the settings describe is within
    `bounds`, for whoever sees every update.
    """

    name: str
    adjacency: Adjacency
    assumes: str
    bounds: Bounds | None = None
    accounted: bool = False

    @property
    def shown(self) -> tuple[str, str]:
        """Both bounds as text, each rounded to its safe side; a dash for what is not known."""
        if self.bounds is None:
            return "-", "-"
        return _text(self.bounds.lower, down=True), _text(self.bounds.upper, down=False)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        bounds = self.bounds
        return {
            "name": self.name,
            "adjacency": str(self.adjacency),
            "assumes": self.assumes,
            "epsilon": None if bounds is None else {"lower": bounds.lower, "upper": bounds.upper},
            "accounted": self.accounted,
        }


@dataclass(frozen=True)
class CheckedSetting:
    """One setting of a tool, and all that can be said about it.

    Attributes:
        tool: the tool, and the function or class that is configured.
        where: the place in the file.
        unit: what one of two neighbours has more, or other: an example, or a client.
        read: what was read, by name, as text with its place.
        delta: probability delta of the bounds, if it is known.
        claimed: the epsilon that the settings state, if they do.
        readings: every way to read them that the file leaves open.
        false_promises: what the tool or the file says and is not so.
        missing: what the statement lacks, each with the remedy.
    """

    tool: str
    where: str
    unit: str
    read: Mapping[str, str]
    delta: float | None
    claimed: float | None
    readings: tuple[SettingsReading, ...]
    false_promises: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def promised(self) -> Bounds | None:
        """Bounds that hold under every reading; None if one of them has none."""
        found = [reading.bounds for reading in self.readings if reading.bounds is not None]
        if not found or len(found) < len(self.readings):
            return None
        return Bounds(min(b.lower for b in found), max(b.upper for b in found))

    @property
    def passes(self) -> bool:
        """Whether the settings make a promise that is certified however they are read."""
        promised = self.promised
        if promised is None or math.isinf(promised.upper) or self.false_promises:
            return False
        return self.claimed is None or promised.upper <= self.claimed * (1 + _ROUNDING)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "tool": self.tool,
            "where": self.where,
            "unit": self.unit,
            "read": dict(self.read),
            "delta": self.delta,
            "claimed": self.claimed,
            "passes": self.passes,
            "readings": [reading.to_dict() for reading in self.readings],
            "false_promises": list(self.false_promises),
            "missing": list(self.missing),
        }

    def __str__(self) -> str:
        lines = [f"{self.tool} ({self.where}), privacy of one {self.unit}"]
        lines += [f"  read: {name} {text}" for name, text in self.read.items()]
        for reading in self.readings:
            lower, upper = reading.shown
            lines.append(f"  {lower} <= epsilon <= {upper}: {reading.name}, {reading.adjacency}")
        lines += [f"  false promise: {text}" for text in self.false_promises]
        lines += [f"  missing: {text}" for text in self.missing]
        return "\n".join(lines)


_ROUNDING = 1e-9  # relative, of a claim that is printed and read back


@dataclass(frozen=True)
class SettingsCheck:
    """What a file of settings promises.

    Attributes:
        settings: the settings that were found, in the order of the file.

    **Guarantee**: bounds hold for the mechanism that the settings describe. Whether a program
    carries it out, and on which data, no file shows.
    """

    settings: tuple[CheckedSetting, ...] = field(default_factory=tuple)

    @property
    def passes(self) -> bool:
        """Whether every setting makes a promise that is certified however it is read."""
        return all(setting.passes for setting in self.settings)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "schema": SCHEMA,
            "passes": self.passes,
            "settings": [setting.to_dict() for setting in self.settings],
        }

    def __str__(self) -> str:
        return "\n".join(str(setting) for setting in self.settings)


def _text(value: float, *, down: bool) -> str:
    if math.isinf(value):
        return "infinite"
    return round_down(value, _DIGITS) if down else round_up(value, _DIGITS)
