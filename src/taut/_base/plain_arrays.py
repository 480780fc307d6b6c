"""Arrays from a file that somebody else wrote: plain numbers, no more of them than fit."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_arrays"]


def read_arrays(
    path: str | os.PathLike[str], *, stored: bool = False
) -> Mapping[str, NDArray[np.generic]]:
    """Return the arrays of a file that `numpy.savez` wrote.

    Args:
        path: the file.
        stored: refuse compressed arrays, so that none takes more memory than disk.

    Pickles are refused, as they can run code; so are pipes and devices, whose reading may never
    end, and archives that unfold to more than the memory of this machine.

    Raises:
        ValueError: naming what is wrong with the file.
        OSError: if it cannot be read.
    """
    with os.fdopen(_opened(path), "rb") as file:
        _check_sizes(file, path, stored=stored)
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile):
            # What NumPy says here is about pickles, and how to trust them.
            raise _not_plain(path) from None


def _opened(path: str | os.PathLike[str]) -> int:
    """Open a regular file; wait for nobody who might write to it."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise ValueError(f"{os.fspath(path)} is not a regular file")
    return file


def _check_sizes(file: IO[bytes], path: str | os.PathLike[str], *, stored: bool) -> None:
    """Refuse arrays that are larger than they say, or than can be kept."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if stored and any(m.compress_type != zipfile.ZIP_STORED for m in members):
                raise ValueError(f"{os.fspath(path)} is compressed; write it with numpy.savez")
            total = sum(max(member.file_size, _claimed(archive, member)) for member in members)
    except zipfile.BadZipFile:
        raise _not_plain(path) from None
    finally:
        file.seek(0)
    memory = _memory()
    if memory is not None and total > memory:
        raise ValueError(
            f"{os.fspath(path)} unfolds to {total / 1e9:.1f} GB, and this machine has "
            f"{memory / 1e9:.1f} GB of memory; take fewer examples"
        )


def _claimed(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Return how much memory an array asks for, before it is read."""
    headers: dict[Any, Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    with archive.open(member) as content:
        try:
            version = np.lib.format.read_magic(content)
            shape, _, kind = headers[version](content)
        except KeyError:  # a format that arrays of numbers are never written in
            raise _not_plain(member.filename) from None
        except (ValueError, EOFError):
            return 0  # no array; its bytes are counted all the same
    count = 1
    for size in shape:
        count *= int(size)
    return count * int(kind.itemsize)


def _memory() -> int | None:
    """Return how much memory this machine has, None if it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _not_plain(path: str | os.PathLike[str]) -> ValueError:
    return ValueError(
        f"{os.fspath(path)} is not a file of plain arrays; write one with numpy.savez"
    )
