"""Events that a receiver does not accept, in a file of their own."""

from __future__ import annotations

import os
from pathlib import Path

from kas.audit.exports.reader import Exported
from kas.audit.last import FOLDER
from kas.state.directory import StateDirectory

__all__ = ["MAX_DEAD", "DeadLetters"]

#: Maximum bytes of the file.  A receiver that accepts nothing must not fill the disk;
#: the events are in the log, too.
MAX_DEAD = 64 * 1024 * 1024


class DeadLetters:
    """The file of one export, in the state directory."""

    def __init__(self, state: StateDirectory, name: str) -> None:
        self.path: Path = state.file(FOLDER) / f"{name}.rejected.jsonl"
        #: Number of events that the receiver did not accept.
        self.count = 0

    def add(self, one: Exported) -> bool:
        """
        Append an event; return whether the file has room for it.

        :raises OSError: if the file cannot be written.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            has_room = os.fstat(descriptor).st_size + len(one.line) < MAX_DEAD
            if has_room:
                os.write(descriptor, one.line + b"\n")
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        self.count += 1
        return has_room
