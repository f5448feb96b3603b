"""
kas' half of GitOps: sends the files of a source to agentk, and sends them again when
they change.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from zope.interface import implementer, provider

from modules.gitops.server.agent_refs import AgentRefs
from modules.gitops.server.config import GitopsSettings
from modules.gitops.server.control_server import CONTROL, Operators
from modules.gitops.server.files import FoundFiles, SourceRequest, source_files
from modules.gitops.server.globs import MAX_READ, Glob
from modules.gitops.server.merge_requests import MergeRequests
from modules.gitops.server.reported import REPORTS, AgentDrift, Reported
from modules.gitops.server.step_scheduler import PARSING, StepScheduler, Work
from modules.gitops.server.webhooks import DriftWebhook
from modules.gitops.wire import rpc_pb2
from modules.gitops.wire.commit_id import COMMIT
from modules.gitops.wire.fingerprint import Fingerprint
from tunnel.api import (
    AgentMoved,
    ConnectedAgent,
    Draining,
    FollowedRef,
    FollowedRefs,
    GitAddress,
    GitalyAddress,
    GitPushed,
    IConfigurationDelivery,
    IRepository,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
    project_of,
    readable_repository,
)
from tunnel.errors import CallError, Status, Stopping
from tunnel.toolkit.counts import one_less
from tunnel.toolkit.interruptible import Interruptible
from tunnel.toolkit.peer_slots import PeerSlots

__all__ = ["GITOPS", "GitopsServer"]

GITOPS = rpc_pb2.DESCRIPTOR.services_by_name["Gitops"]

#: Maximum bytes of a file's content in one message.
PART = 128 * 1024

#: Maximum number of streams of one agent: one for each source, and a second stream for
#: a source that is restarted before its last stream has ended.
MAX_STREAMS = 1000

#: Maximum number of streams of one agent that read a repository at the same time, half
#: of all readers of kas: further streams of the agent wait, and other agents do not
#: wait for them.
READINGS = 4

#: Maximum number of histories of repositories that are searched for one agent at a
#: time: each may have to be fetched as a whole, and kas runs few fetches at once.
HISTORIES = 1

#: Maximum characters of all globs of one request, after the expansion of braces.
MAX_GLOBS = 10_000

#: Maximum bytes of one request, enough for `MAX_GLOBS` characters of paths: kas keeps
#: the requests of all waiting streams in memory.
MAX_REQUEST = 64 * 1024

#: Maximum characters of the name of a ref, which kas keeps with the followed refs.
MAX_REF = 1000

#: Maximum characters of a path or commit id that an error repeats.
MAX_SHOWN = 200

#: Prefixes of refs that agents may name in full.  Other refs, such as the refs of kas'
#: own copies, may contain unpublished commits.
_NAMES = ("refs/heads/", "refs/tags/", "refs/merge-requests/", "refs/pull/")

_Response = rpc_pb2.ObjectsToSynchronizeResponse


class _Moved(Exception):
    """Signal that the repository that a stream reads has moved in GitLab."""


@provider(IServerModuleFactory)
@implementer(IServerModule)
class GitopsServer:
    """Implementation of `Gitops`."""

    configuration = GitopsSettings

    def __init__(self, api: IServerModuleApi) -> None:
        self.name = api.name
        self._api = api
        self._settings: GitopsSettings = api.configuration
        self._refs = FollowedRefs(
            api.git, self._settings.poll_period, api.clock, api.random
        )
        #: Number of streams, by agent.
        self._streams: dict[str, int] = {}
        self._of_agents = AgentRefs()
        self._slots: PeerSlots[str] = PeerSlots(READINGS)
        self._histories: PeerSlots[str] = PeerSlots(HISTORIES)
        self._scheduler = StepScheduler(api.clock)
        self._found = FoundFiles()
        #: Lookups of commits that wait, by agent.
        self._waiting: dict[str, set[Interruptible]] = {}
        self._draining = False
        api.calls.handle(GITOPS, self)
        api.calls.handle_external(CONTROL, Operators(api))
        self._reported = Reported(api)
        api.calls.handle(REPORTS, self._reported)
        self._webhooks = [
            DriftWebhook(
                one,
                api.clock,
                time.time,
                api.random,
                api.network.http_agent(
                    "agent.gitops.webhooks", one.ca_certificate_file
                ),
            )
            for one in self._settings.webhooks
        ]
        for webhook in self._webhooks:
            api.events.subscribe(AgentDrift, webhook.send)
        self._merge_requests = None
        if self._settings.merge_requests is not None:
            self._merge_requests = MergeRequests(
                api,
                self._settings.merge_requests,
                api.random,
                self._may_read,
            )
            resource = self._merge_requests.app.resource()
            api.web.mount("/gitops/merge-requests", resource)
        api.events.subscribe(GitPushed, self._pushed)
        api.events.subscribe(AgentMoved, self._moved)
        api.events.subscribe(Draining, self._drain)

    async def start(self) -> None:
        """Do nothing: kas reads a ref once an agent requests it."""

    async def stop(self) -> None:
        """Stop reading refs."""
        self._refs.stop()
        self._reported.stop()
        for webhook in self._webhooks:
            webhook.stop()
        if self._merge_requests is not None:
            self._merge_requests.stop()

    async def get_objects_to_synchronize(
        self, request: rpc_pb2.ObjectsToSynchronizeRequest, call: Any
    ) -> AsyncIterator[rpc_pb2.ObjectsToSynchronizeResponse]:
        """Send all files of the source once its commit differs from agentk's commit."""
        agent: ConnectedAgent = call.agent
        if self._draining:
            return
        if request.ByteSize() > MAX_REQUEST:
            text = f"a request for a source may have at most {MAX_REQUEST} bytes"
            raise CallError(Status.INVALID_ARGUMENT, text)
        name, address, project_id = readable_repository(
            self._api,
            self._settings.repositories,
            agent,
            request.project_id,
            "agent.gitops.repositories",
        )
        if request.only_repository:
            header = _Response.Header(
                project_id=project_id, project_path=name, repository=_identity(address)
            )
            yield _Response(header=header)
            return
        count = self._streams.get(agent.agent_id, 0)
        if count >= MAX_STREAMS:
            text = f"an agent may have at most {MAX_STREAMS} sources"
            raise CallError(Status.RESOURCE_EXHAUSTED, text)
        self._streams[agent.agent_id] = count + 1
        try:
            work = Work(self._scheduler, agent.agent_id)
            globs = [] if request.only_commit else await self._globs(request, work)
            ref = _name_of(request.ref)
            try:
                with self._of_agents.using(agent.agent_id, address, ref):
                    commit = await self._commit(agent, name, address, request)
            except (_Moved, Stopping):
                # End the stream: agentk repeats the request, at this kas or another
                # one.
                return
            repository = self._api.git.open(address)
            header = _Response.Header(
                commit_id=commit,
                project_id=project_id,
                project_path=name,
                ref=self._refs.get(name, address, ref).whole,
                repository=_identity(address),
            )
            yield _Response(header=header)
            if request.only_commit:
                yield _trailer(Fingerprint())
                return
            source = SourceRequest(address, commit, globs, request.hidden_folders)
            async with self._slots.slot(agent.agent_id):
                async for response in self._files(repository, source, work):
                    yield response
        finally:
            one_less(self._streams, agent.agent_id)

    async def _files(
        self, repository: IRepository, source: SourceRequest, work: Work
    ) -> AsyncIterator[rpc_pb2.ObjectsToSynchronizeResponse]:
        fingerprint = Fingerprint()
        files = source_files(repository, source, self._settings, work, self._found)
        async for path, data in files:
            fingerprint.add(path, data)
            for begin in range(0, len(data) or 1, PART):
                part = data[begin : begin + PART]
                yield _Response(object=_Response.Object(source=path, data=part))
        yield _trailer(fingerprint)

    async def _globs(
        self, request: rpc_pb2.ObjectsToSynchronizeRequest, work: Work
    ) -> list[Glob]:
        if not 0 < len(request.paths) <= self._settings.max_number_of_paths:
            text = (
                f"a source has 1 to {self._settings.max_number_of_paths} paths "
                f"(max_number_of_paths), not {len(request.paths)}"
            )
            raise CallError(Status.INVALID_ARGUMENT, text)
        globs: list[Glob] = []
        for path in request.paths:
            is_file = path.WhichOneof("path") == "file"
            # Count an invalid glob, too, because it costs as much as a valid one.
            text = path.glob or path.file
            read = len(text) * (1 + text.count("{") + text.count(","))
            await work.take(PARSING * min(read, MAX_READ))
            try:
                globs.append(Glob.of_file(path.file) if is_file else Glob(path.glob))
            except ValueError as error:
                why = f"{text[:MAX_SHOWN]!r}: {error}"
                raise CallError(Status.FAILED_PRECONDITION, why) from None
            if sum(glob.cost for glob in globs) > MAX_GLOBS:
                text = f"the globs of a source have more than {MAX_GLOBS} characters"
                raise CallError(Status.FAILED_PRECONDITION, text)
        return globs

    async def _commit(
        self,
        agent: ConnectedAgent,
        name: str,
        address: GitAddress | GitalyAddress,
        request: rpc_pb2.ObjectsToSynchronizeRequest,
    ) -> str:
        """
        Return the commit to send, once the commit of the ref differs from agentk's
        commit.

        If the agent's file is on the same branch, agentk first receives the
        configuration of this commit: if agentk applied the files with an older
        configuration, it could prune objects that the commit keeps.
        """
        ref = _name_of(request.ref)
        if request.ref.WhichOneof("ref") == "commit":
            if ref == request.commit_id:
                # The request names a commit instead of a ref, and a commit never
                # changes.
                raise CallError(Status.FAILED_PRECONDITION, "agentk has that commit")
            if request.HasField("history_of"):
                within = _name_of(request.history_of)
                async with self._histories.slot(agent.agent_id):
                    await self._check_history(address, ref, within)
            async with self._slots.slot(agent.agent_id):
                followed = self._refs.get(name, address, ref)
                return await self._next(agent, followed, "")
        followed = self._refs.get(name, address, ref)
        # Return the current commit of the ref instead of a recent result.
        is_forced = request.only_commit and not request.commit_id
        commit = ""
        if is_forced or not followed.followed:
            # Reads that this agent causes need a slot: ``poll_period`` and pushes limit
            # all others.
            async with self._slots.slot(agent.agent_id):
                if is_forced:
                    followed.pushed()
                commit = await self._next(agent, followed, "")
        while True:
            if commit in ("", request.commit_id):
                commit = await self._next(agent, followed, request.commit_id)
            if request.only_commit:
                return commit
            delivery = self._api.capabilities.get(IConfigurationDelivery)
            if delivery is None or await delivery.delivered(agent, address, commit):
                return commit
            if await followed.repository.resolve(followed.ref) == commit:
                # The agent's file is on another branch.
                return commit
            # Read the ref again, because a newer commit exists, and agentk may already
            # have the configuration file of the newer commit.
            followed.pushed()
            commit = ""

    async def _check_history(
        self, address: GitAddress | GitalyAddress, commit: str, ref: str
    ) -> None:
        """
        Check that the history of *ref* contains *commit*.

        :raises CallError: FAILED_PRECONDITION if the history does not contain the
            commit.
        """
        repository = self._api.git.open(address)
        if not await repository.contains(ref, commit):
            raise CallError(
                Status.FAILED_PRECONDITION,
                f"commit {commit[:12]} is not in the history of {ref}",
            )

    async def _next(
        self, agent: ConnectedAgent, followed: FollowedRef, known: str
    ) -> str:
        """
        Return the result of `FollowedRef.next`; raise `_Moved` once GitLab has moved
        the repository.
        """
        wait = Interruptible()
        waiting = self._waiting.setdefault(agent.agent_id, set())
        waiting.add(wait)
        try:
            found = await wait.run(followed.next(known))
        finally:
            waiting.discard(wait)
            if not waiting and self._waiting.get(agent.agent_id) is waiting:
                del self._waiting[agent.agent_id]
        if found is None:
            raise _Moved
        return found

    def _may_read(self, agent: ConnectedAgent, project_id: int, name: str) -> bool:
        """
        Return whether an agent may read a project, or the repository with a name.

        kas ignores reports of an agent about other repositories.
        """
        if agent.project_id and agent.project_id == project_id:
            return True
        settings = self._settings.repositories.get(name)
        own = project_of(self._api, agent)
        return settings is not None and settings.has(agent.agent_name, own)

    def _pushed(self, event: GitPushed) -> None:
        settings = self._settings.repositories.get(event.project)
        address = None if settings is None else settings.address
        self._refs.announced(event.project, address)

    def _moved(self, event: AgentMoved) -> None:
        """
        Cancel the waiting lookups of an agent whose project has moved in GitLab, so
        that they begin again.
        """
        for wait in tuple(self._waiting.get(event.agent_id, ())):
            wait.interrupt()

    def _drain(self, event: Draining) -> None:
        self._draining = True
        self._refs.stop()


def _name_of(ref: rpc_pb2.Ref) -> str:
    """
    Return the full name of the ref, or the id of the commit, in a message.

    :raises CallError: INVALID_ARGUMENT if agents may not name the ref.
    """
    kind = ref.WhichOneof("ref")
    if kind is not None and len(getattr(ref, kind)) > MAX_REF:
        text = f"the name of a ref may have at most {MAX_REF} characters"
        raise CallError(Status.INVALID_ARGUMENT, text)
    if kind == "commit" and COMMIT.fullmatch(ref.commit) is None:
        # Refuse any other text, because it could be a branch, whose commit changes.
        text = f"{ref.commit[:80]!r} is not the id of a commit"
        raise CallError(Status.INVALID_ARGUMENT, text)
    if kind == "name" and not ref.name.startswith(_NAMES):
        text = f"a ref begins with one of {', '.join(_NAMES)}"
        raise CallError(Status.INVALID_ARGUMENT, text)
    names = {
        "branch": f"refs/heads/{ref.branch}",
        "tag": f"refs/tags/{ref.tag}",
        "commit": ref.commit,
        "name": ref.name,
    }
    return names.get(kind or "", "HEAD")


def _identity(address: GitAddress | GitalyAddress) -> str:
    """Return an id of the repository that does not reveal its address."""
    if isinstance(address, GitalyAddress):
        # Leave out the storage, because GitLab may move a project to another storage.
        kind, exact = "gitaly", address.gl_repository or address.relative_path
    elif address.path is not None:
        kind, exact = "path", str(address.path.resolve())
    else:
        url = urlsplit(address.url)
        path = url.path.rstrip("/").removesuffix(".git")
        kind, exact = "url", f"{url.netloc.lower()}{path}"
    return f"{kind}:{sha256(exact.encode()).hexdigest()[:32]}"


def _trailer(fingerprint: Fingerprint) -> rpc_pb2.ObjectsToSynchronizeResponse:
    files, sha256 = fingerprint.files, fingerprint.digest()
    return _Response(trailer=_Response.Trailer(files=files, sha256=sha256))
