"""Reports of agentk's own state to kas, for ``kasctl status``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tunnel.errors import TunnelError
from tunnel.pb import reports_pb2
from tunnel.rpc.client import ServiceClient, StreamOpener
from tunnel.toolkit.texts import clean

__all__ = ["MAX_TEXT", "SERVICE", "StateReports", "cluster_report", "modules_report"]

SERVICE = reports_pb2.DESCRIPTOR.services_by_name["AgentReports"]

#: Timeout of one report, in seconds.
REPORT_TIMEOUT = 10.0

#: Maximum number of characters of a problem.
MAX_TEXT = 400

_T = TypeVar("_T")


def cluster_report(problem: str) -> reports_pb2.ClusterReport:
    """
    Return a report that the API server cannot be reached, or that it can be reached if
    *problem* is empty.
    """
    return reports_pb2.ClusterReport(problem=problem)


def modules_report(problems: Mapping[str, str]) -> reports_pb2.ModulesReport:
    """Return a report of the modules that are restarting, with the reasons."""
    return reports_pb2.ModulesReport(
        restarting=[
            reports_pb2.ModuleProblem(module=name, problem=clean(why, MAX_TEXT, " "))
            for name, why in problems.items()
        ]
    )


@attrs.define(eq=False)
class StateReports(Generic[_T]):
    """
    A reporter of one state, which sends the state to kas after each change.

    :param method: the method of the service, such as ``Cluster``.
    :param state: returns the current state.
    :param message: creates the request for a state.
    :param assumed: the state that kas assumes at the beginning of a tunnel.
    :param open_stream: opens a stream to kas.
    :param services: returns the present services of kas; empty without a tunnel.
    """

    _method: str
    _state: Callable[[], _T]
    _message: Callable[[_T], Any]
    _assumed: _T
    _open_stream: StreamOpener
    _services: Callable[[], frozenset[str]]
    _clock: IReactorTime
    #: State that was last reported over the current tunnel.
    _reported: _T = attrs.field(init=False)
    _reporting: bool = attrs.field(default=False, init=False)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._reported = self._assumed

    def connected(self) -> None:
        """Report the state over a new tunnel, unless kas already assumes this state."""
        self._reported = self._assumed
        self.report()

    def report(self) -> None:
        """Report the state if it has changed, unless a report is in progress."""
        state = self._state()
        if self._reporting or state == self._reported:
            return
        if SERVICE.full_name not in self._services():
            return
        self._reporting = True
        reporting = Deferred.fromCoroutine(self._call(state))
        reporting.addCallbacks(lambda _: self.report(), self._failed)

    async def _call(self, state: _T) -> None:
        try:
            client = ServiceClient(SERVICE, self._open_stream, self._clock)
            message = self._message(state)
            await client.call(self._method, message, timeout=REPORT_TIMEOUT)
            self._reported = state
        finally:
            self._reporting = False

    def _failed(self, failure: Failure) -> None:
        # The next call of `report`, or the next tunnel, repeats the report.
        if failure.check(TunnelError) is None:
            self._log.failure("reporting to kas failed", failure)
        else:
            self._log.debug(
                "kas did not accept a report: {why}", why=failure.getErrorMessage()
            )
