"""When a run ended, with which software, and how its owner calls it: for those who file results."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Self

import numpy as np

import taut
from taut._base.run_names import RUN_NAMES, checked_names
from taut.noise.recording import active

__all__ = ["RunRecord"]


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What is worth knowing about a run beside its promise, which does not depend on it.

    Attributes:
        versions: versions of taut, Python, torch and NumPy in the process that ended the run.
        finished: when it ended, in UTC, such as "2026-01-31T12:00:00Z".
        title: title of the run,
        owner: who answers for it,
        dataset: the name of what it was trained on; None where the owner gave none.

    None of it can be checked by others: the names are what the owner wrote.
    """

    versions: Mapping[str, str]
    finished: str
    title: str | None = None
    owner: str | None = None
    dataset: str | None = None

    @classmethod
    def now(cls, names: Mapping[str, str | None]) -> Self:
        """Return the record of a run that ends in this process, at this moment."""
        versions = {
            "taut": taut.__version__,
            "python": platform.python_version(),
            "torch": metadata.version("torch"),
            "numpy": np.__version__,
        }
        recorder = active()
        moment = datetime.now(UTC) if recorder is None else recorder.moment
        finished = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        return cls(versions=versions, finished=finished, **checked_names(names))

    def to_dict(self) -> dict[str, Any]:
        """Return what `result.json` holds of it; names that were not given are left out."""
        named = {name: getattr(self, name) for name in RUN_NAMES}
        return {
            "versions": dict(self.versions),
            "finished": self.finished,
            **{name: value for name, value in named.items() if value is not None},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self | None:
        """Return the record in a statement, None in one that was written without.

        Raises:
            ValueError: if a value is of the wrong type.
        """
        if "versions" not in data and "finished" not in data:
            return None
        versions, finished = data.get("versions"), data.get("finished")
        if not isinstance(versions, Mapping) or not all(
            isinstance(word, str) for pair in versions.items() for word in pair
        ):
            raise ValueError(f"versions must name a version for each package, got {versions!r}")
        if not isinstance(finished, str):
            raise ValueError(f"finished must be a date and time as text, got {finished!r}")
        names = {name: data[name] for name in RUN_NAMES if name in data}
        return cls(versions=dict(versions), finished=finished, **checked_names(names))
