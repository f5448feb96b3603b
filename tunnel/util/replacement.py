"""Files that are replaced as a whole: a reader sees the old one or the new one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import attrs

__all__ = ["Replacement", "replace_file"]


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors name *path*: the name of the temporary file helps nobody."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _target(path: Path) -> Path:
    """What a symbolic link leads to: the link stays, and that file is replaced."""
    return Path(os.path.realpath(path))


@attrs.define(eq=False)
class Replacement:
    """
    The next content of a file, beside the file until `commit`.

    A context manager that removes what was not committed.

    :raises OSError: on entry, the folder cannot be written to; on `write`, the disk is
        full.
    """

    path: Path
    mode: int = 0o600
    #: On disk after each step, for which the process waits.
    durable: bool = True
    _temporary: str = attrs.field(init=False, default="")
    _descriptor: int = attrs.field(init=False, default=-1)

    def __enter__(self) -> Replacement:
        self.path = _target(self.path)
        folder = self.path.parent
        with _named(folder):
            self._descriptor, self._temporary = tempfile.mkstemp(
                prefix=f".{self.path.name}.", dir=folder
            )
        return self

    def write(self, data: bytes) -> None:
        """Put the content on disk; the file itself is still the old one."""
        with _named(self.path), os.fdopen(self._descriptor, "wb") as target:
            self._descriptor = -1
            os.fchmod(target.fileno(), self.mode)
            self._give_away(target.fileno())
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

    def _give_away(self, descriptor: int) -> None:
        """What root writes stays readable for the owner of the file, or the folder."""
        if os.geteuid() == 0:
            owner = (self.path if self.path.exists() else self.path.parent).stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def replace_file(
    path: Path, data: bytes, mode: int = 0o600, *, durable: bool = True
) -> None:
    """
    Replace a file at once, or leave it as it was.

    :param durable: on return it is on disk.
    """
    with Replacement(path, mode, durable) as replacement:
        replacement.write(data)
        replacement.commit()
