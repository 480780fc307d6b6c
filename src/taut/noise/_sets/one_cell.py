"""The smaller set for records that change one coordinate each, if a set looks like theirs."""

from __future__ import annotations

import numpy as np

from taut._base.floats import ALIKE
from taut.noise._sets.balls import L1Ball, L2Ball, LInfBall
from taut.noise._sets.boxes import Box
from taut.noise._sets.histogram import Histogram
from taut.noise._sets.sets import SensitivitySet

__all__ = ["one_cell_set"]


def one_cell_set(sensitivity: SensitivitySet) -> Histogram | L1Ball | None:
    """Return the set that records have of which each is counted in one cell, or None.

    Asked of the description alone, never of data: equal widths under one l2 bound of the same
    size, or widths or a radius of one as counts have them. Whether records are in one cell, the
    reader knows.
    """
    own = sensitivity.contributions
    if own is not None:
        smaller = one_cell_set(own)
        return None if smaller is None else smaller.differences()
    width = _common_width(sensitivity)
    if width is None or sensitivity.dimension < 2:
        return None
    adjacency, source = sensitivity.adjacency, sensitivity.source
    if width == 1:
        return Histogram(sensitivity.dimension, adjacency=adjacency, source=source)
    return L1Ball(sensitivity.dimension, width, adjacency=adjacency, source=source)


def _common_width(sensitivity: SensitivitySet) -> float | None:
    """Return by how much one cell can change, if the set says so."""
    if isinstance(sensitivity, L2Ball | LInfBall):
        return 1.0 if sensitivity.radius == 1 else None
    if type(sensitivity) is not Box or sensitivity.basis is not None or sensitivity.l1 is not None:
        return None
    width = float(sensitivity.widths[0])
    if not np.allclose(sensitivity.widths, width, rtol=ALIKE, atol=0):
        return None
    coupled = sensitivity.l2 is not None and sensitivity.l2 <= width * (1 + ALIKE)
    counts = sensitivity.l2 is None and width == 1
    return width if coupled or counts else None
