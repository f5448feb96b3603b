"""Errors of the operating system in words: which path, and whose it is."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

__all__ = ["in_words", "owner_of"]


def in_words(error: Exception) -> str:
    """What went wrong, with the path and, where rights are missing, the owner of it."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error) or type(error).__name__
    if error.filename is None:
        return error.strerror
    text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, PermissionError):
        text += _owner(Path(os.fsdecode(error.filename)))
    return text


def _owner(path: Path) -> str:
    """Who can read *path*, or the nearest folder above it that can be looked at."""
    for one in (path, *path.parents):
        try:
            found = one.stat()
        except OSError:
            continue
        name = owner_of(found)
        what = "it" if one == path else str(one)
        mode = stat.S_IMODE(found.st_mode)
        owned = f"{what} belongs to {name} (mode {mode:03o})"
        return f"; {owned}: run this as {name} or as root"
    return ""


def owner_of(found: os.stat_result) -> str:
    """The name of the user that a file belongs to."""
    try:
        return pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        return f"the user {found.st_uid}"
