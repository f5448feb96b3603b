"""Forwarding of operators' calls for an agent's projects to the leading agentk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import attrs

from modules.gitops.wire import control_pb2
from tunnel.api import (
    CLIENT_ADDRESS,
    OPERATOR,
    AuditEvent,
    AuditStage,
    ConnectedAgent,
    EnforcedEvents,
    IServerModuleApi,
    project_of,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.single_object import check_manifest

__all__ = ["CONTROL", "Operators"]

CONTROL = control_pb2.DESCRIPTOR.services_by_name["GitopsControl"]

#: Timeout of one response in seconds, unless the caller sets another.
SECONDS = 30.0


#: Maximum characters of an agent's name, and maximum number of agents' names, in an
#: error.
MAX_NAME, MAX_NAMES = 200, 10

#: Recorded methods that change nothing.
_READS = frozenset(("GetKept",))

#: Maximum characters of each detail in the audit log, and maximum number of objects
#: that it names.
MAX_DETAIL, MAX_OBJECTS = 200, 20


def _passed(method: str) -> Callable[[Operators, Any, Any], Awaitable[Any]]:
    """Return a handler that forwards *method* to the agent that the request names."""

    async def ask(self: Operators, request: Any, call: Any) -> Any:
        return await self.ask(method, request, call)

    return ask


def _decided(
    method: str, check: Callable[[Any, Any], None] = lambda request, response: None
) -> Callable[[Operators, Any, Any], Awaitable[Any]]:
    """
    Return a handler like `_passed` that also records the operator's decision in the
    audit log, whatever the outcome.

    :param check: raises a `CallError` for a response that does not fit the request.
    """

    async def ask(self: Operators, request: Any, call: Any) -> Any:
        outcome = Status.CANCELLED
        event_id = self.enforced_id(method)
        try:
            if event_id:
                await self.begin(method, request, call, event_id)
            response = await self.ask(method, request, call)
            check(request, response)
            outcome = Status.OK
        except CallError as error:
            outcome = error.status
            raise
        finally:
            self.record(method, request, call, outcome.name, event_id)
        return response

    return ask


def _check_kept(request: Any, response: Any) -> None:
    """
    Check that a response contains the requested state, because users pipe the state to
    kubectl.
    """
    if not request.id:
        for one in response.states:
            one.manifest = ""
        return
    try:
        if [one.id for one in response.states] != [request.id]:
            raise ValueError("it contains another state than the requested one")
        (state,) = response.states
        name = state.object
        check_manifest(
            state.manifest, (name.group, name.kind, name.namespace, name.name)
        )
    except ValueError as error:
        text = f"the agent's response is invalid: {error}"
        raise CallError(Status.FAILED_PRECONDITION, text) from None


@attrs.frozen
class Operators:
    """
    Implementation of `GitopsControl` on the external API, which forwards calls to
    agentk.
    """

    api: IServerModuleApi

    get_status = _passed("GetStatus")
    approve = _decided("Approve")
    get_history = _passed("GetHistory")
    # Record these calls, too: if the request has an id, the response contains a whole
    # object, which may be a Secret.
    get_kept = _decided("GetKept", _check_kept)
    undo = _decided("Undo")
    suspend = _decided("Suspend")
    resume = _decided("Resume")
    sync = _decided("Sync")
    repair = _decided("Repair")
    get_drift = _passed("GetDrift")
    preview = _passed("Preview")

    def enforced_id(self, method: str) -> str:
        """Return an id for the events of an enforced order; empty for other orders."""
        audit = self.api.audit
        if method in _READS or EnforcedEvents.ADMINISTRATION not in audit.enforced:
            return ""
        event_id: str = audit.new_id()
        return event_id

    async def begin(self, method: str, request: Any, call: Any, event_id: str) -> None:
        """
        Wait until the first event of an enforced order is in the audit log.

        :raises CallError: UNAVAILABLE if the log cannot be written.
        """
        event = self._event(method, request, call, "", AuditStage.BEGUN, event_id)
        await self.api.audit.commit(event)

    def record(
        self, method: str, request: Any, call: Any, outcome: str, event_id: str
    ) -> None:
        """
        Write a decision to the audit log, with its project and operator.

        :param event_id: the result of `enforced_id`.
        """
        stage = AuditStage.ENDED if event_id else AuditStage.CHANGED
        event = self._event(method, request, call, outcome, stage, event_id)
        self.api.audit.record(event)

    def _event(
        self,
        method: str,
        request: Any,
        call: Any,
        outcome: str,
        stage: AuditStage,
        event_id: str,
    ) -> AuditEvent:
        details = {
            "agent": request.agent,
            "project": request.project,
            "release": getattr(request, "release", ""),
            "commit": getattr(request, "commit", ""),
            "state": getattr(request, "id", ""),
            "objects": ", ".join(
                f"{one.kind} {one.namespace}/{one.name}"
                for one in list(getattr(request, "objects", ()))[:MAX_OBJECTS]
            ),
            "operator": call.metadata.get(OPERATOR, ""),
            "client": call.metadata.get(CLIENT_ADDRESS, ""),
            "user_agent": call.metadata.get("user-agent", ""),
        }
        said = {name: text[:MAX_DETAIL] for name, text in details.items() if text}
        action = "gitops.kept" if method == "GetKept" else f"gitops.{method.lower()}"
        return AuditEvent(action, None, outcome, said, id=event_id, stage=stage)

    async def ask(self, method: str, request: Any, call: Any) -> Any:
        """
        Forward a request to an agent and return its response.

        :param request: names the agent in ``agent``.
        :raises CallError: the error of the agent; NOT_FOUND if the agent does not
            exist.
        """
        if method == "Preview":
            # The caller is an operator, so the preview is not for a merge request.
            request.merge_request = False
        if method == "Approve":
            request.operator = call.metadata.get(OPERATOR, "")[:MAX_DETAIL]
        agent = await self._agent(request.agent)
        client = self.api.calls.client(CONTROL, agent.agent_id)
        timeout = SECONDS if call.time_left is None else call.time_left
        try:
            return await client.call(method, request, timeout=timeout)
        except CallError as error:
            if error.status is not Status.UNIMPLEMENTED:
                raise
            raise CallError(
                Status.FAILED_PRECONDITION,
                f"agent {agent.agent_name} has no GitOps: put gitops into modules of "
                "agentk's configuration file",
            ) from None

    async def _agent(self, wanted: str) -> ConnectedAgent:
        """Return an agent by its id, its name, or ``group/project:name``."""
        if not wanted:
            raise CallError(Status.INVALID_ARGUMENT, "agent has to name an agent")
        every: Collection[ConnectedAgent] = ()
        found: Collection[ConnectedAgent] = await self.api.agents.find(agent_id=wanted)
        if not found:
            every = await self.api.agents.find()
            found = [one for one in every if wanted in self._names(one)]
        if len({one.agent_id for one in found}) > 1:
            ids = ", ".join(sorted({one.agent_id for one in found})[:5])
            raise CallError(
                Status.FAILED_PRECONDITION,
                (
                    f"several agents are called {wanted[:200]!r}: give one of these "
                    f"ids: {ids}"
                ),
            )
        for one in found:
            return one
        # Name each agent by its longest name, which is the most specific, because it
        # includes the project.
        names = sorted({self._names(one)[-1] for one in every})
        known = ", ".join(name[:MAX_NAME] for name in names[:MAX_NAMES]) or "none"
        if len(names) > MAX_NAMES:
            known += f" and {len(names) - MAX_NAMES} more"
        raise CallError(
            Status.NOT_FOUND,
            f"no agent {wanted[:MAX_NAME]!r} is connected; connected: {known}",
        )

    def _names(self, agent: ConnectedAgent) -> tuple[str, ...]:
        project, name = project_of(self.api, agent), agent.agent_name
        return (name, f"{project}:{name}") if project else (name,)
