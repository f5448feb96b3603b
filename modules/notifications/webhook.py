"""The webhook for Git servers: ``POST /git/pushed/<name>``."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from tunnel.errors import CallError, Status
from tunnel.toolkit.secret_file import read_secret

__all__ = ["Webhook"]


class Webhook(Resource):
    """
    A webhook that checks the caller's secret and ignores the rest of the request.

    GitLab sends the secret as ``X-Gitlab-Token``; GitHub, Gitea and Forgejo sign the
    body with it (``X-Hub-Signature-256``); a post-receive hook can send it as
    ``Authorization: Bearer``. kas does not parse the body.
    """

    isLeaf = True
    _log = Logger()

    def __init__(
        self, secret_file: Path, pushed: Callable[[str], Awaitable[None]]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._secret_file = secret_file
        self._pushed = pushed

    def render_POST(self, request: Any) -> Any:
        """Publish that the repository named in the path has received a push."""
        if not self._knows_secret(request):
            return _answer(request, 401, "the secret is missing or wrong")
        name = b"/".join(request.postpath).decode("utf-8", "replace")
        telling = Deferred.fromCoroutine(self._tell(request, name))
        telling.addErrback(self._failed, request)
        # A caller that has left gets no response; kas still publishes its push.
        left: Deferred[None] = request.notifyFinish()
        left.addErrback(lambda _: None)
        telling.addCallback(
            lambda body: None if left.called else _finish(request, body)
        )
        return NOT_DONE_YET

    async def _tell(self, request: Any, name: str) -> bytes:
        await self._pushed(name)
        request.setResponseCode(204)
        return b""

    def _failed(self, failure: Failure, request: Any) -> bytes:
        error = failure.value
        if not isinstance(error, CallError):
            self._log.failure("a webhook failed", failure)
            error = CallError(Status.INTERNAL, "kas failed; see its log")
        known = {Status.INVALID_ARGUMENT: 400, Status.UNAVAILABLE: 503}
        return _answer(request, known.get(error.status, 500), error.message)

    def _knows_secret(self, request: Any) -> bool:
        try:
            secret = read_secret(self._secret_file)
        except ValueError as error:
            self._log.error("{problem}", problem=str(error))
            return False
        bearer = request.getHeader(b"authorization") or b""
        scheme, _, token = bearer.partition(b" ")
        given = [request.getHeader(b"x-gitlab-token") or b""]
        if scheme.lower() == b"bearer":
            given.append(token.strip())
        if any(hmac.compare_digest(one, secret) for one in given):
            return True
        signature = request.getHeader(b"x-hub-signature-256") or b""
        body = request.content.read()
        mac = hmac.new(secret, body, hashlib.sha256).hexdigest().encode()
        return hmac.compare_digest(signature, b"sha256=" + mac)


def _finish(request: Any, body: bytes) -> None:
    if body:
        request.write(body)
    request.finish()


def _answer(request: Any, code: int, text: str) -> bytes:
    request.setResponseCode(code)
    request.setHeader(b"content-type", b"text/plain; charset=utf-8")
    return text.encode() + b"\n"
