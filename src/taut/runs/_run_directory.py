"""The directory of a run: begun once, left as it was found if nothing came of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taut._base.files import lock
from taut.training import Plan, RunDirectory

__all__ = ["begun", "check_files", "check_new", "check_trained_weights", "plan_in"]


@contextmanager
def begun(directory: RunDirectory, config: str) -> Iterator[None]:
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
    path = directory.path
    missing = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(parents=True, exist_ok=True)
    _write_once(directory, config)
    try:
        yield
    except BaseException:
        _remove_unused(directory, missing)
        raise


def _remove_unused(directory: RunDirectory, made: list[Path]) -> None:
    """Remove the files of a run without a step, and the directories that were made for it."""
    ledger = directory.ledger
    if not ledger.exists():
        directory.config.unlink(missing_ok=True)
    else:
        file = os.open(ledger, os.O_RDWR)
        try:
            # The only line of a ledger without steps is the one that names its plan.
            if not lock(file) or any(ledger.read_bytes().split(b"\n")[1:]):
                return
            private = directory.private_key, directory.private_noise
            for file_of_run in (directory.config, directory.plan, *private, ledger):
                file_of_run.unlink(missing_ok=True)
        finally:
            os.close(file)
    for place in made:
        try:
            place.rmdir()
        except OSError:  # somebody else keeps something there
            return


def check_new(directory: RunDirectory) -> None:
    """Refuse a directory that holds a run."""
    for path in directory.begun:
        if path.exists():
            raise ValueError(
                f"{directory.path} already holds a run ({path.name}); go on with taut resume "
                f"{directory.path}, or choose another [run] directory"
            )


def check_files(directory: RunDirectory) -> None:
    """Refuse a directory whose files are not its own: it may come from somebody else.

    A link could make a run write to any file of whoever goes on with it, and reading a pipe may
    never end.
    """
    for whole in directory.written:
        for path in (whole, whole.with_name(f"{whole.name}.part")):
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise ValueError(
                    f"{path} is a link, or no regular file; put the file itself in its place"
                )


def check_trained_weights(directory: RunDirectory) -> None:
    """Refuse to replace what was trained by weights that saw nothing."""
    has_weights = directory.model.exists() and not directory.checkpoint.exists()
    if directory.ledger.exists() and has_weights:
        raise ValueError(
            f"{directory.path} has lost its checkpoint.pt; going on would replace model.pt, which "
            "holds what was trained; restore the checkpoint, or keep model.pt elsewhere"
        )


def plan_in(directory: RunDirectory) -> Plan | None:
    """Return the plan of a run, None if it was killed before it had one."""
    if not directory.plan.exists():
        return None
    try:
        return directory.read_plan()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{directory.plan} is damaged; restore it from a copy: {error}") from None


def _write_once(directory: RunDirectory, text: str) -> None:
    """Write the configuration whole, unless another process was faster."""
    path = directory.config
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    temporary.write_text(text, encoding="utf-8")
    try:
        os.link(temporary, path)
    except FileExistsError:
        check_new(directory)
    finally:
        temporary.unlink()
