"""The webhook for Git servers: ``POST /git/pushed/<name>``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest

from tunnel.errors import CallError, Status
from tunnel.toolkit.webhook_secret import carries_secret

__all__ = ["Webhook"]

_STATUSES = {Status.INVALID_ARGUMENT: 400, Status.UNAVAILABLE: 503}


class Webhook:
    """
    Webhook that checks the caller's secret and ignores the rest of the request.

    :param pushed: called with the name of the repository, to publish a push.
    """

    app: ClassVar[Klein] = Klein()
    _log: ClassVar[Logger] = Logger()

    def __init__(
        self, secret_file: Path, pushed: Callable[[str], Awaitable[None]]
    ) -> None:
        self._secret_file = secret_file
        self._pushed = pushed

    @app.route("/", methods=["POST"], strict_slashes=False)
    @app.route("/<path:name>", methods=["POST"])
    async def push(self, request: IRequest, name: str = "") -> bytes:
        """Announce a push to the repository whose name is in the path."""
        if not carries_secret(request, self._secret_file):
            return _answer(request, 401, "the secret is missing or wrong")
        # klein cancels this handler when the caller disconnects; publishing continues.
        running = Deferred.fromCoroutine(self._publish(name))
        try:
            await _waiting(running)
        except CallError as error:
            status = _STATUSES.get(error.status, 500)
            return _answer(request, status, error.message)
        request.setResponseCode(204)
        return b""

    async def _publish(self, name: str) -> None:
        try:
            await self._pushed(name)
        except CallError:
            raise
        except Exception:
            self._log.failure("a webhook failed")
            text = "kas failed; see its log"
            raise CallError(Status.INTERNAL, text) from None


def _waiting(running: Deferred[None]) -> Deferred[None]:
    """Return a Deferred with the result of *running*; cancelling it changes nothing."""
    waiter: Deferred[None] = Deferred()

    def over(found: Failure | None) -> None:
        if waiter.called:
            return
        if isinstance(found, Failure):
            waiter.errback(found)
        else:
            waiter.callback(None)

    running.addBoth(over)
    return waiter


def _answer(request: IRequest, code: int, text: str) -> bytes:
    request.setResponseCode(code)
    request.setHeader(b"content-type", b"text/plain; charset=utf-8")
    return text.encode() + b"\n"
