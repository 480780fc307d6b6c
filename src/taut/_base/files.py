"""Files that are whole or not there, and locks on them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "lock",
    "move_durably",
    "new_file",
    "sync_directory",
    "text_of_file",
    "write_atomically",
]


def text_of_file(path: Path, content: str) -> str:
    """Return the text of a file in UTF-8; anything else but a file is refused, not waited for.

    Args:
        path: the file.
        content: what it should hold, for the remedy.

    Raises:
        ValueError: for a pipe, a directory or the like, and for other encodings.
        OSError: if it cannot be read.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"not a file; write {content} into one, in TOML")
    return path.read_text(encoding="utf-8")


def write_atomically(path: Path, text: str) -> None:
    """Write a text file all or not at all; who may read and write it stays as it was."""
    temporary = path.with_name(path.name + ".part")
    temporary.unlink(missing_ok=True)  # of a killed process, whose permissions may be others
    with temporary.open("w", encoding="utf-8") as file:
        if path.exists():
            shutil.copymode(path, temporary)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    move_durably(temporary, path)


@contextmanager
def new_file(path: Path) -> Iterator[Callable[[str], None]]:
    """Reserve a file that does not exist yet, and remove it again if nothing comes of it.

    Yields what writes its text, durably.

    Raises:
        FileExistsError: if the file exists.
    """
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        raise FileExistsError(f"{path} exists, and is not overwritten; name a new file") from None
    try:
        with file:

            def write(text: str) -> None:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                sync_directory(path)

            yield write
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def move_durably(written: Path, path: Path) -> None:
    """Give a file that was written and synced its name, in place of what had it."""
    written.replace(path)
    sync_directory(path)


def sync_directory(path: Path) -> None:
    """Make the entry of a new file durable, where directories can be synced."""
    if os.name == "posix":
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


if sys.platform == "win32":
    import msvcrt

    def lock(file: int) -> bool:
        """Return whether this process now has the open file to itself, until it ends."""
        os.lseek(file, 1 << 62, os.SEEK_SET)  # beyond the text, which others may read
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def lock(file: int) -> bool:
        """Return whether this process now has the open file to itself, until it ends."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
