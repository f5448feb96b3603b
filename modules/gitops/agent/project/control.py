"""agentk's responses to requests about its projects, from users and other systems."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import attrs

from modules.gitops.agent.apply.outcome import Outcome, Result
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.project.journal import MAX_LINES
from modules.gitops.agent.project.messages import (
    drift_message,
    object_reference,
    timestamp,
)
from modules.gitops.agent.project.preview import ObjectPreview
from modules.gitops.agent.project.project import Project
from modules.gitops.agent.project.receivers import Receiver, key_of
from modules.gitops.agent.project.status import State
from modules.gitops.agent.source.snapshot import ref_message
from modules.gitops.wire import control_pb2 as pb
from modules.gitops.wire.effect import Effect
from modules.gitops.wire.settings import ReceiverObject
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.texts import clean, shortened

__all__ = ["Control"]

_Found = TypeVar("_Found")

_STATES = {
    State.WAITING: pb.ProjectStatus.STATE_WAITING,
    State.WORKING: pb.ProjectStatus.STATE_WORKING,
    State.CURRENT: pb.ProjectStatus.STATE_CURRENT,
    State.FAILED: pb.ProjectStatus.STATE_FAILED,
    State.HELD: pb.ProjectStatus.STATE_HELD,
    State.SUSPENDED: pb.ProjectStatus.STATE_SUSPENDED,
}

#: Maximum number of objects in one response.
MAX_OBJECTS = 5000

#: Maximum bytes of objects in one response, and number of bytes after which the fields
#: of objects are only counted.  A message may be at most 4 MiB long, including other
#: data.
MAX_BYTES, MAX_FIELD_BYTES = 3 * 1024**2, 2 * 1024**2

#: Bytes reserved for problems and all other data except objects.
SPARE_BYTES = 768 * 1024

#: Maximum bytes of the problems of all projects in a response.  If the problems are
#: longer, the response contains a single line for each project, with at most this
#: number of characters.
MAX_WRONG_BYTES, SHORT_PROBLEM = 512 * 1024, 200

#: Maximum number of drifts in one response.
MAX_DRIFTS = 1000

#: Maximum number of previews that an agent makes at the same time.  Each preview holds
#: a commit in memory, and sends up to three requests for each object to the API server.
MAX_PREVIEWS = 2

#: Maximum number of these previews that may be for merge requests, so that an author
#: who pushes charts that loop cannot keep operators from previews.
MAX_MERGE_REQUESTS = 1

#: Maximum seconds for the health of all objects of other engines: kas waits ten seconds
#: for a response.
HEALTH_SECONDS = 5.0

#: Maximum characters of a reason, and of a line about a problem, because API servers
#: are verbose.
MAX_REASON, MAX_PROBLEM = 300, 1000

#: Maximum characters of the name of the user who approves deletes.
MAX_OPERATOR = 200

#: Maximum characters of a commit's id, which may be arbitrary text from a user.
MAX_COMMIT = 64

#: Effects and outcomes that are listed first and left out last.
_BAD = frozenset(
    (
        *(Effect.DENIED, Effect.REFUSED, Effect.BLOCKED),
        *(Outcome.FAILED, Outcome.SKIPPED, Outcome.BLOCKED),
    )
)
_USUAL = frozenset((Effect.NONE, Outcome.UNCHANGED))


class _Room:
    """
    Counter of the remaining space for objects in one response.

    :param used: bytes that other data uses.
    """

    def __init__(self, used: int = 0) -> None:
        self._left = MAX_BYTES - max(0, used - SPARE_BYTES)

    def some(
        self, found: Iterable[Any], made: Callable[[Any], Any], most: int
    ) -> Iterator[Any]:
        """Yield messages while space remains, but at most *most* messages."""
        for one in islice(found, most):
            message = made(one)
            if self._left < MAX_BYTES - MAX_FIELD_BYTES and hasattr(message, "fields"):
                message.more_fields += len(message.fields)
                message.ClearField("fields")
                if hasattr(message, "drift"):
                    message.ClearField("drift")
            self._left -= message.ByteSize() + _HEAD
            if self._left < 0:
                return
            yield message


#: Maximum bytes of overhead for a message within another.
_HEAD = 8


def _weighed(
    room: _Room,
    found: Iterable[_Found],
    what: Callable[[_Found], Any],
    made: Callable[[_Found], Any],
) -> list[Any]:
    """
    Return messages in the order of their names; if space is short, return only the most
    important messages.
    """
    found = sorted(found, key=lambda one: (what(one) not in _BAD, what(one) in _USUAL))
    return sorted(room.some(found, made, MAX_OBJECTS), key=_name)


def _name(message: Any) -> tuple[str, ...]:
    named = message.object
    return named.group, named.kind, named.namespace, named.name


@attrs.frozen
class Control:
    """
    Implementation of `GitopsControl`.

    :param projects: the active projects, by id.
    :param refused: returns why the configuration in Git is not in effect; empty if the
        configuration is in effect.
    :param seconds: returns the time of the reactor's clock.
    :param notices: returns lines for a project's status that are not failures.
    """

    projects: Mapping[str, Project]
    _receivers: Callable[[], list[Receiver]]
    _refused: Callable[[], Sequence[str]]
    _seconds: Callable[[], float]
    _notices: Callable[[Project], Sequence[str]] = lambda project: ()
    #: Calls that wait for a preview, each with whether it is for a merge request.
    _previews: dict[Any, bool] = attrs.field(factory=dict, init=False)

    async def get_status(
        self, request: pb.GetStatusRequest, call: Any
    ) -> pb.GetStatusResponse:
        """
        Return the state of the requested projects and, if all are requested, of the
        receivers.
        """
        found = self._asked(request.project)
        receivers = [] if request.project else self._receivers()
        until = self._seconds() + HEALTH_SECONDS
        statuses = await in_parallel(
            partial(_received, receiver, one, until)
            for receiver in receivers
            for one in receiver.settings.objects
        )
        answer = pb.GetStatusResponse(
            receivers=statuses,
            configuration_problems=[
                shortened(one, MAX_PROBLEM) for one in self._refused()[:MAX_LINES]
            ],
        )
        left = MAX_WRONG_BYTES
        for one in found:
            status = _status(one)
            notices = self._notices(one)[:MAX_LINES]
            status.notices[:] = [shortened(line, MAX_PROBLEM) for line in notices]
            wrong = (*status.problems, *status.notices)
            left -= sum(len(line.encode()) for line in wrong)
            if left < 0:
                status.problems[:] = [
                    shortened(line, SHORT_PROBLEM) for line in status.problems[:1]
                ]
                status.ClearField("notices")
            answer.projects.append(status)
        if request.objects:
            room = _Room(answer.ByteSize())
            for one, status in zip(found, answer.projects, strict=True):
                status.objects.extend(_objects(one, room))
        return answer

    async def approve(
        self, request: pb.ApproveRequest, call: Any
    ) -> pb.ApproveResponse:
        """Approve deletes that a limit holds back."""
        by = clean(request.operator, MAX_OPERATOR, " ")
        await self._project(request.project).operations.approve(request.release, by)
        return pb.ApproveResponse()

    async def get_history(
        self, request: pb.GetHistoryRequest, call: Any
    ) -> pb.GetHistoryResponse:
        """Return the commits that were applied."""
        found = await self._project(request.project).operations.history()
        return pb.GetHistoryResponse(
            commits=[
                pb.AppliedCommit(
                    commit=one.commit,
                    at=timestamp(one.at),
                    summary=one.summary,
                    complete=one.complete,
                )
                for one in found
            ]
        )

    async def get_kept(
        self, request: pb.GetKeptRequest, call: Any
    ) -> pb.GetKeptResponse:
        """Return the kept previous states of objects."""
        found = await self._project(request.project).operations.kept()
        if request.id:
            found = [one for one in found if one.state_id == request.id]
            if not found:
                text = (
                    f"no state {request.id[:64]!r} is kept (any more): "
                    "list the states with 'kasctl gitops kept'"
                )
                raise CallError(Status.NOT_FOUND, text)
        return pb.GetKeptResponse(
            states=[
                pb.KeptState(
                    id=one.state_id,
                    at=timestamp(one.at),
                    why=one.why,
                    object=object_reference(one.key),
                    manifest=json.dumps(one.object) if request.id else "",
                )
                for one in found
            ]
        )

    async def undo(self, request: pb.UndoRequest, call: Any) -> pb.UndoResponse:
        """Apply an earlier commit, and keep the project at that commit."""
        project = self._project(request.project)
        return pb.UndoResponse(commit=await project.operations.undo(request.commit))

    async def suspend(
        self, request: pb.SuspendRequest, call: Any
    ) -> pb.SuspendResponse:
        """Stop changing the cluster."""
        await self._project(request.project).operations.suspend()
        return pb.SuspendResponse()

    async def resume(self, request: pb.ResumeRequest, call: Any) -> pb.ResumeResponse:
        """Follow Git again."""
        await self._project(request.project).operations.resume()
        return pb.ResumeResponse()

    async def sync(self, request: pb.SyncRequest, call: Any) -> pb.SyncResponse:
        """Apply the newest commit now."""
        try:
            project = self._project(request.project)
        except CallError as error:
            if not self.projects:
                raise
            # The project may exist only in the latest commit of the agent's
            # configuration.
            text = f"{error.message} (to read a new configuration, sync one of these)"
            raise CallError(error.status, text) from None
        return pb.SyncResponse(commit=await project.operations.sync())

    async def repair(self, request: pb.RepairRequest, call: Any) -> pb.RepairResponse:
        """Take fields of objects back from other field managers."""
        keys = [
            ObjectKey(one.group, one.kind, one.namespace, one.name)
            for one in request.objects
        ]
        await self._project(request.project).operations.repair(keys)
        return pb.RepairResponse()

    async def get_drift(
        self, request: pb.GetDriftRequest, call: Any
    ) -> pb.GetDriftResponse:
        """Return the drift of objects."""
        response, room = pb.GetDriftResponse(), _Room()
        for project in self._asked(request.project):
            drifts = list(project.drifts.present.values())
            if request.ended:
                drifts += project.drifts.lately
            most = MAX_DRIFTS - len(response.drifts)
            message = partial(drift_message, project.name)
            response.drifts.extend(room.some(drifts, message, most))
        return response

    async def preview(
        self, request: pb.PreviewRequest, call: Any
    ) -> pb.PreviewResponse:
        """Return the effects that a commit would have."""
        project = self._project(request.project)
        of_merge_requests = sum(self._previews.values())
        if len(self._previews) >= MAX_PREVIEWS or (
            request.merge_request and of_merge_requests >= MAX_MERGE_REQUESTS
        ):
            text = f"{len(self._previews)} previews are running: try again later"
            raise CallError(Status.RESOURCE_EXHAUSTED, text)
        self._previews[call] = request.merge_request
        try:
            found = await project.previewer.preview(request.ref, request.path)
        finally:
            del self._previews[call]
        return pb.PreviewResponse(
            commit=found.commit,
            problems=[
                shortened(str(one), MAX_PROBLEM) for one in found.problems[:MAX_LINES]
            ],
            objects=_weighed(
                _Room(),
                found.objects,
                lambda one: one.effect,
                partial(_previewed, project.name),
            ),
        )

    def _asked(self, name: str) -> list[Project]:
        if name:
            return [self._project(name)]
        return [self.projects[each] for each in sorted(self.projects)]

    def _project(self, name: str) -> Project:
        """
        Return the project with a name.

        The name of its repository is also accepted if the agent has only one project
        with that repository.

        :raises CallError: NOT_FOUND if no such project exists.
        """
        found = self.projects.get(name)
        if found is None:
            of_repository = [
                one for one in self.projects.values() if one.desired.repository == name
            ]
            found = of_repository[0] if len(of_repository) == 1 else None
        if found is None:
            known = ", ".join(sorted(one.name for one in self.projects.values()))
            raise CallError(
                Status.NOT_FOUND,
                f"project {name[:200]!r} does not exist; known: {known or 'none'}",
            )
        return found


def _status(project: Project) -> pb.ProjectStatus:
    """Return the status of a project without its objects."""
    status = pb.ProjectStatus(
        id=project.settings.label,
        repository=project.desired.repository,
        state=_STATES[project.status.state],
        next_commit=project.status.next_commit,
        next_reason=shortened(project.status.next_reason, MAX_REASON),
        problems=[
            shortened(one, MAX_PROBLEM) for one in project.status.problems[:MAX_LINES]
        ],
        pinned=project.desired.orders.pinned[:MAX_COMMIT],
        ref=ref_message(project.settings.ref),
        drifted=len(project.drifts.present),
        hands_over=project.status.hands_over,
        drift_delay=shortened(project.status.drift_delay, MAX_REASON),
    )
    report = project.passes.report
    if report is None:
        return status
    status.commit = report.commit
    status.release = project.status.release
    if project.passes.worked_at is not None:
        status.worked_at.CopyFrom(timestamp(project.passes.worked_at))
    counts = Counter(one.outcome.value for one in report.results.values())
    status.objects_by_outcome.update(counts)
    return status


def _objects(project: Project, room: _Room) -> list[pb.ObjectStatus]:
    report = project.passes.report
    if report is None:
        return []
    results = [report.results[key] for key in sorted(report.results)]
    return _weighed(room, results, lambda one: one.outcome, _object)


async def _received(
    receiver: Receiver, one: ReceiverObject, until: float
) -> pb.ReceiverStatus:
    status = pb.ReceiverStatus(
        project=receiver.settings.project,
        object=object_reference(key_of(one)),
        commit=receiver.notified.get(one, ""),
        problem=shortened(receiver.problems.get(one, receiver.problem), MAX_REASON),
    )
    try:
        health = await receiver.health(one, until)
    except CallError as error:
        status.reason = shortened(error.message, MAX_REASON)
    else:
        status.health = health.status.value
        status.reason = shortened(health.reason, MAX_REASON)
    return status


def _previewed(project: str, found: ObjectPreview) -> pb.ObjectPreview:
    drift = found.drift
    return pb.ObjectPreview(
        drift=None if drift is None else drift_message(project, drift),
        object=object_reference(found.key),
        effect=found.effect.value,
        reason=shortened(found.reason, MAX_REASON),
        place=str(found.origin or ""),
        fields=[
            pb.FieldPreview(path=one.path, before=one.live, after=one.wanted)
            for one in found.fields
        ],
        more_fields=found.more,
    )


def _object(result: Result) -> pb.ObjectStatus:
    return pb.ObjectStatus(
        object=object_reference(result.key),
        outcome=result.outcome.value,
        reason=shortened(result.reason, MAX_REASON),
        place=str(result.origin or ""),
    )
