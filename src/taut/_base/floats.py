"""What floating point can hide: errors of computed numbers."""

from __future__ import annotations

import numpy as np

__all__ = ["ROUNDING"]


ROUNDING = 8 * float(np.finfo(np.float64).eps)
"""Relative error allowed for one evaluation of a special function and one subtraction."""
