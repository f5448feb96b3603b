"""What tells that a file is another one than before."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["Stamp", "stamp_of"]

#: Of a file; None where there is none.
Stamp = tuple[int, int, int] | None


def stamp_of(file: str | Path | int) -> Stamp:
    """
    Time of its last change, inode and size.

    :param file: a path, whose links are followed, or a file descriptor.
    """
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
