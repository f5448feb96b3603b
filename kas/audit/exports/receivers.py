"""Receivers of exported events: HTTP, and syslog over TLS."""

from __future__ import annotations

import fcntl
import socket
import ssl
import struct
import termios
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.logger import Logger
from twisted.web.iweb import IAgent

from kas.audit.exports.exporter import MAX_REASON, NotAccepted, Unsent
from kas.audit.exports.formats import (
    json_lines,
    otlp_request,
    syslog_frame,
    syslog_message,
    webhook_headers,
)
from kas.audit.exports.reader import Exported
from tunnel import __version__
from tunnel.bodies import TooLarge, collect
from tunnel.errors import TunnelError
from tunnel.toolkit.secret_file import read_secret
from tunnel.toolkit.texts import clean, excerpt

__all__ = ["OtlpReceiver", "SyslogReceiver", "WebhookReceiver"]

#: Timeout of a request, and of each step of a syslog connection, in seconds.
TIMEOUT = 30.0

#: Maximum bytes of a response that are read.
MAX_ANSWER = 64 * 1024

#: Statuses of a receiver that does not accept the events themselves.
_TOO_LARGE = 413
_INVALID = frozenset((400, 422))

#: Seconds for which a syslog connection must stay open after events were sent.
CONFIRM_SECONDS = 5.0


class _HttpReceiver:
    """
    A receiver of POST requests.

    :param in_thread: calls a function that blocks, or takes milliseconds.
    """

    confirm_seconds = 0.0
    dropped = 0

    def __init__(
        self,
        url: str,
        agent: IAgent,
        clock: Any,
        now: Callable[[], float],
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._url = url
        self._clock = clock
        self._now = now
        self._in_thread = in_thread
        cookies: Any = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        self._http: Any = HTTPClient(agent, cookies)

    def _request(self, events: Sequence[Exported]) -> tuple[dict[str, str], bytes]:
        """
        Return the header fields and the body.

        :raises ValueError: if a file with a secret cannot be used.
        """
        raise NotImplementedError

    def _read_answer(self, body: bytes) -> None:
        """Read the body of a successful response."""

    async def send(self, events: Sequence[Exported]) -> None:
        """See `ExportReceiver`."""
        headers, body = await self._in_thread(self._request, events)
        headers["User-Agent"] = f"gitlab-kas/{__version__}"
        asking = Deferred.fromCoroutine(self._post(headers, body))
        asking.addTimeout(TIMEOUT, self._clock)
        try:
            code, answer = await asking
        except TimeoutError:
            raise Unsent(f"no response in {TIMEOUT:g} s") from None
        except (CancelledError, Unsent):
            raise
        except Exception as error:
            inner = getattr(error, "reasons", None)
            cause = inner[0].value if inner else error
            raise Unsent(str(cause) or type(cause).__name__) from None
        # A gateway may repeat the request in its response.
        sent = excerpt(answer, [headers.get("Authorization", "")])
        text = f"the receiver responded with {code}: {sent}"
        if code == _TOO_LARGE or code in _INVALID:
            raise NotAccepted(text, code == _TOO_LARGE)
        if not 200 <= code < 300:
            # Redirects, too: they could lead anywhere.
            raise Unsent(text)
        self._read_answer(answer)

    async def _post(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        response = await self._http.post(
            self._url,
            data=body,
            headers=headers,
            allow_redirects=False,
            unbuffered=True,
            reactor=self._clock,
        )
        try:
            _, answer = await collect(response, MAX_ANSWER)
        except TooLarge:
            answer = b""
        return response.code, answer

    async def check(self) -> None:
        """Do nothing: each batch has a response."""

    def close(self) -> None:
        """Do nothing: idle connections close by themselves."""


class WebhookReceiver(_HttpReceiver):
    """
    A receiver of the stored lines, in signed requests (Standard Webhooks).

    :param secret_file: secrets that sign, see `standard_signature`.
    """

    def __init__(self, secret_file: Path, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._secret_file = secret_file

    def _request(self, events: Sequence[Exported]) -> tuple[dict[str, str], bytes]:
        body = json_lines(events)
        # Read for each request, so that a replaced secret takes effect at once.
        secret = read_secret(self._secret_file)
        headers = webhook_headers(body, secret, self._now())
        return {"Content-Type": "application/x-ndjson", **headers}, body


class OtlpReceiver(_HttpReceiver):
    """
    A receiver of logs of OpenTelemetry.

    :param host: the name of this machine.
    :param token_file: a token that is sent as Bearer; None for none.
    """

    _log = Logger()

    def __init__(self, host: str, token_file: Path | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._host = host
        self._token_file = token_file

    def _request(self, events: Sequence[Exported]) -> tuple[dict[str, str], bytes]:
        headers = {"Content-Type": "application/x-protobuf"}
        if self._token_file is not None:
            token = read_secret(self._token_file).decode("latin-1")
            headers["Authorization"] = f"Bearer {token}"
        return headers, otlp_request(events, self._host, self._now())

    def _read_answer(self, body: bytes) -> None:
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
            ExportLogsServiceResponse,
        )

        answer: Any = ExportLogsServiceResponse()
        try:
            answer.ParseFromString(body)
        except DecodeError:
            return
        # The protocol forbids to send such a request again.
        partial = answer.partial_success
        if partial.rejected_log_records > 0:
            self.dropped += partial.rejected_log_records
            self._log.error(
                "{url} dropped {count} events of the audit log: {why}",
                url=self._url,
                count=partial.rejected_log_records,
                why=clean(partial.error_message, MAX_REASON),
            )


class SyslogReceiver:
    """
    A receiver of syslog messages over TLS (RFC 5425).

    Syslog has no acknowledgements.  Events count as received if the receiver's kernel
    has confirmed them, and the connection stays open for `confirm_seconds`.

    :param context: returns the context of TLS.
    :param in_thread: calls a function that blocks.
    :param name: the name of this machine.
    """

    confirm_seconds = CONFIRM_SECONDS
    dropped = 0

    def __init__(
        self,
        host: str,
        port: int,
        context: Callable[[], ssl.SSLContext],
        in_thread: Callable[..., Awaitable[Any]],
        name: str,
    ) -> None:
        self._address = (host, port)
        self._context = context
        self._in_thread = in_thread
        self._name = name
        self._socket: ssl.SSLSocket | None = None

    async def send(self, events: Sequence[Exported]) -> None:
        """See `ExportReceiver`."""
        frames = b"".join(
            syslog_frame(syslog_message(one.line, one.event, self._name))
            for one in events
        )
        await self._in_thread(self._do, self._send, frames)

    async def check(self) -> None:
        """See `ExportReceiver`."""
        if self._socket is not None:
            await self._in_thread(self._do, self._look)

    def close(self) -> None:
        """See `ExportReceiver`; a thread that sends gets an error."""
        connection, self._socket = self._socket, None
        if connection is not None:
            with suppress(OSError):
                # Wake a thread that sends; closing alone would not.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            connection.close()

    def _do(self, act: Callable[..., None], *arguments: Any) -> None:
        """Use the connection, in a thread; close it after an error."""
        try:
            act(*arguments)
        except (OSError, ValueError, TunnelError) as error:
            self.close()
            raise Unsent(str(error) or type(error).__name__) from None

    def _connect(self) -> ssl.SSLSocket:
        raw = socket.create_connection(self._address, TIMEOUT)
        try:
            return self._context().wrap_socket(raw, server_hostname=self._address[0])
        except BaseException:
            raw.close()
            raise

    def _look(self) -> None:
        connection = self._socket
        if connection is None:
            return
        connection.settimeout(0.0)
        try:
            # A receiver sends nothing but the tickets of TLS, and the end.
            if connection.recv(1024) == b"":
                raise OSError("the receiver closed the connection")
        except ssl.SSLWantReadError:
            pass
        finally:
            connection.settimeout(TIMEOUT)

    def _send(self, frames: bytes) -> None:
        if self._socket is None:
            self._socket = self._connect()
        else:
            self._look()
        connection = self._socket
        connection.sendall(frames)
        deadline = time.monotonic() + TIMEOUT
        while _unconfirmed(connection):
            if time.monotonic() >= deadline:
                raise OSError(f"the receiver read nothing for {TIMEOUT:g} s")
            time.sleep(0.01)


def _unconfirmed(connection: socket.socket) -> int:
    """Return the number of bytes that the other kernel has not confirmed."""
    found = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    (count,) = struct.unpack("i", found)
    return int(count)
