"""Folder of the sockets of one kas' workers, in the state directory."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import attrs

from kas.state.directory import StateDirectory
from kas.state.process_socket import MAX_PATH
from kas.state.running import is_alive
from tunnel.errors import ConfigurationError

__all__ = ["WorkersFolder", "check_path"]

#: Name of the lock file in each folder, which is locked while the supervisor of the
#: folder runs.
_LOCK = "lock"


@attrs.define
class WorkersFolder:
    """
    Folder that one supervisor creates for the sockets of its workers.

    The folder's name is shorter than the names of processes' other files, because two
    names follow it in the path of a socket, which must be short.  A lock, and not the
    name, shows whether the folder is in use: another container may have the same
    process ids, and the same host name if both use the network of their host.
    """

    path: Path
    _lock: int | None = None

    @classmethod
    def make(cls, state: StateDirectory, workers: int) -> WorkersFolder:
        """
        Create the folder of this process, and remove the folders of dead supervisors.

        :raises ConfigurationError: see `check_path`.
        """
        check_path(state.path, workers)
        for path in state.path.glob(f"{_prefix()}*"):
            number = path.name.removeprefix(_prefix()).partition(".")[0]
            if number.isdecimal() and not _has_owner(int(number), path):
                shutil.rmtree(path, ignore_errors=True)
        made = cls(state.file(f"{_prefix()}{os.getpid()}"))
        more = 0
        while not made._begin():
            more += 1
            made.path = state.file(f"{_prefix()}{os.getpid()}.{more}")
        made._take()
        return made

    def _take(self) -> None:
        """Lock the folder; the lock file gets its name only after it was locked."""
        begun = self.path / f"{_LOCK}.new"
        self._lock = os.open(begun, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(OSError):  # Some volumes have no locks.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        begun.rename(self.path / _LOCK)

    def _begin(self) -> bool:
        """Create the folder; return False if another process is using it."""
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        return True

    def socket(self, number: int, what: str) -> Path:
        """
        Return the path of a worker's socket for *what*: ``status``, ``control`` or
        ``peer``.

        Other workers use the socket ``peer``; see `kas.state.process_socket.worker_at`.
        """
        return self.path / f"{number}.{what}"

    @property
    def secret(self) -> Path:
        """
        Return the path of the file with the secret that workers use to authenticate
        each other.
        """
        return self.path / "secret"

    @property
    def configuration(self) -> Path:
        """Path of the copy of the configuration file that was made when kas started."""
        return self.path / "kas.yaml"

    def keep(self, file: Path) -> None:
        """Copy the configuration file *file* to `configuration`."""
        self.configuration.touch(mode=0o600)
        shutil.copyfile(file, self.configuration)

    def remove(self) -> None:
        """Remove the folder and its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def check_path(state: Path, workers: int) -> None:
    """
    Check that the path of a state directory is short enough, for any process id.

    :raises ConfigurationError: if the paths of the sockets of that many workers would
        be too long.
    """
    if workers == 1:
        return
    # The last part of the name is the suffix of the folder of a second container.
    folder = WorkersFolder(state / f"{_prefix()}{_largest_pid()}.1")
    over = len(os.fsencode(folder.socket(workers, "control"))) - MAX_PATH
    if over > 0:
        raise ConfigurationError(
            [
                f"{state}: too long for the sockets of workers (by {over} bytes): use "
                "a state directory with a shorter path, or 'workers: 1'"
            ]
        )


def _largest_pid() -> int:
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return 2**22  # the limit of Linux


def _has_owner(pid: int, path: Path) -> bool:
    """Return whether the supervisor that created a folder is running."""
    seems_alive = pid != os.getpid() and is_alive(pid)
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return seems_alive
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return seems_alive
    finally:
        os.close(lock)
    return False  # Another process may have the supervisor's id by now.


def _prefix() -> str:
    """
    Return the prefix of names of this host, because several hosts may share the
    directory.
    """
    host = hashlib.sha256(socket.gethostname().encode()).hexdigest()
    return f"workers-{host[:4]}-"
