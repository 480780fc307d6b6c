"""The keys of correlated noise: a private file, of which nothing is ever published."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from taut._base.files import move_durably
from taut._base.json_numbers import parsed_json
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource
from taut.training._noise.keyed_bits import KEY_BYTES, NoiseKeys, SessionKey, new_session_key

__all__ = ["keys_from", "session_keys"]

SCHEMA = "taut.run-noise/1"
_NOTE = "Do not publish this file: with it, the noise could be subtracted from what was released."


def session_keys(
    path: Path | None, source: RandomSource, step: int, run: str | None = None
) -> NoiseKeys:
    """Return the keys of a run that goes on with a step; the new one is on the disk already.

    Args:
        path: the file; None for a run without files.
        source: source of the new key.
        step: number of the first step that the new key is for.
        run: name of the run, as its ledger has it.

    Raises:
        UnsoundConfiguration: if the keys of earlier steps were lost, or are those of another run:
            noise that is made again from them would not be what was released.
        ValueError: if the file holds something else, or was changed.
    """
    earlier = () if path is None or step == 0 else keys_from(path, run).sessions
    if path is not None and step > 0 and not any(s.begins == 0 for s in earlier):
        raise UnsoundConfiguration(
            f"{path.name} of this run was lost, and with it what later noise takes back; restore "
            "it from a copy. Without one, the weights so far keep the promise of the plan: train "
            "them no further, or begin a new run, whose loss adds"
        )
    keys = NoiseKeys((*(s for s in earlier if s.begins < step), new_session_key(source, step)))
    if path is not None:
        _write(path, keys, run)
    return keys


def keys_from(path: Path, run: str | None = None) -> NoiseKeys:
    """Return the keys in a file, none if there is no file.

    Args:
        path: the file.
        run: name of the run that they are to belong to.

    Raises:
        UnsoundConfiguration: if they belong to another run.
        ValueError: if the file holds something else, or was changed.
    """
    if not path.exists():
        return NoiseKeys(())
    try:
        found = parsed_json(path.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            raise ValueError(f"expected schema {SCHEMA!r}")
        sessions = tuple(
            SessionKey(int(s["begins"]), bytes.fromhex(s["key"]), str(s["cipher"]))
            for s in found["keys"]
        )
        if any(len(s.key) != KEY_BYTES for s in sessions):
            raise ValueError(f"keys must have {KEY_BYTES} bytes")
        if found["sha256"] != _hash(found):
            raise ValueError("it was changed, by its hash")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"cannot read the keys {os.fspath(path)!r}: {error}; restore it from a copy"
        ) from None  # the cause holds the text of the file
    if found["run"] != run:
        raise UnsoundConfiguration(
            f"{path.name} is that of another run: noise that is made again from it would not be "
            "what this run has released. Restore the one of this run from a copy"
        )
    return NoiseKeys(sessions)


def _hash(content: dict[str, Any]) -> str:
    """Return the hash of all but itself."""
    rest = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _write(path: Path, keys: NoiseKeys, run: str | None) -> None:
    """Write keys for nobody else to read, all or not at all."""
    temporary = path.with_name(path.name + ".part")
    temporary.unlink(missing_ok=True)
    said = [{"begins": s.begins, "key": s.key.hex(), "cipher": s.cipher} for s in keys.sessions]
    content = {"schema": SCHEMA, "note": _NOTE, "run": run, "keys": said}
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as opened:
        json.dump({**content, "sha256": _hash(content)}, opened, indent=2)
        opened.flush()
        os.fsync(opened.fileno())
    move_durably(temporary, path)
