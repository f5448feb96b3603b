"""
Reports of failing projects from agentk to kas, for ``kasctl doctor`` and ``status``.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from modules.gitops.agent.project.project import Project
from modules.gitops.agent.project.status import State
from modules.gitops.wire import reports_pb2
from tunnel.api import IServiceClient
from tunnel.errors import CallError
from tunnel.toolkit.texts import clean, shortened

__all__ = ["MAX_FAILING", "REPORT_PAUSE", "FailingReports"]

#: Seconds between two reports.  kas forgets projects that are not reported again.
REPORT_PAUSE = 30.0

#: Timeout of one report, in seconds.
REPORT_SECONDS = 10.0

#: Maximum number of projects in one report, and maximum characters of a problem.
MAX_FAILING, MAX_PROBLEM = 20, 300


@attrs.define(eq=False)
class FailingReports:
    """
    Reporter of the projects that fail now.

    :param kas: calls `GitopsReports`.
    :param projects: the active projects.
    """

    _log = Logger()

    _kas: IServiceClient
    _projects: Mapping[str, Project]
    _clock: IReactorTime
    #: Whether the last report that kas received contained a project.
    _known: bool = False

    async def run(self) -> None:
        """Report periodically until cancelled."""
        while True:
            await deferLater(self._clock, REPORT_PAUSE)
            await self._report()

    async def _report(self) -> None:
        failing = [
            one
            for _, one in sorted(self._projects.items())
            if one.status.state is State.FAILED and not one.status.hands_over
        ]
        if not failing and not self._known:
            return
        request = reports_pb2.ReportFailingRequest(
            projects=[
                reports_pb2.FailingProject(project=one.name, problem=_problem(one))
                for one in failing[:MAX_FAILING]
            ],
            left_out=max(0, len(failing) - MAX_FAILING),
        )
        try:
            await self._kas.call("ReportFailing", request, timeout=REPORT_SECONDS)
        except CallError as error:
            # The next report contains the same projects.  An older kas does not have
            # the method.
            self._log.debug("kas did not accept a report: {why}", why=error.message)
        else:
            self._known = bool(failing)


def _problem(project: Project) -> str:
    problems = project.status.problems
    if not problems:
        return ""
    return clean(shortened(problems[0], MAX_PROBLEM), MAX_PROBLEM, " ")
