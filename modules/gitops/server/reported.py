"""Receives reports from agentk, and passes them to the event bus and to webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from modules.gitops.wire import control_pb2, reports_pb2
from tunnel.api import AuditEvent, ConnectedAgent, IServerModuleApi, project_of
from tunnel.errors import CallError, Status
from tunnel.toolkit.allowance import Allowance
from tunnel.toolkit.recent import Recent
from tunnel.toolkit.texts import clean, clean_message
from tunnel.toolkit.timers import cancel_call

__all__ = ["REPORTS", "AgentDrift", "Reported"]

REPORTS = reports_pb2.DESCRIPTOR.services_by_name["GitopsReports"]

#: Maximum number of drifts in one report, and maximum bytes of the report.
MAX_DRIFTS, MAX_BYTES = 100, 1024 * 1024

#: Maximum number of fields, of writers and of credentials of one drift; agentk sends
#: fewer. A report of 1 MiB could contain half a million empty entries, which take
#: seconds to process.
MAX_PARTS = 50

#: Maximum characters of one text: agentk truncates values to 200, and names have at
#: most 253.
MAX_TEXT = 1000

#: Maximum number of reports of one agent in a period, and the seconds of that period:
#: agentk sends at most one each second.
REPORTS_OF_ONE, REPORTS_SECONDS = 90, 60.0

#: Maximum number of agents whose reports kas counts; it forgets the oldest entry first.
MAX_AGENTS = 10_000

#: Maximum number of failing projects in one report, and maximum characters of a name
#: and of a problem.
MAX_FAILING, MAX_NAME, MAX_PROBLEM = 20, 200, 300

#: Maximum number of prunes in one report, and maximum number of objects that the audit
#: log names for each prune.
MAX_PRUNES, MAX_NAMED = 20, 20

#: Operator in the audit log for a prune, because kas did not see the approval.
OPERATOR = "agentk"

#: Maximum number of prunes that one agent may add to the audit log in a period, and the
#: seconds of that period: agentk sends a report every five seconds.
PRUNES_OF_ONE, PRUNES_SECONDS = 240, 60.0

#: Maximum characters of an id or a name in the audit log.
MAX_ID = 253

#: Seconds after which a project that is not reported again no longer counts as failing:
#: the agent is disconnected, or reports to another kas.  Agents report every half
#: minute.
FAILING_SECONDS = 120.0


@attrs.frozen
class AgentDrift:
    """
    Event that an agent has reported drift of its projects.

    :ivar left_out: the number of drifts that agentk left out because there were too
        many.
    :ivar project: the path of the agent's project at GitLab; None if the agent has no
        project.
    """

    agent_id: str
    agent_name: str
    drifts: tuple[control_pb2.ObjectDrift, ...]
    left_out: int = 0
    project: str | None = None


class Reported:
    """Implementation of `GitopsReports`."""

    _log = Logger()

    def __init__(self, api: IServerModuleApi) -> None:
        self._api = api
        self._clock: IReactorTime = api.clock
        self._allowances: Recent[str, Allowance] = Recent(MAX_AGENTS)
        self._prunes: Recent[str, Allowance] = Recent(MAX_AGENTS)
        #: Timer that forgets the failing projects of an agent, by agent.
        self._forgetting: dict[str, IDelayedCall] = {}

    @property
    def counted(self) -> Mapping[str, Allowance]:
        """Allowances for reports, by agent."""
        return self._allowances

    async def report_drift(
        self, request: reports_pb2.ReportDriftRequest, call: Any
    ) -> reports_pb2.ReportDriftResponse:
        """Publish a report of drift."""
        agent: ConnectedAgent = call.agent
        self._count(agent)
        if len(request.drifts) > MAX_DRIFTS or request.ByteSize() > MAX_BYTES:
            text = (
                f"a report may have at most {MAX_DRIFTS} drifts and {MAX_BYTES} bytes"
            )
            raise CallError(Status.INVALID_ARGUMENT, text)
        if any(_has_many(one) for one in request.drifts):
            text = (
                f"a drift may have at most {MAX_PARTS} fields, writers or credentials"
            )
            raise CallError(Status.INVALID_ARGUMENT, text)
        for one in request.drifts:
            clean_message(one, MAX_TEXT)
        found = AgentDrift(
            agent.agent_id,
            agent.agent_name,
            tuple(request.drifts),
            request.left_out,
            project_of(self._api, agent),
        )
        self._log.info(
            "agent {name}: {count} reports of drift in GitOps projects",
            name=agent.agent_name,
            count=len(found.drifts) + found.left_out,
        )
        self._api.events.publish(found)
        return reports_pb2.ReportDriftResponse()

    async def report_failing(
        self, request: reports_pb2.ReportFailingRequest, call: Any
    ) -> reports_pb2.ReportFailingResponse:
        """Record failing projects for ``kasctl status`` and ``doctor``."""
        agent: ConnectedAgent = call.agent
        self._count(agent)
        if len(request.projects) > MAX_FAILING or request.ByteSize() > MAX_BYTES:
            text = (
                f"a report may have at most {MAX_FAILING} projects and {MAX_BYTES} "
                "bytes"
            )
            raise CallError(Status.INVALID_ARGUMENT, text)
        found = [
            f"project {clean(one.project, MAX_NAME, ' ')} fails: "
            f"{clean(one.problem, MAX_PROBLEM, ' ')}"
            for one in request.projects
        ]
        if request.left_out:
            found.append(f"and {request.left_out} more")
        cancel_call(self._forgetting.pop(agent.agent_id, None))
        self._api.agents.show_problem(
            agent.agent_id, agent.agent_name, "; ".join(found)
        )
        if found:
            self._forgetting[agent.agent_id] = self._clock.callLater(
                FAILING_SECONDS, self._forget, agent
            )
        return reports_pb2.ReportFailingResponse()

    async def report_pruned(
        self, request: reports_pb2.ReportPrunedRequest, call: Any
    ) -> reports_pb2.ReportPrunedResponse:
        """Write each prune to the audit log."""
        agent: ConnectedAgent = call.agent
        self._count(agent)
        if len(request.prunes) > MAX_PRUNES or request.ByteSize() > MAX_BYTES:
            text = (
                f"a report may have at most {MAX_PRUNES} prunes and {MAX_BYTES} bytes"
            )
            raise CallError(Status.INVALID_ARGUMENT, text)
        self._count_prunes(agent, len(request.prunes) + bool(request.left_out))
        for one in request.prunes:
            self._audit(agent, one)
        if request.left_out:
            self._audit(agent, reports_pb2.Prune(count=request.left_out))
        return reports_pb2.ReportPrunedResponse()

    def _audit(self, agent: ConnectedAgent, prune: reports_pb2.Prune) -> None:
        objects = ", ".join(
            f"{one.kind} {one.namespace}/{one.name}"
            for one in prune.objects[:MAX_NAMED]
        )
        texts = {
            "agent": agent.agent_name,
            "agent_id": agent.agent_id,
            "project": prune.project[:MAX_ID],
            "commit": prune.commit[:MAX_ID],
            "objects": objects,
            "operator": OPERATOR,
            # This is the approver in agentk's report; kas records the approval itself
            # as gitops.approve.
            "approved_by": prune.approved_by[:MAX_ID],
        }
        details: dict[str, str | int | bool] = {
            name: text[:MAX_TEXT] for name, text in texts.items() if text
        }
        details["count"] = prune.count
        self._api.audit.record(AuditEvent("gitops.prune", None, "OK", details))

    def _forget(self, agent: ConnectedAgent) -> None:
        del self._forgetting[agent.agent_id]
        self._api.agents.show_problem(agent.agent_id, agent.agent_name, "")

    def stop(self) -> None:
        """Cancel the timers that forget failing projects."""
        for call in self._forgetting.values():
            cancel_call(call)
        self._forgetting.clear()

    def _count_prunes(self, agent: ConnectedAgent, count: int) -> None:
        """
        Count the prunes of one report.

        :raises CallError: see `_spend`.
        """
        text = f"at most {PRUNES_OF_ONE} reported prunes in {PRUNES_SECONDS:g} s"
        limit = Allowance(PRUNES_OF_ONE, PRUNES_SECONDS)
        self._spend(self._prunes, agent, limit, text, count)

    def _count(self, agent: ConnectedAgent) -> None:
        """
        Count one report.

        :raises CallError: see `_spend`.
        """
        text = f"at most {REPORTS_OF_ONE} reports in {REPORTS_SECONDS:g} s"
        limit = Allowance(REPORTS_OF_ONE, REPORTS_SECONDS)
        self._spend(self._allowances, agent, limit, text)

    def _spend(
        self,
        allowances: Recent[str, Allowance],
        agent: ConnectedAgent,
        limit: Allowance,
        text: str,
        count: int = 1,
    ) -> None:
        """
        Take *count* from the allowance of an agent.

        :param limit: the allowance of an agent that has none yet.
        :raises CallError: RESOURCE_EXHAUSTED if the allowance is too small; the
            allowance is then unchanged.
        """
        allowance = allowances.get(agent.agent_id, limit)
        allowances[agent.agent_id] = allowance
        now = self._clock.seconds()
        for taken in range(count):
            if not allowance.wait(now):
                allowance.take(now)
                continue
            for _ in range(taken):
                allowance.give_back()
            raise CallError(Status.RESOURCE_EXHAUSTED, text)


def _has_many(drift: control_pb2.ObjectDrift) -> bool:
    parts: tuple[Sized, ...] = (drift.fields, drift.writers, drift.credentials)
    return any(len(one) > MAX_PARTS for one in parts)
