"""Files of a source at a commit, within the limits of kas."""

from __future__ import annotations

import posixpath
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from functools import partial

import attrs

from modules.gitops.server.config import GitopsSettings
from modules.gitops.server.globs import SKIPPING, Glob
from modules.gitops.server.links import PATH, Unusable, followed
from modules.gitops.server.step_scheduler import COMPILING, LISTING, SLICE, Work
from tunnel.api import IRepository, TreeEntry, TreeEntryKind
from tunnel.errors import CallError, Status

__all__ = ["FoundFiles", "SourceRequest", "source_files"]

#: Replacement for bytes in the name of a file that are not UTF-8.
_REPLACED = "\N{REPLACEMENT CHARACTER}"


#: Maximum characters of names of files, and of globs, that kas remembers.
MAX_KEPT = 10_000_000

#: Memory that an outcome takes, and memory that each file in it takes, without names;
#: counted as characters.
_OUTCOME, _FILE = 1000, 300

_Found = tuple[list[str], list[TreeEntry]]


@attrs.frozen
class SourceRequest:
    """
    Choice of files at a commit.

    :ivar repository: id of the repository.
    :ivar hidden_folders: see `Glob.matches`.
    """

    repository: Hashable
    commit: str
    globs: Sequence[Glob]
    hidden_folders: bool = False

    @property
    def key(self) -> Hashable:
        """
        Key of the outcome in a cache, which is always valid because a commit never
        changes.
        """
        globs = tuple(one.text for one in self.globs)
        return self.repository, self.commit, globs, self.hidden_folders


class FoundFiles:
    """Cache of outcomes that took long to find: the files of a source, or a refusal."""

    def __init__(self) -> None:
        #: Outcomes, each with its number of characters; the most recently used outcome
        #: comes last.
        self._kept: OrderedDict[Hashable, tuple[int, _Found | CallError]] = (
            OrderedDict()
        )
        self._characters = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, source: SourceRequest) -> _Found | None:
        """
        Return the cached outcome for a source; None if no outcome is cached.

        :raises CallError: if the outcome is a refusal.
        """
        kept = self._kept.get(source.key)
        if kept is None:
            return None
        self._kept.move_to_end(source.key)
        if isinstance(kept[1], CallError):
            raise CallError(kept[1].status, kept[1].message)
        return kept[1]

    def put(self, source: SourceRequest, outcome: _Found | CallError) -> None:
        """Keep an outcome, and drop the least recently used ones if necessary."""
        size = _OUTCOME + sum(len(glob.text) for glob in source.globs)
        if isinstance(outcome, CallError):
            size += len(outcome.message)
        else:
            size += sum(map(len, outcome[0])) + sum(len(one.path) for one in outcome[1])
            size += _FILE * len(outcome[1])
        if size > MAX_KEPT:
            return
        if source.key in self._kept:
            self._characters -= self._kept.pop(source.key)[0]
        self._kept[source.key] = size, outcome
        self._characters += size
        while self._characters > MAX_KEPT:
            self._characters -= self._kept.popitem(last=False)[1][0]


async def source_files(
    repository: IRepository,
    source: SourceRequest,
    limits: GitopsSettings,
    work: Work,
    kept: FoundFiles,
) -> AsyncIterator[tuple[str, bytes]]:
    """
    Read the files of a source, sorted by path.

    :returns: paths and contents.
    :raises CallError: NOT_FOUND if the commit can be read but has no such folder;
        FAILED_PRECONDITION if the files cannot be used; otherwise as in `IRepository`,
        if the repository cannot be read now.
    """
    each, total = limits.max_manifest_file_size, limits.max_total_manifest_file_size
    commit = source.commit

    names, files = kept.get(source) or await _found(
        repository, source, limits, work, kept
    )
    # The name contains bytes that are not UTF-8, so kas cannot request the file from
    # Gitaly.
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
        raise Unusable(error.message) from None
    for shown, data in zip(names, contents, strict=True):
        yield shown, data


async def _found(
    repository: IRepository,
    source: SourceRequest,
    limits: GitopsSettings,
    work: Work,
    kept: FoundFiles,
) -> _Found:
    """Find the files, and cache the outcome if that took more than one turn."""
    chosen = _Chosen(source.globs, source.hidden_folders, work)
    try:
        found = await _matching(repository, source.commit, chosen, limits)
    except Unusable as error:
        # Refusals of the Git server itself may be transient.
        if work.total > SLICE:
            kept.put(source, error)
        raise
    if work.total > SLICE:
        kept.put(source, found)
    return found


#: Maximum product of the characters of paths and of globs that are compared for one
#: source: the maximum takes one or two seconds, in turns.  A thousand paths of a
#: hundred characters and ten globs of thirty characters need a sixteenth of this
#: number.
MAX_STEPS = 500_000_000

#: Maximum number of steps for one path and one glob: the maximum blocks kas for tens of
#: milliseconds.
MAX_STEPS_OF_PATH = 10_000_000


@attrs.define
class _Chosen:
    """Globs of a source, with a limit on the work of comparing paths."""

    _globs: Sequence[Glob]
    _hidden_folders: bool
    _work: Work
    #: Remaining steps of `MAX_STEPS`.
    _steps: int = attrs.field(factory=lambda: MAX_STEPS, init=False)
    #: Compiled globs, each by its position and whether it is compiled for `leads`.
    _compiled: set[tuple[int, bool]] = attrs.field(factory=set, init=False)

    @property
    def folder(self) -> str:
        """Folder that contains all files of the source; empty for the root."""
        return posixpath.commonpath([f"/{glob.prefix}" for glob in self._globs])[1:]

    async def matches(self, path: str) -> bool:
        """See `Choice.matches`."""
        hidden = self._hidden_folders
        for place, one in enumerate(self._globs):
            if one.is_outside(path):
                await self._work.take(SKIPPING)
                continue
            await self._compare(one.steps(path), one, (place, False))
            if one.matches(path, hidden_folders=hidden):
                return True
        return False

    async def leads(self, path: str) -> bool:
        """See `Choice.leads`."""
        hidden = self._hidden_folders
        for place, one in enumerate(self._globs):
            if one.is_outside(path):
                await self._work.take(SKIPPING)
                continue
            await self._compare(one.steps(path), one, (place, True))
            if one.leads_below(path, hidden_folders=hidden):
                return True
        return False

    async def take(self, steps: int) -> None:
        """See `Choice.take`."""
        await self._work.take(steps)

    async def _compare(self, steps: int, glob: Glob, kind: tuple[int, bool]) -> None:
        """
        Count the steps for a path and a glob.

        :raises CallError: FAILED_PRECONDITION if the limit is exceeded.
        """
        self._steps -= steps
        if self._steps < 0 or steps > MAX_STEPS_OF_PATH:
            raise Unusable(
                "the source has too many files, or paths that are too long, for its "
                "globs: write fewer or shorter globs, each beginning with a folder"
            )
        if kind not in self._compiled:
            self._compiled.add(kind)
            await self._work.take(COMPILING * glob.cost)
        await self._work.take(steps)


async def _matching(
    repository: IRepository, commit: str, chosen: _Chosen, limits: GitopsSettings
) -> _Found:
    """Return the paths of the files, as links show them, and their entries."""
    folder, most = chosen.folder, limits.max_number_of_files
    try:
        entries = await repository.tree(commit, folder, recursive=True, most=most)
    except CallError as error:
        if error.status is not Status.NOT_FOUND:
            raise
        if not folder:
            # Report the missing root as damage, because every commit has a root, and an
            # empty source would prune all objects.
            raise _damaged(error) from None
        entries = []
    # Git has no empty folders: a folder without entries is either missing, or not a
    # folder.
    is_folder = bool(entries) or not folder
    await chosen.take(LISTING * len(entries))
    if len(entries) > most:
        where = f"the folder {folder}" if folder else "the repository"
        raise Unusable(
            f"{where} has more than {most} files (max_number_of_files); write globs "
            "that begin with a folder"
        )
    found, ways = list[TreeEntry](), list[TreeEntry]()
    for one in entries:
        if await chosen.matches(one.path):
            found.append(one)
        elif one.kind is TreeEntryKind.LINK and await chosen.leads(one.path):
            ways.append(one)
    if is_folder and not ways and all(one.kind is TreeEntryKind.FILE for one in found):
        found.sort(key=lambda one: one.path)
        return [one.path for one in found], found
    if folder:
        # Read the whole tree, because links can lead anywhere in the repository.
        try:
            entries = await repository.tree(commit, recursive=True)
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                raise
            raise _damaged(error) from None
        await chosen.take((LISTING + PATH) * len(entries))
    known = {one.path: one for one in entries}
    link = None if is_folder else _link_to(folder, commit, known)
    if link is not None:
        ways = [link]
    target_of = partial(repository.link, commit)
    try:
        files = await followed(found, entries, target_of, chosen, most, ways)
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

    :raises CallError: if no such link exists, or the folder exists after all.
    """
    below = f"{folder}/"
    if any(path.startswith(below) for path in known):
        # Refuse the commit, because an absent folder would prune the objects of its
        # files.
        raise CallError(
            Status.UNAVAILABLE,
            f"the Git server contradicts itself: commit {commit[:12]} has files below "
            f"{folder}, and has no such folder",
        )
    parts = folder.split("/")
    for end in range(1, len(parts) + 1):
        found = known.get("/".join(parts[:end]))
        if found is not None and found.kind is TreeEntryKind.LINK:
            return found
        if found is not None and found.kind is TreeEntryKind.SUBMODULE:
            raise Unusable(f"{found.path} is a submodule, which kas does not follow")
    why = f"commit {commit[:12]} has no folder {folder}"
    raise CallError(Status.NOT_FOUND, why)


def _not_text(path: str) -> Unusable:
    return Unusable(
        f"the name of the file {path} is not UTF-8 ({_REPLACED} marks its bytes): "
        "rename it, or leave it out of the globs"
    )


def _damaged(error: CallError) -> CallError:
    """
    Return an error that says that a repository lacks a part of a commit, and not a
    folder.
    """
    return CallError(Status.UNAVAILABLE, error.message)
