"""Requests from the supervisor to its workers, through their private sockets."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.logger import Logger
from twisted.web.client import Agent, FileBodyProducer, ResponseFailed, readBody
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from kas.workers.part import WorkersPart
from kas.workers.process import WorkerProcess
from tunnel.errors import ConfigurationError

__all__ = ["ANSWER_TIMEOUT", "WorkerCalls", "WorkerRefused", "problem_of"]

#: Timeout of a worker's response, in seconds: less than the timeout of `kasctl` for all
#: workers, and more than a worker needs to dial other kas.
ANSWER_TIMEOUT = 2.3


#: Maximum bytes of a worker's error that the supervisor repeats.
MAX_REFUSAL = 500


class WorkerRefused(ConfigurationError):
    """Error for a response of a worker with another status than 200."""

    def __init__(self, number: int, status: int, body: bytes) -> None:
        self.text = body.decode(errors="replace").strip()
        super().__init__([f"worker {number}: {status} {self.text}".strip()])


@attrs.frozen(eq=False)
class WorkerCalls:
    """Client that sends the supervisor's requests to its workers."""

    workers: WorkersPart
    _reactor: Any
    _log = Logger()

    async def ask(
        self,
        worker: WorkerProcess,
        socket_name: str,
        path: str,
        method: bytes = b"GET",
        timeout: float = ANSWER_TIMEOUT,
        body: bytes | None = None,
    ) -> bytes:
        """
        Return the response of a worker to a request.

        :param timeout: maximum seconds for the response.
        :raises Exception: if no response arrived in time.
        """
        where = self.workers.sockets.folder.socket(worker.number, socket_name)
        agent = Agent.usingEndpointFactory(self._reactor, _Socket(self._reactor, where))
        producer = None if body is None else FileBodyProducer(io.BytesIO(body))
        url = b"http://kas" + path.encode()
        asking = agent.request(method, url, bodyProducer=producer)
        asking.addTimeout(timeout, self._reactor)
        response = await asking
        reading = readBody(response)
        reading.addTimeout(timeout, self._reactor)
        answer: bytes = await reading
        if response.code != 200:
            raise WorkerRefused(worker.number, response.code, answer[:MAX_REFUSAL])
        return answer

    async def ask_one(
        self, worker: WorkerProcess, socket_name: str, path: str, method: bytes
    ) -> bytes | None:
        """
        Return the response of a worker; None if it did not respond, after the reason
        was logged.
        """
        try:
            return await self.ask(worker, socket_name, path, method)
        except Exception as error:
            # Do not log this while kas stops: a worker that is stopping closes its
            # sockets before its process ends.
            if self.workers.is_ready:
                self._log.warn(
                    "worker {number} does not respond: {reason}",
                    number=worker.number,
                    reason=problem_of(error),
                )
            return None

    async def ask_all(
        self, socket_name: str, path: str, method: bytes = b"GET"
    ) -> list[tuple[WorkerProcess, bytes]]:
        """
        Return the responses of ready workers; workers that die in the meantime are left
        out.
        """
        asked = self.workers.open
        answers = await gatherResults(
            [
                Deferred.fromCoroutine(self.ask_one(one, socket_name, path, method))
                for one in asked
            ]
        )
        return [
            (one, answer)
            for one, answer in zip(asked, answers, strict=True)
            if answer is not None
        ]


def problem_of(error: Exception) -> str:
    """Return a text that says why a response is missing."""
    if isinstance(error, ResponseFailed) and error.reasons:
        error = error.reasons[0].value
    if isinstance(error, CancelledError | TimeoutError):
        return f"no response within {ANSWER_TIMEOUT:g} s"
    return str(error) or type(error).__name__


@implementer(IAgentEndpointFactory)
@attrs.frozen
class _Socket:
    """Endpoint that connects every request to one Unix socket."""

    reactor: Any
    path: Path

    def endpointForURI(self, uri: object) -> UNIXClientEndpoint:
        return UNIXClientEndpoint(self.reactor, str(self.path), timeout=ANSWER_TIMEOUT)
