"""
Symbolic links of a repository, followed as long as their targets are inside the
repository.

kas has no working tree, so no system call can follow a link: targets are looked up only
in the tree of the commit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from tunnel.api import TreeEntry, TreeEntryKind
from tunnel.errors import CallError, Status

__all__ = ["SourceFile", "Unusable", "followed"]

#: Maximum number of links on the way to one file; the limit of Linux.
MAX_HOPS = 40

#: Maximum depth of folders that are reached through links, because a circle of links is
#: infinitely deep.
MAX_NESTED = 8

#: Maximum number of paths below all links of a source that lead to folders.
MAX_LOOKED = 200_000

#: Maximum number of names in the targets of all links of a source, including
#: intermediate links.
MAX_NAMES = 300_000

#: Maximum characters of all paths that are built for the links of a source.
MAX_CHARACTERS = 40_000_000

#: Cost of examining one path of a commit, and cost of examining one name of a link, in
#: steps.
PATH, NAME = 300, 100


class Unusable(CallError):
    """
    Error for files that kas itself refuses, because it would refuse the same commit
    again.
    """

    def __init__(self, why: str) -> None:
        super().__init__(Status.FAILED_PRECONDITION, why)


class Choice(Protocol):
    """Interface that chooses the paths that belong to a source."""

    async def matches(self, path: str) -> bool:
        """Return whether a path belongs to the source."""

    async def leads(self, path: str) -> bool:
        """Return whether a path is a folder on the way to files of the source."""

    async def take(self, steps: int) -> None:
        """Wait for a turn to do *steps* of work."""


class SourceFile(NamedTuple):
    """
    One file of a source.

    :ivar shown: the path of the file, with the names of the links that lead to it.
    :ivar path: the path of the file's content in the commit.
    """

    shown: str
    path: str


class _Tree:
    """Tree of a commit, and the targets of its links."""

    def __init__(
        self,
        entries: Iterable[TreeEntry],
        target_of: Callable[[str], Awaitable[str]],
        take: Callable[[int], Awaitable[None]],
    ) -> None:
        self.entries = {one.path: one for one in entries}
        self._paths = sorted(self.entries)
        self._names = 0
        self._characters = 0
        self._target_of = target_of
        self._targets: dict[str, str] = {}
        self._take = take

    async def end_of(self, link: str) -> str:
        """
        Return the final target of a link.

        :raises ValueError: if the target is not in the repository; the error contains
            the reason.
        """
        # Resolve each name as the kernel does: ``..`` is relative to the resolved path.
        waiting, hops = link.split("/")[::-1], 0
        # Parents of the resolved path, and the resolved path.
        done, here = list[str](), ""
        while waiting:
            name = waiting.pop()
            self._names += 1
            if self._names > MAX_NAMES:
                raise ValueError(
                    "exceeds the limit: all links of the repository pass through more "
                    f"than {MAX_NAMES} files and folders"
                )
            if name in ("", "."):
                continue
            if name == "..":
                if not done:
                    raise ValueError("leads out of the repository")
                here = done.pop()
                continue
            path = f"{here}/{name}" if here else name
            await self.count(path)
            entry = self.entries.get(path)
            if entry is None and next(self._below(path), None) is None:
                raise ValueError("leads to nothing in the commit")
            if entry is None or entry.kind is TreeEntryKind.FILE:
                done.append(here)
                here = path
                continue
            if entry.kind is not TreeEntryKind.LINK:
                raise ValueError("leads to a submodule, which kas does not follow")
            hops += 1
            if hops > MAX_HOPS:
                raise ValueError(f"leads over more than {MAX_HOPS} links")
            target = await self._target(path)
            if target.startswith("/"):
                raise ValueError("leads out of the repository")
            names = target.split("/")
            await self._take(NAME * len(names))
            waiting += reversed(names)
        return here

    async def count(self, path: str) -> None:
        """
        Count the characters of a path.

        :raises ValueError: if the paths of all links have too many characters.
        """
        self._characters += len(path)
        if self._characters > MAX_CHARACTERS:
            raise ValueError(
                "leads too far: the paths of all links have more than "
                f"{MAX_CHARACTERS} characters"
            )
        await self._take(PATH + len(path))

    async def _target(self, link: str) -> str:
        if link not in self._targets:
            self._targets[link] = await self._target_of(link)
        return self._targets[link]

    def below(self, folder: str) -> Iterator[tuple[str, TreeEntry]]:
        """
        Yield each file, link and submodule in a folder and its subfolders, with its
        relative path.
        """
        skipped = len(folder) + 1 if folder else 0
        return ((path[skipped:], self.entries[path]) for path in self._below(folder))

    def _below(self, folder: str) -> Iterator[str]:
        before = f"{folder}/" if folder else ""
        for place in range(bisect_left(self._paths, before), len(self._paths)):
            path = self._paths[place]
            if not path.startswith(before):
                return
            yield path


async def followed(
    chosen: Iterable[TreeEntry],
    entries: Iterable[TreeEntry],
    target_of: Callable[[str], Awaitable[str]],
    choice: Choice,
    most: int,
    ways: Iterable[TreeEntry] = (),
) -> list[SourceFile]:
    """
    Return the files of a source, including the targets of links.

    :param chosen: the files, links and submodules that belong to the source.
    :param entries: all entries of the commit.
    :param target_of: returns the target of the link at a path.
    :param choice: chooses among the paths below links to folders.
    :param most: the maximum number of files.
    :param ways: links to folders that contain files of the source.
    :raises CallError: FAILED_PRECONDITION if a link leads out of the repository or to a
        missing path, or if there are too many files.
    """
    tree = _Tree(entries, target_of, choice.take)
    await choice.take(PATH * len(tree.entries))
    found: list[SourceFile] = []
    looked = 0

    async def take(
        entry: TreeEntry, shown: str, nested: int, is_way: bool = False
    ) -> None:
        if entry.kind is TreeEntryKind.FILE:
            found.append(SourceFile(shown, entry.path))
            if len(found) > most:
                raise Unusable(
                    f"there are more than {most} files (max_number_of_files), "
                    "including the targets of symbolic links"
                )
            return
        if entry.kind is TreeEntryKind.SUBMODULE:
            raise Unusable(f"{shown} is a submodule, which kas does not follow")
        try:
            end = await tree.end_of(entry.path)
        except ValueError as error:
            raise Unusable(f"{shown} is a symbolic link that {error}") from None
        target = tree.entries.get(end)
        if target is not None:
            # A file contains no other paths.
            if not is_way:
                await take(target, shown, nested)
            return
        if nested >= MAX_NESTED:
            raise Unusable(
                f"{shown}: symbolic links to folders are nested more than {MAX_NESTED} "
                "deep, or form a loop"
            )
        nonlocal looked
        for within, one in tree.below(end):
            looked += 1
            if looked > MAX_LOOKED:
                raise Unusable(f"{shown}: too many symbolic links lead to folders")
            path = f"{shown}/{within}"
            try:
                await tree.count(path)
            except ValueError as error:
                raise Unusable(f"{shown} is a symbolic link that {error}") from None
            if await choice.matches(path):
                await take(one, path, nested + 1)
            elif one.kind is TreeEntryKind.LINK and await choice.leads(path):
                await take(one, path, nested + 1, is_way=True)

    for entry in chosen:
        await take(entry, entry.path, 0)
    for entry in ways:
        await take(entry, entry.path, 0, is_way=True)
    return sorted(found)
