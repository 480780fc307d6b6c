"""The directory of a run: begun once, left as it was found if nothing came of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taut._base.files import lock
from taut.training import Plan

__all__ = ["begun", "check_files", "check_new", "check_trained_weights", "plan_in"]

_BEGUN = ("config.toml", "plan.json", "ledger.jsonl", "checkpoint.pt")
_WRITTEN = (*_BEGUN, "metrics.csv", "model.pt", "result.json")


@contextmanager
def begun(directory: Path, config: str) -> Iterator[None]:
    """Make the directory of a new run, and remove it again if the first step was never taken.

    Args:
        directory: directory of the run.
        config: the text of its config.toml.

    **Guarantee**: a file is removed only if this call has begun the run, and its ledger, opened by
    nobody else, holds no step.

    Raises:
        ValueError: if the directory already holds a run.
    """
    check_new(directory)
    missing = [place for place in (directory, *directory.parents) if not place.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    _write_once(directory / "config.toml", config)
    try:
        yield
    except BaseException:
        _remove_unused(directory, missing)
        raise


def _remove_unused(directory: Path, made: list[Path]) -> None:
    """Remove the files of a run without a step, and the directories that were made for it."""
    ledger = directory / "ledger.jsonl"
    if not ledger.exists():
        (directory / "config.toml").unlink(missing_ok=True)
    else:
        file = os.open(ledger, os.O_RDWR)
        try:
            # The only line of a ledger without steps is the one that names its plan.
            if not lock(file) or any(ledger.read_bytes().split(b"\n")[1:]):
                return
            for name in ("config.toml", "plan.json", "ledger.jsonl"):
                (directory / name).unlink(missing_ok=True)
        finally:
            os.close(file)
    for place in made:
        try:
            place.rmdir()
        except OSError:  # somebody else keeps something there
            return


def check_new(directory: Path) -> None:
    """Refuse a directory that holds a run."""
    for name in _BEGUN:
        if (directory / name).exists():
            raise ValueError(
                f"{directory} already holds a run ({name}); go on with taut resume {directory}, or "
                "choose another [run] directory"
            )


def check_files(directory: Path) -> None:
    """Refuse a directory whose files are not its own: it may come from somebody else.

    A link could make a run write to any file of whoever goes on with it, and reading a pipe may
    never end.
    """
    for name in _WRITTEN:
        for path in (directory / name, directory / f"{name}.part"):
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise ValueError(
                    f"{path} is a link, or no regular file; put the file itself in its place"
                )


def check_trained_weights(place: Path) -> None:
    """Refuse to replace what was trained by weights that saw nothing."""
    is_there = {name: (place / name).exists() for name in ("model.pt", "checkpoint.pt")}
    if (place / "ledger.jsonl").exists() and is_there["model.pt"] > is_there["checkpoint.pt"]:
        raise ValueError(
            f"{place} has lost its checkpoint.pt; going on would replace model.pt, which holds "
            "what was trained; restore the checkpoint, or keep model.pt elsewhere"
        )


def plan_in(path: Path) -> Plan | None:
    """Return the plan of a run, None if it was killed before it had one."""
    if not path.exists():
        return None
    try:
        return Plan.from_json(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged; restore it from a copy: {error}") from None


def _write_once(path: Path, text: str) -> None:
    """Write a file whole, unless another process was faster."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    temporary.write_text(text, encoding="utf-8")
    try:
        os.link(temporary, path)
    except FileExistsError:
        check_new(path.parent)
    finally:
        temporary.unlink()
