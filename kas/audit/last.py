"""The last checkpoint of each chain, in the state directory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from kas.audit.notes import MAX_NOTE
from kas.state.directory import StateDirectory
from tunnel.toolkit.files import replace_file

__all__ = ["FOLDER", "MAX_CHAINS", "LastCheckpoints"]

#: Name of the folder.
FOLDER = "audit"

#: Maximum number of chains whose checkpoints are remembered: more than a kas with a
#: worker for each of 16 cores needs after a restart.  The first line of a chain names
#: all of them, and has to be a short line.
MAX_CHAINS = 32

_SUFFIX = ".checkpoint"


class LastCheckpoints:
    """
    Files with one signed note each.

    They show whether the end of an audit log is missing, and survive the rotation of
    the log's files.
    """

    def __init__(self, state: StateDirectory) -> None:
        self.folder = state.file(FOLDER)

    def write(self, kas: str, note: str) -> None:
        """
        Replace the note of the process *kas*.

        :raises OSError: if the file cannot be written.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        # The lines of the checkpoint are on disk already, so a note that is lost in a
        # power failure is no loss.
        path = self.folder / f"{kas}{_SUFFIX}"
        replace_file(path, note.encode(), durable=False)

    def read(self) -> list[tuple[float, str]]:
        """
        Return the newest notes, at most `MAX_CHAINS`, and the times of their files in
        seconds since 1970.
        """
        notes = []
        for time, path in self._newest()[:MAX_CHAINS]:
            with suppress(OSError, UnicodeDecodeError), path.open("rb") as file:
                notes.append((time / 10**9, file.read(MAX_NOTE).decode()))
        return notes

    def remove_old(self) -> None:
        """Remove all files but the newest."""
        for _, path in self._newest()[MAX_CHAINS:]:
            with suppress(OSError):
                path.unlink()

    def _newest(self) -> list[tuple[int, Path]]:
        found = []
        for path in self.folder.glob(f"*{_SUFFIX}"):
            with suppress(OSError):
                found.append((path.stat().st_mtime_ns, path))
        return sorted(found, reverse=True)
