"""Files: detection of changes, atomic replacement, secrets, and texts for errors."""

from __future__ import annotations

import base64
import binascii
import errno
import itertools
import os
import pwd
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

import attrs
from twisted.logger import Logger

__all__ = [
    "HOW_TO_MAKE_ONE",
    "MAX_SECRET_FILE",
    "FileVersion",
    "Owner",
    "Replacement",
    "WatchedFile",
    "file_version",
    "in_words",
    "other_owner",
    "owner_of",
    "read_base64_secret",
    "read_secret_file",
    "replace_file",
    "reread_files",
    "warn_if_public",
]

_log = Logger()

# Files that change.

#: The version of a file; None if it does not exist.
FileVersion = tuple[int, int, int, int] | None

_orders = itertools.count(1)
_order = 0


def file_version(file: str | Path) -> FileVersion:
    """
    Return a value that changes with a file: the modification time, inode and size of
    the target of its links, and the number of calls of `reread_files`.
    """
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size, _order


def reread_files() -> None:
    """Treat every file as changed, because an operator sent SIGHUP."""
    global _order
    _order = next(_orders)


_T = TypeVar("_T")


class WatchedFile(Generic[_T]):
    """
    The content of one or several files, which is read again after a change.

    If new content is unusable, the old content stays valid.  The problem is reported
    once for each change.  The content is tried again at each check, because the cause
    may have been temporary, such as a lack of file descriptors.

    :param version: returns a value that changes with the files, such as `file_version`
        of a single file.
    :param read: reads the content; an exception of the first call passes to the caller.
    :param refused: receives later exceptions of the type *unusable*.
    :param changed: called after new content was read.
    :param seconds: returns the time of a clock.
    :param interval: seconds between two checks.
    """

    def __init__(
        self,
        version: Callable[[], object],
        read: Callable[[], _T],
        refused: Callable[[Exception], object],
        *,
        unusable: type[Exception] | tuple[type[Exception], ...],
        seconds: Callable[[], float],
        interval: float,
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        self._version = version
        self._read = read
        self._refused = refused
        self._unusable = unusable
        self._seconds = seconds
        self._interval = interval
        self._changed = changed
        self._looked = seconds()
        # The version is determined before the content is read, so that a change in the
        # meantime is read again.
        self._used = self._complained = version()
        self.content = read()

    def get(self) -> _T:
        """
        Return the content; check for changes first if the last check is an interval
        ago.
        """
        now = self._seconds()
        if now - self._looked >= self._interval:
            self._looked = now
            self.look()
        return self.content

    def is_changed(self) -> bool:
        """Tell whether `look` would read the content."""
        return self._version() != self._used

    def look(self) -> None:
        """Read the content if it has changed."""
        version = self._version()
        if version == self._used:
            return
        try:
            self.content = self._read()
        except self._unusable as error:
            if version != self._complained:
                self._complained = version
                self._refused(error)
            return
        self._used = self._complained = version
        self._changed()

    def look_soon(self) -> None:
        """Check for changes at the next `get`."""
        self._looked = float("-inf")


# Files that are replaced as a whole: a reader sees the old or the new content.


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """
    Make errors name *path* instead of the temporary file, which means nothing to
    readers.
    """
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


#: User id and group id of the owner of files.
Owner = tuple[int, int]

#: Why root does not use a file.
_A_LINK = "it is a symbolic link, which root does not follow; run this as its owner"

#: Maximum number of links to a file, as in Linux.
_MAX_LINKS = 40


def other_owner(owner: Owner | None) -> Owner | None:
    """
    Return *owner* if this process is root and works on files of that user; otherwise
    None.

    That user may replace any of the files by a link to a file of root.  So root follows
    no link, and gives only files away that it has just created.
    """
    return owner if os.geteuid() == 0 and owner is not None and owner[0] else None


def _target(path: Path, owner: Owner | None) -> Path:
    """
    Return the target of a symbolic link: the link stays, and its target is replaced.

    A link of another user is replaced itself: in a folder such as ``/tmp``, any user
    can create one.

    :raises OSError: if *owner* is another user, and has a link here.
    """
    if other_owner(owner) is not None:
        if path.is_symlink():
            raise OSError(errno.ELOOP, _A_LINK, str(path))
        return path
    for _ in range(_MAX_LINKS):
        try:
            found = path.lstat()
        except OSError:
            break
        if not stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid():
            break
        path = path.parent / os.readlink(path)
    return path


@attrs.define(eq=False)
class Replacement:
    """
    The next content of a file, in a temporary file until `commit`.

    A context manager that removes the temporary file if it was not committed.

    :ivar owner: the user who gets the file if root writes it; None for root itself.
    :raises OSError: on entry, the folder cannot be written to; on `write`, the disk is
        full.
    """

    path: Path
    mode: int = 0o600
    #: Whether the process waits until each step is on disk.
    durable: bool = True
    owner: Owner | None = None
    _temporary: str = attrs.field(init=False, default="")
    _descriptor: int = attrs.field(init=False, default=-1)

    def __enter__(self) -> Replacement:
        self.path = _target(self.path, self.owner)
        folder = self.path.parent
        with _named(folder):
            self._descriptor, self._temporary = tempfile.mkstemp(
                prefix=f".{self.path.name}.", dir=folder
            )
        return self

    def write(self, data: bytes) -> None:
        """Write the content to disk; the file itself does not change yet."""
        with _named(self.path), os.fdopen(self._descriptor, "wb") as target:
            self._descriptor = -1
            os.fchmod(target.fileno(), self.mode)
            if (owner := other_owner(self.owner)) is not None:
                os.fchown(target.fileno(), *owner)
            target.write(data)
            target.flush()
            if self.durable:
                os.fsync(target.fileno())

    def commit(self) -> None:
        """Replace the file."""
        with _named(self.path):
            os.rename(self._temporary, self.path)
            self._temporary = ""
            if not self.durable:
                return
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)  # the rename itself
            finally:
                os.close(directory)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        if self._temporary:
            os.unlink(self._temporary)


def replace_file(
    path: Path,
    data: bytes,
    mode: int = 0o600,
    *,
    durable: bool = True,
    owner: Owner | None = None,
) -> None:
    """
    Replace a file atomically; after a failure, the file has its old content.

    :param durable: whether to wait until the new content is on disk.
    :param owner: see `Replacement`.
    """
    with Replacement(path, mode, durable, owner) as replacement:
        replacement.write(data)
        replacement.commit()


# Files with secrets.

#: Versions of files that caused a warning; limited by the number of configured files.
_warned: dict[Path, FileVersion] = {}


#: Maximum size of a file with a secret, in bytes: the largest useful secrets have 176
#: characters.
MAX_SECRET_FILE = 4096

# The text omits the path, which may name another file that must not be overwritten.
HOW_TO_MAKE_ONE = (
    "correct the path, or make a secret with "
    "'(umask 077; head -c 32 /dev/urandom | base64 > NEW-FILE)'"
)


def read_secret_file(
    path: str | os.PathLike[str], limit: int = MAX_SECRET_FILE
) -> bytes:
    """
    Read a file with a secret, byte for byte.

    :raises ValueError: if the file cannot be read, or has more than *limit* bytes; the
        text gives the reason without quoting the secret.
    """
    try:
        with open(path, "rb") as source:
            data = source.read(limit + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None
    if len(data) > limit:
        raise ValueError(f"{path} is larger than {limit} bytes, so it is not a secret")
    return data


def read_base64_secret(path: str | os.PathLike[str], least: int) -> bytes:
    """
    Read a secret in base64 from a file, in the format that GitLab's tools write.

    :param least: minimum number of decoded bytes.
    :raises ValueError: if the secret is invalid; the text gives the reason without
        quoting the secret.
    """
    data = read_secret_file(path)
    try:
        secret = base64.b64decode(data.strip(), validate=True)
    except binascii.Error:
        text = f"{path} does not contain base64 on one line; {HOW_TO_MAKE_ONE}"
        raise ValueError(text) from None
    if len(secret) < least:
        raise ValueError(
            f"the secret in {path} has {len(secret)} bytes when decoded, but needs "
            f"{least}; {HOW_TO_MAKE_ONE}"
        )
    return secret


def warn_if_public(path: Path) -> None:
    """
    Warn operators of a secret that every user can read, once for each change of it.

    It is not refused: files that are mounted into a pod belong to root, and are often
    readable for every user.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if not mode & stat.S_IROTH:
        _warned.pop(path, None)
    elif _warned.get(path) != (version := file_version(path)):
        _warned[path] = version
        _log.warn(
            "every user of this machine can read the secret {path} (mode {mode}); "
            "chmod 600 {path}",
            path=str(path),
            mode=f"{mode:o}",
        )


# Errors of the operating system.


#: Mode of a file that its owner may read and write.
_READ_AND_WRITE = stat.S_IRUSR | stat.S_IWUSR


def in_words(error: Exception) -> str:
    """Describe *error* with its path, and with the owner if permissions are missing."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error) or type(error).__name__
    if error.filename is None:
        return error.strerror
    text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, PermissionError):
        text += _owner(Path(os.fsdecode(error.filename)))
    return text


def _owner(path: Path) -> str:
    """Return the owner of *path*, or of the nearest accessible folder above it."""
    for one in (path, *path.parents):
        try:
            found = one.stat()
        except OSError:
            continue
        name = owner_of(found)
        what = "it" if one == path else str(one)
        mode = stat.S_IMODE(found.st_mode)
        owned = f"{what} belongs to {name} (mode {mode:03o})"
        needed = stat.S_IRWXU if stat.S_ISDIR(found.st_mode) else _READ_AND_WRITE
        if found.st_uid == os.geteuid() and mode & needed != needed:
            bits = "u+rwx" if needed == stat.S_IRWXU else "u+rw"
            return f"; {owned}: chmod {bits} {one}"
        who = name if found.st_uid == 0 else f"{name} or as root"
        return f"; {owned}: run this as {who}"
    return ""


def owner_of(found: os.stat_result) -> str:
    """Return the name of the user that a file belongs to."""
    try:
        return pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        return f"the user {found.st_uid}"
