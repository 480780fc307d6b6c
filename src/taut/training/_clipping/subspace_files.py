"""Subspaces in files, and in JSON if they are small."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from taut._base.arrays import orthonormal
from taut._base.plain_arrays import read_arrays
from taut._base.public_vectors import as_provenance
from taut.noise.geometry import Subspaces

__all__ = ["from_json", "read_subspaces", "to_json", "write_subspaces"]

_MOST_BYTES = 1 << 20  # of a basis that is part of JSON, which ledgers and checkpoints repeat


def write_subspaces(path: str | os.PathLike[str], spaces: Subspaces) -> None:
    """Write subspaces to a file, as arrays of NumPy."""
    with Path(path).open("wb") as file:
        np.savez(
            file,
            basis=spaces.basis,
            ranks=np.array(spaces.ranks),
            singular_values=spaces.singular_values,
            provenance=np.array(str(spaces.provenance)),
        )


def read_subspaces(path: str | os.PathLike[str]) -> Subspaces:
    """Return the subspaces in a file; the basis is checked again.

    Raises:
        ValueError: if there is no such file, or its basis is not orthonormal.
    """
    try:
        return _checked(**read_arrays(path, stored=True))
    except (OSError, KeyError, TypeError) as error:
        raise ValueError(
            f"subspaces must be a file that HybridClip.saved wrote, got {os.fspath(path)!r}: "
            f"{error}"
        ) from error


def to_json(spaces: Subspaces) -> dict[str, Any]:
    """Return subspaces as JSON, if they are small enough for it."""
    if spaces.basis.nbytes > _MOST_BYTES:
        raise ValueError(
            f"subspaces of {spaces.basis.nbytes / 1e6:.0f} MB are too large for JSON; write them "
            "to a file first: clipping = clipping.saved('subspaces.npz')"
        )
    return spaces.to_dict()


def from_json(data: Mapping[str, Any]) -> Subspaces:
    """Return the subspaces that JSON describes."""
    try:
        numbers = np.frombuffer(base64.b64decode(data["basis"]), dtype="<f8")
        return _checked(
            numbers.reshape(-1, data["columns"]),
            np.array(data["ranks"]),
            np.array(data["singular_values"], dtype=np.float64),
            data["provenance"],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"malformed subspaces in JSON: {error!r}") from None


def _checked(basis: Any, ranks: Any, singular_values: Any, provenance: Any) -> Subspaces:
    whole = tuple(int(rank) for rank in ranks)
    columns = orthonormal(basis, sum(whole))
    if columns.shape[1] not in (sum(whole), sum(whole[:-1])):
        raise ValueError(
            f"basis must have the columns of ranks {whole}, or all but the last block, "
            f"got {columns.shape[1]}"
        )
    return Subspaces(columns, whole, singular_values, as_provenance(str(provenance)))
