"""
Changes that `kasctl` made while no kas was running, for the audit log of the next kas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import attrs

from kas.state.directory import StateDirectory
from tunnel.errors import ConfigurationError

__all__ = ["UNRECORDED", "UnrecordedChanges"]

#: Name of the file in the state directory, with one change as JSON in each line.
UNRECORDED = "unrecorded-changes.jsonl"

#: Maximum bytes of the file: the changes of thousands of agents.
MAX_BYTES = 1024 * 1024


@attrs.frozen
class UnrecordedChanges:
    """Changes in the order in which they were made; all methods block."""

    _state: StateDirectory

    def add(self, change: Mapping[str, str]) -> None:
        """
        Add a change.

        :raises ConfigurationError: if the file is full or cannot be written.
        """
        line = json.dumps(change).encode() + b"\n"
        with self._state.lock():
            data = self._state.read(UNRECORDED) or b""
            if len(data) + len(line) > MAX_BYTES:
                path = self._state.file(UNRECORDED)
                raise ConfigurationError(
                    [f"{path} is full; start kas, which writes its audit log"]
                )
            self._state.write(UNRECORDED, data + line)

    def take(self) -> list[bytes]:
        """
        Remove all changes, and return them.

        :raises ConfigurationError: if the file cannot be read or removed.
        """
        if not self._state.file(UNRECORDED).exists():
            return []
        with self._state.lock():
            data = self._state.read(UNRECORDED) or b""
            self._state.file(UNRECORDED).unlink(missing_ok=True)
        return data.splitlines()
