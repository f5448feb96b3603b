"""Reports from agentk to kas about pruned objects, for the audit log of kas."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.project.messages import object_reference
from modules.gitops.wire import reports_pb2
from tunnel.api import IServiceClient
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff

__all__ = ["MAX_NAMED", "MAX_TOLD", "MAX_WAITING", "REPORT_PAUSE", "PruneReports"]

#: Seconds between two reports, and the timeout of one report.
REPORT_PAUSE, REPORT_SECONDS = 5.0, 10.0

#: Maximum number of prunes in one report, and of prunes that wait while kas cannot be
#: reached: further prunes are only counted.
MAX_TOLD, MAX_WAITING = 20, 1000

#: Maximum number of objects that a report names for one prune.
MAX_NAMED = 20

#: Seconds before a retry after a failure: minimum and maximum of the backoff.
TRY_FIRST, TRY_MOST = 5.0, 60.0


@attrs.define(eq=False)
class PruneReports:
    """
    Reporter of prunes, with the project, the commit and the user who approved the
    prunes.

    :param kas: calls `GitopsReports`.
    """

    _log = Logger()

    _kas: IServiceClient
    _clock: IReactorTime
    _random: Callable[[], float]
    #: Waiting prunes by project, commit and user.
    _waiting: dict[tuple[str, str, str], reports_pb2.Prune] = attrs.field(
        factory=dict, init=False
    )
    #: Number of prunes that were left out of the reports.
    _left_out: int = attrs.field(default=0, init=False)

    def add(self, project: str, commit: str, key: ObjectKey, approved_by: str) -> None:
        """Queue the report about the delete of an object."""
        known = self._waiting.get((project, commit, approved_by))
        if known is None:
            if len(self._waiting) >= MAX_WAITING:
                self._left_out += 1
                return
            known = self._waiting[project, commit, approved_by] = reports_pb2.Prune(
                project=project, commit=commit, approved_by=approved_by
            )
        known.count += 1
        if len(known.objects) < MAX_NAMED:
            known.objects.append(object_reference(key))

    async def run(self) -> None:
        """Send reports until cancelled."""
        backoff = Backoff(self._random, TRY_FIRST, TRY_MOST)
        while True:
            await deferLater(self._clock, REPORT_PAUSE)
            if not await self._report():
                await deferLater(self._clock, backoff.pause())
            else:
                backoff.reset()

    async def _report(self) -> bool:
        """Report the waiting prunes; return False if kas cannot be reached now."""
        if not (self._waiting or self._left_out):
            return True
        prunes = dict(list(self._waiting.items())[:MAX_TOLD])
        left_out = self._left_out
        request = reports_pb2.ReportPrunedRequest(
            prunes=list(prunes.values()), left_out=left_out
        )
        # Remove only the reported keys: prunes that happen in the meantime are part of
        # the next report.
        for key in prunes:
            del self._waiting[key]
        self._left_out = 0
        reported = False
        try:
            await self._kas.call("ReportPruned", request, timeout=REPORT_SECONDS)
            reported = True
        except CallError as error:
            self._log.debug("kas did not accept a report: {why}", why=error.message)
            # An earlier version of kas has no such event, so a retry would not help.
            reported = error.status in (Status.UNIMPLEMENTED, Status.INVALID_ARGUMENT)
            return reported
        finally:
            if not reported:
                self._again(prunes, left_out)
        return True

    def _again(
        self, prunes: dict[tuple[str, str, str], reports_pb2.Prune], left_out: int
    ) -> None:
        self._left_out += left_out
        for key, prune in prunes.items():
            later = self._waiting.pop(key, None)
            if later is not None:
                prune.count += later.count
                room = MAX_NAMED - len(prune.objects)
                prune.objects.extend(later.objects[:room])
        self._waiting = {**prunes, **self._waiting}
        while len(self._waiting) > MAX_WAITING:
            self._left_out += self._waiting.popitem()[1].count
