"""The files of a source at a commit, within the limits that kas has for them."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from modules.gitops.config import GitopsSettings
from modules.gitops.globs import Glob
from modules.gitops.links import followed
from tunnel.errors import CallError, Status
from tunnel.interfaces import IRepository, TreeEntry, TreeEntryKind

__all__ = ["source_files"]


async def source_files(
    repository: IRepository,
    commit: str,
    globs: Sequence[Glob],
    limits: GitopsSettings,
    *,
    hidden_folders: bool = False,
) -> AsyncIterator[tuple[str, bytes]]:
    """
    Read the files, sorted by path.

    :param hidden_folders: see `Glob.matches`.
    :return: paths and contents.

    :raises CallError: NOT_FOUND, the commit can be read and has no such folder;
        FAILED_PRECONDITION, the files cannot be used as they are, and why; else as
        `IRepository`, the repository cannot be read now.
    """
    each, total = limits.max_manifest_file_size, limits.max_total_manifest_file_size

    def matches(path: str) -> bool:
        return any(one.matches(path, hidden_folders=hidden_folders) for one in globs)

    folder = posixpath.commonpath([f"/{glob.prefix}" for glob in globs])[1:]
    names, files = await _matching(repository, commit, folder, matches, limits)
    try:
        contents = await repository.read_files(commit, files, limit=each, total=total)
    except CallError as error:
        if error.status is Status.NOT_FOUND:
            raise _damaged(error) from None
        if error.status is not Status.RESOURCE_EXHAUSTED:
            raise
        raise _unusable(error.message) from None
    for shown, data in zip(names, contents, strict=True):
        yield shown, data


async def _matching(
    repository: IRepository,
    commit: str,
    folder: str,
    matches: Callable[[str], bool],
    limits: GitopsSettings,
) -> tuple[list[str], list[TreeEntry]]:
    """Return the paths of the files, as links show them, and their entries."""
    try:
        entries = await repository.tree(commit, folder, recursive=True)
    except CallError as error:
        if error.status is not Status.NOT_FOUND:
            raise
        why = f"commit {commit[:12]} has no folder {folder}"
        raise CallError(Status.NOT_FOUND, why) from None
    most = limits.max_number_of_files
    if len(entries) > most:
        where = f"the folder {folder}" if folder else "the repository"
        raise _unusable(
            f"{where} has {len(entries)} files, more than {most} of "
            "max_number_of_files; write globs that begin with a folder"
        )
    found = [one for one in entries if matches(one.path)]
    if all(one.kind is TreeEntryKind.FILE for one in found):
        found.sort(key=lambda one: one.path)
        return [one.path for one in found], found
    if folder:
        # Links lead anywhere in the repository.
        entries = await repository.tree(commit, recursive=True)
    target_of = partial(repository.link, commit)
    try:
        files = await followed(found, entries, target_of, matches, most)
    except CallError as error:
        raise _damaged(error) if error.status is Status.NOT_FOUND else error from None
    known = {one.path: one for one in entries}
    return [one.shown for one in files], [known[one.path] for one in files]


def _damaged(error: CallError) -> CallError:
    """Say that the repository lacks a part of a commit, which is no missing folder."""
    return CallError(Status.UNAVAILABLE, error.message)


def _unusable(why: str) -> CallError:
    return CallError(Status.FAILED_PRECONDITION, why)
