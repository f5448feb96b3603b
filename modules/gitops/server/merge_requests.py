"""
Previews of merge requests: GitLab announces them, and agents compute the changes.

GitLab calls ``POST /gitops/merge-requests`` (webhook, "Merge request events"). kas then
asks the agents whose projects follow the target branch, and comments on the merge
request. kas takes only the numbers from the webhook, because any client that knows the
webhook's secret can send any body: the project, the branches and the fork come from
GitLab's API. No pipeline needs a credential for a cluster, and no credential of GitLab
is sent to an agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import Any, ClassVar

import attrs
from klein import Klein
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.web.iweb import IRequest

from modules.gitops.server.comment_text import MARK, Asked, comment
from modules.gitops.server.comments import Comments
from modules.gitops.server.config import MergeRequestSettings
from modules.gitops.server.control_server import CONTROL
from modules.gitops.wire import control_pb2 as pb
from modules.gitops.wire import rpc_pb2
from tunnel.api import ConnectedAgent, IServerModuleApi, project_of
from tunnel.errors import CallError, Status
from tunnel.toolkit.allowance import Allowance
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.peer_slots import PeerSlots
from tunnel.toolkit.recent import Recent
from tunnel.toolkit.texts import clean
from tunnel.toolkit.timers import cancel_call
from tunnel.toolkit.webhook_secret import carries_secret

__all__ = ["MergeRequests"]

#: Maximum number of waiting merge requests: in total, and for each GitLab project.
#: Merge requests that changed during their preview wait again in addition; their number
#: is limited by `AT_ONCE` and `AT_ONCE_EACH`.
MAX_WAITING, MAX_WAITING_EACH = 1000, 100

#: Maximum number of merge requests in progress at the same time: in total, and for each
#: GitLab project, so that charts of one project that loop do not block other projects.
AT_ONCE, AT_ONCE_EACH = 20, 2

#: Maximum number of previews in progress at the same time: for one merge request, and
#: for one agent, because an agent does not make more previews for merge requests.
PREVIEWS_AT_ONCE, AGENT_AT_ONCE = 2, 1

#: Maximum number of rounds for one merge request in a period, and the seconds of that
#: period: if an author pushes every second, only the last of several pushes is
#: previewed.
ROUNDS, ROUNDS_SECONDS = 6, 60.0

#: Maximum number of merge requests whose rounds kas counts; it forgets the oldest entry
#: first.
MAX_COUNTED = 1000

#: Maximum number of agents whose projects kas requests, in total and at the same time,
#: and the timeout of one request in seconds.
MAX_AGENTS, ASKED_AT_ONCE, STATUS_SECONDS = 200, 16, 10.0

#: Maximum number of previews of one merge request, and the timeout of each in seconds.
MAX_PREVIEWS, PREVIEW_SECONDS = 20, 60.0

#: Maximum number of objects of one preview; agentk does not send more.
MAX_OBJECTS = 5000

#: Maximum seconds for all previews of a merge request, because slow agents delay other
#: merge requests.
ALL_SECONDS = 300.0

#: Maximum number of attempts for a preview, and first and maximum pause between them in
#: seconds: the agent may be busy with other previews, or GitLab's ref may still be at
#: an older commit.
ATTEMPTS, PAUSE_FIRST, PAUSE_MOST = 5, 2.0, 15.0

#: Statuses of an agent's response that postpone a preview.
_AGAIN = (Status.RESOURCE_EXHAUSTED, Status.UNAVAILABLE)

#: Maximum bytes of a webhook's body; GitLab's have a few dozen kilobytes.
MAX_BODY = 1024 * 1024

#: Actions that may require a new preview.
_NEW = ("open", "reopen")


@attrs.frozen
class MergeRequest:
    """
    Merge request, as GitLab describes it.

    :ivar project: the full path of the target project.
    :ivar default: whether the target branch is the default branch of that project.
    :ivar commit: the last commit of the source branch.
    """

    project_id: int
    project: str
    number: int
    target: str
    default: bool
    commit: str
    is_fork: bool

    def is_followed(self, ref: rpc_pb2.Ref) -> bool:
        """Return whether *ref* follows the target branch of the merge request."""
        kind = ref.WhichOneof("ref")
        if kind is None:
            return self.default
        if kind == "branch":
            return bool(ref.branch == self.target)
        return kind == "name" and bool(ref.name == f"refs/heads/{self.target}")


class MergeRequests:
    """
    Webhook for events of GitLab's merge requests, which makes previews of them.

    :param may_read: returns whether an agent may read the project with an id, or the
        repository with a name; only such agents contribute to comments there.
    """

    app: ClassVar[Klein] = Klein()
    _log = Logger()

    def __init__(
        self,
        api: IServerModuleApi,
        settings: MergeRequestSettings,
        random: Callable[[], float],
        may_read: Callable[[ConnectedAgent, int, str], bool],
    ) -> None:
        self._may_read = may_read
        self._api = api
        self._settings = settings
        self._random = random
        setting = "agent.gitops.merge_requests.ca_certificate_file"
        http = api.network.http_agent(setting, settings.ca_certificate_file)
        store = api.stores.open("merge-requests")
        self._comments = Comments(settings, store, http, api.clock, random, MARK)
        #: Numbers of waiting merge requests in order of arrival, by project.  The
        #: project that had the last turn comes last.
        self._waiting: dict[int, dict[int, None]] = {}
        self._working: dict[tuple[int, int], Deferred[Any]] = {}
        self._agents: PeerSlots[str] = PeerSlots(AGENT_AT_ONCE)
        self._allowances: Recent[tuple[int, int], Allowance] = Recent(MAX_COUNTED)
        #: Timer that starts merge requests that had used up their rounds.
        self._later: IDelayedCall | None = None

    def stop(self) -> None:
        """Drop all waiting merge requests."""
        self._waiting.clear()
        self._rest()
        for one in tuple(self._working.values()):
            one.cancel()

    @app.route("/", methods=["POST"], strict_slashes=False)
    def event(self, request: IRequest) -> bytes:
        """Accept an event from GitLab, and queue a preview of its merge request."""
        if not carries_secret(request, self._settings.webhook_secret_file):
            return _answer(request, 401, "the secret is missing or wrong")
        body = request.content.read(MAX_BODY + 1)
        if len(body) > MAX_BODY:
            return _answer(request, 413, f"an event may have at most {MAX_BODY} bytes")
        try:
            key = _numbers(json.loads(body))
        except (ValueError, RecursionError):
            return _answer(request, 400, "this is not a merge request event of GitLab")
        if key is None:
            return _answer(request, 200, "nothing to preview has changed")
        project_id, number = key
        others = self._waiting.get(project_id, {})
        if number not in others:
            every = sum(map(len, self._waiting.values()))
            if every >= MAX_WAITING or len(others) >= MAX_WAITING_EACH:
                request.setHeader(b"retry-after", b"60")
                text = (
                    f"{len(others)} merge requests of this project are already waiting"
                )
                return _answer(request, 503, f"{text}, {every} in all projects")
        self._queue(project_id, number)
        self._begin()
        return _answer(request, 202, "it will be previewed")

    def _queue(self, project_id: int, number: int) -> None:
        self._waiting.setdefault(project_id, {})[number] = None

    def _begin(self) -> None:
        """
        Start previews of waiting merge requests; each merge request has only one
        preview at a time.
        """
        self._rest()
        now: float = self._api.clock.seconds()
        waits = []
        for key in self._turns():
            if len(self._working) >= AT_ONCE:
                return
            if key in self._working or self._at_work(key[0]) >= AT_ONCE_EACH:
                continue
            allowance = self._allowance(key)
            wait = allowance.wait(now)
            if wait:
                waits.append(wait)
                continue
            allowance.take(now)
            self._take(*key)
            working = Deferred.fromCoroutine(self._work(*key))
            working.addErrback(self._failed)
            if not working.called:
                self._working[key] = working
                working.addCallback(self._ended, key)
        if waits:
            self._later = self._api.clock.callLater(min(waits), self._begin)

    def _turns(self) -> list[tuple[int, int]]:
        """
        Return the waiting merge requests: the first of each project, then the second of
        each project, and so on.
        """
        by_project = (
            [(project_id, number) for number in numbers]
            for project_id, numbers in self._waiting.items()
        )
        return [one for some in zip_longest(*by_project) for one in some if one]

    def _take(self, project_id: int, number: int) -> None:
        """Start a merge request, and put its project at the end of the queue."""
        numbers = self._waiting.pop(project_id)
        del numbers[number]
        if numbers:
            self._waiting[project_id] = numbers

    def _at_work(self, project_id: int) -> int:
        return sum(one == project_id for one, _ in self._working)

    def _rest(self) -> None:
        cancel_call(self._later)
        self._later = None

    def _failed(self, failure: Any) -> None:
        if not failure.check(CancelledError):
            self._log.failure("the preview of a merge request failed", failure)

    def _ended(self, _: object, key: tuple[int, int]) -> None:
        del self._working[key]
        self._begin()

    async def _work(self, project_id: int, number: int) -> None:
        try:
            said, project = await self._comments.described(project_id, number)
            asked = _merge_request(project_id, number, said, project)
            if asked is None:
                return
            if asked.is_fork and not self._settings.forks:
                self._log.info(
                    "merge request {number} of {project} comes from a fork and is "
                    "not previewed",
                    number=number,
                    project=asked.project,
                )
                return
            text = await self._text(asked)
            if text is not None:
                await self._put(asked, project, text)
        except CallError as error:
            self._warn(project_id, number, error)

    def _warn(self, project_id: int, number: int, error: CallError) -> None:
        self._log.warn(
            "could not write the preview of merge request {number} of project "
            "{project} as a comment: {problem}",
            number=number,
            project=project_id,
            problem=error.message,
        )

    async def _put(self, asked: MergeRequest, project: Any, text: str) -> None:
        """
        Write the comment if GitLab still describes the merge request as *asked*;
        otherwise queue the merge request again.

        The preview may have taken minutes.  Meanwhile, another replica of kas may have
        received the webhook for a newer commit and written the newer comment.  A check
        before the write is not enough, because the merge request may change between
        the two, so kas checks again after the write.  The replicas need no lock: the
        check that follows the last of all writes either finds that the comment
        describes the merge request, or causes another write.

        :param project: GitLab's description of the project.
        :raises CallError: if GitLab is unavailable, or refuses the request.
        """
        if await self._is_current(asked, project):
            try:
                await self._comments.put(asked.project_id, asked.number, text)
            except CallError as error:
                # GitLab may have accepted the comment although its response is missing,
                # so check again.
                self._warn(asked.project_id, asked.number, error)
            if await self._is_current(asked, project):
                return
        self._queue(asked.project_id, asked.number)

    async def _is_current(self, asked: MergeRequest, project: Any) -> bool:
        """
        Return whether the merge request is open, and still has the same commit and
        target branch.

        :raises CallError: if GitLab is unavailable, or refuses the request.
        """
        key = asked.project_id, asked.number
        said = await self._comments.merge_request(*key)
        return _merge_request(*key, said, project) == asked

    def _allowance(self, key: tuple[int, int]) -> Allowance:
        """Return the allowance for the rounds of a merge request."""
        allowance = self._allowances.get(key)
        if allowance is None:
            allowance = Allowance(ROUNDS, ROUNDS_SECONDS)
        self._allowances[key] = allowance
        return allowance

    async def _text(self, asked: MergeRequest) -> str | None:
        """Return the text of the comment; None if no project follows that branch."""
        every = {
            one.agent_id: one
            for one in await self._api.agents.find()
            if self._settings.has(one.agent_name, project_of(self._api, one))
            and self._may_read(one, asked.project_id, asked.project)
        }
        agents = [every[agent_id] for agent_id in sorted(every)][:MAX_AGENTS]
        if len(every) > MAX_AGENTS:
            self._log.warn(
                "{count} agents may preview merge requests, but only {most} of them "
                "are asked: choose them in agent.gitops.merge_requests.agents",
                count=len(every),
                most=MAX_AGENTS,
            )
        found = await in_parallel(
            (partial(self._projects, agent, asked) for agent in agents), ASKED_AT_ONCE
        )
        # Take the first project of each agent, then the second project of each agent,
        # so that no agent takes all places.
        projects = [
            one for some in zip_longest(*found) for one in some if one is not None
        ]
        if not projects:
            self._log.info(
                "merge request {number} of {project} gets no comment: none of "
                "{count} agents has a project that follows {branch} of a repository "
                "of that name",
                number=asked.number,
                project=asked.project,
                count=len(agents),
                branch=asked.target,
            )
            return None
        until = self._api.clock.seconds() + ALL_SECONDS
        said = await in_parallel(
            (
                partial(self._preview, agent, project, asked, until)
                for agent, project in projects[:MAX_PREVIEWS]
            ),
            PREVIEWS_AT_ONCE,
        )
        return comment(asked.commit, said, len(projects[MAX_PREVIEWS:]))

    async def _projects(
        self, agent: ConnectedAgent, asked: MergeRequest
    ) -> list[tuple[ConnectedAgent, pb.ProjectStatus]]:
        """Return the projects of an agent that follow the target branch."""
        client = self._api.calls.client(CONTROL, agent.agent_id)
        request = pb.GetStatusRequest(agent=agent.agent_id)
        try:
            status = await client.call("GetStatus", request, timeout=STATUS_SECONDS)
        except CallError as error:
            if error.status is not Status.UNIMPLEMENTED:
                self._log.info(
                    "cannot get the projects of agent {name}: {problem}",
                    name=agent.agent_name,
                    problem=error.message,
                )
            return []
        return [
            (agent, one)
            for one in status.projects
            if one.repository == asked.project and asked.is_followed(one.ref)
        ]

    async def _preview(
        self,
        agent: ConnectedAgent,
        project: pb.ProjectStatus,
        asked: MergeRequest,
        until: float,
    ) -> Asked:
        """
        Return the preview of one project, with retries if a later attempt may succeed.

        :param until: the time after which no further attempt is made.
        """
        called = project.id or project.repository
        client = self._api.calls.client(CONTROL, agent.agent_id)
        name = f"refs/merge-requests/{asked.number}/head"
        request = pb.PreviewRequest(
            agent=agent.agent_id,
            project=project.id,
            ref=rpc_pb2.Ref(name=name),
            merge_request=True,
        )
        backoff = Backoff(self._random, PAUSE_FIRST, PAUSE_MOST)
        clock = self._api.clock
        for attempt in range(1, ATTEMPTS + 1):
            async with self._agents.slot(agent.agent_id):
                left = until - clock.seconds()
                if left <= 0:
                    why = f"other previews took {ALL_SECONDS:g} s"
                    return Asked(agent.agent_name, called, problem=why)
                pause = backoff.pause()
                last = attempt == ATTEMPTS or pause >= left
                timeout = min(PREVIEW_SECONDS, left)
                try:
                    preview = await client.call("Preview", request, timeout=timeout)
                    # A message can contain millions of empty objects.
                    del preview.objects[MAX_OBJECTS:]
                except CallError as error:
                    if last or error.status not in _AGAIN:
                        return Asked(agent.agent_name, called, problem=error.message)
                else:
                    if last or preview.commit == asked.commit:
                        return Asked(agent.agent_name, called, preview)
            await deferLater(clock, pause)
        raise AssertionError


def _numbers(event: Any) -> tuple[int, int] | None:
    """
    Return the id of the project and the number of the merge request in an event; None
    if the event does not change the preview.

    :raises ValueError: if the event does not belong to a merge request.
    """
    try:
        if event["object_kind"] != "merge_request":
            return None
        said = event["object_attributes"]
        if said.get("state") != "opened":
            return None
        changes = event.get("changes") or {}
        is_update = said.get("action") == "update" and (
            said.get("oldrev") or "target_branch" in changes
        )
        if said.get("action") not in _NEW and not is_update:
            return None
        return _number(event["project"]["id"]), _number(said["iid"])
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(str(error)) from None


def _merge_request(
    project_id: int, number: int, said: Any, project: Any
) -> MergeRequest | None:
    """
    Read a merge request from responses of GitLab's API; None if the merge request is
    not open.

    :raises CallError: if the responses cannot be parsed.
    """
    try:
        found = MergeRequest(
            project_id=project_id,
            project=_text(project["path_with_namespace"]),
            number=number,
            target=_text(said["target_branch"]),
            default=said["target_branch"] == project["default_branch"],
            commit=_text(said["sha"]),
            is_fork=said["source_project_id"] != project_id,
        )
        is_it = (
            project["id"] == said["target_project_id"] == project_id
            and said["iid"] == number
        )
        return found if is_it and said["state"] == "opened" else None
    except (KeyError, TypeError, ValueError):
        text = "cannot read GitLab's response about the merge request"
        raise CallError(Status.FAILED_PRECONDITION, text) from None


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError("this is not a number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or clean(value, 1024) != value:
        raise ValueError("this is not a name")
    return value


def _answer(request: IRequest, code: int, text: str) -> bytes:
    request.setResponseCode(code)
    request.setHeader(b"content-type", b"text/plain; charset=utf-8")
    return text.encode() + b"\n"
