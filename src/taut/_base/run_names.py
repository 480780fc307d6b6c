"""What people call a run, for its record and its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["RUN_NAMES", "checked_names"]

RUN_NAMES = ("title", "owner", "dataset")


def checked_names(names: Mapping[str, Any]) -> dict[str, str | None]:
    """Return title, owner and dataset of a run.

    Raises:
        ValueError: for another name, or a value that is not a line of text.
    """
    for name, value in names.items():
        if name not in RUN_NAMES:
            raise ValueError(f"a run has the names {', '.join(RUN_NAMES)}, got {name!r}")
        is_line = isinstance(value, str) and value.strip() and value.isprintable()
        if value is not None and not is_line:
            raise ValueError(f"{name} must be a line of text, got {name}={value!r}")
    return dict(names)
