"""An advisory lock on an open file, which the operating system lets go when a process ends."""

from __future__ import annotations

import sys

__all__ = ["lock"]

if sys.platform == "win32":
    import msvcrt
    import os

    def lock(file: int) -> bool:
        """Return whether this process now has the file to itself."""
        os.lseek(file, 1 << 62, os.SEEK_SET)  # beyond the text, which others may read
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def lock(file: int) -> bool:
        """Return whether this process now has the file to itself."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
