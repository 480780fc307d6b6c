"""Vectors that may be looked at freely: where they come from is said, not guessed."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base.arrays import Matrix, real_numbers
from taut.errors import UnsoundConfiguration

__all__ = ["Provenance", "Rows", "as_provenance", "portions", "public_rows"]

Rows: TypeAlias = NDArray[np.floating[Any]]

_LARGEST = 1e100  # entry: squares, and sums of them over any dimension, are doubles
_CONVERTED_NUMBERS = 1 << 23  # brought to float64 at a time: 64 megabytes


class Provenance(StrEnum):
    """Why looking at vectors costs no privacy.

    Attributes:
        PUBLIC: they do not depend on the private records: public data, or made up.
        RELEASED: they left a private mechanism, whose loss is accounted for elsewhere.
    """

    PUBLIC = "public"
    RELEASED = "released"


def as_provenance(provenance: Provenance | str) -> Provenance:
    """Return the declared origin, or refuse.

    Raises:
        UnsoundConfiguration: for anything else, such as ``"private"``.
    """
    try:
        return Provenance(provenance)
    except ValueError:
        raise UnsoundConfiguration(
            f"provenance must be 'public' or 'released', got {provenance!r}: subspaces, bounds "
            "and reports made from private vectors reveal them; use public data, or release "
            "first through a mechanism, such as private_second_moment(...)"
        ) from None


def public_rows(vectors: ArrayLike, provenance: Provenance | str) -> Rows:
    """Return the vectors as a table, one per row; float32 and float16 keep their type.

    Entries below 1e-100 count as zero: they are nothing beside any other, and their squares no
    doubles.

    Raises:
        UnsoundConfiguration: if they are not declared public or released.
        ValueError: for another shape, NaN and infinities, or entries beyond 1e100.
    """
    as_provenance(provenance)
    rows = np.asarray(vectors)
    if rows.dtype not in (np.float32, np.float16):
        rows = real_numbers(vectors, "vectors")
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"vectors must be a table with one vector per row, got shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise ValueError("vectors must be finite, got NaN or infinity in them; leave those out")
    return _with_squares(rows) if rows.dtype == np.float64 else rows


def _with_squares(rows: Matrix) -> Matrix:
    """Return rows whose squares are doubles, or refuse."""
    sizes = np.abs(rows)
    if sizes.max() > _LARGEST:
        raise ValueError(
            f"vectors must have entries within {_LARGEST:g}, whose squares are numbers, got "
            f"{sizes.max():g}; count in other units"
        )
    tiny = (sizes < 1 / _LARGEST) & (sizes > 0)
    return np.where(tiny, 0.0, rows) if tiny.any() else rows


def portions(rows: Rows) -> Iterator[Matrix]:
    """Yield a few rows at a time, in float64."""
    height = max(1, _CONVERTED_NUMBERS // rows.shape[1])
    for start in range(0, len(rows), height):
        yield rows[start : start + height].astype(np.float64, copy=False)
