"""The part of a response that matters: status, ``Retry-After`` and a few bytes."""

from __future__ import annotations

import attrs
from twisted.internet.defer import Deferred

from tunnel.http1 import ResponseHead, UpstreamRequest

__all__ = ["MAX_BODY", "WebhookResponse"]

#: Maximum bytes of the body that operators see; the rest is not read.
MAX_BODY = 4096


@attrs.define(eq=False)
class WebhookResponse:
    """
    Receiver of a response: `tunnel.http1.ResponseReceiver`.

    :ivar done: fires when the response is complete, or when enough of it was read;
        fails if the receiver did not respond.
    """

    status: int = 0
    retry_after: int = 0
    body: bytes = b""
    request: UpstreamRequest | None = None
    done: Deferred[None] = attrs.Factory(Deferred)

    def response_informational(self, head: ResponseHead) -> None:
        """Ignore an early response."""

    def response_started(self, head: ResponseHead) -> None:
        self.status = head.status
        self.retry_after = _retry_after(head.fields)

    def response_data(self, data: bytes) -> None:
        self.body = (self.body + data)[:MAX_BODY]
        if len(self.body) == MAX_BODY:
            self._finish()
            if self.request is not None:
                self.request.abort()

    def response_finished(self, trailers: bytes) -> None:
        self._finish()

    def response_failed(self, reason: Exception) -> None:
        if self.status:
            # The status decides, and an incomplete body does not change it.
            self._finish()
        elif not self.done.called:
            self.done.errback(reason)

    def _finish(self) -> None:
        if not self.done.called:
            self.done.callback(None)


def _retry_after(fields: bytes) -> int:
    """Return the seconds in ``Retry-After``; 0 for a date, or without this field."""
    for line in fields.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"retry-after":
            text = value.strip()
            # Nine digits are 31 years; a longer number is not meant seriously.
            if text.isdigit() and len(text) <= 9:
                return int(text)
    return 0
