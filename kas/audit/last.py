"""The last checkpoint of each chain, in the state directory."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from kas.audit.notes import MAX_NOTE
from kas.state.directory import StateDirectory
from tunnel.toolkit.files import replace_file

__all__ = ["FOLDER", "MAX_CHAINS", "LastCheckpoints", "log_digest"]

#: Name of the folder.
FOLDER = "audit"

#: Maximum number of chains whose checkpoints are remembered: more than a kas with a
#: worker for each of 16 cores needs after a restart.  The first line of a chain names
#: all of them, and has to be a short line.
MAX_CHAINS = 32

#: Maximum number of files, of all logs together.
MAX_FILES = 256

_SUFFIX = ".checkpoint"


class LastCheckpoints:
    """
    Files with one signed note each.

    They show whether the end of an audit log is missing, and survive the rotation of
    the log's files.

    :param log: the file of the log, because kas with logs of their own may share the
        state directory; None for all logs.
    """

    def __init__(self, state: StateDirectory, log: Path | None = None) -> None:
        self.folder = state.file(FOLDER)
        self._prefix = "" if log is None else f"{log_digest(log)}-"

    def write(self, kas: str, note: str) -> None:
        """
        Replace the note of the process *kas*.

        :raises OSError: if the file cannot be written.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        # The lines of the checkpoint are on disk already, so a note that is lost in a
        # power failure is no loss.
        path = self.folder / f"{self._prefix}{kas}{_SUFFIX}"
        replace_file(path, note.encode(), durable=False)

    @classmethod
    def of_files(cls, state: StateDirectory, files: Iterable[Path]) -> list[str]:
        """
        Return the notes of the logs to which files belong, also after a rotation, such
        as ``audit.jsonl`` for ``audit.jsonl.1.gz`` and ``audit.jsonl-20260501``.

        :raises OSError: if a folder does not exist.
        """
        logs = set()
        for file in files:
            ends = [one.start() for one in re.finditer("[.-]", file.name)]
            for end in (*ends, len(file.name)):
                if end:
                    logs.add(file.absolute().parent / file.name[:end])
        return [note for log in sorted(logs) for _, note in cls(state, log).read()]

    def chains(self) -> set[str]:
        """Return the processes that have a note."""
        start, end = len(self._prefix), -len(_SUFFIX)
        try:
            names = os.listdir(self.folder)
        except OSError:
            return set()
        return {
            name[start:end]
            for name in names
            if name.startswith(self._prefix) and name.endswith(_SUFFIX)
        }

    def read(self, only: Collection[str] | None = None) -> list[tuple[float, str]]:
        """
        Return the newest notes, at most `MAX_CHAINS` of one log, and the times of their
        files in seconds since 1970.

        :param only: the processes whose notes are read; None for all.
        """
        notes = []
        most = MAX_CHAINS if self._prefix else MAX_FILES
        newest = self._newest(self._prefix)
        if only is not None:
            names = {f"{self._prefix}{kas}{_SUFFIX}" for kas in only}
            newest = [one for one in newest if one[1].name in names]
        for time, path in newest[:most]:
            with suppress(OSError, UnicodeDecodeError), path.open("rb") as file:
                notes.append((time / 10**9, file.read(MAX_NOTE).decode()))
        return notes

    def remove_old(self) -> None:
        """Remove all files but the newest."""
        for prefix, most in ((self._prefix, MAX_CHAINS), ("", MAX_FILES)):
            for _, path in self._newest(prefix)[most:]:
                with suppress(OSError):
                    path.unlink()

    def _newest(self, prefix: str) -> list[tuple[int, Path]]:
        found = []
        for path in self.folder.glob(f"{prefix}*{_SUFFIX}"):
            with suppress(OSError):
                found.append((path.stat().st_mtime_ns, path))
        return sorted(found, reverse=True)


def log_digest(log: Path) -> str:
    """
    Return a name for a log that is the same after a restart.

    Each pod may have a folder with the same path, so the path does not suffice.
    """
    parent = log.absolute().parent.resolve()
    folder = parent.stat()
    text = f"{parent / log.name}\0{folder.st_dev}\0{folder.st_ino}"
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
