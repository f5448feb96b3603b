"""
kas' half: sends each agentk its configuration from Git, and logs problems of the
configuration.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from zope.interface import implementer, provider

from modules.agent_configuration import rpc_pb2
from modules.agent_configuration.config import AgentConfigurationSettings
from modules.agent_configuration.document import MAX_PROBLEMS, MAX_SECTIONS, Document
from modules.agent_configuration.follow import FollowedRepository
from tunnel.api import (
    AgentMoved,
    AgentProject,
    ConnectedAgent,
    Draining,
    GitAddress,
    GitalyAddress,
    GitPushed,
    IConfigurationDelivery,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
    project_of,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.counts import one_less
from tunnel.toolkit.log_budget import LogBudgets
from tunnel.toolkit.packing import unpack
from tunnel.toolkit.recent import Recent
from tunnel.toolkit.texts import clean, json_for_yaml
from tunnel.toolkit.token_buckets import TokenBuckets

__all__ = ["CONFIGURATION", "AgentConfigurationServer"]

CONFIGURATION = rpc_pb2.DESCRIPTOR.services_by_name["AgentConfiguration"]

#: Maximum bytes of a compressed configuration that outlives kas: a store accepts no
#: more.
MAX_KEPT = 64 * 1024

#: Maximum bytes of that configuration after decompression.  JSON that escapes
#: everything except ASCII is up to three times as long as the sections.
MAX_INFLATED = 4 * MAX_SECTIONS

#: Maximum characters of one problem that an agentk reports.
MAX_PROBLEM = 400

#: Maximum number of streams of one agent: from its replicas, both old and new during a
#: rollout, and from connections that are not yet known to be dead.
MAX_STREAMS = 64

#: Maximum number of streams that an agent opens at once, and per second after that:
#: twice as many as can be open, because all agentk connect again after a restart of
#: kas. A large configuration costs kas some 10 ms for each stream.
OPENED_AT_ONCE, OPENED_PER_SECOND = 2 * MAX_STREAMS, 2

#: Error text for an agent that exceeds this rate.
_TOO_OFTEN = "this agent requests its configuration too often; try again later"

#: Maximum number of agents whose rate kas remembers.  An agent that
#: connects is remembered last, so a forgotten agent has not connected for a long time.
MAX_AGENTS = 100_000

#: Maximum number of files whose problems were logged; kas logs the problems of a
#: forgotten file again.
MAX_LOGGED = 100_000

#: Maximum number of agentk whose last refused commit kas remembers; kas logs the
#: refusal of a forgotten agentk again.
MAX_REFUSED = 100_000

#: Maximum number of agents whose last registration with GitLab kas remembers: ten times
#: the number of agents of one kas.  kas registers a forgotten agent again.
MAX_REGISTERED = 100_000


class _Stream:
    """Stream of configurations to one agentk, from any repository."""

    def __init__(
        self, call: Any, agent: ConnectedAgent, followed: FollowedRepository
    ) -> None:
        self.call = call
        self.agent = agent
        self.followed = followed
        self._follower = followed.follow(agent.agent_name)
        #: The commit that agentk received last and may refuse; empty after agentk has
        #: refused it.
        self.received_commit = ""
        #: Whether agentk may not have received the newest document yet.
        self._busy = True
        #: Callers that wait until agentk has received the newest document.
        self._waiting: list[Deferred[None]] = []

    async def next(self) -> Document | None:
        """
        Return the next document; a call also shows that agentk has received the
        previous document.
        """
        while True:
            follower = self._follower
            if not follower.has_news:
                self._settle()
            document = await follower.next()
            self._busy = True
            if document is not None or follower is self._follower:
                return document

    async def settled(self) -> None:
        """Wait until agentk has received the newest document or has disconnected."""
        while self._busy:
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            await waiter

    def _settle(self) -> None:
        self._busy = False
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.called:
                waiter.callback(None)

    def move(self, followed: FollowedRepository) -> None:
        """Continue with the documents of another repository."""
        if followed is not self.followed:
            before = self._follower
            self._follower = followed.follow(self.agent.agent_name)
            self.followed = followed
            before.leave()
            before.end()

    def end(self) -> None:
        """End the stream."""
        self._follower.end()

    def leave(self) -> None:
        """Stop following the repository, and wake waiting callers."""
        self._follower.leave()
        self._settle()


@provider(IServerModuleFactory)
@implementer(IServerModule, IConfigurationDelivery)
class AgentConfigurationServer:
    """
    Implementation of `AgentConfiguration`, which sends each agentk its configuration.
    """

    _log = Logger()
    configuration = AgentConfigurationSettings

    def __init__(self, api: IServerModuleApi) -> None:
        self.name = api.name
        self._api = api
        self._settings: AgentConfigurationSettings = api.configuration
        self._followed: dict[str, FollowedRepository] = {
            name: self._follow(name, settings.address, settings.branch)
            for name, settings in self._settings.repositories.items()
        }
        #: Store of the last usable configurations, which outlives this process.
        self._store = api.stores.open("last-good")
        #: Repositories that GitLab named, by address and branch.
        self._of_gitlab: dict[tuple[GitalyAddress, str], FollowedRepository] = {}
        #: Commit of the configuration that kas last posted to GitLab, by agent.
        self._registered: Recent[str, str] = Recent(MAX_REGISTERED)
        #: Commit of the configuration in `_store`, by agent.
        self._kept: Recent[str, str] = Recent(MAX_REGISTERED)
        #: Number of streams that have not ended yet, by agent.
        self._counts: dict[str, int] = {}
        #: Rate of new streams, and budget for lines that an agent causes, by agent.
        self._rates: TokenBuckets[str] = TokenBuckets(
            MAX_AGENTS, OPENED_AT_ONCE, OPENED_PER_SECOND
        )
        self._lines: LogBudgets[str] = LogBudgets()
        #: Files whose problems and remarks were logged, by agent's name and commit.
        self._logged: Recent[tuple[str, str], bool] = Recent(MAX_LOGGED)
        #: Commit whose refusal was logged last, by agent and instance.
        self._refused: Recent[tuple[str, bytes], str] = Recent(MAX_REFUSED)
        #: The stream of each agentk, by agent and instance; a second stream of an
        #: agentk cancels its first one.  Each agentk chooses its instance id, so two
        #: agents may have the same id.
        self._streams: dict[tuple[str, bytes], _Stream] = {}
        self._draining = False
        api.calls.handle(CONFIGURATION, self)
        api.capabilities.provide(IConfigurationDelivery, self)
        api.events.subscribe(GitPushed, self._pushed)
        api.events.subscribe(AgentMoved, self._moved)
        api.events.subscribe(Draining, self._drain)

    async def start(self) -> None:
        """Do nothing: kas reads a repository once an agent needs its content."""

    async def stop(self) -> None:
        """Stop reading repositories."""
        for followed in (*self._followed.values(), *self._of_gitlab.values()):
            followed.stop()

    async def get_configuration(
        self, request: rpc_pb2.ConfigurationRequest, call: Any
    ) -> AsyncIterator[rpc_pb2.ConfigurationResponse]:
        """Send the calling agent's configuration, now and after each change."""
        agent: ConnectedAgent = call.agent
        self._count_opened(agent)
        followed = self._repository_of(agent)
        if self._draining:
            return
        # Follow before the first stream leaves, because kas would read the repository
        # again after its last follower left.
        stream = _Stream(call, agent, followed)
        before = self._streams.pop(_key(agent), None)
        if before is not None:
            # A response of the first stream may still wait for a peer that does not
            # read, so the stream would not end by itself.
            before.call.cancel("a newer GetConfiguration of this agentk replaced this")
        count = self._counts.get(agent.agent_id, 0)
        if count >= MAX_STREAMS:
            stream.leave()
            text = f"{MAX_STREAMS} agentk of this agent follow its configuration"
            raise CallError(Status.RESOURCE_EXHAUSTED, text)
        self._counts[agent.agent_id] = count + 1
        self._streams[_key(agent)] = stream
        has = request.commit_id
        # agentk may still show a problem that has been fixed.
        unwell = bool(has)
        try:
            while (document := await stream.next()) is not None:
                followed = stream.followed
                if document.written is None:
                    if not has and (good := await self._last_good(agent)) is not None:
                        has = stream.received_commit = good.commit
                        yield self._response(agent, followed, good)
                    yield rpc_pb2.ConfigurationResponse(
                        commit_id=document.commit, problems=document.problems
                    )
                    self._show(agent, "; ".join(document.problems))
                    unwell = True
                    continue
                self._show(agent, "")
                self._register(agent, followed, document)
                if document.commit != has:
                    has = stream.received_commit = document.commit
                    if self._kept.get(agent.agent_id) != document.commit:
                        # Store the configuration once for all agentk of the agent,
                        # because each write goes to disk.
                        self._kept[agent.agent_id] = document.commit
                        await self._keep(agent, document)
                    yield self._response(agent, followed, document)
                elif unwell:
                    yield rpc_pb2.ConfigurationResponse(commit_id=document.commit)
                unwell = False
        finally:
            stream.leave()
            one_less(self._counts, agent.agent_id)
            if self._streams.get(_key(agent)) is stream:
                del self._streams[_key(agent)]
            if not self._streams_of(agent.agent_id):
                self._show(agent, "")

    async def refused(
        self, request: rpc_pb2.RefusedRequest, call: Any
    ) -> rpc_pb2.RefusedResponse:
        """
        Log the refusal of a section by a module of agentk, once for each configuration,
        within the log budget of the agent.
        """
        agent: ConnectedAgent = call.agent
        stream = self._streams.get(_key(agent))
        if (
            stream is None
            or not stream.received_commit
            or stream.received_commit != request.commit_id
        ):
            text = "this agentk did not get that commit, or already refused it"
            raise CallError(Status.FAILED_PRECONDITION, text)
        stream.received_commit = ""
        problems = [clean(one, MAX_PROBLEM) for one in request.problems[:MAX_PROBLEMS]]
        if self._refused.get(_key(agent)) != request.commit_id:
            self._refused[_key(agent)] = request.commit_id
            for problem in problems:
                self._warn(
                    agent,
                    "configuration of agent {agent_name}: agentk refuses it: {problem}",
                    problem=problem,
                )
        self._show(agent, "agentk refuses it: " + "; ".join(problems))
        return rpc_pb2.RefusedResponse()

    async def delivered(
        self, agent: ConnectedAgent, address: GitAddress | GitalyAddress, commit: str
    ) -> bool:
        """See `IConfigurationDelivery`."""
        while (stream := self._streams.get(_key(agent))) is not None:
            if not await stream.followed.is_of(address, commit):
                break
            if not await stream.followed.at(agent.agent_name, commit):
                # The address may belong to a fork, which has some of the same commits.
                stream.followed.forget_alias(address)
                return False
            await stream.settled()
            if self._streams.get(_key(agent)) is stream:
                break
        return True

    def _streams_of(self, agent_id: str) -> list[_Stream]:
        streams = self._streams.values()
        return [one for one in streams if one.agent.agent_id == agent_id]

    def _repository_of(self, agent: ConnectedAgent) -> FollowedRepository:
        project = self._api.gitlab.project(agent.agent_id)
        # Include the project, because two projects of GitLab may each have an agent
        # with this name.
        path = project_of(self._api, agent)
        for name, settings in self._settings.repositories.items():
            if settings.has(agent.agent_name, path):
                return self._followed[name]
            if path is not None and settings.has(agent.agent_name):
                self._warn(
                    agent,
                    "repository {name} is not used for {agent_name}, an agent of "
                    "GitLab's project {path}: agents of several projects can share a "
                    "name; to use it, write {path}:{agent_name}",
                    name=name,
                    path=path,
                )
        if project is not None:
            return self._repository_of_project(project)
        text = f"no repository of agent.configuration has the agent {agent.agent_name}"
        raise CallError(Status.FAILED_PRECONDITION, text)

    def _repository_of_project(self, project: AgentProject) -> FollowedRepository:
        key = (project.repository, project.default_branch or "HEAD")
        found = self._of_gitlab.get(key)
        if found is None:
            # Forget repositories without followers, because GitLab moves projects and
            # changes tokens.
            for old in [k for k, v in self._of_gitlab.items() if not v.followed]:
                del self._of_gitlab[old]
            name = project.full_path or project.repository.relative_path
            found = self._of_gitlab[key] = self._follow(name, *key)
        return found

    def _follow(
        self, name: str, address: GitAddress | GitalyAddress, ref: str
    ) -> FollowedRepository:
        return FollowedRepository(
            name,
            address,
            self._api.git.open(address),
            ref,
            self._settings.poll_period,
            self._settings.max_configuration_file_size,
            self._api.clock,
            self._api.random,
            self._document_read,
            self._seen,
        )

    def _seen(
        self, followed: FollowedRepository, agent_name: str, document: Document
    ) -> None:
        for stream in tuple(self._streams.values()):
            if stream.followed is followed and stream.agent.agent_name == agent_name:
                self._register(stream.agent, followed, document)

    def _register(
        self, agent: ConnectedAgent, followed: FollowedRepository, document: Document
    ) -> None:
        """
        Post the configuration of an agent to GitLab, once for each commit of the
        branch.

        GitLab expects a post for each commit, even if the commit did not change the
        file, and only one post, even if an agent has several agentk.
        """
        commit = followed.commit or document.commit
        if self._registered.get(agent.agent_id) != commit:
            self._registered[agent.agent_id] = commit
            self._api.gitlab.register_configuration(
                agent.agent_id, document.written or {}
            )

    def _response(
        self, agent: ConnectedAgent, followed: FollowedRepository, document: Document
    ) -> rpc_pb2.ConfigurationResponse:
        # The sections are copied, because all streams of the document share them.
        response = rpc_pb2.ConfigurationResponse(
            configuration=document.message, commit_id=document.commit
        )
        message = response.configuration
        message.agent_id = int(agent.agent_id) if agent.agent_id.isdecimal() else 0
        message.project_id = agent.project_id
        message.project_path = followed.name
        return response

    def _document_read(self, agent_name: str, document: Document) -> None:
        key = (agent_name, document.commit)
        if key in self._logged:
            # kas reads the file again after all agentk of the agent were gone.
            return
        self._logged[key] = True
        if document.written is None:
            for problem in document.problems:
                self._log.warn(
                    "configuration of agent {agent_name}: {problem}",
                    agent_name=agent_name,
                    problem=problem,
                )
        else:
            self._log.info(
                "agent {agent_name} uses its configuration of commit {commit}",
                agent_name=agent_name,
                commit=document.commit,
            )
            for remark in document.remarks:
                self._log.warn(
                    "configuration of agent {agent_name}: {remark}",
                    agent_name=agent_name,
                    remark=remark,
                )

    def _count_opened(self, agent: ConnectedAgent) -> None:
        now = self._api.clock.seconds()
        if not self._rates.used(agent.agent_id, now).spend(now):
            raise CallError(Status.RESOURCE_EXHAUSTED, _TOO_OFTEN)

    def _warn(self, agent: ConnectedAgent, text: str, **fields: object) -> None:
        """Log a line that the agent can cause again and again, within its budget."""
        more = self._lines.spend(agent.agent_id, self._api.clock.seconds())
        if more is not None:
            self._log.warn(
                text + "{more}", agent_name=agent.agent_name, more=more, **fields
            )

    def _show(self, agent: ConnectedAgent, problem: str) -> None:
        self._api.agents.show_problem(agent.agent_id, agent.agent_name, problem)

    def _pushed(self, event: GitPushed) -> None:
        for followed in (*self._followed.values(), *self._of_gitlab.values()):
            if followed.name == event.project:
                followed.pushed()

    def _drain(self, event: Draining) -> None:
        self._draining = True
        for stream in tuple(self._streams.values()):
            stream.end()

    def _moved(self, event: AgentMoved) -> None:
        """Switch to the new repository after GitLab moved the project of an agent."""
        for stream in self._streams_of(event.agent_id):
            stream.move(self._repository_of(stream.agent))

    # Methods that store the last usable configuration, for an agentk that has none.

    async def _last_good(self, agent: ConnectedAgent) -> Document | None:
        try:
            found = await self._store.get(agent.agent_id)
            if found is None:
                return None
            commit, written = _unpacked(found.value)
        except (CallError, ValueError) as error:
            self._warn(
                agent,
                "cannot read the last good configuration of agent {agent_name}: "
                "{reason}",
                reason=str(error),
            )
            return None
        return Document(commit, written)

    async def _keep(self, agent: ConnectedAgent, document: Document) -> None:
        text = json.dumps([document.commit, document.written], sort_keys=True)
        value = zlib.compress(text.encode())
        try:
            if len(value) > MAX_KEPT:
                await self._store.delete(agent.agent_id)
            else:
                await self._store.set(agent.agent_id, value)
        except CancelledError:
            self._kept.pop(agent.agent_id, None)
            raise
        except CallError as error:
            self._kept.pop(agent.agent_id, None)
            self._warn(
                agent,
                "cannot store the configuration of agent {agent_name} for the next "
                "start: {reason}",
                reason=error.message,
            )


def _key(agent: ConnectedAgent) -> tuple[str, bytes]:
    return agent.agent_id, agent.instance_id


def _unpacked(value: bytes) -> tuple[str, dict[str, Any]]:
    """
    Return the commit and the sections of a stored configuration.

    :raises ValueError: if the stored value is damaged.
    """
    try:
        found = json.loads(unpack(value, MAX_INFLATED))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    match found:
        case [str(commit), dict(written)]:
            if len(json_for_yaml(written).encode()) <= MAX_SECTIONS:
                return commit, written
            raise ValueError(f"it has more than {MAX_SECTIONS // 1024} KiB")
    raise ValueError("it is not a commit and sections")
