"""
Table of repositories, so that each repository is opened only once for all callers.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from weakref import WeakValueDictionary

import attrs
from zope.interface import implementer

from kas.git.gitaly import GitalyRepository, GitalyServers
from kas.git.http import HttpRepository
from kas.git.limits import GitLimits
from kas.git.local import LocalRepository
from kas.git.outcomes import Outcomes
from kas.git.program import GitProgram
from kas.state.directory import StateDirectory, process_name
from tunnel.api import (
    GitAddress,
    GitalyAddress,
    IRepositories,
    IRepository,
)
from tunnel.errors import CallError, Status
from tunnel.program.parts import Part
from tunnel.program.runtime import Runtime

__all__ = ["Repositories"]

#: Prefix of the names of folders with copies, in the state directory.
_PREFIX = "git-"


@implementer(IRepositories)
class Repositories(Part):
    """
    Table of the repositories that one kas has opened.

    Copies of remote repositories are in a folder of the state directory that belongs to
    this process.  The process removes the folder when it ends; if it was killed, the
    next process removes the folder.
    """

    name = "repositories"

    def __init__(
        self,
        state: StateDirectory,
        runtime: Runtime,
        limits: GitLimits | None = None,
    ) -> None:
        self._state = state
        self._limits = limits or GitLimits()
        reactor = runtime.reactor
        self._program = GitProgram(reactor, self._limits, runtime.environ)
        #: Gitaly servers in use.
        self.gitaly = GitalyServers(reactor, self._limits, runtime.now)
        self._known: dict[GitAddress, IRepository] = {}
        #: Weak references, so that unused repositories are forgotten: they hold no
        #: resources, and GitLab may name any number of them.
        self._of_gitlab: WeakValueDictionary[GitalyAddress, IRepository]
        self._of_gitlab = WeakValueDictionary()

    def start(self) -> None:
        """Remove the files of processes that are not running any more."""
        for pid, path in self._state.of_processes(_PREFIX, ""):
            if pid == os.getpid() or not _runs(pid):
                shutil.rmtree(path, ignore_errors=True)

    def stop(self) -> None:
        """Cancel all operations, and remove the copies."""
        self._program.stop()
        self.gitaly.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def commands(self) -> Outcomes:
        """Outcomes and durations of the git commands that were run."""
        return self._program.outcomes

    @property
    def copies(self) -> int:
        """Number of copies of remote repositories."""
        return sum(bool(size) for size in self._copy_sizes())

    @property
    def copy_bytes(self) -> int:
        """Size of the copies of remote repositories in bytes."""
        return sum(self._copy_sizes())

    def _copy_sizes(self) -> list[int]:
        known = self._known.values()
        return [one.copy_bytes for one in known if isinstance(one, HttpRepository)]

    @property
    def _folder(self) -> Path:
        return self._state.file(_PREFIX + process_name(os.getpid()))

    def open(self, address: GitAddress | GitalyAddress) -> IRepository:
        """See `IRepositories.open`."""
        if isinstance(address, GitalyAddress):
            of_gitlab = self._of_gitlab.get(address)
            if of_gitlab is None:
                of_gitlab = GitalyRepository(self.gitaly, address)
                self._of_gitlab[address] = of_gitlab
            return of_gitlab
        found = self._known.get(address)
        if found is None:
            if len(self._known) >= self._limits.repositories:
                text = f"kas already has {len(self._known)} Git repositories"
                raise CallError(Status.RESOURCE_EXHAUSTED, text)
            found = self._known[address] = self._make(address)
        return found

    def _make(self, address: GitAddress) -> IRepository:
        if address.path is not None:
            return LocalRepository(self._program, address.path)
        name = hashlib.sha256(repr(attrs.astuple(address)).encode()).hexdigest()[:32]
        return HttpRepository(self._program, address, self._folder / name)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
