"""
The web site of an observability listener: HTTP/1.1, quiet, and with limits.

Both programs have one; everything else that faces many clients is `tunnel.http1`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.server import Site

__all__ = ["HEAD_TIMEOUT", "IDLE_TIMEOUT", "MAX_CONNECTIONS", "QuietSite"]

#: Connections at a time.  Probes and scrapes need a handful; what is more has a few KiB
#: each, and would take descriptors from agents.
MAX_CONNECTIONS = 256

#: Seconds for the first request to arrive as a whole: it is one packet.
HEAD_TIMEOUT = 10.0

#: Seconds from one answer to the end of the next request; scrapes come every minute,
#: and keep their connection.
IDLE_TIMEOUT = 75.0


class _Channel(HTTPChannel):
    """
    One connection.

    The timeout of `HTTPChannel` begins anew with each byte, and who sends one now and
    then has the connection for ever; here whole requests are waited for.
    """

    _deadline: IDelayedCall | None = None

    def connectionMade(self) -> None:
        """The first request is expected."""
        self.factory.connections.add(self)
        super().connectionMade()  # type: ignore[no-untyped-call]
        self._expect(HEAD_TIMEOUT)

    def allContentReceived(self) -> None:
        """It is there."""
        self._expect(None)
        super().allContentReceived()  # type: ignore[no-untyped-call]

    def requestDone(self, request: Any) -> None:
        """It is answered, and perhaps the next one has arrived already."""
        self._expect(IDLE_TIMEOUT)
        super().requestDone(request)  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        """Over."""
        self.factory.connections.discard(self)
        self._expect(None)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]

    def _expect(self, seconds: float | None) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = None
        if seconds is not None:
            self._deadline = self.callLater(  # type: ignore[no-untyped-call]
                seconds, self.timeoutConnection
            )


class QuietSite(Site):
    """
    Serves a resource.

    :param reactor: for its timers; the one that is installed unless told.
    """

    noisy = False
    protocol = _Channel  # type: ignore[assignment]

    def __init__(self, resource: Any, reactor: Any = None) -> None:
        # Its own timeout begins anew with each byte; see `_Channel`.
        super().__init__(  # type: ignore[no-untyped-call]
            resource, timeout=None, reactor=reactor
        )
        self.connections: set[_Channel] = set()

    def acceptableProtocols(self) -> list[bytes]:
        """HTTP/2 comes on by itself where h2 is installed, and cuts idle streams."""
        return [b"http/1.1"]

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """None closes the connection."""
        if len(self.connections) >= MAX_CONNECTIONS:
            return None
        return super().buildProtocol(addr)  # type: ignore[no-untyped-call]

    def log(self, request: Any) -> None:
        """Probes come every few seconds; nobody wants a line for each."""
