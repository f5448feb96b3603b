"""Posting of events to the addresses that the operator has configured."""

from __future__ import annotations

import hmac
import json
from collections import Counter, deque
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import attrs
from google.protobuf.json_format import MessageToDict
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent

from modules.gitops.server.alerts import alert_of
from modules.gitops.server.config import WebhookFormat, WebhookSettings
from modules.gitops.server.reported import AgentDrift
from tunnel import __version__
from tunnel.bodies import WholeBody
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.secret_file import read_secret
from tunnel.toolkit.timers import cancel_call

__all__ = ["DriftWebhook"]

#: Maximum number of events that wait for one address, and maximum bytes of these
#: events; if more wait, kas drops the oldest event of the agent with the most events.
MAX_WAITING, MAX_WAITING_BYTES = 100, 16 * 1024 * 1024

#: Maximum number of attempts for one event, and first and maximum pause between them in
#: seconds.
ATTEMPTS, PAUSE_FIRST, PAUSE_MOST = 5, 1.0, 60.0

#: Timeout of one attempt, in seconds.
SECONDS = 10.0

#: Maximum bytes of a response that are read; its content is ignored.
MAX_ANSWER = 64 * 1024


class _Discard(Protocol):
    """Reader that discards the rest of a response, within limits of size and time."""

    def __init__(self, clock: IReactorTime, reading: set[_Discard]) -> None:
        self._size = 0
        self._reading = reading
        reading.add(self)
        # Without a timeout, a response that never ends would occupy a connection for
        # each event.
        self._late = clock.callLater(SECONDS, self.close)

    def dataReceived(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_ANSWER:
            self.close()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._reading.discard(self)
        cancel_call(self._late)

    def close(self) -> None:
        """Stop reading."""
        self.connectionLost()
        if self.transport is not None:
            self.transport.loseConnection()


@attrs.frozen(eq=False)
class _Event:
    agent_id: str
    body: bytes


class DriftWebhook:
    """
    Sender of events to one address.

    Only the operator's configuration determines the address: no report of an agent
    affects it, and redirects are not followed.

    :param now: returns the time in seconds since 1970.
    :param http: client that makes the requests.
    """

    _log = Logger()

    def __init__(
        self,
        settings: WebhookSettings,
        clock: IReactorTime,
        now: Callable[[], float],
        random: Callable[[], float],
        http: IAgent,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._now = now
        self._random = random
        self._http = http
        self._waiting: deque[_Event] = deque()
        self._bytes = 0
        self._reading: set[_Discard] = set()
        self._running: Deferred[Any] | None = None
        self._failing = False

    def send(self, event: AgentDrift) -> None:
        """Queue an event."""
        if not self._settings.has(event.agent_name, event.project):
            return
        for said in self._said(event):
            made = _Event(event.agent_id, json.dumps(said).encode())
            self._waiting.append(made)
            self._bytes += len(made.body)
        while len(self._waiting) > MAX_WAITING or self._bytes > MAX_WAITING_BYTES:
            self._drop()
        if self._running is None:
            running = Deferred.fromCoroutine(self._run())
            running.addErrback(self._ended)
            self._running = None if running.called else running

    def _said(self, event: AgentDrift) -> list[dict[str, Any]]:
        """Return the bodies of the requests for an event."""
        if self._settings.format is WebhookFormat.GITLAB_ALERT:
            return [alert_of(event, one, self._now()) for one in event.drifts]
        said = {
            "event": "gitops.drift",
            "agent": {"id": event.agent_id, "name": event.agent_name},
            "drifts": [MessageToDict(one) for one in event.drifts],
            "leftOut": event.left_out,
        }
        return [said]

    def _drop(self) -> None:
        """Drop the oldest waiting event of the agent with the most events."""
        sizes: Counter[str] = Counter()
        for one in self._waiting:
            sizes[one.agent_id] += len(one.body)
        ((most, _),) = sizes.most_common(1)
        first = next(one for one in self._waiting if one.agent_id == most)
        self._waiting.remove(first)
        self._bytes -= len(first.body)
        self._complain("too many events were waiting, so kas dropped one")

    def stop(self) -> None:
        """Cancel the delivery and close open responses; waiting events are lost."""
        if self._running is not None:
            self._running.cancel()
        for one in tuple(self._reading):
            one.close()

    def _ended(self, failure: Any) -> None:
        self._running = None
        if not failure.check(CancelledError):
            self._log.failure("a webhook of GitOps failed", failure)

    async def _run(self) -> None:
        while self._waiting:
            body = self._waiting.popleft().body
            self._bytes -= len(body)
            backoff = Backoff(self._random, PAUSE_FIRST, PAUSE_MOST)
            why, attempts = await self._posted(body), 1
            while why and attempts < ATTEMPTS:
                await deferLater(self._clock, backoff.pause())
                why, attempts = await self._posted(body), attempts + 1
            if why:
                self._complain(
                    f"{why}; the event was dropped after {ATTEMPTS} attempts"
                )
            else:
                self._failing = False
        self._running = None

    async def _posted(self, body: bytes) -> str:
        """
        Post a body; return why the request failed, or an empty text if it succeeded.
        """
        try:
            secret = read_secret(self._settings.secret_file)
        except ValueError as error:
            return str(error)
        headers = Headers(
            {
                "Content-Type": ["application/json"],
                "User-Agent": [f"txkas/{__version__}"],
            }
        )
        if self._settings.format is WebhookFormat.GITLAB_ALERT:
            headers.addRawHeader(b"Authorization", b"Bearer " + secret)
        else:
            time = str(int(self._now()))
            mac = hmac.digest(secret, time.encode() + b"." + body, "sha256").hex()
            headers.addRawHeader("Txkas-Event", "gitops.drift")
            headers.addRawHeader("Txkas-Timestamp", time)
            headers.addRawHeader("Txkas-Signature", f"sha256={mac}")
        url = self._settings.url.encode()
        request = self._http.request(b"POST", url, headers, WholeBody(body))
        request.addTimeout(SECONDS, self._clock)
        try:
            response = await request
        except CancelledError:
            raise
        except Exception as error:
            # Name only the type of the error, because errors have many causes: no
            # route, unknown name, bad certificate, timeout.
            return type(error).__name__
        response.deliverBody(_Discard(self._clock, self._reading))
        return (
            "" if 200 <= response.code < 300 else f"it responded with {response.code}"
        )

    def _complain(self, why: str) -> None:
        """Log a failure, but only once until an event has been posted."""
        if not self._failing:
            self._failing = True
            self._log.warn(
                "the webhook at {host} did not receive drift: {why}",
                # Paths of webhooks may be secrets.
                host=urlsplit(self._settings.url).hostname,
                why=why,
            )
