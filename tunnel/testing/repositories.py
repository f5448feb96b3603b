"""`FakeRepository`: a Git repository with commits from the test."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from zope.interface import implementer

from tunnel.api import (
    GitAddress,
    GitalyAddress,
    IRepositories,
    IRepository,
    TreeEntry,
    TreeEntryKind,
)
from tunnel.errors import CallError, Status

__all__ = ["FakeRepositories", "FakeRepository"]


@implementer(IRepository)
class FakeRepository:
    """
    A repository in memory.

    :ivar resolved: the number of requests for a ref.
    :ivar down: the error of the Git server; None if the server works.
    :ivar head: the full name of the default branch, to which commits without a ref are
        added; ``HEAD`` if the repository does not report its default branch.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self.resolved = 0
        self.down: CallError | None = None
        self.head = "refs/heads/main"
        self._refs: dict[str, str] = {}
        #: The parent of each commit, by the commit's ref.
        self._parents: dict[str, str] = {}
        self._trees: dict[str, dict[str, bytes]] = {}

    def commit(self, files: Mapping[str, bytes | str], ref: str = "HEAD") -> str:
        """
        Create a commit with these files and no others at *ref*, and return its id.
        """
        number = len(self._trees) + 1
        # The name is included, so that no two repositories have a commit in common.
        text = f"{self._name} {number}".encode()
        commit = hashlib.sha1(text, usedforsecurity=False).hexdigest()
        self._trees[commit] = {
            path: text.encode() if isinstance(text, str) else text
            for path, text in files.items()
        }
        ref = self._whole(ref)
        self._parents[commit] = self._refs.get(ref, "")
        self._refs[ref] = commit
        return commit

    def rewind(self, commit: str, ref: str = "HEAD") -> None:
        """Set *ref* back to an earlier commit, as a forced push does."""
        self._refs[self._whole(ref)] = commit

    def remove(self, ref: str) -> None:
        """Remove a ref."""
        del self._refs[self._whole(ref)]

    async def resolve(self, ref: str = "HEAD") -> str:
        """See `IRepository.resolve`."""
        self.resolved += 1
        if self.down is not None:
            raise CallError(self.down.status, self.down.message)
        if ref in self._trees:
            return ref
        whole = self._whole(ref)
        if whole not in self._refs:
            raise CallError(Status.NOT_FOUND, f"the repository has no {ref}")
        return self._refs[whole]

    def _whole(self, ref: str) -> str:
        return self.head if ref == "HEAD" else ref

    async def default_branch(self) -> str:
        """See `IRepository.default_branch`."""
        return self.head

    async def tree(
        self,
        commit: str,
        path: str = "",
        *,
        recursive: bool = False,
        most: int | None = None,
    ) -> list[TreeEntry]:
        """See `IRepository.tree`."""
        files, found = self._files(commit), {}
        before = f"{path}/" if path else ""
        for name in sorted(files):
            if not name.startswith(before):
                continue
            first, slash, _ = name.removeprefix(before).partition("/")
            if slash and not recursive:
                folder = before + first
                found[folder] = TreeEntry(folder, TreeEntryKind.FOLDER, commit)
            else:
                object_id = hashlib.sha1(files[name], usedforsecurity=False)
                found[name] = TreeEntry(name, TreeEntryKind.FILE, object_id.hexdigest())
        if path and not found:
            raise CallError(Status.NOT_FOUND, f"{path!r} does not exist")
        entries = list(found.values())
        return entries if most is None else entries[: most + 1]

    async def read(self, commit: str, path: str, *, limit: int) -> bytes:
        """See `IRepository.read`."""
        files = self._files(commit)
        if path not in files:
            raise CallError(Status.NOT_FOUND, f"{path!r} does not exist")
        if len(files[path]) > limit:
            text = f"{path!r} has more than {limit} bytes"
            raise CallError(Status.RESOURCE_EXHAUSTED, text)
        return files[path]

    async def read_files(
        self, commit: str, files: Sequence[TreeEntry], *, limit: int, total: int
    ) -> list[bytes]:
        """See `IRepository.read_files`."""
        known = self._files(commit).values()
        data = {
            hashlib.sha1(one, usedforsecurity=False).hexdigest(): one for one in known
        }
        found: list[bytes] = []
        for one in files:
            found.append(data[one.object_id])
            if len(found[-1]) > limit:
                text = f"{one.path} has more than {limit} bytes"
                raise CallError(Status.RESOURCE_EXHAUSTED, text)
            if sum(map(len, found)) > total:
                text = f"all files together have more than {total} bytes"
                raise CallError(Status.RESOURCE_EXHAUSTED, text)
        return found

    async def link(self, commit: str, path: str) -> str:
        """See `IRepository.link`; a repository in memory has no links."""
        self._files(commit)
        raise CallError(Status.FAILED_PRECONDITION, f"{path!r} is not a symbolic link")

    async def changed(self, old: str, new: str, path: str = "") -> list[str]:
        """See `IRepository.changed`."""
        before, after = self._files(old), self._files(new)
        names = sorted(before.keys() | after.keys())
        return [
            name
            for name in names
            if before.get(name) != after.get(name)
            and (not path or name == path or name.startswith(f"{path}/"))
        ]

    async def contains(self, ref: str, commit: str) -> bool:
        """See `IRepository.contains`."""
        found = await self.resolve(ref)
        while found and found != commit:
            found = self._parents.get(found, "")
        return bool(found)

    def _files(self, commit: str) -> dict[str, bytes]:
        if commit not in self._trees:
            text = f"the commit {commit[:12]} does not exist in the repository"
            raise CallError(Status.OUT_OF_RANGE, text)
        return self._trees[commit]


@implementer(IRepositories)
class FakeRepositories:
    """Repositories by address; a new one is empty."""

    def __init__(self) -> None:
        self._known: dict[GitAddress | GitalyAddress, FakeRepository] = {}

    def open(self, address: GitAddress | GitalyAddress) -> FakeRepository:
        """See `IRepositories.open`."""
        return self._known.setdefault(address, FakeRepository(str(address)))
