"""Git repositories, read commit by commit."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Sequence,
)
from enum import Enum
from pathlib import Path

import attrs
from zope.interface import Interface

__all__ = [
    "GitAddress",
    "GitalyAddress",
    "IRepositories",
    "IRepository",
    "TreeEntry",
    "TreeEntryKind",
]


@attrs.frozen(kw_only=True)
class GitAddress:
    """
    Where a Git repository is: in a folder of this machine, or at a Git server.

    :ivar path: the folder, bare or with a working tree, which is not looked at.
    :ivar url: ``https://...`` or ``http://...``, without user name and password.
    :ivar credentials_file: one line, ``user:password``, for the server.
    :ivar ca_certificate_file: PEM certificates that sign the server's, in place of the
        system's.
    """

    path: Path | None = None
    url: str = ""
    credentials_file: Path | None = None
    ca_certificate_file: Path | None = None


@attrs.frozen(kw_only=True)
class GitalyAddress:
    """
    A repository of GitLab, and the Gitaly that has it: as GitLab says it.

    :ivar address: ``tcp://host:port``, ``tls://host:port`` or ``unix:/path``.
    :ivar features: names and values of metadata that each call has.
    """

    address: str
    token: str = attrs.field(default="", repr=False)
    features: tuple[tuple[str, str], ...] = ()
    storage_name: str = ""
    relative_path: str = ""
    git_object_directory: str = ""
    git_alternate_object_directories: tuple[str, ...] = ()
    gl_repository: str = ""
    gl_project_path: str = ""


class TreeEntryKind(Enum):
    """Kinds of entries of a tree."""

    FILE = "file"
    FOLDER = "folder"
    #: A symbolic link: a repository follows none by itself.
    LINK = "link"
    SUBMODULE = "submodule"


@attrs.frozen
class TreeEntry:
    """
    One path of a tree.

    :ivar path: from the root of the tree, with ``/``.
    :ivar object_id: two files of one id have the same content.
    """

    path: str
    kind: TreeEntryKind
    object_id: str


class IRepository(Interface):
    """
    One Git repository, read without a working tree: nothing in it ever runs.

    All errors are a `tunnel.errors.CallError`: INVALID_ARGUMENT, for impossible refs,
    paths and ids; NOT_FOUND, the ref or path does not exist; OUT_OF_RANGE, the commit
    is not available any more: resolve again; FAILED_PRECONDITION, the path is not a
    file; RESOURCE_EXHAUSTED, a limit was exceeded; PERMISSION_DENIED, the Git server
    refuses kas; UNAVAILABLE, the Git server is unreachable; DEADLINE_EXCEEDED, a
    timeout.

    A commit from `resolve` can be read until many other commits have been resolved.
    """

    def resolve(ref: str = "HEAD") -> Awaitable[str]:
        """
        Return the current commit of *ref* at the repository's server.

        Callers that wait for the same ref share one fetch, which begins after the call.

        :param ref: a branch, a full name (``refs/tags/v1``), ``HEAD`` (the default
            branch), or the id of a commit; if it exists, it can be read from then on.
        """

    def default_branch() -> Awaitable[str]:
        """
        Return the whole name of the default branch (``refs/heads/main``).

        ``HEAD`` if the repository does not say which branch that is.
        """

    def tree(
        commit: str,
        path: str = "",
        *,
        recursive: bool = False,
        most: int | None = None,
    ) -> Awaitable[list[TreeEntry]]:
        """
        List the folder *path* of a commit, in Git's order.

        :param recursive: list all files, links and submodules below it, but no folders.
        :param most: entries that the caller can use: of a larger folder, only the first
            *most* + 1 are read and returned.
        """

    def read(commit: str, path: str, *, limit: int) -> Awaitable[bytes]:
        """
        Return the content of the file *path* of a commit.

        :param limit: bytes; a larger file is RESOURCE_EXHAUSTED, and not read.
        """

    def read_files(
        commit: str, files: Sequence[TreeEntry], *, limit: int, total: int
    ) -> Awaitable[list[bytes]]:
        """
        Return the contents of *files*, in their order.

        :param files: entries that `tree` returned for *commit*.
        :param limit: bytes of one file.
        :param total: bytes of all of them; neither is read beyond its limit.
        """

    def link(commit: str, path: str) -> Awaitable[str]:
        """
        Return the target of the symbolic link *path* of a commit, as written.

        This method does not follow it; a caller that does must check that it stays
        inside.
        """

    def changed(old: str, new: str, path: str = "") -> Awaitable[list[str]]:
        """
        Paths of the files below *path* that differ between two commits.

        :raises CallError: OUT_OF_RANGE, one of the two is not here any more: take
            everything for changed.
        """

    def contains(ref: str, commit: str) -> Awaitable[bool]:
        """
        Tell whether *commit* is in the history of *ref* now.

        A commit that the repository does not have is in no history.

        :param ref: as for `resolve`.
        :param commit: the whole id.
        """


class IRepositories(Interface):
    """Git repositories, which all modules share: each is fetched once for all."""

    def open(address: GitAddress | GitalyAddress) -> IRepository:
        """
        Return the repository at *address*; equal addresses return the same object, and
        no request is sent yet.
        """
