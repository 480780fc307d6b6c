"""Where pictures begin: matplotlib, loaded when the first one is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["new_figure"]


def new_figure(width: float = 7.5, height: float = 5.0) -> Figure:
    """Return an empty figure, of a size in inches.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "plots need matplotlib; install it with: pip install 'taut[report]'"
        ) from None
    return Figure(figsize=(width, height), layout="constrained")
