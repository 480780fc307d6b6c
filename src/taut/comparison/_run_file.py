"""The file of finished runs, from which a comparison goes on after it was killed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from taut._base.files import lock
from taut._base.json_numbers import parsed_json
from taut.errors import UnsoundConfiguration

__all__ = ["Run", "RunFile"]

SCHEMA = "taut.comparison/2"


@dataclass(frozen=True)
class Run:
    """One model that was trained and judged.

    Attributes:
        arm: the label of its arm.
        learning_rate: learning rate of its optimizer.
        seed: seed of weights, batches and noise.
        accuracy: on the test examples; None if targets are not classes.
        loss: on the test examples; None if it is not finite.
        choice_accuracy: on the examples that choose the learning rate,
        choice_loss: loss on the examples that choose, likewise.
        epsilon: certified, of this run alone.
        steps: updates.
        noise_multiplier: noise multiplier of its plan.
        seconds: seconds that training took, by the clock.
        cpu_seconds: CPU seconds that training took, on all threads of this process.
    """

    arm: str
    learning_rate: float
    seed: int
    accuracy: float | None
    loss: float | None
    choice_accuracy: float | None
    choice_loss: float | None
    epsilon: float
    steps: int
    noise_multiplier: float
    seconds: float
    cpu_seconds: float

    @property
    def key(self) -> tuple[str, float, int]:
        """What is run at most once."""
        return self.arm, self.learning_rate, self.seed


class RunFile:
    """Finished runs of one comparison, each written before the next begins.

    Args:
        directory: made if it does not exist; None keeps runs in memory.
        identity: all that decides what a run gives, beside its arm, learning rate and seed.

    A line that was cut off by a crash is dropped. The file is this process's alone while open.

    Raises:
        UnsoundConfiguration: if the runs in the directory belong to another comparison, or another
            process is adding to them.
        ValueError: if the file is damaged.
    """

    name = "runs.jsonl"

    def __init__(self, directory: Path | None, identity: Mapping[str, Any]) -> None:
        self.runs: dict[tuple[str, float, int], Run] = {}
        self._file = None
        if directory is None:
            return
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / self.name
        self._file = path.open("a+b")
        try:
            if not lock(self._file.fileno()):
                raise UnsoundConfiguration(
                    f"another process is comparing in {os.fspath(directory)!r}; wait for it, or "
                    "use another directory"
                )
            self._read(path, identity)
        except BaseException:
            self._file.close()
            raise

    def add(self, run: Run) -> None:
        """Keep a finished run; it is on disk when this returns."""
        self.runs[run.key] = run
        self._append(asdict(run))

    def close(self) -> None:
        """Let others go on with the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, path: Path, identity: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.seek(0)
        text = self._file.read()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            self._file.truncate(whole)
        header = {"schema": SCHEMA, "identity": json.loads(json.dumps(identity))}
        if not whole:
            self._append(header)
            return
        try:
            first, *rest = (parsed_json(line) for line in text[:whole].splitlines())
            runs = [Run(**line) for line in rest]
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{os.fspath(path)!r} is damaged: {error}; restore it from a copy, or use another "
                "directory"
            ) from None
        if first != header:
            raise UnsoundConfiguration(
                f"the runs in {os.fspath(path.parent)!r} are of another comparison "
                f"({_difference(first, header)}); use another directory"
            )
        self.runs = {run.key: run for run in runs}

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        self._file.seek(0, os.SEEK_END)
        self._file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _difference(found: Any, wanted: Mapping[str, Any]) -> str:
    """Return the names of what differs, the first few of them."""
    if not isinstance(found, Mapping) or found.get("schema") != SCHEMA:
        return "of another format"
    pairs = _flat(found.get("identity")), _flat(wanted["identity"])
    names = [name for name in {**pairs[0], **pairs[1]} if pairs[0].get(name) != pairs[1].get(name)]
    return f"with another {', '.join(names[:3])}"


def _flat(data: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(data, Mapping):
        return {prefix: data}
    parts: dict[str, Any] = {}
    for key, value in data.items():
        parts |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return parts
