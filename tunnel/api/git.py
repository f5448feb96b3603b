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
    Place of a Git repository: a folder of this machine, or a URL of a Git server.

    :ivar path: the folder of a bare repository, or of a repository with a working tree,
        which is ignored.
    :ivar url: ``https://...`` or ``http://...``, without user name and password.
    :ivar credentials_file: a file with one line, ``user:password``, for the server.
    :ivar ca_certificate_file: PEM certificates of CAs to trust for the server, instead
        of the system's.
    """

    path: Path | None = None
    url: str = ""
    credentials_file: Path | None = None
    ca_certificate_file: Path | None = None


@attrs.frozen(kw_only=True)
class GitalyAddress:
    """
    Place of a GitLab repository: its Gitaly server, as GitLab reports it.

    :ivar address: ``tcp://host:port``, ``tls://host:port`` or ``unix:/path``.
    :ivar features: names and values of metadata that kas sends with each call.
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
    #: A symbolic link; the methods of `IRepository` do not follow it.
    LINK = "link"
    SUBMODULE = "submodule"


@attrs.frozen
class TreeEntry:
    """
    One entry of a tree.

    :ivar path: path from the root of the tree, with ``/``.
    :ivar object_id: Git's id of the content: files with the same id have the same
        content.
    """

    path: str
    kind: TreeEntryKind
    object_id: str


class IRepository(Interface):
    """
    One Git repository, read without a working tree: kas never runs anything from it.

    Every error is a `tunnel.errors.CallError`: INVALID_ARGUMENT for invalid refs, paths
    and ids; NOT_FOUND if the ref or path does not exist; OUT_OF_RANGE if the commit is
    not available any more, so resolve again; FAILED_PRECONDITION if the path is not a
    file; RESOURCE_EXHAUSTED if a limit was exceeded; PERMISSION_DENIED if the Git
    server refuses kas; UNAVAILABLE if the Git server is unreachable; DEADLINE_EXCEEDED
    after a timeout.

    A commit from `resolve` can be read until many other commits have been resolved.
    """

    def resolve(ref: str = "HEAD") -> Awaitable[str]:
        """
        Return the current commit of *ref* at the repository's server.

        Callers that wait for the same ref share one fetch, which begins after the call.

        :param ref: a branch, a full name (``refs/tags/v1``), ``HEAD`` (the default
            branch), or the id of a commit, which can be read afterwards if it exists.
        """

    def default_branch() -> Awaitable[str]:
        """
        Return the full name of the default branch (``refs/heads/main``).

        Returns ``HEAD`` if the repository does not report its default branch.
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
        :param most: number of entries that the caller can use; of a larger folder, only
            the first *most* + 1 are read and returned.
        """

    def read(commit: str, path: str, *, limit: int) -> Awaitable[bytes]:
        """
        Return the content of the file *path* of a commit.

        :param limit: maximum size in bytes; a larger file is not read, and causes
            RESOURCE_EXHAUSTED.
        """

    def read_files(
        commit: str, files: Sequence[TreeEntry], *, limit: int, total: int
    ) -> Awaitable[list[bytes]]:
        """
        Return the contents of *files*, in their order.

        :param files: entries that `tree` returned for *commit*.
        :param limit: maximum number of bytes of one file.
        :param total: maximum number of bytes of all files; kas reads no more than
            either limit.
        """

    def link(commit: str, path: str) -> Awaitable[str]:
        """
        Return the target of the symbolic link *path* of a commit, as written.

        A caller that follows the link must check that the target is inside the
        repository.
        """

    def changed(old: str, new: str, path: str = "") -> Awaitable[list[str]]:
        """
        Return the paths of the files below *path* that differ between two commits.

        :raises CallError: OUT_OF_RANGE if one of the commits is not available any more;
            treat every file as changed.
        """

    def contains(ref: str, commit: str) -> Awaitable[bool]:
        """
        Tell whether *commit* is in the history of *ref* now.

        The result is False if the repository does not have the commit.

        :param ref: as for `resolve`.
        :param commit: the full id.
        """


class IRepositories(Interface):
    """Git repositories; all modules share them, so that kas fetches each only once."""

    def open(address: GitAddress | GitalyAddress) -> IRepository:
        """
        Return the repository at *address*, without sending a request yet; equal
        addresses return the same object.
        """
