"""
The client side of gRPC: a channel to one server, with the calls of `tunnel.rpc`.

    endpoint = TLSClientEndpoint(
        HostnameEndpoint(reactor, "gitaly.example", 9999),
        lambda: client_context(ca_file="ca.pem", alpn=("h2",)),
        "gitaly.example",
        reactor,
    )
    channel = GrpcChannel(endpoint, reactor, authority="gitaly.example:9999")
    refs = channel.client(DESCRIPTOR.services_by_name["RefService"])
    found = await refs.call("FindDefaultBranchName", request, timeout=5)
    async for part in refs.stream("FindLocalBranches", request):
        ...

A call has the features of a call through the tunnel
(`tunnel.rpc.client.ServiceClient`): timeouts, cancellation, metadata, trailers,
back-pressure, and `CallError` with details.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from random import random
from typing import Any

import attrs
from google.protobuf.descriptor import ServiceDescriptor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IConsumer,
    IPushProducer,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface import implementer

from tunnel.api import ConnectedAgent, IStream, IStreamReceiver
from tunnel.errors import CallError, ErrorCode, Status, StreamReset, TunnelError
from tunnel.grpc.fields import (
    encode_timeout,
    http_error,
    media_type,
    metadata_from,
    request_headers,
    trailers_block,
)
from tunnel.grpc.messages import COMPRESSED, Envelopes
from tunnel.http2.client import CLIENT_LIMITS, Http2ClientConnection
from tunnel.http2.limits import Http2Limits
from tunnel.http2.stream import Http2Stream, RawHeaders
from tunnel.rpc.client import ServiceClient
from tunnel.rpc.fields import decode_fields, encode_fields
from tunnel.rpc.messages import MAX_MESSAGE
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.timers import Timers

__all__ = ["ChannelLimits", "GrpcChannel"]

_LENGTH = struct.Struct(">I")

_CLOSED = "the channel is closed"


@attrs.frozen(kw_only=True)
class ChannelLimits:
    """Limits on the resources that a server and our callers can use."""

    #: Limits of the channel's connection; `ping_after` is the keepalive.
    http2: Http2Limits = CLIENT_LIMITS
    #: Maximum number of calls that wait for a connection, or for room on it; each needs
    #: the memory of one head.
    waiting: int = 1000
    #: Maximum number of seconds until the server's settings arrive, including TLS.
    connect: float = 20.0
    #: First and longest pause between two attempts to connect, in seconds, as in other
    #: gRPC clients.
    backoff_first: float = 1.0
    backoff_most: float = 120.0
    #: Maximum number of bytes of a request that are kept until its response begins, to
    #: repeat a call that the server refused without processing it.
    replay: int = 64 * 1024
    retries: int = 5
    #: Seconds without new calls after the server refused a call because of its limit:
    #: the server still counts calls that have ended until it has cleaned up.
    refused: float = 0.05
    #: Maximum number of bytes of one response.
    message: int = MAX_MESSAGE


class GrpcChannel:
    """
    Channel for calls to one server, on one connection at a time.

    The channel connects for the first call, and again for the first call after the
    connection was lost. During the pause between two attempts, calls fail at once with
    UNAVAILABLE.

    :param endpoint: the endpoint of the server; with TLS, its context must offer ALPN
        ``h2``.
    :param authority: the name of the server: its host and port.
    """

    def __init__(
        self,
        endpoint: IStreamClientEndpoint,
        clock: IReactorTime,
        *,
        authority: str,
        limits: ChannelLimits | None = None,
        random: Callable[[], float] = random,
    ) -> None:
        self.limits = limits or ChannelLimits()
        self.authority = authority
        self._endpoint = endpoint
        self._clock = clock
        self._backoff = Backoff(
            random, self.limits.backoff_first, self.limits.backoff_most
        )
        self._timers = Timers(clock)
        self._waiting: deque[_CallStream] = deque()
        #: The connection for new calls.
        self._connection: Http2ClientConnection | None = None
        #: All open connections.
        self._connections: set[Http2ClientConnection] = set()
        self._attempt: Deferred[Any] | None = None
        #: Whether new calls pause, because the server has refused one.
        self._held = False
        #: Reason why calls fail now; empty if calls do not fail.
        self._broken = ""
        #: Deferred that fires when the last connection is closed after `close`; None
        #: before `close`.
        self._ended: Deferred[None] | None = None

    def client(self, service: ServiceDescriptor) -> ServiceClient:
        """Return a client for the methods of *service*."""
        return ServiceClient(service, self.open_stream, self._clock)

    def open_stream(
        self,
        method: str,
        receiver: IStreamReceiver,
        *,
        metadata: bytes = b"",
        timeout: float = 0,
    ) -> IStream:
        """
        Open the stream of one call; see `tunnel.rpc.client.StreamOpener`.

        :raises CallError: the server cannot be reached, or too many calls are waiting.
        """
        if self._ended is not None:
            raise CallError(Status.UNAVAILABLE, _CLOSED)
        stream = _CallStream(self, method, receiver, metadata, timeout)
        connection = self._connection
        free = connection is not None and connection.room and not self._held
        if connection is not None and free and not self._waiting:
            stream.attach(connection)
            return stream
        if connection is None and self._broken:
            raise CallError(Status.UNAVAILABLE, self._broken)
        if len(self._waiting) >= self.limits.waiting:
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                f"too many calls to {self.authority} are waiting",
            )
        self._waiting.append(stream)
        if connection is None:
            self._connect()
        return stream

    def close(self) -> Deferred[None]:
        """
        End every call; return a Deferred that fires when every connection is closed.
        """
        if self._ended is None:
            self._ended = Deferred()
            self._fail_waiting(_CLOSED)
            self._timers.cancel_all()
            self._cancel_attempt()
            for connection in tuple(self._connections):
                connection.leave(_CLOSED)
            self._look_for_the_end()
        return self._ended

    # Methods for streams.

    @property
    def now(self) -> float:
        """Return the reactor's time in seconds."""
        return float(self._clock.seconds())

    def withdraw(self, stream: _CallStream) -> None:
        """Remove *stream* from the queue."""
        if stream in self._waiting:
            self._waiting.remove(stream)

    def retry(self, stream: _CallStream) -> bool:
        """Start *stream* again if possible; return whether it starts again."""
        if self._ended is not None or (self._connection is None and self._broken):
            return False
        self._waiting.appendleft(stream)
        if self._connection is None:
            self._connect()
        else:
            self._held = True
            self._timers.later("refused", self.limits.refused, self._go_on)
        return True

    def _go_on(self) -> None:
        self._held = False
        if self._connection is not None:
            self.has_room(self._connection)

    # Connecting.

    def _connect(self) -> None:
        begun = any(not one.established for one in self._connections)
        if self._attempt is not None or begun:
            return
        self._timers.later("connect", self.limits.connect, self._too_late)
        factory = Factory.forProtocol(self._make)
        factory.noisy = False
        try:
            attempt: Deferred[Any] = self._endpoint.connect(factory)
        except Exception as error:
            self._failed(str(error))
            return
        self._attempt = attempt
        attempt.addCallbacks(self._connected, self._not_connected)

    def _make(self) -> Http2ClientConnection:
        connection = Http2ClientConnection(self, self._clock, self.limits.http2)
        self._connections.add(connection)
        return connection

    def _connected(self, _: object) -> None:
        self._attempt = None

    def _not_connected(self, failure: Failure) -> None:
        if self._attempt is not None:
            self._attempt = None
            self._failed(failure.getErrorMessage() or repr(failure.value))

    def _cancel_attempt(self) -> None:
        # The attribute is cleared first, because the error of the cancelled attempt
        # does not matter.
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()

    def _too_late(self) -> None:
        self._cancel_attempt()
        for connection in tuple(self._connections):
            if not connection.established:
                self._connections.discard(connection)
                connection.abort()
        self._failed(f"no connection within {self.limits.connect:g} s")

    def _failed(self, why: str) -> None:
        """Handle a failed attempt to connect: fail the streams that wait."""
        self._timers.cancel("connect")
        self._broken = f"cannot connect to {self.authority}: {why}"
        self._timers.later("backoff", self._backoff.pause(), self._try_again)
        self._fail_waiting(self._broken)

    def _try_again(self) -> None:
        self._broken = ""

    def _fail_waiting(self, why: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for stream in waiting:
            stream.gone(CallError(Status.UNAVAILABLE, why))

    # Methods of `tunnel.http2.client.ClientOwner`, for connections.

    def established(self, connection: Http2ClientConnection) -> None:
        """Begin calls on *connection*."""
        self._timers.cancel("connect")
        self._backoff.reset()
        self._broken = ""
        self._held = False
        self._connection = connection
        self.has_room(connection)

    def has_room(self, connection: Http2ClientConnection) -> None:
        """Begin waiting calls on *connection*."""
        while (
            self._waiting
            and not self._held
            and connection.room
            and connection is self._connection
        ):
            self._waiting.popleft().attach(connection)

    def leaving(self, connection: Http2ClientConnection) -> None:
        """
        Handle a *connection* that accepts no more calls: waiting calls use another one.
        """
        if connection is self._connection:
            self._replace(connection, "the server accepts no calls")

    def lost(self, connection: Http2ClientConnection, reason: Exception) -> None:
        """Forget *connection*, which is closed."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        if self._ended is not None:
            self._look_for_the_end()
        elif not connection.established:
            self._failed(str(reason))
        elif connection is self._connection:
            self._replace(connection, str(reason))

    def _replace(self, connection: Http2ClientConnection, why: str) -> None:
        """
        Stop using *connection* for new calls; open another one if calls are waiting.
        """
        self._connection = None
        if self._waiting:
            if connection.opened:
                self._connect()
            else:
                # This connection accepted no call, so connect only after a pause.
                self._failed(why)

    def _look_for_the_end(self) -> None:
        if self._ended is not None and not self._connections:
            ended = self._ended
            if not ended.called:
                ended.callback(None)


@implementer(IStream, IConsumer, IPushProducer)
class _CallStream:
    """
    One call: a stream for `tunnel.rpc`, on a stream of HTTP/2.

    Before a connection exists, the call waits, and its producer is paused.
    """

    #: None, because the other end is not an agent.
    agent: ConnectedAgent | None = None

    def __init__(
        self,
        channel: GrpcChannel,
        method: str,
        receiver: IStreamReceiver,
        metadata: bytes,
        timeout: float,
    ) -> None:
        self._channel = channel
        self._method = method
        self._receiver = receiver
        self._metadata = metadata
        self._deadline = channel.now + timeout if timeout else None
        self._stream: Http2Stream | None = None
        self._envelopes = Envelopes(channel.limits.message)
        self._trailers: RawHeaders | None = None
        #: Data that was written, kept while the call may have to be repeated.
        self._written: list[bytes] = []
        self._replay = channel.limits.replay
        self._retries = channel.limits.retries
        self._finished = False
        self._paused = False
        self._closed = False
        self._producer: Any = None

    def attach(self, connection: Http2ClientConnection) -> None:
        """Start the call on *connection*."""
        headers = request_headers(
            b"https" if connection.is_tls else b"http",
            self._channel.authority.encode("ascii"),
            self._method,
            decode_fields(self._metadata),
        )
        if self._deadline is not None:
            left = self._deadline - self._channel.now
            headers.append((b"grpc-timeout", encode_timeout(left)))
        self._stream = stream = connection.open(headers, self)
        if self._paused:
            stream.pauseProducing()
        for data in self._written:
            stream.write(data)
        if self._finished:
            stream.end()
        producer = self._producer
        if producer is not None:
            stream.registerProducer(producer, True)
            producer.resumeProducing()

    # Methods of IStream, for the call.

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        """Do nothing: a gRPC client sends headers only at the beginning of a call."""

    def write(self, data: bytes) -> None:
        """
        Send one message; add gRPC's compression flag to *data*, which begins with its
        length.
        """
        if self._closed or self._finished:
            return
        data = b"\0" + data
        if self._stream is None:
            self._written.append(data)
            return
        if self._retries:
            self._replay -= len(data)
            if self._replay >= 0:
                self._written.append(data)
            else:
                self._begun()
        self._stream.write(data)

    def finish(self) -> None:
        if not self._finished and not self._closed:
            self._finished = True
            if self._stream is not None:
                self._stream.end()

    def reset(self, code: int = ErrorCode.CANCELLED, message: str = "") -> None:
        """Cancel the call."""
        if self._closed:
            return
        stream = self._stream
        if stream is None:
            self._channel.withdraw(self)
        else:
            stream.reset()
        self._close(StreamReset(ErrorCode(code), message, by_peer=False))

    def pauseProducing(self) -> None:
        """Pause reading: the server may fill the window."""
        self._paused = True
        if self._stream is not None:
            self._stream.pauseProducing()

    def resumeProducing(self) -> None:
        self._paused = False
        if self._stream is not None:
            self._stream.resumeProducing()

    def stopProducing(self) -> None:
        self.reset()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Register *producer*, which is paused while its requests cannot be sent."""
        if self._closed:
            producer.stopProducing()
            return
        self._producer = producer
        if self._stream is None:
            producer.pauseProducing()
        else:
            self._stream.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self._producer = None
        if self._stream is not None:
            self._stream.unregisterProducer()

    # Methods of `tunnel.http2.client.ResponseReader`, for the connection.

    def response_started(self, headers: RawHeaders) -> None:
        """Handle the head of the response, which may be the whole response."""
        self._begun()
        fields = {n.decode("latin-1"): v.decode("latin-1") for n, v in headers}
        if "grpc-status" in fields:
            self._trailers = headers
            return
        if fields.get(":status") != "200" or not media_type(fields).startswith(
            "application/grpc"
        ):
            status = fields.get(":status", "")
            kind = fields.get("content-type", "")
            self._fail(http_error(int(status) if status.isdigit() else 0, kind))
            return
        metadata = metadata_from(headers)
        # `tunnel.rpc` would read such a field as the first line of trailers.
        metadata.pop("status", None)
        self._receiver.headers_received(encode_fields(metadata))

    def body(self, data: bytes) -> None:
        """Handle a part of the responses."""
        if self._closed:
            return
        try:
            found = self._envelopes.feed(data)
        except CallError as error:
            self._fail(error)
            return
        parts: list[bytes] = []
        for flags, message in found:
            if flags:
                kind = "is compressed" if flags == COMPRESSED else "has unknown flags"
                text = f"a response {kind}, which is not supported"
                self._fail(CallError(Status.INTERNAL, text))
                return
            parts += (_LENGTH.pack(len(message)), message)
        if parts:
            self._receiver.data_received(b"".join(parts))

    def trailers_received(self, headers: RawHeaders) -> None:
        self._trailers = headers

    def body_ended(self) -> None:
        if self._closed:
            return
        if self._envelopes.waiting:
            self._close(CallError(Status.INTERNAL, "the stream ended within a message"))
        elif self._trailers is None:
            self._close(None)
        else:
            self._receiver.headers_received(trailers_block(self._trailers))
            self._receiver.fin_received()
            self._close(None)

    def gone(self, reason: TunnelError) -> None:
        """End a call whose stream ended before the response was complete."""
        refused = isinstance(reason, StreamReset) and reason.code is ErrorCode.REFUSED
        if refused and self._retries and not self._closed:
            self._retries -= 1
            stream, self._stream = self._stream, None
            if stream is not None:
                stream.unregisterProducer()
            if self._channel.retry(self):
                if self._producer is not None:
                    self._producer.pauseProducing()
                return
        self._close(reason)

    def _begun(self) -> None:
        """Record that the call can no longer be repeated."""
        self._retries = 0
        self._written = []

    def _fail(self, error: CallError) -> None:
        stream = self._stream
        if stream is not None:
            stream.reset()
        self._close(error)

    def _close(self, reason: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        self._envelopes.clear()
        self._written = []
        stream, self._stream = self._stream, None
        producer, self._producer = self._producer, None
        if stream is not None:
            stream.unregisterProducer()
        self._receiver.stream_closed(reason)
        if producer is not None:
            producer.stopProducing()
