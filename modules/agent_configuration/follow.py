"""
Reader of one repository, for the agents whose configuration it contains.

One loop reads each repository, regardless of the number of its agents and pushes: once
per period, and earlier after the notification of a push, but at most once in
`MIN_PAUSE`. Agents get the newest state; the loop skips earlier states that were not
read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    TimeoutError,
    gatherResults,
)
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from modules.agent_configuration.document import Document, path_of, read_document
from tunnel.api import (
    GitAddress,
    GitalyAddress,
    IRepository,
    TreeEntryKind,
)
from tunnel.errors import CallError, Status, Stopping
from tunnel.toolkit.recent import Recent
from tunnel.toolkit.timers import cancel_call

__all__ = ["FollowedRepository", "Follower"]

#: Minimum seconds between two reads of a repository, however many pushes are announced.
MIN_PAUSE = 1.0

#: Seconds before a failed read is retried: first and maximum, but never more than the
#: period.
RETRY_FIRST, RETRY_MOST = 10.0, 60.0

#: Number of files that are read at the same time: the same number as kas' limit for all
#: reads.
READERS = 8

#: Maximum seconds to find out whether another address leads to this repository; and, if
#: the repository did not respond in that time, seconds without such requests after
#: that.
ALIAS_SECONDS, SILENT_SECONDS = 2.0, 60.0

#: Maximum number of remembered other addresses of one repository; modules use only a
#: few.
MAX_ALIASES = 100

#: Error for callers that wait for a commit when kas cannot read the repository.
_NOT_READ = "kas cannot read the agent's configuration now, and retries"

#: Folder that contains the files of all agents.
FOLDER = ".gitlab/agents"


class Follower:
    """
    Subscription of one agentk to its configuration; only the newest document is kept
    until it is fetched.
    """

    def __init__(self, leave: Callable[[Follower], object]) -> None:
        self._leave = leave
        self._news: Document | None = None
        self._ended = False
        self._waiter: Deferred[None] | None = None

    @property
    def has_news(self) -> bool:
        """Whether `next` returns at once."""
        return self._ended or self._news is not None

    def tell(self, document: Document) -> None:
        """Store *document* as the next one."""
        self._news = document
        self._wake()

    def end(self) -> None:
        """Note that no further document follows."""
        self._ended = True
        self._wake()

    async def next(self) -> Document | None:
        """Return the next document once it exists, or None at the end."""
        while not self.has_news:
            self._waiter = Deferred()
            try:
                await self._waiter
            finally:
                self._waiter = None
        news, self._news = self._news, None
        return None if self._ended else news

    def leave(self) -> None:
        """Stop following the configuration."""
        self._leave(self)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.called:
            waiter.callback(None)


@attrs.define(eq=False)
class _Agent:
    """State of one agent's file."""

    #: The last document sent to followers, valid or not.
    document: Document | None = None
    #: Object id of the file when it was read; empty if it did not exist; None if the
    #: file has to be read.
    object_id: str | None = None
    followers: set[Follower] = attrs.Factory(set)


@attrs.define(eq=False)
class FollowedRepository:
    """
    Reader of one branch of a repository, which reads as long as an agent follows the
    repository.

    :param name: name in messages and in notifications of pushes.
    :param on_document: called with the name of an agent and its new document.
    :param seen: called at each new commit, once for each agent whose file can be used,
        with the repository, the agent's name and its document.  The document may come
        from an earlier commit with the same content.
    :param random: returns a number between 0 and 1, so that kas does not read all
        repositories at the same time.
    """

    _log = Logger()

    name: str
    address: GitAddress | GitalyAddress
    repository: IRepository
    ref: str
    period: float
    limit: int
    clock: IReactorTime
    random: Callable[[], float]
    on_document: Callable[[str, Document], object]
    seen: Callable[[FollowedRepository, str, Document], object]
    _agents: dict[str, _Agent] = attrs.Factory(dict)
    _commit: str = ""
    #: Object ids of the files below `FOLDER` at the last known commit, by path.
    _object_ids: dict[str, str] = attrs.Factory(dict)
    #: Whether the next read also resolves the branch, instead of only reading the files
    #: that were not read yet.  A read after `_due_at` always resolves the branch.
    _due: bool = True
    _due_at: float = float("-inf")
    _again: bool = False
    _failures: int = 0
    _looked_at: float = float("-inf")
    _looking: Deferred[Any] | None = None
    #: Time until which kas does not compare the repository with another address,
    #: because the repository did not respond.
    _silent_until: float = float("-inf")
    #: Other addresses that lead to this repository.
    _aliases: Recent[GitAddress | GitalyAddress, bool] = attrs.Factory(
        lambda: Recent(MAX_ALIASES)
    )
    #: Callers that wait for the end of the current read.
    _waiting: list[Deferred[None]] = attrs.Factory(list)
    _call: Any = None

    @property
    def commit(self) -> str:
        """The last known commit of the branch; empty before the first read."""
        return self._commit

    @property
    def followed(self) -> bool:
        """Whether any agent follows this repository."""
        return bool(self._agents)

    def follow(self, agent_name: str) -> Follower:
        """
        Follow an agent's configuration: return a subscription to its current document
        and to each new document.

        :raises CallError: FAILED_PRECONDITION if an agent with this name cannot have a
            file.
        """
        path_of(agent_name)
        agent = self._agents.setdefault(agent_name, _Agent())
        follower = Follower(lambda one: self._left(agent_name, one))
        agent.followers.add(follower)
        if agent.document is not None:
            follower.tell(agent.document)
        else:
            self._look_soon()
        return follower

    def pushed(self) -> None:
        """Read the repository soon, because it may have changed."""
        self._due = True
        self._look_soon()

    async def is_of(self, address: GitAddress | GitalyAddress, commit: str) -> bool:
        """
        Return whether *address* leads to this repository.

        Two settings may spell the address of one repository differently.  If *address*
        leads to this repository, the branch points to the newest commit from *address*.

        :param commit: the newest commit from *address*.
        """
        if address == self.address or address in self._aliases:
            return True
        found = self._commit == commit or await self._is_at(commit)
        if found:
            self._aliases[address] = True
        return found

    async def _is_at(self, commit: str) -> bool:
        """
        Return whether the branch points to *commit* now; False if the repository does
        not respond.

        After a timeout, the result is False for `SILENT_SECONDS`, so that a silent
        repository does not delay other repositories.
        """
        now = self.clock.seconds()
        if now < self._silent_until:
            return False
        asking = Deferred.fromCoroutine(self._tip())
        asking.addTimeout(ALIAS_SECONDS, self.clock)
        try:
            return await asking == commit
        except CallError:
            return False
        except TimeoutError:
            self._silent_until = self.clock.seconds() + SILENT_SECONDS
            return False

    async def _tip(self) -> str:
        return await self.repository.resolve(self.ref)

    def forget_alias(self, address: GitAddress | GitalyAddress) -> None:
        """
        Forget that *address* leads to this repository, because their commits differ.
        """
        self._aliases.pop(address, None)

    async def at(self, agent_name: str, commit: str) -> bool:
        """
        Wait until followers have received the agent's file at *commit*.

        :returns: whether the branch points to *commit*.
        :raises CallError: if the repository cannot be read now.
        """
        while (
            self._commit != commit
            or self._looking is not None
            or self._is_unread(agent_name)
        ):
            if self._commit != commit:
                if await self.repository.resolve(self.ref) != commit:
                    return False
                self.pushed()
            elif self._looking is None:
                self._look_soon()
            if not self._agents:
                raise CallError(Status.UNAVAILABLE, "the agent has gone")
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            await waiter
        return True

    def stop(self) -> None:
        """Stop reading and end all followers."""
        # Fail the waiting callers first: an agent that leaves would give them a
        # different error.
        self._wake(Stopping())
        for agent in tuple(self._agents.values()):
            for follower in tuple(agent.followers):
                follower.end()
        self._agents.clear()
        self._cancel()
        if self._looking is not None:
            self._looking.cancel()

    def _left(self, agent_name: str, follower: Follower) -> None:
        agent = self._agents.get(agent_name)
        if agent is None:
            return
        agent.followers.discard(follower)
        if not agent.followers:
            del self._agents[agent_name]
        if not self._agents:
            # Stop reading: the next follower must get the document that is current when
            # it starts.
            self._cancel()
            self._due = True
            self._wake(None)

    # Methods of the loop that reads.

    def _look_soon(self) -> None:
        if self._looking is not None:
            self._again = True
        elif self._agents:
            since = self.clock.seconds() - self._looked_at
            self._schedule(max(0.0, MIN_PAUSE - since))

    def _schedule(self, seconds: float) -> None:
        self._cancel()
        self._call = self.clock.callLater(seconds, self._look)

    def _cancel(self) -> None:
        cancel_call(self._call)
        self._call = None

    def _look(self) -> None:
        self._call = None
        self._again = False
        now = self._looked_at = self.clock.seconds()
        due, self._due = self._due or now >= self._due_at, False
        if due:
            self._due_at = now + self.period * (0.9 + self.random() / 10)
        self._looking = looking = Deferred.fromCoroutine(self._read(due))
        looking.addBoth(self._looked)

    def _wake(self, error: CallError | None) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if waiter.called:
                # The caller was cancelled.
                continue
            if error is None:
                waiter.callback(None)
            else:
                waiter.errback(error)

    def _looked(self, result: object) -> None:
        self._looking = None
        failed = isinstance(result, Failure)
        self._wake(CallError(Status.UNAVAILABLE, _NOT_READ) if failed else None)
        if not self._agents:
            self._due = True
            return
        pause = max(0.0, self._due_at - self.clock.seconds())
        if isinstance(result, Failure):
            self._due = True
            pause = min(self.period, RETRY_FIRST * 2**self._failures, RETRY_MOST)
            self._failures = min(self._failures + 1, 10)
            self._cannot_read(result)
        else:
            self._failures = 0
        if self._again:
            self._look_soon()
        else:
            self._schedule(pause)

    async def _read(self, due: bool) -> None:
        before = self._commit
        if due or not before:
            commit = await self.repository.resolve(self.ref)
            if commit != self._commit:
                self._object_ids = await self._list(commit)
                self._commit = commit
        commit, object_ids = self._commit, self._object_ids
        waiting = [name for name in self._agents if self._is_unread(name)]
        await gatherResults(
            [
                Deferred.fromCoroutine(self._read_each(waiting, commit, object_ids))
                for _ in range(min(READERS, len(waiting)))
            ],
            consumeErrors=True,
        ).addErrback(_first_error)
        if commit != before:
            for name, agent in tuple(self._agents.items()):
                document = agent.document
                if document is not None and document.written is not None:
                    self.seen(self, name, document)

    def _is_unread(self, agent_name: str) -> bool:
        """Return whether the known file of the agent differs from the repository."""
        agent = self._agents.get(agent_name)
        found = self._object_ids.get(path_of(agent_name), "")
        return agent is not None and agent.object_id != found

    async def _list(self, commit: str) -> dict[str, str]:
        """
        Return the ids of the files below `FOLDER`, including links and submodules.
        """
        try:
            entries = await self.repository.tree(commit, FOLDER, recursive=True)
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                raise
            if not await self.repository.tree(commit):
                text = f"commit {commit[:12]} has no files at all"
                raise CallError(Status.FAILED_PRECONDITION, text) from None
            return {}
        return {
            entry.path: entry.object_id
            for entry in entries
            if entry.kind is not TreeEntryKind.FOLDER
        }

    async def _read_each(
        self, names: list[str], commit: str, object_ids: dict[str, str]
    ) -> None:
        while names:
            name = names.pop()
            document = await self._document(commit, name)
            agent = self._agents.get(name)
            if agent is not None:
                agent.object_id = object_ids.get(path_of(name), "")
                self._tell(name, agent, document)

    async def _document(self, commit: str, name: str) -> Document:
        """
        Read the file of one agent.

        :raises CallError: if the repository cannot be read now.
        """
        try:
            return await read_document(self.repository, commit, name, self.limit)
        except (CallError, CancelledError):
            raise
        except Exception:
            # A file that kas fails to read must not keep it from reading the files of
            # other agents.
            self._log.failure("reading the configuration of {agent} failed", agent=name)
            why = f"{path_of(name)}: kas failed to read it; see its log"
            return Document(commit, None, (f"commit {commit[:12]}: {why}",))

    def _tell(self, name: str, agent: _Agent, document: Document) -> None:
        before, agent.document = agent.document, document
        if document.says_the_same(before):
            return
        self.on_document(name, document)
        for follower in tuple(agent.followers):
            follower.tell(document)

    def _cannot_read(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, CallError):
            why = error.message
        else:
            self._log.failure("reading {name} failed", failure, name=self.name)
            why = "kas failed; see its log"
        document = Document(
            self._commit, None, (f"repository {self.name}: {why}; retrying",)
        )
        for name, agent in tuple(self._agents.items()):
            # Read the file again even if it has not changed.
            agent.object_id = None
            self._tell(name, agent, document)


def _first_error(failure: Failure) -> Failure:
    """Return the first of several failures."""
    inner: Any = getattr(failure.value, "subFailure", None)
    return failure if inner is None else inner
