"""The keys of correlated noise: a private file, of which nothing is ever published."""

from __future__ import annotations

import json
import os
from pathlib import Path

from taut._base.files import move_durably
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource
from taut.training._noise.keyed_bits import KEY_BYTES, NoiseKeys, SessionKey, new_session_key

__all__ = ["keys_from", "session_keys"]

SCHEMA = "taut.run-noise/1"
_NOTE = "Do not publish this file: with it, the noise could be subtracted from what was released."


def session_keys(path: Path | None, source: RandomSource, step: int) -> NoiseKeys:
    """Return the keys of a run that goes on with a step; the new one is on the disk already.

    Args:
        path: the file; None for a run without files.
        source: source of the new key.
        step: number of the first step that the new key is for.

    Raises:
        UnsoundConfiguration: if the keys of earlier steps were lost.
    """
    earlier = () if path is None or step == 0 else keys_from(path).sessions
    if path is not None and step > 0 and not any(s.begins == 0 for s in earlier):
        raise UnsoundConfiguration(
            f"{path.name} of this run was lost, and with it what later noise takes back; restore "
            "it from a copy. Without one, the weights so far keep the promise of the plan: train "
            "them no further, or begin a new run, whose loss adds"
        )
    keys = NoiseKeys((*(s for s in earlier if s.begins < step), new_session_key(source, step)))
    if path is not None:
        _write(path, keys)
    return keys


def keys_from(path: Path) -> NoiseKeys:
    """Return the keys in a file, none if there is no file.

    Raises:
        ValueError: if the file holds something else.
    """
    if not path.exists():
        return NoiseKeys(())
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            raise ValueError(f"expected schema {SCHEMA!r}")
        sessions = tuple(
            SessionKey(int(s["begins"]), bytes.fromhex(s["key"]), str(s["cipher"]))
            for s in found["keys"]
        )
        if any(len(s.key) != KEY_BYTES for s in sessions):
            raise ValueError(f"keys must have {KEY_BYTES} bytes")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"cannot read the keys {os.fspath(path)!r}: {error}; restore it from a copy"
        ) from error
    return NoiseKeys(sessions)


def _write(path: Path, keys: NoiseKeys) -> None:
    """Write keys for nobody else to read, all or not at all."""
    temporary = path.with_name(path.name + ".part")
    temporary.unlink(missing_ok=True)
    said = [{"begins": s.begins, "key": s.key.hex(), "cipher": s.cipher} for s in keys.sessions]
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as opened:
        json.dump({"schema": SCHEMA, "note": _NOTE, "keys": said}, opened, indent=2)
        opened.flush()
        os.fsync(opened.fileno())
    move_durably(temporary, path)
