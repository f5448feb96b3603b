"""Failed TLS handshakes of one listener: counted, and logged once a minute."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tunnel.transport.negotiation import NegotiationError
from tunnel.transport.tls import HANDSHAKE_LABELS

__all__ = ["INTERVAL", "FailedHandshakes"]

#: Seconds between two log lines of one listener, because scanners connect all the time.
INTERVAL = 60.0

#: Reason that is not a failure: load balancers close connections to check that a port
#: is open.
_ORDINARY = "closed"


#: Initial counts; every label exists from the beginning, so that rates can be computed.
_NONE = dict.fromkeys(HANDSHAKE_LABELS, 0)


@attrs.define(eq=False)
class FailedHandshakes:
    """
    Failed handshakes of one listener.

    :ivar what: the purpose of the listener.
    """

    what: str
    clock: IReactorTime
    #: Numbers of failed handshakes, by the label of the reason.
    counts: Counter[str] = attrs.field(factory=lambda: Counter(_NONE))
    _unsaid: int = 0
    _last: NegotiationError | None = None
    _timer: Any = None
    _log = Logger()

    def failed(self, error: NegotiationError) -> None:
        """Count a failure, and log it unless one was logged within the last minute."""
        self.counts[error.label if error.label in HANDSHAKE_LABELS else "other"] += 1
        if error.label == _ORDINARY:
            return
        self._unsaid += 1
        self._last = error
        if self._timer is None:
            self._say()

    def _say(self) -> None:
        self._timer = None
        if not self._unsaid or self._last is None:
            return
        self._log.warn(
            "{count} TLS handshakes of {what} failed; the last, with {peer}: {reason}"
            if self._unsaid > 1
            else "a TLS handshake of {what} with {peer} failed: {reason}",
            count=self._unsaid,
            what=self.what,
            peer=self._last.peer,
            reason=str(self._last),
        )
        self._unsaid = 0
        self._timer = self.clock.callLater(INTERVAL, self._say)

    def stop(self) -> None:
        """Stop logging."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
