"""Repositories on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zope.interface import implementer

from kas.git.names import full_ref
from kas.git.objects import Objects
from kas.git.program import GitProgram
from tunnel.api import IRepository, TreeEntry

__all__ = ["LocalRepository"]


@implementer(IRepository)
class LocalRepository:
    """A repository on this machine that receives pushes from other programs."""

    def __init__(self, program: GitProgram, path: Path) -> None:
        self._objects = Objects(program, str(path))

    async def resolve(self, ref: str = "HEAD") -> str:
        """See `IRepository.resolve`."""
        return await self._objects.find(full_ref(ref))

    async def default_branch(self) -> str:
        """See `IRepository.default_branch`."""
        return await self._objects.default_branch()

    async def tree(
        self,
        commit: str,
        path: str = "",
        *,
        recursive: bool = False,
        most: int | None = None,
    ) -> list[TreeEntry]:
        """See `IRepository.tree`."""
        return await self._objects.tree(commit, path, recursive, most)

    async def read(self, commit: str, path: str, *, limit: int) -> bytes:
        """See `IRepository.read`."""
        return await self._objects.read(commit, path, limit)

    async def read_files(
        self, commit: str, files: Sequence[TreeEntry], *, limit: int, total: int
    ) -> list[bytes]:
        """See `IRepository.read_files`."""
        return await self._objects.read_files(files, limit, total)

    async def link(self, commit: str, path: str) -> str:
        """See `IRepository.link`."""
        return await self._objects.link(commit, path)

    async def changed(self, old: str, new: str, path: str = "") -> list[str]:
        """See `IRepository.changed`."""
        return await self._objects.changed(old, new, path)

    async def contains(self, ref: str, commit: str) -> bool:
        """See `IRepository.contains`."""
        return await self._objects.contains(await self.resolve(ref), commit)
