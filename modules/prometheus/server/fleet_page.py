"""``/fleet/prometheus``: the Prometheus API for several clusters, as a page."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from modules.prometheus.server.envelope import (
    JSON,
    QuestionRefused,
    envelope,
    refused,
)
from modules.prometheus.server.fleet import FleetQuestions
from modules.prometheus.server.metrics import RequestMetrics
from modules.prometheus.server.parameters import MAX_BODY, read_question
from tunnel.api import IUsers, PageCaller
from tunnel.errors import CallError

__all__ = ["PREFIX", "FleetPage"]

PREFIX: Final = "/fleet/prometheus"


class FleetPage(Resource):
    """The page, with all paths below it."""

    isLeaf = True
    _log = Logger()

    def __init__(
        self, users: IUsers, questions: FleetQuestions, metrics: RequestMetrics
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._users = users
        self._questions = questions
        self._metrics = metrics

    def render(self, request: Any) -> Any:
        """Respond to a request of any method."""
        answering = Deferred.fromCoroutine(self._answer(request))
        left: Deferred[Any] = request.notifyFinish()
        left.addErrback(lambda _: answering.cancel())
        answering.addErrback(self._failed, request)
        return NOT_DONE_YET

    async def _answer(self, request: Any) -> None:
        endpoint, status = "", 200
        try:
            caller = PageCaller.of(self._users, request)
            path, _, query = request.uri.decode("latin-1").partition("?")
            body = request.content.read(MAX_BODY + 1)
            if len(body) > MAX_BODY:
                raise QuestionRefused(413, f"the form has more than {MAX_BODY} bytes")
            question = read_question(
                request.method.decode("latin-1"),
                # A listener may have a prefix of its own before the page's.
                path[path.find(PREFIX) + len(PREFIX) :],
                query,
                request.getHeader("content-type") or "",
                body,
            )
            endpoint = question.endpoint.name
            answer = await self._questions.answer(question, caller)
        except CallError as error:
            failure = refused(error)
            status, answer = failure.status, envelope(failure.status, str(failure))
        except QuestionRefused as failure:
            status, answer = failure.status, envelope(failure.status, str(failure))
        self._metrics.count("fleet", endpoint, status)
        self._respond(request, status, answer)

    def _respond(self, request: Any, status: int, body: bytes) -> None:
        request.setResponseCode(status)
        request.setHeader(b"content-type", JSON.encode())
        request.setHeader(b"cache-control", b"no-store")
        if status == 401:
            request.setHeader(b"www-authenticate", b"Bearer")
        if status == 429:
            request.setHeader(b"retry-after", b"1")
        request.write(body)
        request.finish()

    def _failed(self, failure: Failure, request: Any) -> None:
        if failure.check(CancelledError) is None:
            self._log.failure("cannot answer a question to several clusters", failure)
            text = "kas: an internal error; see the log of kas"
            self._respond(request, 500, envelope(500, text))
