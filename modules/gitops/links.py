"""
Symbolic links of a repository, followed as long as they stay inside.

Git has no working tree here, so no system call can follow a link: targets are looked up
in the tree of the commit only.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple

from tunnel.errors import CallError, Status
from tunnel.interfaces import TreeEntry, TreeEntryKind

__all__ = ["SourceFile", "followed"]

#: Links on the way to one file; the limit of Linux.
MAX_HOPS = 40

#: Depth of folders that are reached through links; a circle is infinitely deep.
MAX_NESTED = 8

#: Paths that are examined for all links of a source: the maximum blocks kas for a tenth
#: of a second.
MAX_LOOKED = 200_000

#: Names in the targets of all links of a source, including intermediate links: the
#: maximum takes half a second.
MAX_NAMES = 300_000


class SourceFile(NamedTuple):
    """
    One file of a source.

    :ivar shown: its path, with the names of links in it.
    :ivar path: the path of its content.
    """

    shown: str
    path: str


class _Tree:
    """The tree of a commit, and the targets of its links."""

    def __init__(
        self, entries: Iterable[TreeEntry], target_of: Callable[[str], Awaitable[str]]
    ) -> None:
        self.entries = {one.path: one for one in entries}
        self._folders: set[str] = set()
        for path in self.entries:
            self._add_folders_of(path)
        self._names = 0
        self._target_of = target_of
        self._targets: dict[str, str] = {}

    def _add_folders_of(self, path: str) -> None:
        # The parents of a known folder are known as well.
        while (path := posixpath.dirname(path)) and path not in self._folders:
            self._folders.add(path)

    async def end_of(self, link: str) -> str:
        """
        Return the final target of a link.

        :raises ValueError: it is not in the repository; the reason is in the text.
        """
        # Like the kernel: name by name, with ".." relative to the resolved path.
        waiting, done, hops = [link], list[str](), 0
        while waiting:
            name, slash, rest = waiting.pop().partition("/")
            self._names += 1
            if self._names > MAX_NAMES:
                raise ValueError(
                    "is one too many: all links lead over more than "
                    f"{MAX_NAMES} files and folders"
                )
            if slash:
                waiting.append(rest)
            if name in ("", "."):
                continue
            if name == "..":
                if not done:
                    raise ValueError("leads out of the repository")
                done.pop()
                continue
            here = "/".join([*done, name])
            entry = self.entries.get(here)
            if entry is None and here not in self._folders:
                raise ValueError("leads to nothing in the commit")
            if entry is None or entry.kind is TreeEntryKind.FILE:
                done.append(name)
                continue
            if entry.kind is not TreeEntryKind.LINK:
                raise ValueError("leads to a submodule, which kas does not follow")
            hops += 1
            if hops > MAX_HOPS:
                raise ValueError(f"leads over more than {MAX_HOPS} links")
            target = await self._target(here)
            if target.startswith("/"):
                raise ValueError("leads out of the repository")
            waiting.append(target)
        return "/".join(done)

    async def _target(self, link: str) -> str:
        if link not in self._targets:
            self._targets[link] = await self._target_of(link)
        return self._targets[link]

    def below(self, folder: str) -> Iterator[TreeEntry]:
        """Return everything in a folder and its subfolders."""
        before = f"{folder}/" if folder else ""
        return (one for path, one in self.entries.items() if path.startswith(before))


async def followed(
    chosen: Iterable[TreeEntry],
    entries: Iterable[TreeEntry],
    target_of: Callable[[str], Awaitable[str]],
    matches: Callable[[str], bool],
    most: int,
    leads: Callable[[str], bool] = lambda path: False,
    ways: Iterable[TreeEntry] = (),
) -> list[SourceFile]:
    """
    Return the files of a source, including the targets of links.

    :param chosen: the files, links and submodules that belong to the source.
    :param entries: all entries of the commit.
    :param target_of: returns the target of the link at a path.
    :param matches: whether a path below a link to a folder belongs to the source.
    :param most: the maximum of files.
    :param leads: whether a path is a folder on the way to files of the source.
    :param ways: links that are such folders.
    :raises CallError: FAILED_PRECONDITION, a link leads out of the repository or to
        nothing, or there are too many.
    """
    tree = _Tree(entries, target_of)
    found: list[SourceFile] = []
    looked = 0

    async def take(
        entry: TreeEntry, shown: str, nested: int, is_way: bool = False
    ) -> None:
        if entry.kind is TreeEntryKind.FILE:
            found.append(SourceFile(shown, entry.path))
            if len(found) > most:
                raise _unusable(
                    f"there are more than {most} files (max_number_of_files), "
                    "including the targets of symbolic links"
                )
            return
        if entry.kind is TreeEntryKind.SUBMODULE:
            raise _unusable(f"{shown} is a submodule, which kas does not follow")
        try:
            end = await tree.end_of(entry.path)
        except ValueError as error:
            raise _unusable(f"{shown} is a symbolic link that {error}") from None
        target = tree.entries.get(end)
        if target is not None:
            # Nothing is below a file.
            if not is_way:
                await take(target, shown, nested)
            return
        if nested >= MAX_NESTED:
            raise _unusable(
                f"{shown}: symbolic links lead to folders within each other, more "
                f"than {MAX_NESTED} deep, or in a circle"
            )
        nonlocal looked
        looked += len(tree.entries)
        if looked > MAX_LOOKED:
            raise _unusable(f"{shown}: too many symbolic links lead to folders")
        for one in tree.below(end):
            path = f"{shown}/{posixpath.relpath(one.path, end or '.')}"
            if matches(path):
                await take(one, path, nested + 1)
            elif one.kind is TreeEntryKind.LINK and leads(path):
                await take(one, path, nested + 1, is_way=True)

    for entry in chosen:
        await take(entry, entry.path, 0)
    for entry in ways:
        await take(entry, entry.path, 0, is_way=True)
    return sorted(found)


def _unusable(why: str) -> CallError:
    return CallError(Status.FAILED_PRECONDITION, why)
