"""What tells that a file is another one than before."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

__all__ = ["Stamp", "look_again", "stamp_of"]

#: Of a file; None where there is none.
Stamp = tuple[int, int, int, int] | None

_orders = itertools.count(1)
_order = 0


def stamp_of(file: str | Path | int) -> Stamp:
    """
    Time of its last change, inode and size; and how often `look_again` was called.

    :param file: a path, whose links are followed, or a file descriptor.
    """
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size, _order


def look_again() -> None:
    """Every file counts as changed: an operator said so, by SIGHUP."""
    global _order
    _order = next(_orders)
