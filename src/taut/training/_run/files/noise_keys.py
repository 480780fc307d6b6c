"""The keys of correlated noise: a private file, of which nothing is ever published."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from taut._base.files import move_durably
from taut._base.json_numbers import parsed_json
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource
from taut.training._ledger.ledger import RunLedger
from taut.training._noise.keyed_bits import KEY_BYTES, NoiseKeys, SessionKey, new_session_key
from taut.training._tensors.processes import Processes

__all__ = ["NoiseOf", "keys_from", "keys_of_run", "session_keys"]

SCHEMA = "taut.run-noise/1"
_NOTE = "Do not publish this file: with it, the noise could be subtracted from what was released."


@dataclass(frozen=True)
class NoiseOf:
    """What keys belong to: noise made with them is that of one run, for one list of numbers.

    Attributes:
        run: name of the run, as its ledger has it.
        layout: hash of the trained parameters: their order, names, shapes and types.
        noted: commitment to the keys of earlier steps, as the ledger has it; None if there are
            none, or the ledger is older than such notes.
    """

    run: str | None = None
    layout: str | None = None
    noted: str | None = None

    @staticmethod
    def layout_of(parameters: Mapping[str, Tensor], *, divides: bool = True) -> str:
        """Return the layout of noise for some parameters.

        Args:
            parameters: parameters by name, in their order.
            divides: whether noise is divided by the expected batch size, or that of sums.
        """
        said: list[Any] = [(name, list(p.shape), str(p.dtype)) for name, p in parameters.items()]
        if not divides:
            said.append("sums")
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def session_keys(
    path: Path | None, source: RandomSource, step: int, belongs: NoiseOf | None = None
) -> NoiseKeys:
    """Return the keys of a run that goes on with a step; the new one is on the disk already.

    Args:
        path: the file; None for a run without files.
        source: source of the new key.
        step: number of the first step that the new key is for.
        belongs: what the keys belong to.

    Raises:
        UnsoundConfiguration: if the keys of earlier steps were lost, or are those of another run,
            of other parameters, or not all of them: noise that is made again from them would not be
            what was released.
        ValueError: if the file holds something else, or was changed.
    """
    owner = NoiseOf() if belongs is None else belongs
    earlier = () if path is None or step == 0 else keys_from(path, owner).sessions
    if path is not None and step > 0 and not any(s.begins == 0 for s in earlier):
        raise UnsoundConfiguration(
            f"{path.name} of this run was lost, and with it what later noise takes back; restore "
            "it from a copy. Without one, the weights so far keep the promise of the plan: train "
            "them no further, or begin a new run, whose loss adds"
        )
    before = NoiseKeys(tuple(s for s in earlier if s.begins < step))
    if path is not None and step > 0 and owner.noted and not before.follow(owner.noted):
        raise UnsoundConfiguration(
            f"{path.name} lacks keys that this run has drawn noise with, by a hash in its ledger: "
            "it is a copy from before the run last went on. Restore the last one. Without it, the "
            "weights so far keep the promise of the plan: train them no further, or begin a new "
            "run, whose loss adds"
        )
    keys = NoiseKeys((*before.sessions, new_session_key(source, step)))
    if path is not None:
        _write(path, keys, owner)
    return keys


def keys_of_run(
    path: Path | None,
    source: RandomSource,
    ledger: RunLedger,
    belongs: NoiseOf,
    processes: Processes,
) -> NoiseKeys:
    """Return the keys of a run, the same in all processes, with a new one from its next step on.

    Args:
        path: the file, which the first process reads and writes; None for a run without files.
        source: source of the new key.
        ledger: ledger of the run, which notes the keys with its next step.
        belongs: what the keys belong to.
        processes: processes that train together.
    """
    # Field by field: keys themselves refuse to be pickled.
    found = processes.agreed(
        lambda: [astuple(s) for s in session_keys(path, source, ledger.position, belongs).sessions]
    )
    keys = NoiseKeys(tuple(SessionKey(*fields) for fields in found))
    ledger.note_noise(keys.commitment)
    return keys


def keys_from(path: Path, belongs: NoiseOf | None = None) -> NoiseKeys:
    """Return the keys in a file, none if there is no file.

    Args:
        path: the file.
        belongs: what they are to belong to; whether they are all is not looked at.

    Raises:
        UnsoundConfiguration: if they belong to another run, or to other parameters.
        ValueError: if the file holds something else, or was changed.
    """
    owner = NoiseOf() if belongs is None else belongs
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
    if found["run"] != owner.run:
        raise UnsoundConfiguration(
            f"{path.name} is that of another run: noise that is made again from it would not be "
            "what this run has released. Restore the one of this run from a copy"
        )
    if found.get("layout", owner.layout) != owner.layout:  # older files have none
        raise UnsoundConfiguration(
            "the trainable parameters, their order, shapes or types (or loss_reduction) are not "
            "those that this run began with, and noise of earlier steps cannot be made again for "
            "others; give the same model, with the same parameters frozen, or begin a new run, "
            "whose loss adds"
        )
    return NoiseKeys(sessions)


def _hash(content: dict[str, Any]) -> str:
    """Return the hash of all but itself."""
    rest = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _write(path: Path, keys: NoiseKeys, belongs: NoiseOf) -> None:
    """Write keys for nobody else to read, all or not at all."""
    temporary = path.with_name(path.name + ".part")
    temporary.unlink(missing_ok=True)
    said = [{"begins": s.begins, "key": s.key.hex(), "cipher": s.cipher} for s in keys.sessions]
    content = {
        "schema": SCHEMA,
        "note": _NOTE,
        "run": belongs.run,
        "layout": belongs.layout,
        "keys": said,
    }
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as opened:
        json.dump({**content, "sha256": _hash(content)}, opened, indent=2)
        opened.flush()
        os.fsync(opened.fileno())
    move_durably(temporary, path)
