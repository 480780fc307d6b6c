"""Whether a run goes on with the dataset that it began with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from taut._base.files import move_durably
from taut._base.json_numbers import parsed_json
from taut.errors import UnsoundConfiguration
from taut.training._data.fingerprint import KEY_BYTES, fingerprint, new_key
from taut.training._ledger.ledger import RunLedger

__all__ = ["KEEPS_TO_STEPS", "read_key", "same_dataset"]

SCHEMA = "taut.run-key/1"
_NOTE = (
    "Do not publish this file: with it, the fingerprint in the ledger would let others test "
    "guesses of the training data."
)


KEEPS_TO_STEPS = (
    "Its loss is that of examples that keep to their steps; for another dataset, begin a new run, "
    "whose loss adds"
)
_OTHERWISE = (
    "If it is meant to be so, or a random transform of the dataset is to blame, go on with "
    "fit(dataset, resume='changed_data'), which the statement repeats"
)


def same_dataset(
    path: Path,
    ledger: RunLedger,
    dataset: Any,
    *,
    may_change: bool,
    otherwise: str = _OTHERWISE,
) -> tuple[str, bool] | None:
    """Return the fingerprint to be noted with the next step, and whether the dataset has changed.

    Args:
        path: file of the key; written if there is no fingerprint yet, or a new one is needed.
        ledger: ledger of the run.
        dataset: dataset that the run is to go on with.
        may_change: whether to go on with another one, or with one that cannot be compared.
        otherwise: what a refusal says to those who mean another dataset.

    Returns:
        None if the ledger holds the fingerprint of this dataset.

    Raises:
        UnsoundConfiguration: if it is another dataset, or the key was lost.
    """
    noted = ledger.history.data
    changed = noted is not None
    if noted is not None:
        key = read_key(path)
        if key is not None and fingerprint(dataset, key) == noted:
            return None
        if not may_change:
            raise UnsoundConfiguration(f"{_refusal(path, key is None)}. {otherwise}")
    key = new_key()  # of every fingerprint its own: two under one pad could be compared
    _write_key(path, key)
    return fingerprint(dataset, key), changed


def _refusal(path: Path, is_lost: bool) -> str:
    if is_lost:
        return (
            f"{path.name} of this run was lost, so that nobody can tell whether the dataset is the "
            "one it began with; restore it from a copy"
        )
    return (
        "the dataset is not the one that this run began with: its length or its examples differ; "
        "give the same one, or train on the other in a directory of its own"
    )


def read_key(path: Path) -> bytes | None:
    """Return the key in a file, None if there is none.

    Raises:
        ValueError: if the file holds something else.
    """
    if not path.exists():
        return None
    try:
        found = parsed_json(path.read_text(encoding="utf-8"))
        key = bytes.fromhex(found["key"])
        if found["schema"] != SCHEMA or len(key) != KEY_BYTES:
            raise ValueError(f"expected schema {SCHEMA!r} and {KEY_BYTES} bytes")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"cannot read the key {os.fspath(path)!r}: {error}; restore it from a copy"
        ) from None  # the cause holds the text of the file
    return key


def _write_key(path: Path, key: bytes) -> None:
    """Write a key for nobody else to read, all or not at all."""
    temporary = path.with_name(path.name + ".part")
    temporary.unlink(missing_ok=True)
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as opened:
        json.dump({"schema": SCHEMA, "note": _NOTE, "key": key.hex()}, opened, indent=2)
        opened.flush()
        os.fsync(opened.fileno())
    move_durably(temporary, path)
