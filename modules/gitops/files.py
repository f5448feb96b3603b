"""The files of a source at a commit, within the limits of kas."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

import attrs

from modules.gitops.config import GitopsSettings
from modules.gitops.globs import Glob
from modules.gitops.links import followed
from tunnel.errors import CallError, Status
from tunnel.interfaces import IRepository, TreeEntry, TreeEntryKind

__all__ = ["source_files"]

#: Replacement for bytes in the name of a file that are not UTF-8.
_REPLACED = "\N{REPLACEMENT CHARACTER}"


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
    :returns: paths and contents.
    :raises CallError: NOT_FOUND, the commit can be read but has no such folder;
        FAILED_PRECONDITION, the files cannot be used; otherwise as `IRepository`, the
        repository cannot be read now.
    """
    each, total = limits.max_manifest_file_size, limits.max_total_manifest_file_size

    chosen = _Chosen(globs, hidden_folders)
    names, files = await _matching(repository, commit, chosen, limits)
    # The name contains bytes that are not UTF-8; kas cannot request it from Gitaly.
    odd = [name for name in names if _REPLACED in name]
    for name, count in Counter(odd).items():
        if count > 1:
            raise _not_text(name)
    try:
        contents = await repository.read_files(commit, files, limit=each, total=total)
    except CallError as error:
        if error.status is Status.NOT_FOUND:
            raise _not_text(odd[0]) if odd else _damaged(error) from None
        if error.status is not Status.RESOURCE_EXHAUSTED:
            raise
        raise _unusable(error.message) from None
    for shown, data in zip(names, contents, strict=True):
        yield shown, data


#: Characters of paths times characters of globs that are compared for one source: the
#: maximum blocks kas for half a second, or two at worst. A thousand paths of a hundred
#: characters and ten globs of thirty need a sixteenth of it.
MAX_STEPS = 500_000_000


@attrs.define
class _Chosen:
    """The globs of a source, with a limit of work."""

    _globs: Sequence[Glob]
    _hidden_folders: bool
    #: The rest of `MAX_STEPS`.
    _steps: int = attrs.field(default=MAX_STEPS, init=False)

    @property
    def folder(self) -> str:
        """The folder that contains all files of the source; empty for the root."""
        return posixpath.commonpath([f"/{glob.prefix}" for glob in self._globs])[1:]

    def matches(self, path: str) -> bool:
        """Tell whether a path belongs to the source."""
        self._take(path)
        hidden = self._hidden_folders
        return any(one.matches(path, hidden_folders=hidden) for one in self._globs)

    def leads(self, path: str) -> bool:
        """Tell whether the globs name a path as a folder on the way to files."""
        self._take(path)
        hidden = self._hidden_folders
        return any(one.leads_below(path, hidden_folders=hidden) for one in self._globs)

    def _take(self, path: str) -> None:
        """
        Count the steps for a path.

        :raises CallError: FAILED_PRECONDITION, the limit is exceeded.
        """
        self._steps -= sum(one.steps(path) for one in self._globs)
        if self._steps < 0:
            raise _unusable(
                "the paths of the source's files are too many or too long for its "
                "globs: write fewer or shorter globs, which begin with a folder"
            )


async def _matching(
    repository: IRepository, commit: str, chosen: _Chosen, limits: GitopsSettings
) -> tuple[list[str], list[TreeEntry]]:
    """Return the paths of the files, as links show them, and their entries."""
    folder, most = chosen.folder, limits.max_number_of_files
    try:
        entries = await repository.tree(commit, folder, recursive=True)
    except CallError as error:
        if error.status is not Status.NOT_FOUND:
            raise
        entries = []
    # Git has no empty folders: without entries it is missing, or not a folder.
    is_folder = bool(entries) or not folder
    if len(entries) > most:
        where = f"the folder {folder}" if folder else "the repository"
        raise _unusable(
            f"{where} has {len(entries)} files, more than {most} of "
            "max_number_of_files; write globs that begin with a folder"
        )
    found = [one for one in entries if chosen.matches(one.path)]
    ways = [
        one
        for one in entries
        if one.kind is TreeEntryKind.LINK
        and not chosen.matches(one.path)
        and chosen.leads(one.path)
    ]
    if is_folder and not ways and all(one.kind is TreeEntryKind.FILE for one in found):
        found.sort(key=lambda one: one.path)
        return [one.path for one in found], found
    if folder:
        # Links can lead anywhere in the repository.
        entries = await repository.tree(commit, recursive=True)
    known = {one.path: one for one in entries}
    link = None if is_folder else _link_to(folder, commit, known)
    if link is not None:
        ways = [link]
    target_of = partial(repository.link, commit)
    try:
        files = await followed(
            found, entries, target_of, chosen.matches, most, chosen.leads, ways
        )
    except CallError as error:
        raise _damaged(error) if error.status is Status.NOT_FOUND else error from None
    if link is not None and not files:
        raise CallError(
            Status.NOT_FOUND,
            f"commit {commit[:12]} has none of the files below {link.path}, which is a "
            "symbolic link: correct the link, or the globs",
        )
    return [one.shown for one in files], [known[one.path] for one in files]


def _link_to(folder: str, commit: str, known: Mapping[str, TreeEntry]) -> TreeEntry:
    """
    Return the symbolic link on the way to *folder*, which is not a folder itself.

    :raises CallError: no such link exists.
    """
    parts = folder.split("/")
    for end in range(1, len(parts) + 1):
        found = known.get("/".join(parts[:end]))
        if found is not None and found.kind is TreeEntryKind.LINK:
            return found
        if found is not None and found.kind is TreeEntryKind.SUBMODULE:
            raise _unusable(f"{found.path} is a submodule, which kas does not follow")
    why = f"commit {commit[:12]} has no folder {folder}"
    raise CallError(Status.NOT_FOUND, why)


def _not_text(path: str) -> CallError:
    return _unusable(
        f"the name of the file {path} is not UTF-8 ({_REPLACED} marks its bytes): "
        "rename it, or leave it out of the globs"
    )


def _damaged(error: CallError) -> CallError:
    """Return an error for a repository that lacks a part of a commit, not a folder."""
    return CallError(Status.UNAVAILABLE, error.message)


def _unusable(why: str) -> CallError:
    return CallError(Status.FAILED_PRECONDITION, why)
