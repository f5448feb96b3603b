"""
The state directory, for data that kas must remember between two starts.

The directory contains private keys and the identity file, so no other user may write to
it. Files are replaced as a whole, and never changed in place: a reader without the lock
sees either the old or the new file.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import attrs

from tunnel.errors import ConfigurationError
from tunnel.toolkit.files import (
    Owner,
    Replacement,
    in_words,
    other_owner,
    owner_of,
    replace_file,
)

__all__ = ["StateDirectory", "locate", "process_name"]

_LOCK = "lock"
# Maximum seconds to wait for the lock: the holder of the lock writes only one small
# file, so a longer wait means that a program has stopped responding.
LOCK_TIMEOUT = 10.0
_LOCK_RETRY = 0.05
# Maximum number of characters of a host name in the names of files, because the path of
# a socket must be short.  The last characters are used, because names of pods differ at
# their end.
MAX_HOST = 32
# Maximum process id that kill() accepts; Linux's own limit is much lower.
_MOST_PID = 2**31
# Maximum bytes of a file, to limit the memory for a start or a reload: a hundred
# thousand agents take 30 MiB.
MAX_FILE = 64 * 1024 * 1024


def locate(option: str | None, environ: Mapping[str, str]) -> Path:
    """
    Return the path of the state directory: from the option, from systemd, or in the
    user's home.

    :param option: the value of ``--state-directory``.
    """
    if option:
        return Path(option).absolute()
    # systemd separates several directories by colons; kas uses the first directory.
    if first := environ.get("STATE_DIRECTORY", "").split(":")[0]:
        return Path(first)
    # Ignore a relative path, as the XDG specification requires.
    if (base := environ.get("XDG_STATE_HOME", "")).startswith("/"):
        return Path(base) / "kas"
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        raise ConfigurationError(
            ["no state directory: $HOME is not set; pass --state-directory DIR"]
        )
    return Path(home) / ".local" / "state" / "kas"


def process_name(pid: int | str) -> str:
    """
    Return the part of file names that identifies a process of this machine.

    The text contains the host name, because several hosts may mount the same directory,
    and the process id is 1 in every container.
    """
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())
    return f"{host[-MAX_HOST:]}.{pid}"


@attrs.frozen
class StateDirectory:
    """State directory whose owner and permissions were checked; see `open`."""

    path: Path
    #: The user of kas, who gets the files that root writes.
    owner: Owner | None = None

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> StateDirectory:
        """
        Use *path*, and create it if it does not exist.

        :raises ConfigurationError: if the directory cannot be created, or other users
            could write to it.
        """
        try:
            if create:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = path.stat()
        except OSError as error:
            instead = "or pass another one with --state-directory"
            if not create and isinstance(error, FileNotFoundError):
                instead = (
                    "start kas once to create it, or pass the state directory of kas "
                    "with --state-directory"
                )
            raise ConfigurationError(
                [
                    (
                        f"cannot use this as the state directory: {in_words(error)}; "
                        f"{instead}"
                    )
                ]
            ) from None
        if not stat.S_ISDIR(found.st_mode):
            raise ConfigurationError([f"{path} is not a directory"])
        # Accept the directory of any user if this process is root, so that root can run
        # kasctl.
        if os.geteuid() != 0 and found.st_uid not in (os.geteuid(), 0):
            raise ConfigurationError(
                [
                    f"{path} belongs to {owner_of(found)}; run this as that user, or "
                    "pass another one with --state-directory"
                ]
            )
        if found.st_mode & 0o022:
            mode = stat.S_IMODE(found.st_mode)
            raise ConfigurationError(
                [
                    f"{path} is writable for other users (mode {mode:o}); "
                    f"chmod 700 {path}"
                ]
            )
        lacks = found.st_mode & stat.S_IRWXU != stat.S_IRWXU
        if create and lacks and found.st_uid == os.geteuid() != 0:
            mode = stat.S_IMODE(found.st_mode)
            raise ConfigurationError(
                [
                    f"{path} is not writable for its owner (mode {mode:o}); chmod 700 "
                    f"{path}"
                ]
            )
        return cls(path, (found.st_uid, found.st_gid))

    def file(self, name: str) -> Path:
        """Return the path of the file *name*, whether or not it exists."""
        return self.path / name

    def of_processes(self, prefix: str, suffix: str) -> Iterator[tuple[int, Path]]:
        """
        Yield the process ids and paths of the files that belong to processes of this
        host.
        """
        mine = prefix + process_name("")
        for path in self.path.glob(f"{mine}*{suffix}"):
            number = path.name.removeprefix(mine).removesuffix(suffix)
            if number.isdecimal() and 0 < int(number) < _MOST_PID:
                yield int(number), path

    def read(self, name: str) -> bytes | None:
        """
        Return the content of a file; None if it does not exist.

        :raises ConfigurationError: if the file is too large, or a broken link.
        """
        try:
            with self._open(name) as source:
                data = source.read(MAX_FILE + 1)
        except FileNotFoundError:
            if self.file(name).is_symlink():
                raise ConfigurationError(
                    [
                        f"{self.file(name)} is a symbolic link to "
                        f"{os.readlink(self.file(name))}, which does not exist; "
                        "restore that file, or remove the link"
                    ]
                ) from None
            return None
        if len(data) > MAX_FILE:
            raise ConfigurationError(
                [f"{self.file(name)} is larger than {MAX_FILE // 2**20} MiB"]
            )
        return data

    def write(
        self, name: str, data: bytes, mode: int = 0o600, *, durable: bool = True
    ) -> None:
        """
        Replace a file atomically.

        :param durable: whether to wait until the file is on disk, which must not be
            done in a reactor.
        """
        replace_file(self.file(name), data, mode, durable=durable, owner=self.owner)

    def replacement(self, name: str) -> Replacement:
        """Return the replacement of a file, which has not begun."""
        return Replacement(self.file(name), owner=self.owner)

    def open_lock(self, name: str) -> int:
        """
        Return a descriptor of a file for `fcntl.flock`; create the file if necessary.

        :raises OSError: if the file cannot be opened, or is a link.
        """
        flags, file = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, self.file(name)
        try:
            descriptor = os.open(file, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return os.open(file, flags)
        if (owner := other_owner(self.owner)) is not None:
            os.fchown(descriptor, *owner)
        return descriptor

    def _open(self, name: str) -> BinaryIO:
        """
        Open a file for reading.

        :raises OSError: if it cannot be opened, or is a link that root must not follow.
        """
        more = 0 if other_owner(self.owner) is None else os.O_NOFOLLOW
        return open(
            self.file(name),
            "rb",
            opener=lambda path, flags: os.open(path, flags | more),
        )

    @contextmanager
    def lock(
        self,
        *,
        timeout: float = LOCK_TIMEOUT,
        seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> Iterator[None]:
        """
        Hold the directory's lock, so that no other process holds it.  This method
        blocks, and must not be called in a reactor.

        :raises ConfigurationError: if the lock is not free in time.
        """
        descriptor = self.open_lock(_LOCK)
        try:
            deadline = seconds() + timeout
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if seconds() >= deadline:
                        raise ConfigurationError(
                            [
                                f"{self.file(_LOCK)}: another process holds the "
                                "lock; find it with 'fuser', and try again"
                            ]
                        ) from None
                    sleep(_LOCK_RETRY)
            yield
        finally:
            os.close(descriptor)
