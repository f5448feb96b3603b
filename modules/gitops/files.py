"""The files of a source at a commit, within the limits that kas has for them."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import AsyncIterator, Sequence

import attrs

from modules.gitops.globs import Glob
from tunnel.errors import CallError, Status
from tunnel.interfaces import IRepository, TreeEntry, TreeEntryKind

__all__ = ["FileLimits", "Fingerprint", "source_files"]


@attrs.frozen(kw_only=True)
class FileLimits:
    """See `GitopsSettings`."""

    file_size: int
    total_size: int
    count: int


class Fingerprint:
    """
    The SHA-256 of files, one after the other.

    :ivar files: how many there were.
    """

    def __init__(self) -> None:
        self.files = 0
        self._hash = hashlib.sha256()

    def add(self, path: str, data: bytes) -> None:
        """One more file."""
        self.files += 1
        for part in (path.encode(), data):
            self._hash.update(len(part).to_bytes(8, "big"))
            self._hash.update(part)

    def digest(self) -> bytes:
        """Of all until now."""
        return self._hash.digest()


async def source_files(
    repository: IRepository, commit: str, globs: Sequence[Glob], limits: FileLimits
) -> AsyncIterator[tuple[str, bytes]]:
    """
    Paths and contents, sorted by path.

    :raises CallError: FAILED_PRECONDITION, the files cannot be used as they are, and
        why; as `IRepository`, the repository cannot be read now.
    """
    left = limits.total_size
    for entry in await _matching(repository, commit, globs, limits):
        try:
            data = await repository.read(
                commit, entry.path, limit=min(limits.file_size, left)
            )
        except CallError as error:
            if error.status is not Status.RESOURCE_EXHAUSTED:
                raise
            which = (
                f"{entry.path} has more than {limits.file_size} bytes"
                if left > limits.file_size
                else f"all files together have more than {limits.total_size} bytes"
            )
            raise _unusable(which) from None
        left -= len(data)
        yield entry.path, data


async def _matching(
    repository: IRepository, commit: str, globs: Sequence[Glob], limits: FileLimits
) -> list[TreeEntry]:
    folder = posixpath.commonpath([f"/{glob.prefix}" for glob in globs])[1:]
    try:
        entries = await repository.tree(commit, folder, recursive=True)
    except CallError as error:
        if error.status is not Status.NOT_FOUND:
            raise
        raise _unusable(f"commit {commit[:12]} has no folder {folder}") from None
    if len(entries) > limits.count:
        where = f"the folder {folder}" if folder else "the repository"
        raise _unusable(
            f"{where} has {len(entries)} files, more than {limits.count} of "
            "max_number_of_files; write globs that begin with a folder"
        )
    found = [one for one in entries if any(glob.matches(one.path) for glob in globs)]
    for entry in found:
        if entry.kind is not TreeEntryKind.FILE:
            what = "symbolic link" if entry.kind is TreeEntryKind.LINK else "submodule"
            raise _unusable(f"{entry.path} is a {what}, which kas does not follow")
    return sorted(found, key=lambda entry: entry.path)


def _unusable(why: str) -> CallError:
    return CallError(Status.FAILED_PRECONDITION, why)
