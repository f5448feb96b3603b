"""Temporary folders for programs that work on the files of a commit."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from tunnel.errors import CallError, Status

__all__ = ["TemporaryFolder", "remove_leftovers"]

#: Prefix of the names of agentk's folders.
_PREFIX = "agentk-gitops-"


def _no_room(error: OSError) -> CallError:
    why = f"agentk cannot write files in its temporary folder now: {error.strerror}"
    return CallError(Status.UNAVAILABLE, why)


class TemporaryFolder:
    """
    Temporary folder for the files of a commit, mode 0700.

    :ivar path: the folder, which contains ``.home`` for the program and ``files`` for
        the commit, once `write` was called.
    :raises CallError: UNAVAILABLE if the folder cannot be created now.
    """

    def __init__(self) -> None:
        try:
            while True:
                self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
                held = _locked(self.path)
                if held is not None:
                    break
        except OSError as error:
            raise _no_room(error) from None
        self._held = held
        self._lock = Lock()
        self._removed = False

    def write(
        self,
        files: Iterable[tuple[str, bytes]],
        home: Iterable[tuple[str, bytes]] = (),
    ) -> None:
        """
        Write *files*, whose paths must stay inside the folder.

        :param home: files for the home of the program.
        :raises CallError: UNAVAILABLE if the files cannot be written now.
        """
        try:
            with self._lock:
                self._write(".home", home)
                self._write("files", files)
        except OSError as error:
            raise _no_room(error) from None

    def _write(self, name: str, files: Iterable[tuple[str, bytes]]) -> None:
        if not self._removed:
            (self.path / name).mkdir()
        for path, data in files:
            if self._removed:
                return
            file = self.path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            # Fail instead of overwriting a file.
            with file.open("xb") as out:
                out.write(data)

    def remove(self) -> None:
        """
        Remove the folder, even while a thread of a cancelled task still writes to it.
        """
        self._removed = True
        with self._lock:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._held)


def _locked(folder: Path) -> int | None:
    """
    Return a descriptor that makes `remove_leftovers` keep a new folder until the
    process ends; None if another agentk on this machine took it for a leftover.
    """
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        return None
    if os.fstat(held).st_nlink == 0:
        os.close(held)
        return None
    return held


def remove_leftovers() -> None:
    """Remove the folders that killed agentk processes of this user left behind."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if os.fstat(held).st_uid == os.geteuid():
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            # Another agentk on this machine uses the folder.
            continue
        finally:
            os.close(held)
