"""Checks whether the API server can be reached, and logs each change."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from agentk.kubernetes.version import ClusterVersion, OtherAnswer
from agentk.state_reports import MAX_TEXT
from tunnel.errors import CallError
from tunnel.kubernetes.answers import HOP
from tunnel.toolkit.texts import clean

__all__ = ["ClusterReachability"]

#: Seconds between two checks while the API server responds; each check is one cheap
#: request.
CHECK_INTERVAL = 60.0

#: Seconds between two checks while the API server does not respond, or did not respond
#: the last time.
RETRY_INTERVAL = 5.0

#: Number of consecutive failures after which an API server counts as unreachable: a
#: restart takes less time.
FAILURES = 3


@attrs.define(eq=False)
class ClusterReachability:
    """
    Periodic checks whether the API server responds.

    :param where: the URL of the API server.
    :param advice: the parts that the operator should check.
    :param looked: called after each check.
    :ivar problem: the problem; empty while the API server responds, and before the
        first check.
    """

    _version: ClusterVersion
    _where: str
    _advice: str
    _looked: Callable[[], None]
    _clock: IReactorTime
    problem: str = attrs.field(default="", init=False)
    _answered: bool = attrs.field(default=False, init=False)
    _failures: int = attrs.field(default=0, init=False)
    _timer: IDelayedCall | None = attrs.field(default=None, init=False)
    _looking: Deferred[None] | None = attrs.field(default=None, init=False)
    _log = Logger()

    async def start(self) -> None:
        """Check once, and continue in the background; never fails."""
        await self._look()
        self._plan()

    def stop(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()

    def _plan(self) -> None:
        pause = RETRY_INTERVAL if self._failures else CHECK_INTERVAL
        self._timer = self._clock.callLater(pause, self._again)

    def _again(self) -> None:
        self._timer = None
        self._looking = Deferred.fromCoroutine(self._look())
        self._looking.addCallbacks(lambda _: self._plan(), self._ended)

    def _ended(self, failure: Failure) -> None:
        if failure.check(CancelledError) is None:
            self._log.failure("checking the API server failed", failure)
            self._plan()

    async def _look(self) -> None:
        problem = ""
        try:
            await self._version.refresh()
        except CancelledError:
            raise
        except OtherAnswer as error:
            problem = self._refusal(error.code)
        except CallError as error:
            problem = self._unreachable(error.message.removeprefix(HOP))
        except Exception as error:
            problem = self._unreachable(str(error) or type(error).__name__)
        if not problem:
            self._answered, self._failures = True, 0
        else:
            self._failures += 1
        if not problem or not self._answered or self._failures >= FAILURES:
            self._found(problem)
        self._looked()

    def _refusal(self, code: int) -> str:
        if code == 401:
            return (
                f"the Kubernetes API at {self._where} does not accept agentk's "
                f"credential (401); {self._advice}"
            )
        if code >= 500:
            return f"the Kubernetes API at {self._where} only responds with {code}"
        return ""

    def _unreachable(self, why: str) -> str:
        text = (
            f"cannot reach the Kubernetes API at {self._where} ({why.rstrip('.')}); "
            f"{self._advice}"
        )
        return clean(text, MAX_TEXT, " ")

    def _found(self, problem: str) -> None:
        before, self.problem = self.problem, problem
        # The details of the problem may differ each time; only the change matters.
        if problem and not before:
            self._log.warn("{problem}", problem=problem)
        elif before and not problem:
            self._log.info("the Kubernetes API at {where} responds", where=self._where)
