"""Word to kas of the modules that failed, for ``kasctl status``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from agentk.kubernetes.reach import MAX_TEXT, REPORT_TIMEOUT, SERVICE
from tunnel.errors import TunnelError
from tunnel.pb import reports_pb2
from tunnel.rpc.client import ServiceClient, StreamOpener
from tunnel.util.texts import clean

__all__ = ["ModuleReports"]


@attrs.define(eq=False)
class ModuleReports:
    """
    Tells kas which modules of agentk are restarting, and why, when that changes.

    :param problems: the modules that failed and have not started again.
    :param open_stream: opens a stream to kas.
    :param services: what kas answers now; empty while there is no tunnel.
    """

    _problems: Callable[[], Mapping[str, str]]
    _open_stream: StreamOpener
    _services: Callable[[], frozenset[str]]
    _clock: IReactorTime
    #: What kas was told last over the tunnel that is up.
    _told: dict[str, str] = attrs.field(factory=dict, init=False)
    _reporting: bool = attrs.field(default=False, init=False)
    _log = Logger()

    def connected(self) -> None:
        """There is a new tunnel: kas takes all modules for running."""
        self._told = {}
        self.report()

    def report(self) -> None:
        """Tell kas what has changed, unless it is being told."""
        problems = dict(self._problems())
        if self._reporting or problems == self._told:
            return
        if SERVICE.full_name not in self._services():
            return
        self._reporting = True
        reporting = Deferred.fromCoroutine(self._tell(problems))
        reporting.addCallbacks(lambda _: self.report(), self._not_told)

    async def _tell(self, problems: dict[str, str]) -> None:
        report = reports_pb2.ModulesReport(
            restarting=[
                reports_pb2.ModuleProblem(
                    module=name, problem=clean(why, MAX_TEXT, " ")
                )
                for name, why in problems.items()
            ]
        )
        try:
            client = ServiceClient(SERVICE, self._open_stream, self._clock)
            await client.call("Modules", report, timeout=REPORT_TIMEOUT)
            self._told = problems
        finally:
            self._reporting = False

    def _not_told(self, failure: Failure) -> None:
        # The next change, or the next tunnel, repeats it.
        if failure.check(TunnelError) is None:
            self._log.failure("while reporting to kas", failure)
        else:
            self._log.debug("kas was not told: {why}", why=failure.getErrorMessage())
