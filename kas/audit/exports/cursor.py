"""Places in an audit log that survive restarts and rotations."""

from __future__ import annotations

import fcntl
import json
import os
from hashlib import sha256
from pathlib import Path

import attrs

from kas.audit.last import FOLDER, log_digest
from kas.state.directory import StateDirectory

__all__ = ["Cursor", "CursorFile", "first_digest"]


def first_digest(line: bytes) -> str:
    """
    Return the name of a file of a log: the hash of its first line.

    The first line of a file has a number in a chain, so that no other file has the same
    one; a renamed, copied or compressed file keeps it.
    """
    return sha256(line).hexdigest()


@attrs.frozen
class Cursor:
    """
    A place in a log.

    :ivar first: `first_digest` of the file.
    :ivar offset: number of bytes before the place, without compression.
    """

    first: str
    offset: int


class CursorFile:
    """
    The place up to which one export has sent a log.

    :param log: the file to which kas writes.
    :param name: the name of the export.
    :raises OSError: if the folder of the log does not exist.
    """

    def __init__(self, state: StateDirectory, log: Path, name: str) -> None:
        self._state = state
        self._name = f"{FOLDER}/{log_digest(log)}-{name}"
        self._lock: int | None = None

    def lock(self) -> bool:
        """
        Become the only process that exports the log under this name; return whether no
        other process does.

        :raises OSError: if the file cannot be created.
        """
        if self._lock is not None:
            return True
        self._state.file(FOLDER).mkdir(mode=0o700, exist_ok=True)
        lock = self._state.open_lock(f"{self._name}.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        except OSError:
            os.close(lock)
            raise
        self._lock = lock
        return True

    def unlock(self) -> None:
        """Let another process export the log."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self) -> Cursor | None:
        """
        Return the place; None if nothing was sent, or the file is damaged.

        :raises OSError: if the file cannot be read.
        """
        data = self._state.read(f"{self._name}.cursor")
        if data is None:
            return None
        try:
            found = json.loads(data)
            return Cursor(str(found["first"]), int(found["offset"]))
        except (ValueError, LookupError, TypeError, RecursionError):
            # Events may be sent twice, but none is left out.
            return None

    def write(self, cursor: Cursor) -> None:
        """
        Replace the place.

        :raises OSError: if the file cannot be written.
        """
        text = json.dumps({"first": cursor.first, "offset": cursor.offset})
        self._state.write(f"{self._name}.cursor", text.encode())
